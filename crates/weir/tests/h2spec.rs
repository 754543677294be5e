//! HTTP/2 conformance by h2spec, all of its cases: files, a proxied origin and a fixed answer,
//! in cleartext and over TLS.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::process::Command;

use common::origin::{self, Origin};
use common::server::Weir;
use common::{free_address, tools};

/// What h2spec asks for takes more than one frame.
const BODY_LEN: usize = 3000;

#[test]
fn files_in_cleartext() {
    conforms("/", &[]);
}

#[test]
fn files_over_tls() {
    conforms("/", &["--tls", "--insecure"]);
}

#[test]
fn proxied_in_cleartext() {
    conforms("/proxied", &[]);
}

#[test]
fn proxied_over_tls() {
    conforms("/proxied", &["--tls", "--insecure"]);
}

#[test]
fn fixed_in_cleartext() {
    conforms("/fixed", &[]);
}

fn conforms(path: &str, options: &[&str]) {
    let Some(h2spec) = tools::find_or_skip("h2spec") else { return };
    let address = free_address();
    let tls = if options.contains(&"--tls") { "tls=\"self-signed\"" } else { "" };
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("index.html"), "x".repeat(BODY_LEN)).unwrap();
    let origin = Origin::start(|_| origin::ok(&"x".repeat(BODY_LEN)));
    let config = format!(
        r#"
        server {{ workers 1; admin "off"; }}
        site "*" {{
            listen "{address}" {tls}
            route "/proxied" {{ proxy "{1}"; }}
            route "/fixed" {{ respond "{0}"; }}
            route "/*" {{ files "."; }}
        }}
        "#,
        "x".repeat(BODY_LEN),
        origin.url()
    );
    let mut weir = Weir::run_in(directory, &config, &[address]);
    let output = Command::new(h2spec)
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--path", path, "--timeout", "4"])
        .args(options)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{report}", String::from_utf8_lossy(&output.stderr));
    let summary = report.lines().rev().find(|line| line.contains(" tests, ")).unwrap_or_default();
    let count = |what: &str| {
        let words: Vec<&str> = summary.split([' ', ',']).filter(|w| !w.is_empty()).collect();
        let at = words.iter().position(|word| *word == what).expect(summary);
        words[at - 1].parse::<u32>().unwrap()
    };
    assert_eq!(count("failed"), 0, "{report}");
    // There are 145; fewer would mean that whole groups did not run.
    assert!(count("passed") >= 140, "{summary}");
    assert!(weir.is_running());
}
