//! HTTP/2 conformance by h2spec, all of its cases, in cleartext and over TLS.

mod common;

use std::process::Command;

use common::server::Weir;
use common::{free_address, tools};

#[test]
fn cleartext() {
    conforms(&[]);
}

#[test]
fn tls() {
    conforms(&["--tls", "--insecure"]);
}

fn conforms(options: &[&str]) {
    let Some(h2spec) = tools::find_or_skip("h2spec") else { return };
    let address = free_address();
    let tls = if options.contains(&"--tls") { "tls=\"self-signed\"" } else { "" };
    // h2spec posts small bodies and reads answers that take more than one frame.
    let body = "weir ".repeat(200);
    let config = format!(
        r#"
        server {{ workers 1; admin "off"; }}
        site "*" {{
            listen "{address}" {tls}
            route "/*" {{ respond "{body}"; }}
        }}
        "#
    );
    let mut weir = Weir::run(&config, &[address]);
    let output = Command::new(h2spec)
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--timeout", "4"])
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
    // Of 146 cases one is skipped by design; fewer would mean that whole groups did not run.
    assert!(count("passed") >= 140, "{summary}");
    assert!(weir.is_running());
}
