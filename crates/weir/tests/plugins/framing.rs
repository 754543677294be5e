//! How messages are framed, whatever plugins say of it: lengths that are none or not true, statuses
//! without content, and trailers.

use crate::common::client::Client;
use crate::common::origin::{Origin, Step, answer};
use crate::protocols::over_http2;
use crate::site::{Site, post, setup, text};
use crate::wasm::{own, proxy_wasm};

/// What the origin answers.
const BODY: &str = "sixteen letters.";

/// Every kind of source, at delivery and at the fill.
const TARGETS: [&str; 7] = ["/u/a", "/c/a", "/c/a", "/f/a.txt", "/r/a", "/fill/a", "/fill/a"];

fn front(module: &str) -> (Site, Origin) {
    let origin = Origin::start(|request| {
        let line = request.line();
        match line.split(' ').nth(1).unwrap_or_default() {
            "/trailers" => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-old\r\n\r\n\
                  10\r\nsixteen letters.\r\n0\r\nX-Old: 1\r\n\r\n"
                    .to_vec(),
            )],
            "/chunked" => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  10\r\nsixteen letters.\r\n0\r\n\r\n"
                    .to_vec(),
            )],
            _ if line.starts_with("HEAD") => vec![Step::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nCache-Control: max-age=60\r\n\r\n"
                    .to_vec(),
            )],
            _ => answer("200 OK", "Cache-Control: max-age=60\r\n", BODY.as_bytes()),
        }
    });
    let site = setup().plugin("p", module, "").file("www/f/a.txt", BODY.as_bytes()).run(&format!(
        r#"route "/u/*" {{ proxy "{0}"; cache "off"; use "p"; }}
            route "/c/*" {{ proxy "{0}"; use "p"; }}
            route "/fill/*" {{ proxy "{0}"; use "p" at="fill"; }}
            route "/f/*" {{ files "www"; use "p"; }}
            route "/r/*" {{ respond "{BODY}"; use "p"; }}
            route "/*" {{ proxy "{0}"; cache "off"; use "p"; limits body-buffer=0; }}"#,
        origin.url()
    ));
    (site, origin)
}

/// A proxy-wasm plugin that does this with a response's head, and sees its body.
fn at_head(code: &str) -> String {
    proxy_wasm(&format!(
        r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          {code} (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))"#
    ))
}

fn replaces(map: u32, name: &str, value: &str) -> String {
    format!(
        "(drop (call $proxy_replace_header_map_value (i32.const {map}) @{{{name}}} @{{{value}}}))"
    )
}

fn adds(map: u32, name: &str, value: &str) -> String {
    format!("(drop (call $proxy_add_header_map_value (i32.const {map}) @{{{name}}} @{{{value}}}))")
}

fn removes(map: u32, name: &str) -> String {
    format!("(drop (call $proxy_remove_header_map_value (i32.const {map}) @{{{name}}}))")
}

/// Over the fast lane, over hyper's, and over HTTP/2: status, lines of Content-Length, body.
fn all_ways(site: &Site, method: &str, target: &str) -> Vec<(u16, Vec<String>, String)> {
    let mut seen = Vec::new();
    for fields in [&[][..], &[("TE", "trailers")]] {
        let mut client = site.connect();
        // The connection is in order afterwards.
        for _ in 0..2 {
            let got = client.ask(method, target, fields);
            let got = got.unwrap_or_else(|e| panic!("{method} {target} {fields:?}: {e}"));
            let lines = got.headers.iter().filter(|(name, _)| name == "content-length");
            let lines = lines.map(|(_, value)| value.clone()).collect();
            seen.push((got.status, lines, text(&got).to_owned()));
        }
        assert_eq!(client.pending(), 0, "{method} {target}");
    }
    let got = over_http2(site, method, target, "");
    let got = got.unwrap_or_else(|e| panic!("{method} {target} over HTTP/2: {e}"));
    let lines = got.headers.get_all("content-length").iter();
    let lines = lines.map(|value| value.to_str().unwrap().to_owned()).collect();
    seen.push((got.status, lines, String::from_utf8(got.body.to_vec()).unwrap()));
    seen
}

#[test]
fn a_length_that_is_none_is_left_out() {
    for (value, expect) in [
        ("abc", None),
        ("+16", None),
        ("3,3", None),
        ("", None),
        ("99999999999999999999", None),
        ("0016", Some("16")),
        ("16", Some("16")),
    ] {
        let (site, _origin) = front(&at_head(&replaces(2, "content-length", value)));
        for target in TARGETS {
            for (status, lines, body) in all_ways(&site, "GET", target) {
                assert_eq!((status, &*body), (200, BODY), "{value:?} {target}");
                let is_right = lines.is_empty() || lines == ["16"];
                assert!(is_right, "{value:?} {target}: {lines:?}");
                if target.starts_with("/u") {
                    assert_eq!(lines.first().map(String::as_str), expect, "{value:?}");
                }
            }
        }
        let is_told = site.weir.log().contains("is no length; the field is left out");
        assert_eq!(is_told, expect.is_none(), "{value:?}: {}", site.weir.log());
    }
    // Two of them.
    let (site, _origin) = front(&at_head(&adds(2, "content-length", "3")));
    for (status, lines, body) in all_ways(&site, "GET", "/u/a") {
        assert_eq!((status, lines.len(), &*body), (200, 0, BODY));
    }
    site.weir.wait_for_log("content-length \"16, 3\" is no length");
}

#[test]
fn a_length_that_is_not_true_breaks_the_response_off() {
    for length in ["7", "15", "17", "1000"] {
        let (site, _origin) = front(&at_head(&replaces(2, "content-length", length)));
        for target in ["/u/a", "/c/a", "/c/a", "/f/a.txt", "/chunked", "/fill/a", "/fill/a"] {
            for fields in [&[][..], &[("TE", "trailers")]] {
                let got = site.connect().ask("GET", target, fields);
                assert!(got.is_err(), "{length} {target} {fields:?}: {got:?}");
            }
            let got = over_http2(&site, "GET", target, "");
            assert!(got.is_err(), "{length} {target}: {got:?}");
        }
        site.weir.wait_for_log("than its content-length of");
    }
    // A plugin that does not see the body has no say.
    let blind = proxy_wasm(&format!(
        r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          {} (i32.const 0))"#,
        replaces(2, "content-length", "7")
    ));
    let (site, _origin) = front(&blind);
    for target in TARGETS {
        for (status, lines, body) in all_ways(&site, "GET", target) {
            assert_eq!((status, &*body), (200, BODY), "{target}");
            assert!(lines.is_empty() || lines == ["16"], "{target}: {lines:?}");
        }
    }
}

#[test]
fn a_status_without_content_has_none() {
    let own_status = |status: u16, want: u32| {
        own(&format!(
            r#"(func (export "weir_on_response") (param i32) (result i64)
              @edits{{STATUS {status};WANT {want}}})
            (func (export "weir_on_response_body") (param i32) (result i64) (i64.const 0))"#
        ))
    };
    let local = |status: u16| {
        proxy_wasm(&format!(
            r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
              (call $answer (i32.const {status}) @{{some content}}) (i32.const 0))"#
        ))
    };
    let blind = |status: u16| {
        own(&format!(
            r#"(func (export "weir_on_response") (param i32) (result i64)
              @edits{{STATUS {status}}})"#
        ))
    };
    let answered = |status: u16| {
        own(&format!(
            r#"(func (export "weir_on_request") (param i32) (result i64)
              @edits{{ANSWER {status};BODY some content}})"#
        ))
    };
    for status in [204, 205, 304] {
        let modules = [
            at_head(&replaces(2, ":status", &status.to_string())),
            own_status(status, 1),
            own_status(status, 2),
            blind(status),
            local(status),
            answered(status),
        ];
        // All of them for one status, every second for the others.
        let step = if status == 204 { 1 } else { 2 };
        for (number, module) in modules.iter().enumerate().step_by(step) {
            let (site, _origin) = front(module);
            for (method, target) in
                TARGETS.iter().map(|target| ("GET", target)).chain([("HEAD", &"/u/a")])
            {
                for (got, lines, body) in all_ways(&site, method, target) {
                    let what = format!("{number} {status} {method} {target}");
                    // What is not stored may be asked for again, conditions and all.
                    assert_eq!((got, &*body), (status, ""), "{what}");
                    let may_say = status == 205 && lines == ["0"];
                    assert!(lines.is_empty() || may_say, "{what}: {lines:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_stored_without_content_has_none() {
    let module = own(r#"
        (func (export "weir_on_store") (param i32) (result i64) @edits{STATUS 204})"#);
    let (site, _origin) = front(&module);
    for target in ["/c/a", "/c/a", "/fill/a", "/fill/a"] {
        for (status, lines, body) in all_ways(&site, "GET", target) {
            assert_eq!((status, lines.len(), &*body), (204, 0, ""), "{target}");
        }
    }
}

#[test]
fn what_is_injected_without_content_has_none() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          (if (call $target (local.get 0) @{/do}) (then
            (drop (call $cache_inject @{http://site.example/c/new}
              @list{STATUS 204;BODY injected} (i64.const 60000)))
            (return @edits{ANSWER 200})))
          (i64.const 0))"#);
    let origin = Origin::start(|_| answer("404 Not Found", "", b""));
    let site = setup().plugin("p", &module, "allow { cache; }").run(&format!(
        r#"route "/do" {{ respond ""; use "p"; }}
        route "/c/*" {{ proxy "{}"; }}"#,
        origin.url()
    ));
    assert_eq!(site.get("/do", &[]).status, 200);
    let mut client = site.connect();
    for _ in 0..2 {
        let got = client.ask("GET", "/c/new", &[]).unwrap();
        assert_eq!((got.status, got.header("content-length"), text(&got)), (204, None, ""));
    }
    assert!(origin.take().is_empty() && client.pending() == 0);
    assert_eq!(over_http2(&site, "GET", "/c/new", "").unwrap().status, 204);
}

#[test]
fn a_response_that_had_no_content_has_none_afterwards() {
    let origin = Origin::start(|request| match request.line().contains("/none") {
        true => vec![Step::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())],
        false => {
            vec![Step::Send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n".to_vec())]
        }
    });
    for module in [
        at_head(&replaces(2, ":status", "200")),
        own(r#"(func (export "weir_on_response") (param i32) (result i64) @edits{STATUS 200})"#),
    ] {
        let site = setup()
            .plugin("p", &module, "")
            .run(&format!(r#"route "/*" {{ proxy "{}"; cache "off"; use "p"; }}"#, origin.url()));
        for target in ["/none", "/old"] {
            for (status, lines, body) in all_ways(&site, "GET", target) {
                assert_eq!((status, &*body), (200, ""), "{target}");
                assert!(lines.is_empty() || lines == ["0"], "{target}: {lines:?}");
            }
        }
    }
}

#[test]
fn head_tells_what_get_would() {
    let keeps = at_head(&adds(2, "x-a", "1"));
    let (site, _origin) = front(&keeps);
    for target in ["/u/a", "/c/a", "/f/a.txt", "/r/a"] {
        for (status, lines, _) in all_ways(&site, "HEAD", target) {
            assert_eq!((status, lines), (200, vec!["16".to_owned()]), "{target}");
        }
    }
    let (site, _origin) = front(&at_head(&removes(2, "content-length")));
    for target in ["/u/a", "/c/a", "/f/a.txt", "/r/a"] {
        for method in ["GET", "HEAD"] {
            for (status, lines, _) in all_ways(&site, method, target) {
                assert_eq!((status, lines.len()), (200, 0), "{method} {target}");
            }
        }
    }
}

/// A plugin that does this with a request's head, and this with the last piece of its body.
fn at_request(head: &str, body: &str) -> String {
    proxy_wasm(&format!(
        r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          {head} (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then {body})) (i32.const 0))"#
    ))
}

/// Lines of Content-Length and Transfer-Encoding that the origin got.
fn framing(origin: &Origin) -> (Vec<String>, Vec<String>, Vec<u8>) {
    let got = origin.take().pop().unwrap();
    (got.values("content-length"), got.values("transfer-encoding"), got.body)
}

#[test]
fn a_request_keeps_its_length() {
    let waits = |body: &str| {
        proxy_wasm(&format!(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
              (i32.const 1))
            (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
              (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
              {body} (drop (call $proxy_continue_stream (i32.const 0))) (i32.const 0))"#
        ))
    };
    let append = "(drop (call $proxy_set_buffer_bytes (i32.const 0) (i32.const 3) (i32.const 0) \
                  @{de}))";
    let own_wants = |want: u32, edits: &str| {
        own(&format!(
            r#"(func (export "weir_on_request") (param i32) (result i64) @edits{{WANT {want}}})
            (func (export "weir_on_request_body") (param i32) (result i64) {edits})"#
        ))
    };
    let (same, chunked) = (Some("3"), None);
    let cases = [
        ("nothing changed", at_request("", ""), same, &b"abc"[..]),
        ("a field changed", at_request(&adds(0, "x-a", "1"), ""), same, b"abc"),
        ("taken away", at_request(&removes(0, "content-length"), ""), chunked, b"abc"),
        (
            "taken away for another",
            at_request(&removes(0, "content-length"), append),
            chunked,
            b"abcde",
        ),
        ("said anew", at_request(&replaces(0, "content-length", "5"), append), Some("5"), b"abcde"),
        ("none", at_request(&replaces(0, "content-length", "x"), append), chunked, b"abcde"),
        ("two", at_request(&adds(0, "content-length", "3"), ""), chunked, b"abc"),
        ("at hand", waits(append), Some("5"), b"abcde"),
        ("at hand, as it was", waits(""), same, b"abc"),
        ("own, not wanted", own_wants(0, "(i64.const 0)"), same, b"abc"),
        ("own, pieces", own_wants(1, "(i64.const 0)"), chunked, b"abc"),
        ("own, whole", own_wants(2, "@edits{BODY abcde}"), chunked, b"abcde"),
    ];
    for (name, module, length, body) in cases {
        let (site, origin) = front(&module);
        let mut client = site.connect();
        for _ in 0..2 {
            assert_eq!(post(&mut client, "/a", b"abc").status, 200, "{name}");
            let (lengths, codings, got) = framing(&origin);
            assert_eq!(lengths.first().map(String::as_str), length, "{name}");
            assert_eq!(codings.is_empty(), length.is_some(), "{name}: {codings:?}");
            assert_eq!(got, body, "{name}");
        }
        assert_eq!(over_http2(&site, "POST", "/a", "abc").unwrap().status, 200, "{name}");
        let (lengths, codings, got) = framing(&origin);
        assert_eq!(lengths.first().map(String::as_str), length, "{name}");
        assert_eq!((codings.is_empty(), &*got), (length.is_some(), body), "{name}: {codings:?}");
        // Gathered whole, it has a length in any case.
        assert_eq!(post(&mut client, "/u/a", b"abc").status, 200, "{name}");
        let length = body.len().to_string();
        assert_eq!(framing(&origin), (vec![length], vec![], body.to_vec()), "{name}");
        assert_eq!(origin.take_oddities(), [""; 0], "{name}");
    }
}

#[test]
fn a_request_that_is_not_as_long_as_it_says_is_broken_off() {
    let cut = "(drop (call $proxy_set_buffer_bytes (i32.const 0) (i32.const 0) (i32.const 99) \
               @{x}))";
    let append = "(drop (call $proxy_set_buffer_bytes (i32.const 0) (i32.const 99) (i32.const 0) \
                  @{more}))";
    for (module, how) in [
        (at_request("", cut), "shorter"),
        (at_request("", append), "longer"),
        (at_request(&replaces(0, "content-length", "2"), ""), "longer"),
        (at_request(&replaces(0, "content-length", "4"), ""), "shorter"),
    ] {
        let (site, _origin) = front(&module);
        let mut client = site.connect();
        let got = post(&mut client, "/a", b"abc");
        let failed = (500, "500 Internal Server Error: a plugin failed\n");
        assert_eq!((got.status, text(&got)), failed);
        // Gathered, likewise.
        let got = post(&mut site.connect(), "/u/a", b"abc");
        assert_eq!((got.status, text(&got)), failed);
        site.weir.wait_for_log(&format!("the body that it made is {how} than its content-length"));
    }
}

/// What comes after the head of the response to GET with `TE: trailers`.
fn raw(site: &Site, target: &str) -> (String, String) {
    let mut client = Client::connect(site.address).unwrap();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n"
    );
    client.send(request.as_bytes()).unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap().to_ascii_lowercase();
    (head, String::from_utf8(client.read_to_end().unwrap()).unwrap().to_ascii_lowercase())
}

#[test]
fn trailers_that_are_announced_arrive() {
    // Announced by the plugin, and added in the body's last callback.
    let announces = |head: &str| {
        proxy_wasm(&format!(
            r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
              {head} (i32.const 0))
            (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
              (if (local.get 2) (then {})) (i32.const 0))
            (func (export "proxy_on_response_trailers") (param i32 i32) (result i32)
              {} (i32.const 0))"#,
            adds(3, "x-new", "2"),
            adds(3, "x-new", "2")
        ))
    };
    let own_announces = own(r#"
        (func (export "weir_on_response") (param i32) (result i64)
          @edits{SET trailer=x-new;WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (if (i32.and (call $flags (local.get 0)) (i32.const 2))
            (then (return @edits{TRAILER x-new=2})))
          (i64.const 0))"#);
    for module in [
        announces(&replaces(2, "trailer", "x-new")),
        announces(&adds(2, "trailer", "x-new")),
        own_announces,
    ] {
        let (site, _origin) = front(&module);
        for target in ["/u/a", "/chunked", "/trailers"] {
            let (head, rest) = raw(&site, target);
            assert!(head.contains("transfer-encoding: chunked"), "{target}: {head}");
            assert!(!head.contains("content-length"), "{target}: {head}");
            let line = head.lines().find(|line| line.starts_with("trailer:")).unwrap();
            assert!(line.contains("x-new"), "{target}: {head}");
            assert!(rest.contains("x-new: 2\r\n"), "{target}: {rest}");
            assert_eq!(rest.contains("x-old: 1\r\n"), target == "/trailers", "{target}: {rest}");
            let got = over_http2(&site, "GET", target, "").unwrap();
            assert_eq!(got.trailers["x-new"], "2", "{target}");
            assert_eq!(&*got.body, BODY.as_bytes(), "{target}");
        }
    }
    // The origin's own stay announced.
    for head in [replaces(2, "trailer", "x-z"), removes(2, "trailer")] {
        let (site, _origin) = front(&at_head(&head));
        let (head, rest) = raw(&site, "/trailers");
        assert!(head.contains("trailer: x-old") && rest.contains("x-old: 1\r\n"), "{head}{rest}");
    }
}

#[test]
fn fields_that_may_not_be_trailers_are_not_sent_as_such() {
    let code = ["content-length", "set-cookie", "transfer-encoding", "host", "authorization"]
        .map(|name| adds(3, name, "1"))
        .concat();
    let module = proxy_wasm(&format!(
        r#"(func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          {} (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then {code} {})) (i32.const 0))"#,
        replaces(2, "trailer", "x-new, set-cookie, content-length"),
        adds(3, "x-new", "2"),
    ));
    let (site, _origin) = front(&module);
    let (head, rest) = raw(&site, "/u/a");
    assert!(head.contains("trailer: x-new\r\n"), "{head}");
    assert!(!head.contains("trailer: set-cookie") && !head.contains("content-length"), "{head}");
    assert!(rest.ends_with("\r\n0\r\nx-new: 2\r\n\r\n"), "{rest}");
    let got = over_http2(&site, "GET", "/u/a", "").unwrap();
    let names: Vec<&str> = got.trailers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-new"]);
    site.weir.wait_for_log("set-cookie may not be a trailer");
}

#[test]
fn an_answer_may_have_trailers() {
    let module = own(r#"
        (func (export "weir_on_request") (param i32) (result i64)
          @edits{ANSWER 200;BODY content;TRAILER x-new=2})"#);
    let (site, _origin) = front(&module);
    let (head, rest) = raw(&site, "/r/a");
    assert!(head.contains("trailer: x-new\r\n"), "{head}");
    assert!(rest.ends_with("7\r\ncontent\r\n0\r\nx-new: 2\r\n\r\n"), "{rest}");
    let got = over_http2(&site, "GET", "/r/a", "").unwrap();
    assert_eq!((got.trailers["x-new"].as_bytes(), &*got.body), (&b"2"[..], &b"content"[..]));
    // Whoever does not ask for them gets a response without.
    assert_eq!(text(&site.get("/r/a", &[])), "content");
}
