//! Reloads that change plugins while requests run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::client::Client;
use crate::site::{setup, text};
use crate::wasm::{own, proxy_wasm};

/// Marks responses; the request may be held for a while.
fn marking(version: usize) -> String {
    match version % 2 {
        0 => own(&format!(
            r#"(func (export "weir_on_request") (param i32) (result i64)
              (if (i32.and (call $flags (local.get 0)) (i32.const 32))
                (then (return (i64.const 0))))
              (if (call $target (local.get 0) @{{/held}}) (then (return @edits{{HOLD 20}})))
              (i64.const 0))
            (func (export "weir_on_response") (param i32) (result i64)
              @edits{{SET x-version={version}}})"#
        )),
        _ => proxy_wasm(&format!(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
              (i32.const 0))
            (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
              (drop (call $proxy_add_header_map_value (i32.const 2) @{{x-version}} @{{{version}}}))
              (i32.const 0))"#
        )),
    }
}

/// Ends the others when one thread's test fails.
struct EndOnPanic<'a>(&'a AtomicBool);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

#[test]
fn plugins_change_without_a_lost_request() {
    const ROUTES: &str = r#"route "/*" { respond "fine"; use "p"; }"#;
    let site = setup().plugin("p", &marking(0), "").run(ROUTES);
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = EndOnPanic(&is_over);
        for n in 0..4 {
            let (site, is_over, count) = (&site, &is_over, &count);
            scope.spawn(move || {
                let target = if n % 2 == 0 { "/held" } else { "/a" };
                let mut client = Client::connect(site.address).unwrap();
                let _end = EndOnPanic(is_over);
                while !is_over.load(SeqCst) {
                    let got = client.ask("GET", target, &[]).unwrap();
                    assert_eq!((got.status, text(&got)), (200, "fine"));
                    assert!(got.header("x-version").is_some(), "no plugin saw it");
                    count.fetch_add(1, SeqCst);
                }
            });
        }
        for version in 1..=8 {
            let wat = site.weir.directory().join("p.wat");
            std::fs::write(wat, marking(version)).unwrap();
            let reloaded = site.reload("", ROUTES);
            assert_eq!(reloaded.0, 200, "{}", reloaded.1);
            let got = site.get("/a", &[]);
            assert_eq!(got.header("x-version"), Some(&*version.to_string()));
        }
        is_over.store(true, SeqCst);
    });
    assert!(count.into_inner() > 20);
}

#[test]
fn a_reload_with_a_bad_plugin_changes_nothing() {
    const ROUTES: &str = r#"route "/*" { respond "fine"; use "p"; }"#;
    let site = setup().plugin("p", &marking(0), "").run(ROUTES);
    let bad = [
        ("(module", "not a WebAssembly module"),
        ("(module)", "interface"),
        (
            &own("").replacen("(memory", "(import \"env\" \"nothing\" (func)) (memory", 1)[..],
            "env.nothing",
        ),
        (
            &own("(func (export \"weir_on_nothing\") (param i32) (result i64) (i64.const 0))")[..],
            "weir_on_nothing",
        ),
        (
            &own("(func (export \"weir_configure\") (param i32 i32) (result i32) (i32.const 1))")[..],
            "refused",
        ),
        (&own("(func (export \"_initialize\") (unreachable))")[..], "start"),
    ];
    for (module, why) in bad {
        std::fs::write(site.weir.directory().join("p.wat"), module).unwrap();
        let (status, said) = site.reload("", ROUTES);
        assert!((400..600).contains(&status), "{why}: {status} {said}");
        assert!(said.contains(why), "{why}: {said}");
        assert_eq!(site.get("/a", &[]).header("x-version"), Some("0"), "{why}");
    }
    std::fs::write(site.weir.directory().join("p.wat"), marking(2)).unwrap();
    // Nor one that is not there.
    let (status, said) = site.reload("", r#"route "/*" { respond "fine"; use "q"; }"#);
    assert!((400..600).contains(&status) && said.contains("\\\"q\\\""), "{status} {said}");
    assert_eq!(site.reload("", ROUTES).0, 200);
    assert_eq!(site.get("/a", &[]).header("x-version"), Some("2"));
    // And away.
    assert_eq!(site.reload("", r#"route "/*" { respond "fine"; }"#).0, 200);
    assert_eq!(site.get("/a", &[]).header("x-version"), None);
}
