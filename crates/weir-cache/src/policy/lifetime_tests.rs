//! Freshness lifetime, age and stale windows, rule by rule.

use http::Method;

use super::*;
use crate::test_support::headers;

const NOW_MS: u64 = 784_111_777_000;
const DATE: &str = "date: Sun, 06 Nov 1994 08:49:37 GMT";

fn with_exchange<T>(
    status: u16,
    response: &str,
    check: impl FnOnce(&Exchange<'_>, &ResponseDirectives) -> T,
) -> T {
    let response = headers(response);
    let exchange = Exchange {
        method: &Method::GET,
        request: &HeaderMap::new(),
        status: StatusCode::from_u16(status).unwrap(),
        response: &response,
        request_time_ms: NOW_MS - 200,
        response_time_ms: NOW_MS,
    };
    check(&exchange, &ResponseDirectives::of(&response))
}

fn lifetime_of(status: u16, response: &str, rules: &Rules) -> Option<(u64, From)> {
    let found = with_exchange(status, response, |e, d| lifetime(e, d, rules));
    found.map(|lifetime| (lifetime.ms / 1000, lifetime.from))
}

#[test]
fn rfc9111_4_2_1_lifetime_of_a_response() {
    let day = "last-modified: Sat, 05 Nov 1994 08:49:37 GMT";
    let year = "last-modified: Sat, 06 Nov 1993 08:49:37 GMT";
    let expires = "expires: Sun, 06 Nov 1994 08:50:37 GMT";
    let stated = |secs| Some((secs, From::Response));
    for (response, expect) in [
        ("", None),
        ("cache-control: max-age=10", stated(10)),
        ("cache-control: max-age=10, s-maxage=20", stated(20)),
        ("cache-control: s-maxage=0, max-age=10", stated(0)),
        ("cache-control: max-age=x", stated(0)),
        ("cache-control: max-age=10\ncdn-cache-control: max-age=30", stated(30)),
        (&format!("{DATE}\n{expires}"), stated(60)),
        (expires, stated(60)),
        (&format!("{DATE}\n{expires}\ncache-control: max-age=10"), stated(10)),
        (&format!("{DATE}\n{expires}\ncdn-cache-control: public"), None),
        // §5.3: what is no date has expired
        ("expires: 0", stated(0)),
        ("expires: Sun, 06 Nov 1994 08:48:37 GMT", stated(0)),
        // §4.2.2: a tenth of the time since the modification, a day at most
        (&format!("{DATE}\n{day}"), Some((8640, From::Heuristic))),
        (&format!("{DATE}\n{year}"), Some((86_400, From::Heuristic))),
        (&format!("{DATE}\n{day}\ncache-control: max-age=5"), stated(5)),
    ] {
        assert_eq!(lifetime_of(200, response, &Rules::default()), expect, "{response}");
    }
}

#[test]
fn rfc9111_4_2_2_heuristics_only_where_allowed() {
    let modified = format!("{DATE}\nlast-modified: Sat, 05 Nov 1994 08:49:37 GMT");
    let public = format!("{modified}\ncache-control: public");
    for (status, plain, with_public) in [
        (200, true, true),
        (203, true, true),
        (301, true, true),
        (404, true, true),
        (410, true, true),
        (501, true, true),
        (302, false, true),
        (403, false, true),
        (500, false, true),
    ] {
        let rules = Rules::default();
        assert_eq!(lifetime_of(status, &modified, &rules).is_some(), plain, "{status}");
        assert_eq!(lifetime_of(status, &public, &rules).is_some(), with_public, "{status} public");
    }
}

#[test]
fn operator_lifetimes() {
    let ttl = Rules { ttl_ms: Some(600_000), ..Rules::default() };
    let default_ttl = Rules { default_ttl_ms: Some(30_000), ..Rules::default() };
    let modified = format!("{DATE}\nlast-modified: Sat, 05 Nov 1994 08:49:37 GMT");
    for (status, response, rules, expect) in [
        (200, "cache-control: max-age=10", ttl, Some((600, From::Operator))),
        (404, "", ttl, Some((600, From::Operator))),
        (500, "", ttl, None),
        (500, "cache-control: max-age=5", ttl, Some((5, From::Response))),
        (302, "", ttl, None),
        (200, "cache-control: max-age=10", default_ttl, Some((10, From::Response))),
        (200, "", default_ttl, Some((30, From::OperatorDefault))),
        (200, &modified, default_ttl, Some((30, From::OperatorDefault))),
        (503, "", default_ttl, None),
    ] {
        assert_eq!(lifetime_of(status, response, &rules), expect, "{status} {response}");
    }
}

#[test]
fn rfc9111_4_2_3_age_at_receipt() {
    for (response, expect_ms) in [
        // The response took 200 ms.
        ("", 200),
        (DATE, 200),
        ("date: Sun, 06 Nov 1994 08:49:27 GMT", 10_000),
        ("date: Sun, 06 Nov 1994 08:59:37 GMT", 200),
        ("age: 30", 30_200),
        ("age: 5\ndate: Sun, 06 Nov 1994 08:49:27 GMT", 10_000),
        ("age: 15\ndate: Sun, 06 Nov 1994 08:49:27 GMT", 15_200),
        ("age: 7, 9", 7_200),
        ("age: -1", 200),
        ("age: 1.5", 200),
        ("age: x", 200),
        ("age: 99999999999999999999999", DELTA_SECONDS_MAX * 1000 + 200),
    ] {
        let got = with_exchange(200, response, |e, _| initial_age_ms(e));
        assert_eq!(got, expect_ms, "{response}");
    }
}

fn freshness_of(response: &str, rules: &Rules) -> Freshness {
    with_exchange(200, response, |e, d| freshness(e, d, lifetime(e, d, rules), rules))
}

#[test]
fn age_at_receipt_shortens_what_the_response_states_but_not_the_operators_ttl() {
    let ttl = Rules { ttl_ms: Some(60_000), ..Rules::default() };
    for (response, rules, expect_s) in [
        ("age: 30\ncache-control: max-age=60", Rules::default(), 29),
        ("age: 90\ncache-control: max-age=60", Rules::default(), -31),
        ("age: 30", ttl, 60),
        ("", Rules::default(), 0),
    ] {
        let fresh_until_ms = freshness_of(response, &rules).fresh_until_ms;
        let got = (fresh_until_ms as i64 - NOW_MS as i64).div_euclid(1000);
        assert_eq!(got, expect_s, "{response}");
    }
    let no_cache = freshness_of("cache-control: no-cache, max-age=60", &ttl);
    assert!(no_cache.always_validate && no_cache.fresh_until_ms == 0);
    // A qualified no-cache is about its fields alone.
    let fields = freshness_of("cache-control: no-cache=\"x-a\", max-age=60", &Rules::default());
    assert!(!fields.always_validate && fields.fresh_until_ms > NOW_MS);
}

#[test]
fn rfc9111_4_2_4_and_rfc5861_stale_windows() {
    let rules = Rules {
        stale_while_revalidate_ms: Some(5_000),
        stale_if_error_ms: Some(50_000),
        ..Rules::default()
    };
    for (directives, expect) in [
        ("max-age=1", (5, 50, false)),
        ("max-age=1, stale-while-revalidate=7", (7, 50, false)),
        ("max-age=1, stale-if-error=8, stale-while-revalidate=0", (0, 8, false)),
        ("max-age=1, must-revalidate", (0, 0, true)),
        ("max-age=1, must-revalidate, stale-if-error=9", (0, 0, true)),
        ("max-age=1, proxy-revalidate, stale-while-revalidate=9", (0, 0, true)),
        ("s-maxage=1", (0, 0, true)),
        ("s-maxage=1, stale-while-revalidate=7", (7, 0, true)),
        ("no-cache", (0, 0, false)),
        ("no-cache, stale-if-error=9", (0, 0, false)),
    ] {
        let got = freshness_of(&format!("cache-control: {directives}"), &rules);
        let windows =
            (got.stale_while_revalidate_ms / 1000, got.stale_if_error_ms / 1000, got.never_stale);
        assert_eq!(windows, expect, "{directives}");
    }
}
