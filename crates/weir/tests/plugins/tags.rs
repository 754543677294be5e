//! Entity tags of bodies that plugins make: a client keeps what it has for as long as the same
//! generation would make it again.

use crate::common::client::Response;
use crate::common::origin::{Origin, answer};
use crate::site::{Site, setup, text};
use crate::wasm::{own, proxy_wasm};

const DATE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

/// Makes bodies large; a mark in the module makes it another generation.
fn upper(mark: &str) -> [(&'static str, String); 2] {
    let own = own(&format!(
        r#"(func (export "weir_on_response") (param i32) (result i64)
          @edits{{WANT 1;SET x-made-by={mark}}})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))"#
    ));
    let proxy_wasm = proxy_wasm(&format!(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_replace_header_map_value (i32.const 2) @{{x-made-by}} @{{{mark}}}))
          (drop (call $proxy_remove_header_map_value (i32.const 2) @{{content-length}}))
          (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (call $upper_body (i32.const 1)) (i32.const 0))"#
    ));
    [("own", own), ("proxy-wasm", proxy_wasm)]
}

/// `/tag` has a tag, `/date` a date alone, `/nostore` cannot be stored.
fn origin() -> Origin {
    Origin::start(|request| {
        let line = request.line();
        let control = if line.contains("/nostore") { "no-store" } else { "max-age=600" };
        let tag = "ETag: \"v1\"\r\n";
        let validators = match line.contains("/date") {
            true => format!("Last-Modified: {DATE}\r\n"),
            false => format!("{tag}Last-Modified: {DATE}\r\n"),
        };
        let fields = format!("Cache-Control: {control}\r\n{validators}");
        let is_known = request.values("if-none-match").iter().any(|tags| tags.contains("\"v1\""))
            || !request.values("if-modified-since").is_empty();
        match is_known {
            true => answer("304 Not Modified", &fields, b""),
            false => answer("200 OK", &fields, b"body"),
        }
    })
}

fn tag(response: &Response) -> String {
    response.header("etag").unwrap_or("none").to_owned()
}

fn again(site: &Site, target: &str, tag: &str) -> Response {
    site.get(target, &[("If-None-Match", tag), ("If-Modified-Since", DATE)])
}

#[test]
fn a_client_keeps_what_the_same_generation_made() {
    let (first, second) = (upper("one"), upper("two"));
    for ((name, one), (_, two)) in first.into_iter().zip(second) {
        for at in ["delivery", "fill"] {
            let origin = origin();
            let routes =
                format!(r#"route "/*" {{ proxy "{}"; use "p" at="{at}"; }}"#, origin.url());
            let site = setup().plugin("p", &one, "").run(&routes);
            // Twice, since the second time it is a hit.
            let of_one = ["/tag", "/tag", "/nostore"].map(|target| {
                let got = site.get(target, &[]);
                assert_eq!((text(&got), got.header("last-modified")), ("BODY", None), "{name}");
                let tag = tag(&got);
                assert!(tag.starts_with("W/\"v1-"), "{name} {at} {target}: {tag}");
                tag
            });
            assert_eq!(of_one[0], of_one[1], "{name} {at}");
            let kept = again(&site, "/tag", &of_one[0]);
            assert_eq!((kept.status, tag(&kept)), (304, of_one[0].clone()), "{name} {at}");
            // The origin's own tag is of what the plugin has not made.
            for target in ["/tag", "/nostore", "/date"] {
                assert_eq!(again(&site, target, "\"v1\"").status, 200, "{name} {at} {target}");
            }
            if at == "delivery" {
                assert_eq!(again(&site, "/nostore", &of_one[2]).status, 304, "{name}");
            }
            let wat = site.weir.directory().join("p.wat");
            std::fs::write(&wat, &two).unwrap();
            assert_eq!(site.reload("", &routes).0, 200);
            for target in ["/tag", "/tag", "/nostore"] {
                let got = again(&site, target, &of_one[0]);
                assert_eq!(
                    (got.status, got.header("x-made-by")),
                    (200, Some("two")),
                    "{name} {at}"
                );
                assert_ne!(tag(&got), of_one[0], "{name} {at} {target}");
                if target == "/tag" {
                    assert_eq!(again(&site, target, &tag(&got)).status, 304, "{name} {at}");
                }
            }
            if at == "fill" {
                // A date alone becomes a tag.
                let got = site.get("/date", &[]);
                assert_eq!((got.status, got.header("last-modified")), (200, None), "{name}");
                assert_eq!(again(&site, "/date", &tag(&got)).status, 304, "{name}");
            }
            // A rollback makes what the client has again.
            std::fs::write(&wat, &one).unwrap();
            assert_eq!(site.reload("", &routes).0, 200);
            assert_eq!(again(&site, "/tag", &of_one[0]).status, 304, "{name} {at}");
            // Without the plugin it is the origin's again.
            let plain = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
            assert_eq!(site.reload("", &plain).0, 200);
            let got = again(&site, "/tag", &of_one[0]);
            assert_eq!((got.status, text(&got), &*tag(&got)), (200, "body", "\"v1\""));
        }
    }
}

#[test]
fn parts_are_of_what_the_same_generation_made() {
    // It sees bodies, and leaves them as they are.
    let module = proxy_wasm(
        r#"
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    );
    let origin = origin();
    let site = setup()
        .plugin("p", &module, "")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    let got = site.get("/tag", &[]);
    assert_eq!((text(&got), got.header("last-modified")), ("body", Some(DATE)));
    let strong = tag(&got);
    assert!(strong.starts_with("\"v1-"), "{strong}");
    for (if_range, status, body) in
        [(strong.as_str(), 206, "bo"), ("\"v1\"", 200, "body"), (DATE, 200, "body")]
    {
        let fields = [("Range", "bytes=0-1"), ("If-Range", if_range)];
        let got = site.get("/tag", &fields);
        assert_eq!((got.status, text(&got)), (status, body), "{if_range}");
        assert_eq!(tag(&got), strong, "{if_range}");
    }
}

#[test]
fn what_a_plugin_failed_over_cannot_be_confirmed() {
    let module = own(r#"(func (export "weir_on_response") (param i32) (result i64)
          (if (call $target (local.get 0) @{/tag?bad}) (then unreachable))
          @edits{WANT 1})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $upper (i32.load offset=96 (local.get 0)) (i32.load offset=100 (local.get 0)))
          (call $piece (local.get 0)))"#);
    let origin = origin();
    let site = setup()
        .plugin("p", &module, "quarantine failures=100")
        .run(&format!(r#"route "/*" {{ proxy "{}"; use "p"; }}"#, origin.url()));
    let got = site.get("/tag?bad", &[]);
    assert_eq!((text(&got), &*tag(&got)), ("body", "none"));
    assert_eq!(got.header("last-modified"), None);
}

#[test]
fn a_plugins_own_answer_has_its_own_tag() {
    let module = proxy_wasm(
        r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
          (drop (call $proxy_send_local_response (i32.const 200) (i32.const 0) (i32.const 0)
                      @{own} @map{etag="own"} (i32.const -1)))
          (i32.const 1))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32) (i32.const 0))"#,
    );
    let site = setup().plugin("p", &module, "").run(r#"route "/*" { respond ""; use "p"; }"#);
    let got = site.get("/", &[]);
    assert_eq!((text(&got), &*tag(&got)), ("own", "\"own\""));
}
