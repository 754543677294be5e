//! Storability, rule by rule.

use super::*;
use crate::test_support::headers;

fn check_with(rules: &Rules, method: &str, request: &str, status: u16, response: &str) -> String {
    let (request, response) = (headers(request), headers(response));
    let exchange = Exchange {
        method: &Method::from_bytes(method.as_bytes()).unwrap(),
        request: &request,
        status: StatusCode::from_u16(status).unwrap(),
        response: &response,
        request_time_ms: 784_111_777_000,
        response_time_ms: 784_111_777_000,
    };
    match admit(&exchange, rules) {
        Ok(head) => {
            let cookie = head.headers.contains_key(header::SET_COOKIE);
            if cookie { "stored with cookie".into() } else { "stored".into() }
        }
        Err(reason) => reason.to_string(),
    }
}

fn check(method: &str, request: &str, status: u16, response: &str) -> String {
    check_with(&Rules::default(), method, request, status, response)
}

#[test]
fn rfc9111_3_method_and_status() {
    for (method, status, expect) in [
        ("GET", 200, "stored"),
        ("HEAD", 200, "method"),
        ("POST", 200, "method"),
        ("PUT", 200, "method"),
        ("GET", 100, "status"),
        ("GET", 206, "status"),
        ("GET", 304, "status"),
        ("GET", 404, "stored"),
        ("GET", 302, "stored"),
        ("GET", 500, "stored"),
        ("GET", 299, "stored"),
    ] {
        let got = check(method, "", status, "cache-control: max-age=10");
        assert_eq!(got, expect, "{method} {status}");
    }
}

#[test]
fn rfc9111_3_directives() {
    for (section, request, response, expect) in [
        ("5.2.1.5", "cache-control: no-store", "max-age=10", "request-no-store"),
        ("5.2.2.5", "", "no-store, max-age=10", "no-store"),
        ("5.2.2.5", "", "no-store", "no-store"),
        ("5.2.2.7", "", "private, max-age=10", "private"),
        ("5.2.2.7", "", "private=\"x-a\", max-age=10", "stored"),
        ("3.5", "authorization: x", "max-age=10", "authorization"),
        ("3.5", "authorization: x", "max-age=10, public", "stored"),
        ("3.5", "authorization: x", "s-maxage=10", "stored"),
        ("3.5", "authorization: x", "max-age=10, must-revalidate", "stored"),
        ("3.5", "authorization: x", "max-age=10, proxy-revalidate", "authorization"),
        ("5.2.2.3", "", "no-store, must-understand, max-age=10", "stored"),
        ("3", "", "max-age=10", "stored"),
        ("3", "", "max-age=0", "no-freshness"),
        ("3", "", "public", "no-freshness"),
        ("3", "", "no-cache, max-age=10", "no-freshness"),
        ("3", "", "max-age=0, stale-while-revalidate=10", "stored"),
    ] {
        let got = check("GET", request, 200, &format!("cache-control: {response}"));
        assert_eq!(got, expect, "§{section} {request} | {response}");
    }
}

#[test]
fn rfc9111_5_2_2_3_must_understand_needs_a_known_status() {
    for (status, expect) in [(200, "stored"), (404, "stored"), (299, "status"), (599, "status")] {
        let got = check("GET", "", status, "cache-control: must-understand, max-age=10");
        assert_eq!(got, expect, "{status}");
    }
}

#[test]
fn what_needs_validation_is_stored_if_it_can_be_validated() {
    for (response, expect) in [
        ("", "no-freshness"),
        ("etag: \"a\"", "stored"),
        ("etag: \"a\"\ncache-control: no-cache", "stored"),
        ("last-modified: Sat, 05 Nov 1994 08:49:37 GMT\ncache-control: max-age=0", "stored"),
        ("cache-control: no-cache", "no-freshness"),
    ] {
        assert_eq!(check("GET", "", 200, response), expect, "{response}");
    }
    // A status that is not cacheable by default needs a lifetime of its own.
    assert_eq!(check("GET", "", 403, "etag: \"a\""), "no-freshness");
}

#[test]
fn rfc9111_4_1_vary_on_everything() {
    let got = check("GET", "", 200, "vary: *\ncache-control: max-age=10");
    assert_eq!(got, "vary-all");
}

#[test]
fn rfc9213_targeted_directives_replace_the_others() {
    for (response, expect) in [
        ("cache-control: no-store\ncdn-cache-control: max-age=10", "stored"),
        ("cache-control: max-age=10\ncdn-cache-control: no-store", "no-store"),
        ("cache-control: max-age=10\ncdn-cache-control: \"broken", "stored"),
    ] {
        assert_eq!(check("GET", "", 200, response), expect, "{response}");
    }
}

#[test]
fn responses_with_cookies() {
    let ttl = Rules { ttl_ms: Some(1000), ..Rules::default() };
    let none = Rules::default();
    for (rules, directives, expect) in [
        (none, "max-age=10", "set-cookie"),
        (none, "max-age=10, public", "stored with cookie"),
        (none, "s-maxage=10", "stored with cookie"),
        (none, "max-age=10, no-cache=\"set-cookie\"", "stored"),
        (none, "max-age=10, private=\"Set-Cookie\"", "stored"),
        (ttl, "max-age=10", "stored"),
        (ttl, "", "stored"),
        (ttl, "public", "stored with cookie"),
        (ttl, "private", "private"),
        (ttl, "no-store", "no-store"),
    ] {
        let response = format!("set-cookie: a=b\ncache-control: {directives}");
        assert_eq!(check_with(&rules, "GET", "", 200, &response), expect, "{directives}");
    }
}

#[test]
fn rfc9111_3_1_what_is_not_stored() {
    let response = headers(
        "connection: x-hop, close\nx-hop: 1\nkeep-alive: 1\ntransfer-encoding: chunked\n\
         proxy-authenticate: x\nproxy-authentication-info: x\nproxy-connection: x\nupgrade: x\n\
         age: 3\nx-a: 1\nx-b: 2\netag: \"e\"\nx-kept: 1\nx-kept: 2\ncontent-length: 5\n\
         cache-control: max-age=10, no-cache=\"x-a\", private=\"X-B\"",
    );
    let exchange = Exchange {
        method: &Method::GET,
        request: &HeaderMap::new(),
        status: StatusCode::OK,
        response: &response,
        request_time_ms: 784_111_777_000,
        response_time_ms: 784_111_777_000,
    };
    let head = admit(&exchange, &Rules::default()).unwrap();
    let mut names: Vec<&str> = head.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["cache-control", "content-length", "date", "etag", "x-kept"]);
    assert_eq!(head.headers.get_all("x-kept").iter().count(), 2);
    // RFC 9110 §6.6.1
    assert_eq!(head.headers[header::DATE], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(head.freshness.initial_age_ms, 3000);
}
