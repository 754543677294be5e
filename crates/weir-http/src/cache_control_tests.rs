//! Tests of [`super`]: directives one by one, tolerance of errors, targeted fields.

use super::*;
use proptest::prelude::*;

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

fn response(value: &str) -> ResponseDirectives {
    ResponseDirectives::parse(value.as_bytes())
}

fn request(value: &str) -> RequestDirectives {
    RequestDirectives::parse(value.as_bytes())
}

fn fields(names: &[&'static str]) -> Option<Scope> {
    Some(Scope::Fields(names.iter().map(|name| HeaderName::from_static(name)).collect()))
}

#[test]
fn every_response_directive() {
    let all = "max-age=1, S-MaxAge=2, stale-while-revalidate=3, stale-if-error=4, no-cache, \
        private, public, no-store, no-transform, must-revalidate, proxy-revalidate, \
        must-understand, immutable, unknown=\"a,no-store\"";
    let expect = ResponseDirectives {
        targeted: false,
        max_age: seconds(1),
        s_maxage: seconds(2),
        stale_while_revalidate: seconds(3),
        stale_if_error: seconds(4),
        no_cache: Some(Scope::Response),
        private: Some(Scope::Response),
        public: true,
        no_store: true,
        no_transform: true,
        must_revalidate: true,
        proxy_revalidate: true,
        must_understand: true,
        immutable: true,
    };
    assert_eq!(response(all), expect);
    assert_eq!(response(""), ResponseDirectives::default());
    assert_eq!(response("x=\"no-store, private\""), ResponseDirectives::default());
}

#[test]
fn lifetimes() {
    let check = |value: &str, expect: Option<Duration>| {
        assert_eq!(response(value).max_age, expect, "{value}");
    };
    check("max-age=3600", seconds(3600));
    check("MAX-AGE=\"3600\"", seconds(3600));
    check("max-age=003600", seconds(3600));
    check("max-age=1, max-age=2", seconds(1));
    check("max-age=99999999999999999999", seconds(DELTA_SECONDS_MAX));
    check("max-age=4294967296", seconds(DELTA_SECONDS_MAX));
    for invalid in [
        "max-age",
        "max-age=",
        "max-age=-1",
        "max-age=1.5",
        "max-age=a",
        "max-age=1a",
        "max-age='1'",
        "max-age=\"1",
        "max-age= 1",
        "max-age =1",
        "max-age=\"1\"x",
    ] {
        check(invalid, seconds(0));
    }
    check("xmax-age=1", None);
    check("max-age;=1", None);
    assert_eq!(response("s-maxage=x").s_maxage, seconds(0));
    assert_eq!(response("stale-while-revalidate=x").stale_while_revalidate, None);
}

#[test]
fn qualified_forms() {
    let check = |value: &str, expect: Option<Scope>| {
        assert_eq!(response(value).no_cache, expect, "{value}");
        let private = value.replace("no-cache", "private");
        assert_eq!(response(&private).private, expect, "{private}");
    };
    check("no-cache=\"Set-Cookie\"", fields(&["set-cookie"]));
    check("no-cache=\"a , b\", public", fields(&["a", "b"]));
    check("no-cache=a", fields(&["a"]));
    check("no-cache=\"a\", no-cache=\"b\"", fields(&["a", "b"]));
    check("no-cache=\"a\", no-cache", Some(Scope::Response));
    check("no-cache, no-cache=\"a\"", Some(Scope::Response));
    check("no-cache=\"\"", Some(Scope::Response));
    check("no-cache=\"a b\"", Some(Scope::Response));
    check("no-cache=\"a", Some(Scope::Response));
    let many: Vec<_> = (0..40).map(|n| format!("x{n}")).collect();
    check(&format!("no-cache=\"{}\"", many.join(",")), Some(Scope::Response));
}

#[test]
fn every_request_directive() {
    let all = "max-age=1, max-stale=2, min-fresh=3, stale-if-error=4, no-cache, no-store, \
        no-transform, only-if-cached";
    let expect = RequestDirectives {
        max_age: seconds(1),
        max_stale: seconds(2),
        min_fresh: seconds(3),
        stale_if_error: seconds(4),
        no_cache: true,
        no_store: true,
        no_transform: true,
        only_if_cached: true,
    };
    assert_eq!(request(all), expect);
    assert_eq!(request("max-stale").max_stale, Some(Duration::MAX));
    assert_eq!(request("max-stale=x").max_stale, seconds(0));
    assert_eq!(request("max-age=x").max_age, seconds(0));
    assert_eq!(request("min-fresh=x").min_fresh, None);
}

#[test]
fn pragma_counts_only_without_cache_control() {
    let of = |fields: &[(&'static str, &'static str)]| {
        let mut map = HeaderMap::new();
        for &(name, value) in fields {
            map.append(name, HeaderValue::from_static(value));
        }
        RequestDirectives::of(&map).no_cache
    };
    assert!(of(&[("pragma", "No-Cache")]));
    assert!(of(&[("pragma", "x, no-cache")]));
    assert!(!of(&[("pragma", "x")]));
    assert!(!of(&[("pragma", "no-cache"), ("cache-control", "max-age=1")]));
    assert!(of(&[("cache-control", "max-age=1"), ("cache-control", "no-cache")]));
    assert!(!of(&[]));
}

#[test]
fn targeted_field_wins_if_valid() {
    let of = |cdn: &[&'static str]| {
        let mut map = HeaderMap::new();
        map.append("cache-control", HeaderValue::from_static("max-age=1, no-store"));
        for line in cdn {
            map.append("cdn-cache-control", HeaderValue::from_static(line));
        }
        let found = ResponseDirectives::of(&map);
        (found.targeted, found.max_age, found.no_store, found.no_cache)
    };
    assert_eq!(of(&[]), (false, seconds(1), true, None));
    assert_eq!(of(&["max-age=9"]), (true, seconds(9), false, None));
    assert_eq!(of(&["max-age=9", "no-store"]), (true, seconds(9), true, None));
    assert_eq!(of(&["max-age=9, no-store=?0"]), (true, seconds(9), false, None));
    assert_eq!(of(&["no-cache=\"a, b\""]), (true, None, false, fields(&["a", "b"])));
    assert_eq!(of(&["max-age=-1"]), (true, seconds(0), false, None));
    assert_eq!(of(&["max-age=1.5"]), (true, None, false, None));
    // Not a dictionary, or empty: as if it were absent.
    assert_eq!(of(&["max-age=9,"]), (false, seconds(1), true, None));
    assert_eq!(of(&["Max-Age=9"]), (false, seconds(1), true, None));
    assert_eq!(of(&[""]), (false, seconds(1), true, None));
}

proptest! {
    #[test]
    fn never_panics(value in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = ResponseDirectives::parse(&value);
        let _ = RequestDirectives::parse(&value);
        let _ = ResponseDirectives::parse_targeted(&value);
    }

    #[test]
    fn other_directives_do_not_hide_no_store(before in "[a-z=, ]{0,20}", after in "[ -~]{0,20}") {
        let value = format!("{before},no-store,{after}");
        prop_assert!(ResponseDirectives::parse(value.as_bytes()).no_store);
        prop_assert!(RequestDirectives::parse(value.as_bytes()).no_store);
    }

    #[test]
    fn numbers_mean_themselves(number in 0..=DELTA_SECONDS_MAX) {
        prop_assert_eq!(response(&format!("max-age={number}")).max_age, seconds(number));
        prop_assert_eq!(request(&format!("max-age=\"{number}\"")).max_age, seconds(number));
    }
}

#[test]
fn a_glance_sees_a_plain_no_store() {
    let check = |lines: &[(&'static str, &str)], expect| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        assert_eq!(ResponseDirectives::glance_no_store(&headers), expect, "{lines:?}");
    };
    check(&[], false);
    check(&[("cache-control", "no-store")], true);
    check(&[("cache-control", "private, max-age=0,\tNo-Store ")], true);
    check(&[("cache-control", "private"), ("cache-control", "no-store")], true);
    check(&[("cache-control", "no-stores, max-age=60")], false);
    check(&[("cache-control", "no-store, must-understand")], false);
    check(&[("cache-control", "no-store"), ("cache-control", "Must-Understand")], false);
    check(&[("cache-control", "no-store"), ("cdn-cache-control", "max-age=60")], false);
    check(&[("cdn-cache-control", "no-store")], false);
}

#[test]
fn no_transform_is_seen_without_the_rest() {
    for (lines, expected) in [
        (&["no-transform"][..], true),
        (&["public, No-Transform ,max-age=1"], true),
        (&["no-transform=1", "x"], true),
        (&["max-age=1", "no-transform =\"x\""], true),
        (&["max-age=1"], false),
        (&["x=\"no-transform\""], false),
        (&["no-transforms, no transform"], false),
        (&[], false),
    ] {
        let lines =
            lines.iter().map(|line| (header::CACHE_CONTROL, HeaderValue::from_static(line)));
        let headers: HeaderMap = lines.collect();
        assert_eq!(forbids_transformation(&headers), expected, "{headers:?}");
    }
}

proptest! {
    #[test]
    fn no_transform_is_seen_where_all_is_read(value in "[ ,=\"a-]{0,6}(no-transform)?[ -~]{0,20}") {
        let mut headers = HeaderMap::new();
        headers.append(header::CACHE_CONTROL, HeaderValue::from_str(&value).unwrap());
        let seen = forbids_transformation(&headers);
        prop_assert_eq!(seen, response(&value).no_transform);
        prop_assert_eq!(seen, request(&value).no_transform);
    }
}
