//! HTML that is changed on its way: rules of a route, pages that came coded, and pages that are not
//! to be touched.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;

use common::client::{Response, ask};
use common::origin::{Origin, Received, Step, answer};
use common::server::{Weir, command};
use common::{PATIENCE, wait_for};

const HTML: &str = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nContent-Type: text/html\r\n";

const RULES: &str = "html { append \"head\" \"<script nonce='{nonce}'>1</script>\"
    remove \".banner\"
    host \"old.example\" \"new.example\"
    lazy
    strip \"comments\"
}";

const PAGE: &str = "<html><head></head><body><!-- a --><p class=banner>Buy</p>\
                    <a href=\"https://old.example/x\">x</a><img src=/a.jpg></body></html>";

const CHANGED: &str = "<html><head><script nonce='n0'>1</script></head><body>\
                       <a href=\"https://new.example/x\">x</a>\
                       <img src=/a.jpg loading=\"lazy\"></body></html>";

fn front(
    script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    lines: &str,
) -> (Origin, Weir, SocketAddr) {
    let origin = Origin::start(script);
    let site = format!("route \"/*\" {{ proxy \"{}\"; {lines}; }}", origin.url());
    let (weir, address) = Weir::front("", &site);
    (origin, weir, address)
}

/// Asks until it is known what becomes of a page.
fn settled(address: SocketAddr, target: &str, accept: &str) -> Response {
    let pending =
        ["pending", "not-stored", "overloaded"].map(|why| format!("original;reason={why}"));
    let is_known = |word: &str| {
        let is_last = !word.ends_with(";stream") && !word.ends_with(";draft");
        is_last && !pending.iter().any(|one| one == word)
    };
    let known = wait_for(PATIENCE, || {
        let response = ask(address, "GET", target, &[("accept-encoding", accept)]);
        let word = response.header("weir-adapt").unwrap_or_default().to_owned();
        is_known(&word).then_some(response)
    });
    known.unwrap_or_else(|| panic!("nothing becomes of {target}"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

fn text(response: &Response) -> &str {
    str::from_utf8(&response.body).unwrap()
}

#[test]
fn pages_are_changed_by_the_rules_of_their_route() {
    let served = |request: &Received| {
        let policy = "Content-Security-Policy: script-src 'nonce-n0'\r\n";
        match request.line().contains("/plain") {
            true => answer("200 OK", HTML, b"<html><body>Nothing to do.</body></html>"),
            false => answer("200 OK", &format!("{HTML}{policy}"), PAGE.as_bytes()),
        }
    };
    let (_origin, _weir, address) = front(served, RULES);
    assert_eq!(text(&ask(address, "GET", "/", &[])), CHANGED);
    let page = settled(address, "/", "identity");
    assert_eq!(text(&page), CHANGED);
    assert_eq!(page.header("weir-adapt"), Some("html;changed=5"));
    let tag = page.header("etag").unwrap();
    let shape = "\"v1-html01234567-0123456789abcdef\"";
    assert!(tag.starts_with("\"v1-html") && tag.len() == shape.len(), "{tag}");
    assert_eq!(ask(address, "GET", "/", &[("if-none-match", tag)]).status, 304);
    assert_eq!(page.header("content-length"), Some(&*CHANGED.len().to_string()));
    // Nothing of the request decides what it gets.
    assert_eq!(page.header("vary"), None);
    let plain = settled(address, "/plain", "identity");
    assert_eq!(plain.header("weir-adapt"), Some("original;reason=unchanged"));
    assert_eq!(plain.header("etag"), Some("\"v1\""));
}

#[test]
fn coded_pages_are_decoded_and_coded_again() {
    let served = |_: &Received| {
        let policy = "Content-Security-Policy: script-src 'nonce-n0'\r\n";
        let fields = format!("{HTML}{policy}Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n");
        answer("200 OK", &fields, &gzip(PAGE.repeat(30).as_bytes()))
    };
    let expected = CHANGED.repeat(30);
    let (_origin, _weir, address) = front(served, RULES);
    let page = settled(address, "/", "gzip");
    assert_eq!(page.header("content-encoding"), Some("gzip"));
    assert_eq!(gunzip(&page.body), expected);
    // Beside `compress` the client has its choice.
    let (_origin, _weir, address) = front(served, &format!("{RULES}; compress \"br:5\""));
    let page = settled(address, "/", "gzip, br");
    assert_eq!(page.header("content-encoding"), Some("br"));
    assert!(page.header("weir-adapt").unwrap().contains(", br;q=5"));
    let mut text = String::new();
    brotli::Decompressor::new(&page.body[..], 4096).read_to_string(&mut text).unwrap();
    assert_eq!(text, expected);
}

#[test]
fn what_is_no_page_or_no_text_is_left_alone() {
    let bomb = gzip(&vec![b' '; 64 << 20]);
    let served = move |request: &Received| {
        let line = request.line();
        let html = |more: &str, body: &[u8]| answer("200 OK", &format!("{HTML}{more}"), body);
        match line.split(' ').nth(1).unwrap() {
            "/bomb" => html("Content-Encoding: gzip\r\n", &bomb),
            "/torn" => html("Content-Encoding: gzip\r\n", &gzip(PAGE.as_bytes())[..40]),
            "/deflate" => html("Content-Encoding: deflate\r\n", PAGE.as_bytes()),
            "/kept" => {
                let fields = HTML.replace("max-age=600", "max-age=600, no-transform");
                answer("200 OK", &fields, PAGE.as_bytes())
            }
            "/utf16" => {
                let fields = HTML.replace("text/html", "text/html; charset=utf-16");
                answer("200 OK", &fields, PAGE.as_bytes())
            }
            _ => {
                let fields = HTML.replace("text/html", "text/plain");
                answer("200 OK", &fields, PAGE.as_bytes())
            }
        }
    };
    let rules = RULES.replace("html {", "html stream=#false {");
    let (_origin, weir, address) = front(served, &rules);
    for (target, word) in [
        ("/bomb", Some("original;reason=failed")),
        ("/torn", Some("original;reason=failed")),
        ("/utf16", Some("original;reason=charset")),
        ("/deflate", None),
        ("/kept", None),
        ("/text", None),
    ] {
        let first = ask(address, "GET", target, &[]).body;
        let page = settled(address, target, "identity");
        assert_eq!(page.header("weir-adapt"), word, "{target}");
        assert!(page.body == first, "{target}");
    }
    weir.wait_for_log("decoded, it is more than 500 times larger");
}

#[test]
fn the_command_line_changes_pages() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    write("page.html", PAGE);
    write("rules.kdl", "remove \".banner\"\nstrip \"comments\"\n");
    write("wrong.kdl", "remove \"h1 + p\"\n");
    let run = |arguments: &[&str]| command(directory.path(), arguments);
    let out = run(&["adapt", "page.html", "--html", "rules.kdl", "-o", "out.html"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.starts_with("html;changed=2: "), "{out:?}");
    let made = std::fs::read_to_string(directory.path().join("out.html")).unwrap();
    let expected = PAGE.replace("<!-- a -->", "").replace("<p class=banner>Buy</p>", "");
    assert_eq!(made, expected);
    let out = run(&["adapt", "page.html", "--html", "wrong.kdl"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("`+` cannot be told"), "{said}");
    let out = run(&["adapt", "page.html"]);
    assert!(!out.status.success());
}
