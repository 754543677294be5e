//! Tests of [`super`]: what each kind of client becomes, trust, and the Forwarded grammar.

use super::*;
use proptest::prelude::*;

fn client(address: &str) -> Client<'static> {
    Client { address: address.parse().ok(), tls: false, host: "a.example", port: 80, trust: false }
}

#[track_caller]
fn check(before: &[(&'static str, &'static str)], client: &Client<'_>, expect: [&str; 5]) {
    let mut headers = HeaderMap::new();
    for &(name, value) in before {
        headers.append(name, HeaderValue::from_static(value));
    }
    add_client(&mut headers, client);
    let names = [
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
    ];
    for (name, expect) in names.into_iter().zip(expect) {
        let values: Vec<_> = headers.get_all(name).iter().collect();
        let found = match values.as_slice() {
            [] => "",
            [value] => value.to_str().unwrap(),
            _ => panic!("{name} has several lines"),
        };
        assert_eq!(found, expect, "{name}");
    }
}

#[test]
fn first_hop() {
    check(
        &[],
        &client("192.0.2.1"),
        ["for=192.0.2.1;host=a.example;proto=http", "192.0.2.1", "http", "a.example", "80"],
    );
    let v6 = Client { tls: true, host: "[::1]:8443", port: 8443, ..client("2001:db8::1") };
    check(
        &[],
        &v6,
        [
            "for=\"[2001:db8::1]\";host=\"[::1]:8443\";proto=https",
            "2001:db8::1",
            "https",
            "[::1]:8443",
            "8443",
        ],
    );
    let mapped = client("::ffff:192.0.2.1");
    check(
        &[],
        &mapped,
        ["for=192.0.2.1;host=a.example;proto=http", "192.0.2.1", "http", "a.example", "80"],
    );
    let unix = Client { host: "", ..client("") };
    check(&[], &unix, ["for=unknown;proto=http", "", "http", "", "80"]);
}

const BEFORE: [(&str, &str); 6] = [
    ("forwarded", "for=10.0.0.1;proto=https"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-for", "10.0.0.2"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "b.example"),
    ("x-forwarded-port", "443"),
];

#[test]
fn what_a_stranger_says_is_replaced() {
    check(
        &BEFORE,
        &client("192.0.2.1"),
        ["for=192.0.2.1;host=a.example;proto=http", "192.0.2.1", "http", "a.example", "80"],
    );
    check(
        &BEFORE,
        &Client { host: "", ..client("") },
        ["for=unknown;proto=http", "", "http", "", "80"],
    );
}

#[test]
fn what_is_added_is_what_is_stripped() {
    let mut headers = HeaderMap::new();
    add_client(&mut headers, &client("192.0.2.1"));
    assert_eq!(headers.len(), 5);
    headers.insert("x-other", HeaderValue::from_static("a"));
    headers.append(X_FORWARDED_FOR, HeaderValue::from_static("10.0.0.1"));
    strip_client(&mut headers);
    let left: Vec<_> = headers.keys().collect();
    assert_eq!(left, ["x-other"]);
}

#[test]
fn what_a_trusted_peer_says_is_added_to() {
    check(
        &BEFORE,
        &Client { trust: true, ..client("192.0.2.1") },
        [
            "for=10.0.0.1;proto=https, for=192.0.2.1;host=a.example;proto=http",
            "10.0.0.1, 10.0.0.2, 192.0.2.1",
            "https",
            "b.example",
            "443",
        ],
    );
}

#[test]
fn a_chain_that_would_swallow_our_element_is_replaced() {
    let trusted = Client { trust: true, ..client("192.0.2.1") };
    let expect = "for=192.0.2.1;host=a.example;proto=http";
    for broken in ["for=\"10.0.0.1", "for=10.0.0.1;", "garbage", "for=a b"] {
        let mut headers = HeaderMap::new();
        headers.insert(header::FORWARDED, HeaderValue::from_static(broken));
        add_client(&mut headers, &trusted);
        // A trailing semicolon is harmless and kept; the others are not Forwarded at all.
        let kept = broken.ends_with(';');
        let expect = if kept { format!("{broken}, {expect}") } else { expect.to_owned() };
        assert_eq!(headers[header::FORWARDED], expect, "{broken}");
    }
    let long = format!("for={}", "a".repeat(CHAIN_LEN_MAX));
    let mut headers = HeaderMap::new();
    headers.insert(header::FORWARDED, HeaderValue::from_str(&long).unwrap());
    headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&long).unwrap());
    add_client(&mut headers, &trusted);
    assert_eq!(headers[header::FORWARDED], expect);
    assert_eq!(headers[X_FORWARDED_FOR], "192.0.2.1");
}

#[test]
fn parses_elements() {
    let element = |client: &str| Element { client: Some(client.to_owned()), ..Element::default() };
    let check = |value: &str, expect: Option<Vec<Element>>| {
        assert_eq!(parse_forwarded(value.as_bytes()), expect, "{value}");
    };
    check("", Some(vec![]));
    check(
        "for=192.0.2.43, For=\"[2001:db8:cafe::17]:4711\"",
        Some(vec![element("192.0.2.43"), element("[2001:db8:cafe::17]:4711")]),
    );
    let full = Element {
        client: Some("_x".into()),
        by: Some("203.0.113.43".into()),
        host: Some("a:1".into()),
        proto: Some("http".into()),
    };
    check("for=_x;proto=http;by=203.0.113.43;host=\"a:1\";ext=1", Some(vec![full]));
    for broken in ["for", "=a", "for=[::1]", "for=a;for=b", "for=\"a", "f r=a", "for=a b"] {
        check(broken, None);
    }
}

proptest! {
    #[test]
    fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse_forwarded(&value);
    }

    #[test]
    fn our_element_is_always_the_last(before in "[ -~]{0,40}", host in "[!-~]{0,20}", v6: u128) {
        let mut headers = HeaderMap::new();
        headers.insert(header::FORWARDED, HeaderValue::from_str(&before).unwrap());
        let address = IpAddr::from(v6.to_be_bytes());
        add_client(&mut headers, &Client {
            address: Some(address), tls: true, host: &host, port: 443, trust: true,
        });
        let elements = parse_forwarded(headers[header::FORWARDED].as_bytes()).unwrap();
        let last = elements.last().unwrap();
        let node = match address.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        prop_assert_eq!(last.client.as_deref(), Some(node.as_str()));
        prop_assert_eq!(last.proto.as_deref(), Some("https"));
        prop_assert_eq!(last.host.as_deref(), Some(host.as_str()).filter(|host| !host.is_empty()));
    }
}
