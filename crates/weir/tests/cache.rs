//! The cache's decisions as a client and an origin see them: what is stored, for how long, for
//! whom, and when the origin is asked again (RFC 9111).

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::{self, Client, Response};
use common::origin::{Origin, Received, Step, answer};
use common::server::Weir;
use common::{PATIENCE, wait_for};

type Fields<'a> = &'a [(&'a str, &'a str)];

/// Weir with one route to an origin, with these lines in the route.
fn front(origin: &Origin, lines: &str) -> (Weir, SocketAddr) {
    Weir::front("", &format!(r#"route "/*" {{ proxy "{}"; {lines}; }}"#, origin.url()))
}

fn get(address: SocketAddr, target: &str, fields: Fields<'_>) -> Response {
    client::ask(address, "GET", target, fields)
}

fn cache_status(response: &Response) -> &str {
    response.header("cache-status").unwrap_or_default()
}

fn is_hit(response: &Response) -> bool {
    cache_status(response).starts_with("weir; hit")
}

/// An origin whose answer to its nth request, from 0, is `script(n, request)`.
fn counting(
    script: impl Fn(usize, &Received) -> Vec<Step> + Send + Sync + 'static,
) -> (Origin, impl Fn() -> usize) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let origin = Origin::start(move |request| script(count.fetch_add(1, SeqCst), request));
    (origin, move || counted.load(SeqCst))
}

#[test]
fn a_stored_response_comes_back_byte_for_byte() {
    for size in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20] {
        let body: Vec<u8> = (0..size).map(|n: u32| (n * 7 % 253) as u8).collect();
        let sent = body.clone();
        let fields = "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nX-Own: a\r\nX-Own: b\r\n\
                      Content-Type: x/y\r\nAge: 5\r\n";
        let (origin, count) = counting(move |_, _| answer("200 OK", fields, &sent));
        let (_weir, address) = front(&origin, "");
        let mut client = Client::connect(address).unwrap();
        let first = client.ask("GET", "/a", &[]).unwrap();
        let second = client.ask("GET", "/a", &[]).unwrap();
        assert_eq!(count(), 1, "{size} bytes");
        assert!(first.body == body && second.body == body, "{size} bytes came back changed");
        assert!(cache_status(&first).contains("fwd=uri-miss"), "{}", cache_status(&first));
        assert!(cache_status(&first).contains("stored"), "{}", cache_status(&first));
        assert!(is_hit(&second), "{}", cache_status(&second));
        let age: u64 = second.header("age").unwrap().parse().unwrap();
        assert!((5..20).contains(&age), "age {age}");
        for name in ["etag", "content-type", "x-own", "content-length"] {
            let values = |response: &Response| -> Vec<String> {
                let fields = response.headers.iter().filter(|(n, _)| n == name);
                fields.map(|(_, value)| value.clone()).collect()
            };
            assert_eq!(values(&first), values(&second), "{name}");
            assert!(!values(&first).is_empty(), "{name}");
        }
    }
}

/// Two equal requests one after the other: is the origin asked once?
fn is_stored(lines: &str, status: &str, response: &str, request: Fields<'_>) -> bool {
    let (status, response) = (status.to_owned(), response.to_owned());
    let (origin, count) = counting(move |_, _| answer(&status, &response, b"body"));
    let (_weir, address) = front(&origin, lines);
    let mut client = Client::connect(address).unwrap();
    let bodies = [(); 2].map(|()| client.ask("GET", "/a", request).unwrap().body);
    assert_eq!(bodies, [b"body", b"body"]);
    count() == 1
}

/// One client must not be able to keep a URL out of the cache for all others.
#[test]
fn a_request_that_confines_its_response_keeps_nobody_else_from_storing() {
    for field in [("Cache-Control", "no-store"), ("Authorization", "Basic eDp5")] {
        let fields = "Cache-Control: max-age=60\r\n";
        let (origin, count) = counting(|_, _| answer("200 OK", fields, b"body"));
        let (_weir, address) = front(&origin, "");
        assert!(!cache_status(&get(address, "/a", &[field])).contains("stored"), "{field:?}");
        let next = get(address, "/a", &[]);
        assert!(cache_status(&next).contains("stored"), "{field:?}: {}", cache_status(&next));
        assert!(is_hit(&get(address, "/a", &[])), "{field:?}");
        assert_eq!(count(), 2, "{field:?}");
    }
}

#[test]
fn only_what_may_be_stored_is() {
    let check = |response: &str, request: Fields<'_>, expect: bool| {
        let stored = is_stored("", "200 OK", response, request);
        assert_eq!(stored, expect, "{response:?} to {request:?}");
    };
    const FRESH: &str = "Cache-Control: max-age=60\r\n";
    const KEY: (&str, &str) = ("Authorization", "Basic eDp5");
    check(FRESH, &[], true);
    check("Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n", &[], true);
    check("Cache-Control: max-age=0, s-maxage=60\r\n", &[], true);
    check("Cache-Control: no-store\r\n", &[], false);
    check("Cache-Control: max-age=60, no-store\r\n", &[], false);
    check("Cache-Control: max-age=60\r\nCache-Control: private\r\n", &[], false);
    check("Cache-Control: no-cache\r\n", &[], false);
    check("", &[], false);
    check(&format!("{FRESH}Vary: *\r\n"), &[], false);
    check(&format!("{FRESH}Set-Cookie: a=b\r\n"), &[], false);
    check("Cache-Control: public, max-age=60\r\nSet-Cookie: a=b\r\n", &[], true);
    check(FRESH, &[KEY], false);
    check("Cache-Control: public, max-age=60\r\n", &[KEY], true);
    check("Cache-Control: s-maxage=60\r\n", &[KEY], true);
    check(FRESH, &[("Cache-Control", "no-store")], false);
    check(&format!("{FRESH}Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n"), &[], true);
    // Heuristic: a tenth of twenty years, at most a day.
    check("Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\n", &[], true);
    check("Cache-Control: max-age=soon\r\n", &[], false);
}

#[test]
fn statuses_and_routes_decide_too() {
    let check = |lines: &str, status: &str, response: &str, expect: bool| {
        let stored = is_stored(lines, status, response, &[]);
        assert_eq!(stored, expect, "{status} with {response:?} where {lines:?}");
    };
    check("", "404 Not Found", "Cache-Control: max-age=60\r\n", true);
    check("", "500 Oh", "", false);
    check("cache ttl=\"1h\"", "200 OK", "", true);
    check("cache ttl=\"1h\"", "200 OK", "Cache-Control: max-age=0\r\n", true);
    check("cache ttl=\"1h\"", "200 OK", "Set-Cookie: a=b\r\n", true);
    check("cache ttl=\"1h\"", "200 OK", "Cache-Control: private\r\n", false);
    check("cache ttl=\"1h\"", "502 Bad Gateway", "", false);
    check("cache default-ttl=\"1h\"", "200 OK", "", true);
    check("cache default-ttl=\"1h\"", "200 OK", "Cache-Control: max-age=0\r\n", false);
    check("cache \"off\"", "200 OK", "Cache-Control: max-age=60\r\n", false);
}

#[test]
fn a_lifetime_ends() {
    let fresh = "Cache-Control: max-age=1\r\n";
    let (origin, count) = counting(move |n, _| answer("200 OK", fresh, n.to_string().as_bytes()));
    let (_weir, address) = front(&origin, "");
    let start = Instant::now();
    assert_eq!(get(address, "/a", &[]).body, b"0");
    let renewed = wait_for(PATIENCE, || (get(address, "/a", &[]).body == b"1").then_some(()));
    assert!(renewed.is_some() && start.elapsed() >= Duration::from_millis(900), "too early");
    assert_eq!(count(), 2);
}

#[test]
fn what_is_stale_is_validated() {
    let check = |validator: &'static str, condition: &str, expect: &str| {
        let (origin, count) = counting(move |n, _| {
            let fields =
                |age: u32| format!("Cache-Control: max-age={age}\r\n{validator}\r\nX-N: {n}\r\n");
            match n {
                0 => answer("200 OK", &fields(0), b"old"),
                1 => vec![Step::Send(
                    format!("HTTP/1.1 304 Not Modified\r\n{}\r\n", fields(60)).into_bytes(),
                )],
                _ => answer("200 OK", &fields(60), b"new"),
            }
        });
        let (_weir, address) = front(&origin, "");
        assert_eq!(get(address, "/a", &[]).body, b"old");
        // The client's own condition says nothing about what is stored here.
        let again = get(address, "/a", &[]);
        assert_eq!((again.status, &again.body[..]), (200, &b"old"[..]), "{validator}");
        assert!(cache_status(&again).contains("fwd=stale"), "{}", cache_status(&again));
        assert!(cache_status(&again).contains("fwd-status=304"), "{}", cache_status(&again));
        assert_eq!(again.header("x-n"), Some("1"), "the 304 brings new fields");
        assert_eq!(origin.take()[1].values(condition), [expect]);
        let third = get(address, "/a", &[]);
        assert!(is_hit(&third) && third.body == b"old", "{}", cache_status(&third));
        assert_eq!(get(address, "/a", &[("Cache-Control", "no-cache")]).body, b"new");
        assert_eq!(get(address, "/a", &[]).body, b"new");
        assert_eq!(count(), 3);
    };
    let date = "Sat, 01 Jan 2000 00:00:00 GMT";
    check("ETag: \"v1\"", "If-None-Match", "\"v1\"");
    check("ETag: W/\"v1\"", "If-None-Match", "W/\"v1\"");
    check("Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT", "If-Modified-Since", date);
}

/// What was stored is asked for anew, without conditions, by the request that has found it out.
#[test]
fn an_origin_that_confirms_something_else_is_asked_for_all() {
    let (origin, count) = counting(|n, request| {
        let conditions = request.values("if-none-match").len();
        match (n, conditions) {
            (0, 0) => answer("200 OK", "Cache-Control: max-age=0\r\nETag: \"a\"\r\n", b"old"),
            (_, 1) => answer("304 Not Modified", "ETag: \"b\"\r\n", b""),
            _ => answer("200 OK", "Cache-Control: max-age=9\r\nETag: \"b\"\r\n", b"new"),
        }
    });
    let (weir, address) = front(&origin, "");
    assert_eq!(get(address, "/a", &[]).body, b"old");
    let anew = get(address, "/a", &[]);
    assert_eq!((anew.status, &*anew.body, count()), (200, &b"new"[..], 3));
    let said = cache_status(&anew);
    assert!(said.contains("fwd=stale") && said.contains("fwd-status=200; stored"), "{said}");
    assert!(is_hit(&get(address, "/a", &[])));
    weir.wait_for_log("confirmed a response that it was not asked about");
}

#[test]
fn a_request_says_what_it_takes() {
    let (origin, count) =
        counting(|_, _| answer("200 OK", "Cache-Control: max-age=600\r\nAge: 100\r\n", b"x"));
    let (_weir, address) = front(&origin, "");
    let check = |target: &str, directives: &str, status: u16, asked: usize| {
        let before = count();
        let got = get(address, target, &[("Cache-Control", directives)]);
        assert_eq!((got.status, count() - before), (status, asked), "{target} {directives}");
    };
    check("/none", "only-if-cached", 504, 0);
    let head = client::ask(address, "HEAD", "/none", &[("Cache-Control", "only-if-cached")]);
    assert_eq!((head.status, count()), (504, 0));
    check("/a", "x", 200, 1);
    check("/a", "only-if-cached", 200, 0);
    check("/a", "max-age=0", 200, 1);
    check("/a", "no-cache", 200, 1);
    check("/a", "max-age=50", 200, 1);
    check("/a", "max-age=200", 200, 0);
    check("/a", "min-fresh=400", 200, 0);
    check("/a", "min-fresh=550", 200, 1);
    let before = count();
    get(address, "/a", &[("Pragma", "no-cache")]);
    assert_eq!(count() - before, 1, "Pragma");
}

#[test]
fn variants_are_told_apart_by_every_field_that_varies() {
    let (origin, count) = counting(|_, request| {
        let body =
            format!("{:?} {:?}", request.values("accept-language"), request.values("x-tier"));
        let fields = "Cache-Control: max-age=60\r\nVary: Accept-Language, X-Tier\r\n";
        answer("200 OK", fields, body.as_bytes())
    });
    let (_weir, address) = front(&origin, "");
    let variants: [Fields<'_>; 5] = [
        &[("Accept-Language", "de"), ("X-Tier", "gold")],
        &[("Accept-Language", "de"), ("X-Tier", "iron")],
        &[("Accept-Language", "en"), ("X-Tier", "gold")],
        &[("Accept-Language", "en")],
        &[],
    ];
    let first = variants.map(|fields| get(address, "/a", fields).body);
    assert_eq!(count(), 5);
    for (fields, body) in variants.iter().zip(&first) {
        let again = get(address, "/a", fields);
        assert!(is_hit(&again) && again.body == *body, "{fields:?}: {}", cache_status(&again));
    }
    assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), 5);
    get(address, "/a", &[("Accept-Language", "fr"), ("X-Other", "1")]);
    assert_eq!(count(), 6);
}

#[test]
fn stale_is_sent_while_it_is_renewed() {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=600\r\n";
    let (origin, count) = counting(move |n, _| {
        let pause = Step::Pause(Duration::from_millis(if n == 1 { 500 } else { 0 }));
        vec![pause, answer("200 OK", fields, n.to_string().as_bytes()).remove(0)]
    });
    let (_weir, address) = front(&origin, "");
    get(address, "/a", &[]);
    let start = Instant::now();
    let stale = get(address, "/a", &[]);
    assert!(start.elapsed() < Duration::from_millis(450), "the client waited for the origin");
    assert_eq!(stale.body, b"0");
    assert!(cache_status(&stale).contains("stale-while-revalidate"), "{}", cache_status(&stale));
    let renewed = wait_for(PATIENCE, || (get(address, "/a", &[]).body != b"0").then_some(()));
    assert!(renewed.is_some() && count() >= 2);
}

#[test]
fn stale_is_sent_when_the_origin_is_dead_or_fails_and_only_where_allowed() {
    let check = |directives: &str, lines: &str, expect: u16| {
        let fields = format!("Cache-Control: {directives}\r\nETag: \"a\"\r\nConnection: close\r\n");
        let (origin, _) = counting(move |n, _| match n {
            0 => vec![answer("200 OK", &fields, b"good").remove(0), Step::Close],
            _ => vec![answer("503 Oh", "Connection: close\r\n", b"bad").remove(0), Step::Close],
        });
        let (_weir, address) = front(&origin, lines);
        assert_eq!(get(address, "/a", &[]).body, b"good");
        let failing = get(address, "/a", &[]);
        let status = if expect == 200 { 200 } else { 503 };
        assert_eq!(failing.status, status, "{directives} {lines}, failing");
        assert_eq!(failing.body == b"good", expect == 200);
        let origin_address = origin.address;
        drop(origin);
        let dead = || std::net::TcpStream::connect(origin_address).is_err().then_some(());
        assert!(wait_for(PATIENCE, dead).is_some());
        let dead = get(address, "/a", &[]);
        assert_eq!(dead.status, expect, "{directives} {lines}, dead");
        assert_eq!(cache_status(&dead).contains("stale-if-error"), expect == 200);
    };
    check("max-age=0, stale-if-error=600", "", 200);
    check("max-age=0", "cache stale-if-error=\"10m\"", 200);
    check("max-age=0", "", 502);
    check("max-age=0, must-revalidate, stale-if-error=600", "", 502);
}

#[test]
fn an_unsafe_request_that_succeeds_invalidates() {
    let check = |method: &str, status: &'static str, target: &str, refetched: bool| {
        let (origin, count) = counting(move |_, request| match request.line().starts_with("GET") {
            true => answer("200 OK", "Cache-Control: max-age=600\r\n", b"x"),
            false => answer(status, "Location: /other\r\n", b""),
        });
        let (_weir, address) = front(&origin, "");
        get(address, target, &[]);
        client::ask(address, method, "/a", &[("Content-Length", "0")]);
        get(address, target, &[]);
        assert_eq!(count() == 3, refetched, "{method} {status} {target}");
    };
    check("POST", "204 No Content", "/a", true);
    check("PUT", "201 Created", "/a", true);
    check("DELETE", "200 OK", "/a", true);
    check("POST", "201 Created", "/other", true);
    check("POST", "201 Created", "/third", false);
    check("POST", "500 Oh", "/a", false);
    check("OPTIONS", "200 OK", "/a", false);
}

#[test]
fn what_cannot_be_stored_is_not_waited_for() {
    let (origin, count) = counting(|n, _| {
        let pause = Step::Pause(Duration::from_millis(if n == 0 { 0 } else { 300 }));
        vec![pause, answer("200 OK", "Cache-Control: private\r\n", b"x").remove(0)]
    });
    let (_weir, address) = front(&origin, "");
    get(address, "/a", &[]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| assert_eq!(get(address, "/a", &[]).status, 200));
        }
    });
    assert_eq!(count(), 11);
    assert!(start.elapsed() < Duration::from_secs(2), "one after the other: {:?}", start.elapsed());
}

/// One odd request does not keep a URL from being stored for the others.
#[test]
fn an_odd_request_keeps_no_url_from_being_stored() {
    let (origin, count) = counting(|_, request| match request.values("accept").concat().as_str() {
        "x/y" => answer("406 Not Acceptable", "", b"no"),
        accept => {
            answer("200 OK", "Cache-Control: max-age=600\r\nVary: Accept\r\n", accept.as_bytes())
        }
    });
    let (_weir, address) = front(&origin, "");
    assert_eq!(get(address, "/a", &[("Accept", "x/y")]).status, 406);
    assert_eq!(get(address, "/a", &[("Accept", "x/y")]).status, 406);
    let text = [("Accept", "text/html")];
    assert!(cache_status(&get(address, "/a", &text)).contains("stored"));
    let hit = get(address, "/a", &text);
    assert!(is_hit(&hit) && hit.body == b"text/html", "{:?}", hit.headers);
    // The variant is as its request was.
    assert_eq!(get(address, "/a", &[("Accept", "text/plain")]).body, b"text/plain");
    assert_eq!(count(), 4);
}

/// Under a mark, requests for a part or for themselves go to the origin as they are, and what they
/// get is not stored.
#[test]
fn under_a_mark_only_whole_answers_for_all_are_stored() {
    const KEPT: &str = "Cache-Control: max-age=600\r\n";
    let check = |fields: Fields<'static>, status: &'static str, stored: bool| {
        let (origin, count) = counting(move |n, request| match n {
            0 => answer("500 Oh", "", b"no"),
            _ => {
                let came = fields.iter().all(|(name, value)| request.values(name) == [*value]);
                answer(if came { status } else { "400 Changed" }, KEPT, b"body")
            }
        });
        let (_weir, address) = front(&origin, "");
        assert_eq!(get(address, "/a", fields).status, 500, "{fields:?}");
        let got = get(address, "/a", fields);
        assert!(status.starts_with(&got.status.to_string()), "{fields:?}: {}", got.status);
        assert_eq!(cache_status(&got).contains("stored"), stored, "{fields:?}");
        let next = get(address, "/a", &[]);
        assert_eq!(is_hit(&next), stored, "{fields:?}");
        assert_eq!(count(), 3 - usize::from(stored), "{fields:?}");
    };
    check(&[], "200 OK", true);
    check(&[("Accept", "x/y")], "200 OK", true);
    check(&[("Range", "bytes=0-1")], "206 Partial Content", false);
    check(&[("Range", "bytes=9-")], "416 Range Not Satisfiable", false);
    check(&[("If-Match", "\"a\"")], "412 Precondition Failed", false);
    check(&[("Authorization", "Basic eDp5")], "200 OK", false);
    check(&[("Cache-Control", "no-store")], "200 OK", false);
}

/// A part of what cannot be stored is the origin's to cut: the whole is not sent in its place.
#[test]
fn a_range_of_what_cannot_be_stored_is_asked_of_the_origin() {
    let check = |kept: &'static str, size: usize| {
        let (origin, count) = counting(move |_, request| {
            let body: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            match request.values("range").concat().as_str() {
                "" => answer("200 OK", kept, &body),
                _ => {
                    let fields = format!("{kept}Content-Range: bytes 10-19/{size}\r\n");
                    answer("206 Partial Content", &fields, &body[10..20])
                }
            }
        });
        let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
        let (_weir, address) =
            Weir::front("cache { memory \"8MiB\"; object-max \"128KiB\"; }", &route);
        let mut client = Client::connect(address).unwrap();
        for asked in [2, 3] {
            let got = client.ask("GET", "/a", &[("Range", "bytes=10-19")]).unwrap();
            assert_eq!(
                (got.status, got.body.as_slice()),
                (206, &[10, 11, 12, 13, 14, 15, 16, 17, 18, 19][..])
            );
            assert_eq!(count(), asked, "{kept}, {size} bytes");
        }
        assert_eq!(get(address, "/a", &[]).body.len(), size);
    };
    check("Cache-Control: max-age=600\r\n", 4 << 20);
    check("Cache-Control: no-store\r\n", 4 << 20);
    check("Cache-Control: no-store\r\n", 100);
}

/// What Weir says in the place of an origin that failed tells that it was asked, and what happened.
#[test]
fn an_origins_failure_is_told_in_cache_status() {
    let origin = Origin::start(|_| vec![Step::Close]);
    let dead = common::free_address();
    let url = origin.url();
    let (weir, address) = Weir::front(
        "",
        &format!(
            "route \"/dead\" {{ proxy \"http://{dead}\"; }}\n\
             route \"/shut\" {{ proxy \"{url}\"; }}\n\
             route \"/off\" {{ proxy \"{url}\"; cache \"off\"; }}"
        ),
    );
    let check = |target: &str, expect: Option<&str>| {
        let got = get(address, target, &[]);
        assert_eq!((got.status, got.header("cache-status")), (502, expect), "{target}");
    };
    check("/dead", Some("weir; fwd=uri-miss; detail=\"connect\""));
    check("/shut", Some("weir; fwd=uri-miss; detail=\"closed_early\""));
    check("/off", None);
    // Nothing was left out before the first warning.
    weir.wait_for_log("upstream server failed");
    assert!(!weir.log().contains("unsaid=0"), "{}", weir.log());
}
