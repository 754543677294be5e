//! What a pause on proxy-wasm holds back, and what ends it.

use std::time::Duration;

use crate::common::client::Response;
use crate::common::origin::{Origin, Step, answer, ok};
use crate::common::{PATIENCE, wait_for};
use crate::site::{setup, text};
use crate::wasm::proxy_wasm;

/// Callbacks for bodies and trailers that let everything go on, as toolkits have them in every
/// plugin.
const GO_ON: &str = r#"
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
    (func (export "proxy_on_request_trailers") (param i32 i32) (result i32) (i32.const 0))
    (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
    (func (export "proxy_on_response_trailers") (param i32 i32) (result i32) (i32.const 0))"#;

/// Asks `auth` in the callback for a head and pauses there; does `then` when the answer is there.
fn asks(head: &str, then: &str) -> String {
    proxy_wasm(&format!(
        r#"(global $held (mut i32) (i32.const 0))
        (func (export "proxy_on_{head}_headers") (param i32 i32 i32) (result i32)
          (global.set $held (local.get 0))
          (drop (call $proxy_http_call @{{auth}} @map{{:method=GET;:path=/;:authority=auth}}
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 5000)
            (i32.const 520)))
          (i32.const 1))
        (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
          (drop (call $proxy_set_effective_context (global.get $held)))
          {then})
        {GO_ON}"#
    ))
}

/// An upstream that takes its time.
fn slow_auth() -> Origin {
    Origin::start(|_| [vec![Step::Pause(Duration::from_millis(150))], ok("")].concat())
}

fn chunked(content: &str, trailers: &str) -> Vec<u8> {
    format!("{:x}\r\n{content}\r\n0\r\n{trailers}\r\n", content.len()).into_bytes()
}

#[test]
fn content_does_not_get_past_a_head_that_is_held_back() {
    let auth = slow_auth();
    let app = Origin::start(|_| ok("from behind"));
    let module = asks("request", "(call $answer (i32.const 403) @{refused})");
    let site = setup()
        .plugin("p", &module, "allow { upstreams \"auth\"; }")
        .block(&format!("upstream \"auth\" {{ server \"{}\"; }}", auth.url()))
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, app.url()));
    let refused = |response: Response| {
        assert_eq!((response.status, text(&response)), (403, "refused"));
    };
    refused(site.get("/", &[]));
    refused(site.post("/", b"content"));
    refused(site.post("/", &vec![b'x'; 300_000]));
    for trailers in ["", "X-End: 1\r\n"] {
        let mut client = site.connect();
        client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        client.send(&chunked("content", trailers)).unwrap();
        refused(client.response("PUT").unwrap());
    }
    assert!(app.take().is_empty());
}

#[test]
fn a_response_waits_with_its_content_for_what_is_added_to_its_head() {
    let auth = slow_auth();
    let app = Origin::start(|request| match request.line().contains("chunked") {
        false => ok("content"),
        true => {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            vec![Step::Send([head, chunked("content", "X-End: 1\r\n")].concat())]
        }
    });
    let module = asks(
        "response",
        "(drop (call $proxy_add_header_map_value (i32.const 2) @{x-late} @{yes}))
         (drop (call $proxy_continue_stream (i32.const 1)))",
    );
    let site = setup()
        .plugin("p", &module, "allow { upstreams \"auth\"; }")
        .block(&format!("upstream \"auth\" {{ server \"{}\"; }}", auth.url()))
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, app.url()));
    for target in ["/", "/chunked"] {
        let got = site.get(target, &[]);
        assert_eq!((got.header("x-late"), text(&got)), (Some("yes"), "content"), "{target}");
    }
}

#[test]
fn a_body_that_is_held_back_by_itself_outlasts_the_pause_of_its_head() {
    let auth = slow_auth();
    let app = Origin::start(|request| ok(&String::from_utf8_lossy(&request.body)));
    // What is replaced below is not looked through for imports any more.
    let then = "(drop (call $proxy_continue_stream (i32.const 0))) (; $proxy_set_buffer_bytes ;)";
    let module = asks("request", then).replace(
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))"#,
        r#"(func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
          (i32.store (i32.const 600) (i32.const 0x21212121))
          (drop (call $proxy_set_buffer_bytes (i32.const 0) (i32.const 0) (local.get 1)
            (i32.const 600) (i32.const 3)))
          (i32.const 0))"#,
    );
    let site = setup()
        .plugin("p", &module, "allow { upstreams \"auth\"; }")
        .block(&format!("upstream \"auth\" {{ server \"{}\"; }}", auth.url()))
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, app.url()));
    // Its end comes before the word for the head, and after it.
    for wait in [Duration::ZERO, Duration::from_millis(400)] {
        let mut client = site.connect();
        client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        client.send(b"3\r\none\r\n").unwrap();
        std::thread::sleep(wait);
        client.send(&chunked("two", "")).unwrap();
        assert_eq!(text(&client.response("PUT").unwrap()), "!!!", "{wait:?}");
    }
}

#[test]
fn trailers_end_what_holds_a_body_back() {
    // With a callback for trailers, that is the end; without one, the body's is told of it.
    let with = r#"
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then (drop (call $proxy_log (i32.const 2) @{the end too early}))))
          (i32.const 1))
        (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
          (drop (call $proxy_log (i32.const 2) @{trailers are there}))
          (i32.const 0))"#;
    let without = r#"
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (i32.eqz (local.get 2)))"#;
    let app = Origin::start(|_| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n".to_vec();
        let rest = chunked(" two", "X-End: 1\r\n");
        vec![Step::Send(head), Step::Pause(Duration::from_millis(20)), Step::Send(rest)]
    });
    for (code, is_logged) in [(with, true), (without, false)] {
        let site = setup()
            .plugin("p", &proxy_wasm(code), "limits log=100000")
            .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, app.url()));
        let got = site.get("/", &[]);
        assert_eq!(text(&got), "one two");
        let log = site.weir.log();
        assert_eq!(log.contains("trailers are there"), is_logged, "{log}");
        assert!(!log.contains("too early"), "{log}");
    }
}

#[test]
fn sizes_are_known_at_the_end() {
    let size = |of: &str| {
        format!(
            "(if (call $proxy_get_property @{{{of}\0size}} (i32.const 512) (i32.const 516))
               (then (call $add (i32.const 63)))
               (else (call $add (i32.add (i32.const 48)
                 (i32.load8_u (i32.load (i32.const 512)))))))"
        )
    };
    let module = proxy_wasm(&format!(
        r#"(global $at (mut i32) (i32.const 2048))
        (func $add (param i32)
          (i32.store8 (global.get $at) (local.get 0))
          (global.set $at (i32.add (global.get $at) (i32.const 1))))
        {GO_ON}
        (func (export "proxy_on_log") (param i32)
          (global.set $at (i32.const 2048))
          (call $add (i32.const 35)) {} (call $add (i32.const 45)) {} (call $add (i32.const 35))
          (drop (call $proxy_log (i32.const 2) (i32.const 2048) (i32.const 5))))"#,
        size("request"),
        size("response"),
    ));
    let app = Origin::start(|_| answer("200 OK", "", b"12345"));
    let site = setup()
        .plugin("p", &module, "limits log=100000")
        .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, app.url()));
    assert_eq!(text(&site.post("/", b"1234567")), "12345");
    wait_for(PATIENCE, || site.weir.log().contains("#7-5#").then_some(()))
        .unwrap_or_else(|| panic!("no sizes:\n{}", site.weir.log()));
}
