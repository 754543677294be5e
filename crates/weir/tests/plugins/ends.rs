//! How requests end when a plugin ends them or fails: what the client gets, and that the plugin is
//! not asked again.

use crate::common::origin::{Origin, ok};
use crate::protocols::over_http2;
use crate::site::{Site, post, setup, text};
use crate::wasm::{own, proxy_wasm};

fn front(module: &str, lines: &str) -> (Site, Origin) {
    let origin = Origin::start(|request| ok(&request.body.len().to_string()));
    let site = setup().plugin("p", module, lines).run(&format!(
        r#"route "/r/*" {{ respond "fixed"; use "p"; }}
        route "/c/*" {{ proxy "{0}"; cache ttl="1m"; use "p"; }}
        route "/*" {{ proxy "{0}"; cache "off"; use "p"; }}"#,
        origin.url()
    ));
    (site, origin)
}

/// Logs when it sees a response.
const SEES_RESPONSES: &str = r#"
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
      (drop (call $proxy_log (i32.const 2) @{a response was seen}))
      (i32.const 0))"#;

const OWN_SEES_RESPONSES: &str = r#"
    (func (export "weir_on_response") (param i32) (result i64)
      (drop (call $log (i32.const 2) @{a response was seen}))
      (i64.const 0))"#;

fn saw_a_response(site: &Site) -> bool {
    site.weir.log().contains("a response was seen")
}

#[test]
fn a_request_that_a_plugin_closes_has_no_response_to_see() {
    let wasm = proxy_wasm(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_close_stream (i32.const 0))) (i32.const 1))
        {SEES_RESPONSES}"#
    ));
    let own = own(&format!(
        r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{CLOSE}})
        {OWN_SEES_RESPONSES}"#
    ));
    for module in [wasm, own] {
        let (site, origin) = front(&module, "");
        for target in ["/a", "/r/a", "/c/a"] {
            let got = site.connect().ask("GET", target, &[]);
            assert!(got.is_err(), "{target}: {got:?}");
            assert!(over_http2(&site, "GET", target, "").is_err(), "{target}");
        }
        assert!(origin.take().is_empty());
        assert!(!saw_a_response(&site), "{}", site.weir.log());
    }
}

#[test]
fn a_request_that_is_closed_in_its_body_gets_no_answer() {
    let wasm = proxy_wasm(&format!(
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (drop (call $proxy_close_stream (i32.const 0))) (i32.const 1))
        {SEES_RESPONSES}"#
    ));
    let own = own(&format!(
        r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{WANT 1}})
        (func (export "weir_on_request_body") (param i32) (result i64) @edits{{CLOSE}})
        {OWN_SEES_RESPONSES}"#
    ));
    for module in [wasm, own] {
        let (site, _origin) = front(&module, "");
        let mut client = site.connect();
        client.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").unwrap();
        let got = client.response("POST");
        assert!(got.is_err(), "{got:?}");
        assert!(over_http2(&site, "POST", "/a", "abc").is_err());
        assert!(!saw_a_response(&site), "{}", site.weir.log());
        // Others are not concerned.
        assert_eq!(over_http2(&site, "POST", "/a", "").unwrap().status, 200);
    }
}

#[test]
fn a_failure_over_a_requests_body_is_answered_with_500() {
    let wasm = proxy_wasm(&format!(
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) unreachable)
        {SEES_RESPONSES}"#
    ));
    let own = own(&format!(
        r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{WANT 1}})
        (func (export "weir_on_request_body") (param i32) (result i64) unreachable)
        {OWN_SEES_RESPONSES}"#
    ));
    for module in [wasm, own] {
        let (site, _origin) = front(&module, "on-failure \"fail\"");
        let got = post(&mut site.connect(), "/a", b"abc");
        assert_eq!((got.status, text(&got)), (500, "500 Internal Server Error: a plugin failed\n"));
        assert!(!saw_a_response(&site), "{}", site.weir.log());
    }
}

#[test]
fn a_failure_in_a_later_hook_is_answered_with_500() {
    for hook in ["lookup", "miss", "hit"] {
        let module = own(&format!(
            r#"(func (export "weir_on_{hook}") (param i32) (result i64)
              (if (call $target (local.get 0) @{{/c/good}}) (then (return (i64.const 0))))
              unreachable)
            {OWN_SEES_RESPONSES}"#
        ));
        let (site, _origin) = front(&module, "on-failure \"fail\"");
        if hook == "hit" {
            assert_eq!(site.get("/c/a", &[]).status, 200);
        }
        let got = site.get("/c/a", &[]);
        assert_eq!((got.status, text(&got)), (500, "500 Internal Server Error: a plugin failed\n"));
        let seen = site.weir.log().matches("a response was seen").count();
        assert_eq!(seen, usize::from(hook == "hit"), "{hook}: {}", site.weir.log());
    }
}

#[test]
fn a_failure_over_a_responses_body_breaks_it_off() {
    let wasm = proxy_wasm(
        r#"(func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) unreachable)"#,
    );
    let own = own(r#"
        (func (export "weir_on_response") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64) unreachable)"#);
    for module in [wasm, own] {
        let (site, _origin) = front(&module, "on-failure \"fail\"");
        // Its head was let go before the body was looked at.
        let got = site.connect().ask("GET", "/a", &[]);
        assert!(got.is_err(), "{got:?}");
        assert!(over_http2(&site, "GET", "/a", "").is_err());
    }
}
