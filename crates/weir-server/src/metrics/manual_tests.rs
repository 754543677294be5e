//! The manual's table of metrics is complete, and holds nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Ready;
use crate::metrics::render::render;

/// Name and type, as `docs/manual/operation.md` shows them and as the page has them.
type Metric = (String, String);

#[test]
fn the_manual_has_every_metric() {
    let listed = listed(include_str!("../../../../docs/manual/operation.md"));
    let rendered = rendered();
    let missing: Vec<_> = rendered.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&rendered).collect();
    assert!(missing.is_empty(), "not in docs/manual/operation.md: {missing:?}");
    assert!(unknown.is_empty(), "in docs/manual/operation.md only: {unknown:?}");
    assert!(rendered.len() > 30, "{rendered:?}");
}

/// Rows such as ``| `weir_requests_total` | counter | …``.
fn listed(manual: &str) -> BTreeSet<Metric> {
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `weir_")?.split_once("` | ")?;
        Some((format!("weir_{name}"), rest.split(" |").next()?.to_owned()))
    };
    manual.lines().filter_map(row).collect()
}

/// `# TYPE name type` of the page that a server renders.
fn rendered() -> BTreeSet<Metric> {
    let text = "server { workers 1; }\n\
                site \"*\" { listen \"127.0.0.1:0\"; route \"/*\" { respond \"\"; }\n}\n";
    let config = weir_config::parse("test.kdl", text).unwrap();
    let server = Ready::new(config).unwrap().start().unwrap();
    let page = render(server.shared());
    server.stop(Duration::ZERO);
    let family = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some((name.to_owned(), kind.to_owned()))
    };
    page.lines().filter_map(family).collect()
}
