//! What is said about wrong configurations. Each file in `tests/errors` holds cases: a title after
//! `===`, a configuration, and after `---` the errors it gets. The files' names say what is put
//! around the configurations. `UPDATE_EXPECT=1 cargo test -p weir-config --test errors` rewrites
//! the errors; read the difference before committing it.

#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::fmt::Write;
use std::fs;
use std::path::Path;

use weir_config::{limits, parse};

/// What stands before and after a configuration, so that the cases of a file show only what they
/// are about. Whatever stands before is line 1.
fn around(file: &str) -> (&'static str, &'static str) {
    const SITE: &str =
        "\n}\nsite \"z.example\" { listen \":9\"; route \"/*\" { files \"srv\"; }; }";
    match file {
        "server" => ("server {\n", SITE),
        "cache" => ("cache {\n", SITE),
        "plugins" => ("plugins {\n", SITE),
        "upstream" => ("upstream \"app\" {\n", SITE),
        "upstreams" => ("", SITE.trim_start_matches("\n}")),
        "plugin" => {
            ("upstream \"app\" { server \"http://a.example\"; }; plugin \"gray\" {\n", SITE)
        }
        "guard" => ("guard {\n", SITE),
        "adapt" => ("adapt {\n", SITE),
        "icap" => ("icap \"scanner\" {\n", SITE),
        "rule" => (
            "guard { class \"gold\" priority=1; list \"crawlers\" \"a\"; rule \"x\" {\n",
            "\n}; }\nsite \"z.example\" \"www.z.example\" { listen \":9\"; \
             route \"/*\" { files \"srv\"; }; }",
        ),
        "site" => ("site \"a.example\" {\n", "\nroute \"/z/*\" { files \"srv\"; }\n}"),
        "route" => (
            "upstream \"app\" { server \"http://a.example\"; }; \
             site \"a.example\" { listen \":80\"; route \"/a/*\" {\n",
            "\n}; }",
        ),
        "html" | "image" => (
            "site \"a.example\" { listen \":80\"; route \"/a/*\" { proxy \"http://a.example\"\n",
            "\n}; }",
        ),
        "forward" => {
            ("site \"*\" { listen \"127.0.0.1:3128\"; route \"/*\" { forward {\n", "\n}; }; }")
        }
        _ => ("", ""),
    }
}

/// The first line of each error, without the file's name.
fn headlines(file: &str, input: &str) -> String {
    let (before, after) = around(file);
    let text = format!("{before}{input}{after}");
    let Err(errors) = parse("weir.kdl", &text) else { return "no error\n".to_owned() };
    let mut lines = String::new();
    for error in &errors {
        let shown = error.to_string();
        let line = shown.lines().next().unwrap().trim_start_matches("weir.kdl:");
        writeln!(lines, "{line}").unwrap();
    }
    lines
}

/// Runs the cases of a file; returns the file as it should be, and the number of cases.
fn run(path: &Path) -> (String, usize) {
    let file = path.file_stem().unwrap().to_str().unwrap();
    let text = fs::read_to_string(path).unwrap();
    let mut actual = String::new();
    let mut cases = 0;
    for case in text.split("=== ").filter(|case| !case.trim().is_empty()) {
        let (title, rest) = case.split_once('\n').unwrap();
        let (input, _) = rest.split_once("\n---").unwrap_or((rest.trim_end(), ""));
        write!(actual, "=== {title}\n{input}\n---\n{}\n", headlines(file, input)).unwrap();
        cases += 1;
    }
    (actual, cases)
}

#[test]
fn errors_say_what_is_wrong() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut total = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let (actual, cases) = run(&path);
        total += cases;
        assert!(!actual.contains("\nno error\n"), "a case of {path:?} is accepted:\n{actual}");
        if update {
            fs::write(&path, &actual).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        assert_eq!(actual, expected, "{}", path.display());
    }
    assert!(total >= 150, "only {total} cases were found");
}

fn shown(text: &str) -> String {
    parse("conf/weir.kdl", text).unwrap_err().to_string()
}

#[test]
fn an_error_shows_its_line_with_a_caret() {
    let text = "site \"a.example\" {\n\tlisen \":80\"\n    listen \":80\"\n    \
                route \"/*\" { files \"srv\"; }\n}\n";
    assert_eq!(
        shown(text),
        "conf/weir.kdl:2:2: unknown key \"lisen\" in site; did you mean \"listen\"? expected one \
         of listen, certificate, access-log, use, route\n  \
         |\n2 | \tlisen \":80\"\n  | \t^^^^^"
    );
}

#[test]
fn columns_count_characters() {
    let text = "site \"a.example\" { listen \":80\"; route \"/*\" { respond \"é€😀\" stat=1; }; }";
    let errors = parse("weir.kdl", text).unwrap_err();
    let error = errors.iter().next().unwrap();
    let column = text.split("stat").next().unwrap().chars().count() + 1;
    assert_eq!((error.line, error.column), (1, column));
}

#[test]
fn errors_are_json_for_programs() {
    let errors = parse("weir.kdl", "servr { }").unwrap_err();
    let json = serde_json::to_value(&errors).unwrap();
    assert_eq!(
        json,
        serde_json::json!([{
            "file": "weir.kdl", "line": 1, "column": 1,
            "message": "unknown key \"servr\" in the file",
            "expected": ["server", "cache", "upstream", "plugins", "plugin", "guard", "adapt", "icap", "site"],
            "suggestion": "server",
        }])
    );
}

#[test]
fn an_error_writes_no_escape_codes_to_the_terminal() {
    for text in ["site \"a\u{1b}[31m\" {}", "site \"a\" { route \"a\\u{1b}[31m\" {}\n}"] {
        let errors = shown(text);
        assert!(!errors.contains('\u{1b}'), "{errors:?}");
    }
}

#[test]
fn many_errors_are_counted() {
    let errors = parse("weir.kdl", &"wrong\n".repeat(1000)).unwrap_err();
    assert_eq!(errors.len(), limits::ERRORS_MAX);
    let last = errors.iter().last().unwrap().to_string();
    assert!(last.starts_with("weir.kdl: and ") && last.ends_with(" more errors"), "{last}");
}

#[test]
fn limits_hold() {
    let large = " ".repeat(limits::FILE_SIZE_MAX + 1);
    assert!(shown(&large).contains("larger than 4MiB"));
    let names: String = (0..=limits::NAMES_MAX).map(|number| format!(" \"n{number}\"")).collect();
    let site = format!("site {names} {{ listen \":80\"; route \"/*\" {{ respond \"\"; }}; }}");
    assert!(shown(&site).contains("more than 1000 names"));
    let edits = "set \"a\" \"b\"; ".repeat(limits::HEADER_EDITS_MAX + 1);
    let route = format!("route \"/*\" {{ respond \"\"; header {{ {edits} }}; }}");
    let site = format!("site \"a\" {{ listen \":80\"; {route}; }}");
    assert!(shown(&site).contains("more than 1000 edits"));
    let uses = "use \"a\"; ".repeat(limits::USES_MAX + 1);
    let site = format!("site \"a\" {{ listen \":80\"; route \"/*\" {{ respond \"\"; {uses} }}; }}");
    assert!(shown(&site).contains("more than 64 `use` lines"));
    let block = |number| format!("plugin \"p{number}\" {{ source \"p\"; }}\n");
    let plugins: String = (0..=limits::PLUGINS_MAX).map(block).collect();
    assert!(shown(&plugins).contains("more than 1000 plugins"));
    let large = "x".repeat(limits::PLUGIN_CONFIG_MAX + 1);
    let plugin = format!("plugin \"a\" {{ source \"a\"; config \"{large}\"; }}");
    assert!(shown(&plugin).contains("it is larger than 1MiB"));
    let names: String = (0..=limits::ALLOWED_MAX).map(|number| format!(" \"n{number}\"")).collect();
    let plugin = format!("plugin \"a\" {{ source \"a\"; allow {{ shared {names}; }}; }}");
    assert!(shown(&plugin).contains("more than 1000 names"));
    let names: String = (0..=limits::TYPES_MAX).map(|number| format!(" \"a/n{number}\"")).collect();
    let route = format!("route \"/*\" {{ files \"a\"; compress {{ types {names}; }}; }}");
    let site = format!("site \"a\" {{ listen \":80\"; {route}; }}");
    assert!(shown(&site).contains("more than 100 types"));
    let line = |number| format!("environment \"N{number}\" \"\"\n");
    let lines: String = (0..=limits::ALLOWED_MAX).map(line).collect();
    let plugin = format!("plugin \"a\" {{ source \"a\"; allow {{\n{lines}}}; }}");
    assert!(shown(&plugin).contains("more than 1000 names"));
    let long = "a".repeat(limits::SELECTOR_MAX);
    let rules = format!("remove \"{long}\"; ").repeat(limits::HTML_TEXTS_MAX / long.len() + 1);
    let route = format!("route \"/*\" {{ files \"a\"; html {{ {rules} }}; }}");
    let site = format!("site \"a\" {{ listen \":80\"; {route}; }}");
    assert!(shown(&site).contains("its selectors, names and texts come to 50176 bytes, of 49152"));
}

/// Each of these overflows the stack of `kdl` alone.
#[test]
fn hostile_texts_are_refused_or_parsed_in_bounded_space() {
    for text in [
        "a)".repeat(60_000),
        "a}".repeat(60_000),
        "a{".repeat(60_000),
        "/*".repeat(60_000),
        "a \"\"\"\n".repeat(20_000),
        "a/- ".repeat(20_000),
        format!("/*{}*/ wrong", "*".repeat(60_000)),
        format!("{} wrong", "/- a { ".repeat(8) + &"} ".repeat(8)),
    ] {
        assert!(parse("weir.kdl", &text).is_err());
    }
}
