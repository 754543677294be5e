//! The example plugins, as their toolchains made them: Rust's SDK, which panics on statuses that it
//! does not expect, AssemblyScript's, Go's runtime, and C without any.

use std::path::{Path, PathBuf};

use http::HeaderMap;

use super::*;
use crate::exchange::{Action, Answer, Lent, Phase, RequestHead};
use crate::test_support::{Options, fields};

/// Where `cargo xtask plugins` puts a module.
fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/built");
    folder.join(name).with_extension("wasm")
}

fn started(name: &str, config: &'static str) -> Bench {
    let path = built(name);
    let module = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut options = Options { config, ..Options::default() };
    // Debug builds are slow, and Go's runtime has a lot to start.
    options.policy.cpu = std::time::Duration::from_secs(5);
    Bench::of(module, options).unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

/// Runs a request with these fields through every hook. Returns what is left of it.
fn run(
    bench: &Bench,
    target: &str,
    headers: HeaderMap,
) -> (RequestHead, HeaderMap, String, Option<Answer>) {
    let id = bench.open();
    bench.exchange(id, |exchange| {
        let head = exchange.request.as_mut().unwrap().to_mut();
        head.target = target.to_owned();
        head.headers = headers;
    });
    let hook = |phase, end| bench.instance(|instance| instance.hook(id, phase, end).unwrap());
    assert_eq!(hook(Phase::RequestHead, true), Action::Continue);
    let answer = bench.exchange(id, |exchange| exchange.wishes.answer.take());
    assert_eq!(hook(Phase::ResponseHead, false), Action::Continue);
    for (piece, end) in [("see http://old.ex", false), ("ample/ there", true)] {
        bench.exchange(id, |exchange| exchange.response_body.push(piece.into()));
        let action = hook(Phase::ResponseBody, end);
        assert!(!end || action == Action::Continue);
    }
    let (head, response, body) = bench.exchange(id, |exchange| {
        let head = exchange.request.as_ref().map(Lent::get).unwrap().clone();
        let response = exchange.response.as_ref().unwrap().get().headers.clone();
        let body = exchange.response_body.flatten();
        (head, response, String::from_utf8(body.to_vec()).unwrap())
    });
    bench.instance(|instance| instance.close(id).unwrap());
    (head, response, body, answer)
}

#[test]
fn rust() {
    let config = r#"{"request": {"remove": ["x-debug"], "set": {"x-environment": "production"}},
        "response": {"remove": ["x-b"], "default": {"x-content-type-options": "nosniff"}}}"#;
    let bench = started("header-rewrite", config);
    let (head, response, ..) = run(&bench, "/", fields(&[("x-debug", "1"), ("a", "b")]));
    assert_eq!(head.headers, fields(&[("a", "b"), ("x-environment", "production")]));
    assert!(response.get("x-b").is_none());
    assert_eq!(response["x-content-type-options"], "nosniff");

    let config = r#"{"tokens": {"ci":
        "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}}"#;
    let bench = started("token-check", config);
    let (.., answer) = run(&bench, "/api/", HeaderMap::new());
    assert_eq!(answer.unwrap().status, 401);
    let (.., answer) = run(&bench, "/api/", fields(&[("authorization", "Bearer secret")]));
    assert!(answer.is_none());

    let config = r#"{"replace": {"http://old.example/": "https://new.example/"}}"#;
    let bench = started("body-replace", config);
    let (_, _, body, _) = run(&bench, "/", HeaderMap::new());
    assert_eq!(body, "see https://new.example/ there");

    let config = r#"{"name": "checkout", "variants": [{"name": "new", "percent": 100,
        "prefix": {"from": "/shop", "to": "/shop-new"}}]}"#;
    let bench = started("ab-routing", config);
    let (head, ..) = run(&bench, "/shop/a", HeaderMap::new());
    assert_eq!(head.target, "/shop-new/a");
}

#[test]
fn assembly_script() {
    let bench = started("canonical-query", "");
    let (head, ..) = run(&bench, "/a?b=2&utm_source=x&a=1", HeaderMap::new());
    assert_eq!(head.target, "/a?a=1&b=2");
}

#[test]
fn c() {
    let bench = started("maintenance-c", "path /shop/\nretry-after 600");
    let (.., answer) = run(&bench, "/shop/a", HeaderMap::new());
    assert_eq!(answer.unwrap().status, 503);
    let (.., answer) = run(&bench, "/other", HeaderMap::new());
    assert!(answer.is_none());
}

/// Go's module is megabytes of runtime, and not under version control.
#[test]
fn go() {
    if !built("hello-go").is_file() {
        eprintln!("skipped: hello-go is not built: cargo xtask plugins hello-go");
        return;
    }
    let bench = started("hello-go", r#"{"greeting": "Good morning"}"#);
    let (_, response, ..) = run(&bench, "/", HeaderMap::new());
    assert!(response.values().any(|value| value.as_bytes().starts_with(b"Good morning")));
}
