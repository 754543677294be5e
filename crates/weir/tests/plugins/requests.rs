//! Bodies of requests: seen and changed while they pass, held until they are complete, refused.

use crate::common::client::Response;
use crate::common::origin::{Origin, answer, ok};
use crate::site::{Site, post, setup, text};
use crate::wasm::{own, proxy_wasm};

fn upper(want: u32) -> String {
    own(&format!(
        r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{WANT {want}}})
        (func (export "weir_on_request_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))"#
    ))
}

/// The head waits for the body's end, and both go on together.
fn held() -> String {
    proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (i32.eqz (local.get 2)))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
          (call $upper_body (i32.const 0))
          (drop (call $proxy_add_header_map_value (i32.const 0) @{x-held} @{1}))
          (drop (call $proxy_continue_stream (i32.const 0)))
          (i32.const 0))"#,
    )
}

fn streaming() -> String {
    proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (call $upper_body (i32.const 0))
          (i32.const 0))"#,
    )
}

fn front(module: &str, lines: &str) -> (Site, Origin) {
    front_with(module, "", lines)
}

fn front_with(module: &str, policy: &str, lines: &str) -> (Site, Origin) {
    let origin = Origin::start(|request| ok(&request.body.len().to_string()));
    let site = setup().plugin("p", module, policy).run(&format!(
        r#"route "/r/*" {{ respond "fixed"; use "p"; {lines}; }}
        route "/*" {{ proxy "{}"; use "p"; {lines}; }}"#,
        origin.url()
    ));
    (site, origin)
}

fn letters(count: usize) -> Vec<u8> {
    (0..count).map(|n| b'a' + (n % 23) as u8).collect()
}

fn post_chunked(site: &Site, target: &str, body: &[u8]) -> Response {
    let mut client = site.connect();
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    for part in body.chunks(10_000) {
        let chunk = [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        client.send(&chunk).unwrap();
    }
    client.send(b"0\r\n\r\n").unwrap();
    client.response("POST").unwrap()
}

#[test]
fn bodies_are_changed_on_their_way_to_the_origin() {
    let modules = [
        ("own, pieces", upper(1)),
        ("own, whole", upper(2)),
        ("proxy-wasm, held", held()),
        ("proxy-wasm, pieces", streaming()),
    ];
    for (name, module) in modules {
        let (site, origin) = front(&module, "");
        let mut client = site.connect();
        for size in [0, 1, 1000, 70_000, 600_000] {
            let sent = letters(size);
            let got = post(&mut client, "/a", &sent);
            assert_eq!((got.status, text(&got)), (200, &*size.to_string()), "{name} {size}");
            assert_eq!(post_chunked(&site, "/a", &sent).status, 200, "{name} {size}");
            for request in origin.take() {
                assert!(request.body == sent.to_ascii_uppercase(), "{name} {size}");
                if name.contains("held") && size > 0 {
                    assert_eq!(request.values("x-held"), ["1"], "{size}");
                }
            }
        }
        // And GET has none.
        assert_eq!(text(&client.ask("GET", "/a", &[]).unwrap()), "0", "{name}");
        assert_eq!(origin.take_oddities(), [""; 0], "{name}");
    }
}

#[test]
fn the_origin_is_not_asked_before_a_held_body_is_complete() {
    let (site, origin) = front(&held(), "");
    let mut client = site.connect();
    client
        .send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    let interim = client.head().unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", interim.escape_ascii());
    client.send(b"abc").unwrap();
    // Others are served meanwhile.
    assert_eq!(site.get("/b", &[]).status, 200);
    assert_eq!(origin.take().len(), 1);
    client.send(b"def").unwrap();
    assert_eq!(client.response("POST").unwrap().status, 200);
    assert_eq!(origin.take()[0].body, b"ABCDEF");
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_judged() {
    let route = "route \"/*\" { respond \"in\"; use \"p\"; limits body-size=\"64KiB\"; }";
    let site = setup().plugin("p", &held(), "on-failure \"pass\"").run(route);
    let got = post_chunked(&site, "/", &letters(90_000));
    assert_eq!(got.status, 413, "{}", text(&got));
    assert_eq!(post_chunked(&site, "/", &letters(9_000)).status, 200);
}

#[test]
fn a_body_beyond_the_routes_limit_is_refused_also_while_it_is_held() {
    for module in [held(), streaming(), upper(1), upper(2)] {
        let (site, origin) = front(&module, "limits body-size=\"64KiB\"");
        for target in ["/a", "/b"] {
            assert_eq!(post_chunked(&site, target, &letters(50_000)).status, 200);
            origin.take();
            let got = post_chunked(&site, target, &letters(90_000));
            assert_eq!(got.status, 413, "{target}");
        }
        assert_eq!(site.get("/a", &[]).status, 200);
    }
}

#[test]
fn what_a_plugin_may_hold_of_a_body_has_an_end() {
    let size = (16 << 20) + 100_000;
    let sent = letters(size);
    for (module, policy) in [(held(), "pass"), (held(), "fail"), (upper(2), "fail")] {
        let limits = format!("limits memory=\"64MiB\"; on-failure \"{policy}\"");
        let (site, origin) = front_with(&module, &limits, "limits body-size=\"64MiB\"");
        let mut client = site.connect();
        let head = format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        client.send(head.as_bytes()).unwrap();
        // An answer may come before all of it is sent.
        let _ = client.send(&sent);
        let got = client.response("POST");
        match policy {
            "pass" => {
                assert_eq!(text(&got.unwrap()), size.to_string());
                assert!(origin.take()[0].body == sent, "the body is as it came");
            }
            _ => {
                assert_eq!(got.unwrap().status, 500);
                assert!(origin.take().is_empty());
            }
        }
        assert_eq!(site.get("/a", &[]).status, 200);
    }
}

#[test]
fn a_plugin_answers_when_it_has_seen_the_body() {
    let own = own(r#"
        (func (export "weir_on_request") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_request_body") (param i32) (result i64)
          (if (i32.eqz (i32.load offset=100 (local.get 0))) (then (return (i64.const 0))))
          (if (i32.eq (i32.load8_u (i32.load offset=96 (local.get 0))) (i32.const 120))
            (then (return @edits{ANSWER 422;BODY no x})))
          (i64.const 0))"#);
    let wasm = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (i32.eqz (local.get 2)))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (i32.store (i32.const 516) (i32.const 0))
          (drop (call $proxy_get_buffer_bytes (i32.const 0) (i32.const 0) (i32.const 1)
                      (i32.const 512) (i32.const 516)))
          (if (i32.eqz (i32.load (i32.const 516))) (then (return (i32.const 0))))
          (if (i32.eq (i32.load8_u (i32.load (i32.const 512))) (i32.const 120)) (then
            (call $answer (i32.const 422) @{no x})
            (return (i32.const 1))))
          (drop (call $proxy_continue_stream (i32.const 0)))
          (i32.const 0))"#,
    );
    for (name, module) in [("own", own), ("proxy-wasm", wasm)] {
        let (site, origin) = front(&module, "");
        let mut client = site.connect();
        assert_eq!(post(&mut client, "/a", b"abc").status, 200, "{name}");
        let got = post(&mut client, "/a", b"xyz");
        assert_eq!((got.status, text(&got)), (422, "no x"), "{name}");
        if !got.says_close() {
            assert_eq!(post(&mut client, "/a", b"abc").status, 200, "{name}");
        }
        origin.take();
        // Also in the place of a large body that is still coming.
        let mut client = site.connect();
        client.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nxyz").unwrap();
        let got = client.response("POST").unwrap();
        assert_eq!((got.status, text(&got)), (422, "no x"), "{name}");
    }
}

#[test]
fn a_plugin_without_leave_sees_no_bodies() {
    let origin = Origin::start(|request| answer("200 OK", "", &request.body));
    let site = setup()
        .plugin("p", &held(), "allow { bodies \"none\"; }")
        .plugin("q", &streaming(), "allow { bodies \"response\"; }")
        .run(&format!(
            r#"route "/q" {{ proxy "{0}"; use "q"; }}
            route "/*" {{ proxy "{0}"; use "q"; }}"#,
            origin.url()
        ));
    for target in ["/q", "/p"] {
        let got = site.post(target, b"content");
        assert_eq!((got.status, text(&got)), (200, "content"), "{target}");
    }
}
