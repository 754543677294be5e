//! Conditional requests and what a 304 does to a stored response.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::*;
use crate::key::KeyRef;
use crate::policy::Freshness;
use crate::test_support::headers;

const NOW_MS: u64 = 784_111_777_000;

#[test]
fn rfc9111_4_3_1_conditional_request() {
    let client = "if-none-match: \"client\"\nif-match: *\nrange: bytes=0-1\nif-range: \"x\"\n\
                  if-modified-since: x\nif-unmodified-since: x\naccept: a";
    let modified = "Sat, 05 Nov 1994 08:49:37 GMT";
    for (stored, expect, conditional) in [
        ("", "accept: a".to_owned(), false),
        ("etag: \"e\"", "accept: a\nif-none-match: \"e\"".to_owned(), true),
        ("etag: W/\"e\"", "accept: a\nif-none-match: W/\"e\"".to_owned(), true),
        (
            &format!("last-modified: {modified}"),
            format!("accept: a\nif-modified-since: {modified}"),
            true,
        ),
        (
            &format!("etag: \"e\"\nlast-modified: {modified}"),
            format!("accept: a\nif-none-match: \"e\"\nif-modified-since: {modified}"),
            true,
        ),
    ] {
        let mut request = headers(client);
        assert_eq!(make_conditional(&headers(stored), &mut request), conditional, "{stored}");
        assert_eq!(request, headers(&expect), "{stored}");
    }
}

fn stored(fields: &str) -> Object {
    let key = KeyRef { scope: 1, authority: "a.example", path_and_query: "/" };
    let freshness = Freshness { response_time_ms: 1, ..Freshness::default() };
    let head = Head::new(StatusCode::NOT_FOUND, headers(fields), freshness);
    Object::new(key.to_key(), 7, head, Bytes::from_static(b"body").into(), None)
}

fn freshened(fields: &str, response: &str) -> Result<Freshened, Mismatch> {
    let exchange = Exchange {
        method: &Method::GET,
        request: &HeaderMap::new(),
        status: StatusCode::NOT_MODIFIED,
        response: &headers(response),
        request_time_ms: NOW_MS,
        response_time_ms: NOW_MS,
    };
    freshen(&stored(fields), &exchange, &Rules::default())
}

#[test]
fn rfc9111_4_3_4_which_304_freshens() {
    let old = "last-modified: Sat, 05 Nov 1994 08:49:37 GMT";
    let new = "last-modified: Sat, 05 Nov 1994 08:49:38 GMT";
    for (stored, response, expect) in [
        ("etag: \"a\"", "etag: \"a\"", true),
        ("etag: \"a\"", "etag: \"b\"", false),
        ("etag: \"a\"", "etag: W/\"a\"", true),
        ("etag: W/\"a\"", "etag: W/\"b\"", false),
        ("etag: \"a\"", "", true),
        (old, old, true),
        (old, new, false),
        (old, "", true),
        (old, "etag: \"a\"", false),
        (&format!("etag: \"a\"\n{old}"), &format!("etag: \"a\"\n{new}"), true),
    ] {
        assert_eq!(freshened(stored, response).is_ok(), expect, "{stored} | {response}");
    }
}

#[test]
fn rfc9111_3_2_fields_after_a_304() {
    let stored = "etag: \"a\"\nx-old: 1\nx-both: 1\nx-both: 2\ncontent-length: 4\n\
                  content-type: text/a\ncontent-encoding: gzip\ncache-control: max-age=1\n\
                  date: Sun, 06 Nov 1994 07:00:00 GMT";
    let response = "etag: \"a\"\nx-new: 1\nx-both: 3\ncontent-length: 0\ncontent-type: text/b\n\
                    content-encoding: br\ncache-control: max-age=60\nconnection: x-hop\nx-hop: 1\n\
                    set-cookie: a=b\nage: 10\ncontent-md5: 1\nrepr-digest: a=:1:";
    let Freshened { head, storable } = freshened(stored, response).unwrap();
    let expect = "etag: \"a\"\nx-old: 1\nx-both: 3\ncontent-length: 4\ncontent-type: text/a\n\
                  content-encoding: gzip\ncache-control: max-age=60\n\
                  date: Sun, 06 Nov 1994 08:49:37 GMT\nx-new: 1";
    assert_eq!(head.headers, headers(expect));
    assert_eq!(head.status, StatusCode::NOT_FOUND);
    assert_eq!(head.freshness.initial_age_ms, 10_000);
    assert_eq!(head.freshness.fresh_until_ms, NOW_MS + 50_000);
    assert!(storable);
}

#[test]
fn a_304_may_bring_another_charset_but_no_other_type() {
    for (stored, response, expect) in [
        ("text/a", "Text/A; charset=utf-8", "Text/A; charset=utf-8"),
        ("text/a; charset=utf-8", "text/b", "text/a; charset=utf-8"),
    ] {
        let of = |value: &str| format!("etag: \"a\"\ncontent-type: {value}");
        let got = freshened(&of(stored), &of(response)).unwrap();
        assert_eq!(got.head.headers["content-type"], expect);
    }
}

#[test]
fn a_304_may_end_storing() {
    for (directives, expect) in [("no-store", false), ("private", false), ("max-age=1", true)] {
        let response = format!("cache-control: {directives}");
        let got = freshened("etag: \"a\"\ncache-control: max-age=9", &response).unwrap();
        assert_eq!(got.storable, expect, "{directives}");
    }
}
