//! Bodies of responses: seen and changed in pieces and as a whole, with the length that the result
//! has; and what else a response says of its body.

use crate::common::client::Response;
use crate::common::origin::{Origin, Step, answer};
use crate::site::{Site, setup, text};
use crate::wasm::{own, proxy_wasm};

/// Makes letters large, in pieces (`want` 1) or as a whole (2).
fn upper(want: u32) -> String {
    own(&format!(
        r#"(func (export "weir_on_response") (param i32) (result i64) @edits{{WANT {want}}})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))"#
    ))
}

/// proxy-wasm's usual way to change a body: it is held until it is complete, and the length that
/// the head tells goes away.
fn upper_whole_proxy_wasm() -> String {
    proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_remove_header_map_value (i32.const 2) @{content-length}))
          (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (i32.eqz (local.get 2)) (then (return (i32.const 1))))
          (call $upper_body (i32.const 1))
          (i32.const 0))"#,
    )
}

/// The same piece by piece.
fn upper_pieces_proxy_wasm() -> String {
    proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_remove_header_map_value (i32.const 2) @{content-length}))
          (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (call $upper_body (i32.const 1))
          (i32.const 0))"#,
    )
}

/// Has every hook and changes nothing, as most toolkits' plugins do.
fn idle_proxy_wasm() -> String {
    proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_request_trailers") (param i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_trailers") (param i32 i32) (result i32) (i32.const 0))"#,
    )
}

fn letters(count: usize) -> String {
    (0..count).map(|n| char::from(b'a' + (n % 23) as u8)).collect()
}

const LARGE: usize = 900_000;

/// Every source behind a plugin, with small bodies and with large ones.
fn sources(module: &str) -> (Site, Origin) {
    let origin = Origin::start(|request| {
        let body = if request.line().contains("large") { letters(LARGE) } else { letters(50) };
        let fields = "Cache-Control: max-age=600\r\nETag: \"e\"\r\nAccept-Ranges: bytes\r\n";
        if request.line().starts_with("HEAD") {
            let length = match request.line().contains("unknown") {
                true => String::new(),
                false => format!("Content-Length: {}\r\n", body.len()),
            };
            let head = format!("HTTP/1.1 200 OK\r\n{fields}{length}\r\n");
            return vec![Step::Send(head.into_bytes())];
        }
        match request.line().contains("chunked") {
            true => {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let (one, two) = body.split_at(body.len() / 2);
                let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
                let sent = [head.to_owned(), chunk(one), chunk(two), "0\r\n\r\n".to_owned()];
                vec![Step::Send(sent.concat().into_bytes())]
            }
            false => answer("200 OK", fields, body.as_bytes()),
        }
    });
    let url = origin.url();
    let site = setup()
        .plugin("p", module, "")
        .block("cache { memory \"16MiB\"; object-max \"512KiB\"; }")
        .file("www/f/small", letters(50).as_bytes())
        .file("www/f/large", letters(LARGE).as_bytes())
        .run(&format!(
            r#"
            route "/f/*" {{ files "www" strip-prefix=#false; use "p"; }}
            route "/u/*" {{ proxy "{url}"; cache "off"; use "p"; }}
            route "/r/*" {{ respond "{}"; use "p"; }}
            route "/c/*" {{ proxy "{url}"; use "p"; }}
            "#,
            letters(50)
        ));
    (site, origin)
}

const SMALL_TARGETS: [&str; 7] =
    ["/f/small", "/f/small", "/u/small", "/u/chunked", "/r/", "/c/small", "/c/small"];
const LARGE_TARGETS: [&str; 5] =
    ["/f/large", "/u/large", "/u/large-chunked", "/c/large", "/c/large-chunked"];

#[test]
fn bodies_are_changed_in_pieces_and_as_a_whole() {
    for (name, module) in [
        ("own, pieces", upper(1)),
        ("own, whole", upper(2)),
        ("proxy-wasm, pieces", upper_pieces_proxy_wasm()),
        ("proxy-wasm, whole", upper_whole_proxy_wasm()),
    ] {
        let (site, origin) = sources(&module);
        let mut client = site.connect();
        let mut check = |target: &str, count: usize| {
            let got = client.ask("GET", target, &[]).unwrap();
            assert_eq!(got.status, 200, "{name} {target}");
            assert!(got.body == letters(count).to_uppercase().as_bytes(), "{name} {target}");
        };
        SMALL_TARGETS.into_iter().for_each(|target| check(target, 50));
        LARGE_TARGETS.into_iter().for_each(|target| check(target, LARGE));
        drop(origin);
    }
}

#[test]
fn a_plugin_that_does_not_touch_bodies_leaves_their_length() {
    let (site, _origin) = sources(&idle_proxy_wasm());
    let mut client = site.connect();
    let mut check = |target: &str, count: usize| {
        for method in ["GET", "HEAD"] {
            let got = client.ask(method, target, &[]).unwrap();
            let length = count.to_string();
            let expected = (!target.contains("chunked")).then_some(length.as_str());
            assert_eq!(got.header("content-length"), expected, "{method} {target}");
            assert!(method == "HEAD" || got.body == letters(count).as_bytes(), "{target}");
        }
    };
    SMALL_TARGETS.into_iter().filter(|t| !t.contains("chunked")).for_each(|t| check(t, 50));
    ["/f/large", "/u/large", "/c/large"].into_iter().for_each(|target| check(target, LARGE));
    // And their parts.
    for target in ["/f/small", "/c/small"] {
        let part = site.get(target, &[("Range", "bytes=3-5")]);
        assert_eq!((part.status, text(&part)), (206, "def"), "{target}");
        assert_eq!(part.header("content-length"), Some("3"), "{target}");
    }
}

#[test]
fn a_changed_body_has_no_parts_and_no_strong_tag() {
    for module in [upper(1), upper(2)] {
        let (site, _origin) = sources(&module);
        for target in ["/c/small", "/c/small", "/f/small"] {
            let whole = site.get(target, &[("Range", "bytes=3-5")]);
            assert_eq!(whole.status, 200, "{target}");
            assert_eq!(text(&whole), letters(50).to_uppercase(), "{target}");
            assert_eq!(whole.header("accept-ranges"), None, "{target}");
            let tag = whole.header("etag").unwrap().to_owned();
            assert!(tag.starts_with("W/\""), "{target}: {tag}");
            let again = site.get(target, &[("If-None-Match", &tag)]);
            assert_eq!((again.status, again.body.len()), (304, 0), "{target}");
            assert_eq!(again.header("etag"), Some(&*tag), "{target}: of the same representation");
        }
    }
}

/// RFC 9110 §9.3.2: HEAD says of the body what GET would, or less.
#[test]
fn head_does_not_tell_the_length_of_a_body_that_the_plugin_would_change() {
    // Twice the body.
    let twice = own(r#"
        (func (export "weir_on_response") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (drop (call $piece (local.get 0)))
          (i64.store (i32.const 1040) (i64.load (i32.const 1024)))
          (i64.store (i32.const 1048) (i64.load (i32.const 1032)))
          (i64.const 0x40000000020))"#);
    let (site, _origin) = sources(&twice);
    for target in SMALL_TARGETS.into_iter().chain(["/u/unknown"]) {
        let mut client = site.connect();
        let head = client.ask("HEAD", target, &[]).unwrap();
        assert_eq!(head.status, 200);
        let got = client.ask("GET", target, &[]).unwrap();
        assert_eq!(got.body.len(), 100, "{target}");
        let length = head.header("content-length");
        assert!(length.is_none_or(|length| length == "100"), "{target}: {length:?}");
    }
}

#[test]
fn a_plugin_may_say_how_long_its_body_is() {
    let says = own(r#"
        (func (export "weir_on_response") (param i32) (result i64)
          @edits{WANT 2;STATUS 203})
        (func (export "weir_on_response_body") (param i32) (result i64) @edits{BODY short})"#);
    let (site, _origin) = sources(&says);
    let mut client = site.connect();
    for target in SMALL_TARGETS {
        let got = client.ask("GET", target, &[]).unwrap();
        assert_eq!((got.status, text(&got)), (203, "short"), "{target}");
    }
    // Made empty, and made from nothing.
    let empty = own(r#"
        (func (export "weir_on_response") (param i32) (result i64) @edits{WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64) @edits{BODY })"#);
    let (site, _origin) = sources(&empty);
    let mut client = site.connect();
    for target in SMALL_TARGETS {
        let got = client.ask("GET", target, &[]).unwrap();
        assert_eq!((got.status, text(&got)), (200, ""), "{target}");
    }
}

#[test]
fn a_response_is_replaced_when_its_head_or_its_body_is_seen() {
    let at_head = own(r#"
        (func (export "weir_on_response") (param i32) (result i64)
          @edits{ANSWER 451;SET x-why=law;BODY not here})"#);
    let in_body = own(r#"
        (func (export "weir_on_response") (param i32) (result i64) @edits{WANT 2})
        (func (export "weir_on_response_body") (param i32) (result i64)
          @edits{CLOSE})"#);
    let local = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (call $answer (i32.const 451) @{not here})
          (i32.const 1))"#,
    );
    for module in [at_head, local] {
        let (site, _origin) = sources(&module);
        let mut client = site.connect();
        for target in SMALL_TARGETS {
            let got: Response = client.ask("GET", target, &[]).unwrap();
            assert_eq!((got.status, text(&got)), (451, "not here"), "{target}");
        }
    }
    // A body that is ended breaks off: nobody takes it for a whole one.
    let (site, _origin) = sources(&in_body);
    for target in ["/u/small", "/c/small", "/c/small"] {
        let got = site.connect().ask("GET", target, &[]);
        assert!(got.is_err(), "{target}: {got:?}");
    }
}

/// What is adapted as it is sent is not what a plugin is to read; one that does not read it is no
/// reason to leave it as it is.
#[test]
fn plugins_that_read_bodies_see_them_as_they_come() {
    let heads =
        own(r#"(func (export "weir_on_response") (param i32) (result i64) @edits{SET x-p=1})"#);
    let origin = Origin::start(|_| {
        let fields = "Content-Type: text/html\r\nCache-Control: no-store\r\n";
        answer("200 OK", fields, b"<p>seen</p><b>taken out</b>")
    });
    let url = origin.url();
    let site = setup().plugin("heads", &heads, "").plugin("bodies", &upper(1), "").run(&format!(
        r#"route "/heads" {{ proxy "{url}"; html {{ remove "b"; }}; use "heads"; }}
        route "/bodies" {{ proxy "{url}"; html {{ remove "b"; }}; use "heads"; use "bodies"; }}"#
    ));
    for (target, word, body) in [
        ("/heads", "html;stream", "<p>seen</p>"),
        ("/bodies", "original;reason=plugins", "<P>SEEN</P><B>TAKEN OUT</B>"),
    ] {
        let got = site.get(target, &[]);
        assert_eq!((got.header("weir-adapt"), text(&got)), (Some(word), body), "{target}");
        assert_eq!(got.header("x-p"), Some("1"), "{target}");
    }
}
