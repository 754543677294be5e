//! Downloads that go on: a part of what is adapted is joined to the rest of the same, and to
//! nothing else. An entity tag tells which form it is of; a date is that of all of them (RFC 9110
//! §13.1.5).

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;

use common::client::{Response, ask};
use common::origin::{Origin, Received, Step, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};

const DATE: &str = "Sat, 01 Jan 2000 00:00:00 GMT";

fn page() -> String {
    (0..2_000).map(|line| format!("<p>Line {line} of a page.</p>\n")).collect()
}

/// An origin that sends parts, by date.
fn origin(fields: &'static str) -> Origin {
    Origin::start(move |request: &Received| served(request, fields))
}

fn served(request: &Received, fields: &str) -> Vec<Step> {
    let all = format!("Last-Modified: {DATE}\r\nContent-Type: text/html\r\n{fields}");
    match request.values("range").first().map(String::as_str) {
        Some("bytes=0-9") => {
            let part = format!("{all}Content-Range: bytes 0-9/{}\r\n", page().len());
            answer("206 Partial Content", &part, &page().as_bytes()[..10])
        }
        _ => answer("200 OK", &all, page().as_bytes()),
    }
}

fn front(origin: &Origin, global: &str, line: &str) -> (Weir, SocketAddr) {
    let site = format!("route \"/*\" {{ proxy \"{}\"; {line}; }}", origin.url());
    Weir::front(global, &site)
}

fn resume(address: SocketAddr, accept: &str, condition: &str) -> Response {
    let fields = [("accept-encoding", accept), ("range", "bytes=0-9"), ("if-range", condition)];
    ask(address, "GET", "/", &fields)
}

#[test]
fn a_range_of_a_variant_needs_its_entity_tag() {
    let origin = origin("Cache-Control: max-age=600\r\nETag: \"v1\"\r\n");
    let (_weir, address) = front(&origin, "", "compress \"gzip\"");
    let made = wait_for(PATIENCE, || {
        let response = ask(address, "GET", "/", &[("accept-encoding", "gzip")]);
        let tag = response.header("etag").unwrap();
        tag.starts_with("\"v1-gzip9-").then(|| tag.to_owned())
    });
    let tag = &*made.unwrap();
    for (accept, condition, status) in [
        ("gzip", DATE, 200),
        ("identity", DATE, 206),
        ("gzip", tag, 206),
        ("gzip", "\"v1-gzip9\"", 200),
        ("gzip", "\"v1\"", 200),
        ("identity", "\"v1\"", 206),
        ("identity", tag, 200),
    ] {
        assert_eq!(resume(address, accept, condition).status, status, "{accept} {condition}");
    }
}

/// Whoever asks may have begun with a variant that has been evicted since.
#[test]
fn no_date_makes_a_range_of_what_stands_for_a_variant() {
    for line in
        ["compress \"gzip\" stream=#false", "compress \"gzip\"", "html { strip \"comments\"; }"]
    {
        let origin = origin("Cache-Control: max-age=600\r\n");
        let (_weir, address) = front(&origin, "adapt { helpers 0; }", line);
        // Of a part nothing is made, and nothing kept.
        ask(address, "GET", "/", &[("accept-encoding", "gzip"), ("range", "bytes=0-0")]);
        assert_eq!(resume(address, "gzip", DATE).status, 200, "{line}");
        let since = [("accept-encoding", "gzip"), ("if-unmodified-since", DATE)];
        let whole = ask(address, "GET", "/", &[&since[..], &[("range", "bytes=0-9")]].concat());
        assert_eq!(whole.status, 200, "{line}");
        let part = ask(address, "GET", "/", &[("accept-encoding", "gzip"), ("range", "bytes=0-9")]);
        assert_eq!((part.status, &part.body[..]), (206, &page().as_bytes()[..10]), "{line}");
        assert_eq!(origin.take().len(), 1, "{line}");
    }
}

/// The origin is not asked for a part of what was coded on its way.
#[test]
fn what_is_not_stored_comes_whole_to_whom_it_would_be_adapted() {
    for (line, accept, status) in [
        ("compress \"gzip\"", "gzip", 200),
        ("compress \"gzip\"", "identity", 206),
        ("compress \"gzip\"; cache \"off\"", "gzip", 200),
        ("compress \"gzip\" stream=#false", "gzip", 206),
        ("html { strip \"comments\"; }; cache \"off\"", "identity", 200),
    ] {
        let origin = origin("Cache-Control: no-store\r\n");
        let (_weir, address) = front(&origin, "", line);
        let response = resume(address, accept, DATE);
        assert_eq!(response.status, status, "{line} {accept}");
        let is_coded = response.header("content-encoding").is_some();
        assert_eq!(is_coded, status == 200 && accept == "gzip", "{line} {accept}");
        let asked = origin.take();
        let last = asked.last().unwrap();
        let sent = (!last.values("range").is_empty(), !last.values("if-range").is_empty());
        assert_eq!(sent, (status == 206, status == 206), "{line} {accept}");
        let is_told = response.header("vary") == Some("Accept-Encoding");
        assert_eq!(is_told, line.starts_with("compress"), "{line} {accept}");
        let since = [("accept-encoding", accept), ("if-unmodified-since", DATE)];
        let response = ask(address, "GET", "/", &[&since[..], &[("range", "bytes=0-9")]].concat());
        assert_eq!(response.status, status, "{line} {accept}");
    }
}
