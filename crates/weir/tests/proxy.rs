//! The proxy's duties on real sockets: what an origin gets of a request and a client of a
//! response, byte for byte, and which requests are sent again when an origin goes away.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::client::{self, Client};
use common::origin::{self, Origin, Received, Step, answer, ok, read_head};
use common::server::Weir;

/// Weir with one route to an origin that answers every request alike.
fn before(origin: &Origin) -> (Weir, std::net::SocketAddr) {
    Weir::front("", &format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url()))
}

fn one(origin: &Origin) -> Received {
    let mut received = origin.take();
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(origin.take_oddities().is_empty());
    received.remove(0)
}

/// Fields a client sends to mislead, and those that concern its own connection only.
const HOSTILE: &[(&str, &str)] = &[
    ("Forwarded", "for=192.0.2.7;proto=https"),
    ("X-Forwarded-For", "192.0.2.7"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Port", "99"),
    ("Connection", "keep-alive, X-Hop"),
    ("X-Hop", "1"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Connection", "keep-alive"),
    ("TE", "gzip, trailers"),
    ("Upgrade", "foo"),
    ("X-End", "stays"),
];

#[test]
fn an_origin_gets_the_truth_about_the_hop_and_nothing_of_it() {
    let origin = Origin::start(|_| ok("x"));
    let (_weir, address) = before(&origin);
    assert_eq!(client::ask(address, "GET", "/a", HOSTILE).status, 200);
    let got = one(&origin);
    let port = address.port().to_string();
    let check = |name: &str, expect: &[&str]| assert_eq!(got.values(name), expect, "{name}");
    check("Forwarded", &["for=127.0.0.1;host=site.example;proto=http"]);
    check("X-Forwarded-For", &["127.0.0.1"]);
    check("X-Forwarded-Proto", &["http"]);
    check("X-Forwarded-Host", &["site.example"]);
    check("X-Forwarded-Port", &[&port]);
    let via = got.values("Via").join(", ");
    let id = via.strip_prefix("1.1 weir-").expect("a name of the route's own");
    assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{via}");
    check("X-End", &["stays"]);
    for gone in ["X-Hop", "Keep-Alive", "Proxy-Connection", "Upgrade"] {
        check(gone, &[]);
    }
    assert!(!got.values("Connection").iter().any(|value| value.contains("Hop")));
    assert!(!got.values("TE").iter().any(|value| value.contains("gzip")), "{:?}", got.values("TE"));
}

/// What origins are told is kept for a connection, and must not outlive the Host it was made for.
#[test]
fn every_request_of_a_connection_is_told_of_as_it_is() {
    let origin = Origin::start(|_| ok("x"));
    let edits = r#"request-header { set "X-Forwarded-Host" "edited"; remove "Forwarded" }"#;
    let proxy = format!(r#"proxy "{}"; cache "off""#, origin.url());
    let routes = format!("route \"/*\" {{ {proxy} }}\nroute \"/edited/*\" {{ {proxy}; {edits} }}");
    let (_weir, address) = Weir::front("", &routes);
    let mut client = Client::connect(address).unwrap();
    for (target, host, forwarded, told) in [
        ("/", "site.example", Some("for=127.0.0.1;host=site.example;proto=http"), "site.example"),
        (
            "/",
            "site.example:1",
            Some("for=127.0.0.1;host=\"site.example:1\";proto=http"),
            "site.example:1",
        ),
        ("/", "site.example", Some("for=127.0.0.1;host=site.example;proto=http"), "site.example"),
        ("/edited/a", "site.example", None, "edited"),
    ] {
        let fields = [("Host", host), ("Forwarded", "for=evil"), ("X-Forwarded-Host", "evil")];
        assert_eq!(client.ask("GET", target, &fields).unwrap().status, 200);
        let got = one(&origin);
        assert_eq!(got.values("Forwarded"), Vec::from_iter(forwarded), "{target} {host}");
        assert_eq!(got.values("X-Forwarded-Host"), [told], "{target} {host}");
        assert_eq!(got.values("X-Forwarded-For"), ["127.0.0.1"], "{target} {host}");
    }
}

#[test]
fn a_trusted_proxy_is_believed_and_added_to() {
    let origin = Origin::start(|_| ok("x"));
    let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
    let server = r#"server { admin "off"; trusted-proxies "10.0.0.0/8" "127.0.0.0/8"; }"#;
    let (_weir, address) = Weir::front(server, &route);
    client::ask(address, "GET", "/a", HOSTILE);
    let got = one(&origin);
    let ours = "for=127.0.0.1;host=site.example;proto=http";
    let forwarded = format!("for=192.0.2.7;proto=https, {ours}");
    assert_eq!(got.values("Forwarded"), [forwarded]);
    assert_eq!(got.values("X-Forwarded-For"), ["192.0.2.7, 127.0.0.1"]);
    assert_eq!(got.values("X-Forwarded-Proto"), ["https"]);
    assert_eq!(got.values("X-Forwarded-Host"), ["evil.example"]);
}

#[test]
fn a_client_is_placed_by_the_address_that_a_trusted_proxy_names() {
    let origins = [(); 4].map(|()| Origin::start(|_| ok("x")));
    let servers: String =
        origins.iter().map(|origin| format!("server \"{}\"; ", origin.url())).collect();
    let upstream = format!("upstream \"app\" {{ {servers} balance \"hash\" key=\"client\"; }}");
    let route = "route \"/*\" { proxy \"app\"; cache \"off\"; }";
    let check = |trusted: &str, used: std::ops::RangeInclusive<usize>| {
        let server = format!("server {{ admin \"off\"; {trusted} }}");
        let (_weir, address) = Weir::front(&format!("{server}\n{upstream}"), route);
        for client in 1..=40 {
            // What a client wrote itself stands before, and must not count.
            let told = format!("203.0.113.{client}, 192.0.2.{}", client % 20);
            client::ask(address, "GET", "/", &[("X-Forwarded-For", &told)]);
        }
        let took: Vec<Vec<_>> = origins.iter().map(Origin::take).collect();
        let busy = took.iter().filter(|requests| !requests.is_empty()).count();
        assert!(used.contains(&busy), "{trusted}: {busy} servers were used");
        for requests in &took {
            for request in requests {
                let last = &request.values("X-Forwarded-For")[0];
                assert!(last.ends_with("127.0.0.1"), "the origin gets the whole chain: {last}");
            }
        }
        took
    };
    check("", 1..=1);
    let took = check("trusted-proxies \"127.0.0.0/8\";", 2..=4);
    // Twenty clients came twice each, and each to the same server.
    for requests in took {
        let mut clients: Vec<_> = requests
            .iter()
            .map(|request| {
                request.values("X-Forwarded-For")[0].split(", ").nth(1).unwrap().to_owned()
            })
            .collect();
        clients.sort();
        assert!(clients.chunks(2).all(|pair| pair.len() == 2 && pair[0] == pair[1]), "{clients:?}");
    }
}

#[test]
fn a_client_gets_nothing_of_the_hop_behind() {
    let fields = "Connection: X-Private\r\nX-Private: secret\r\nKeep-Alive: timeout=5\r\n\
                  Proxy-Connection: keep-alive\r\nUpgrade: h2c\r\nVia: 1.0 old\r\n\
                  X-End: stays\r\nCache-Control: no-store\r\n";
    let origin = Origin::start(move |_| answer("200 OK", fields, b"x"));
    let (_weir, address) = before(&origin);
    let got = client::ask(address, "GET", "/a", &[]);
    for gone in ["x-private", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(got.header(gone), None);
    }
    let all = |name: &str| -> Vec<&str> {
        got.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
    };
    assert_eq!(all("via").join(", "), "1.0 old, 1.1 weir");
    assert_eq!((all("x-end"), &got.body[..]), (vec!["stays"], &b"x"[..]));
}

#[test]
fn hosts_and_paths_are_rewritten_as_configured() {
    let origin = Origin::start(|_| ok("x"));
    let url = origin.url();
    let routes = format!(
        r#"
        route "/client/*" {{ proxy "{url}"; }}
        route "/upstream/*" {{ proxy "{url}" host="upstream"; }}
        route "/fixed/*" {{ proxy "{url}" host="fixed.example:81"; }}
        route "/strip/*" {{ proxy "{url}" strip-prefix=#true; }}
        route "/url/*" {{ proxy "{url}/shop" strip-prefix=#true; }}
        route "/group/*" {{ proxy "app" path-prefix="/api"; }}
        "#
    );
    let (_weir, address) =
        Weir::front(&format!(r#"upstream "app" {{ server "{url}"; }}"#), &routes);
    let own = origin.address.to_string();
    let check = |asked: &str, target: &str, host: &str| {
        client::ask(address, "GET", asked, &[("Cache-Control", "no-store")]);
        let got = one(&origin);
        assert_eq!(got.line(), format!("GET {target} HTTP/1.1"), "{asked}");
        assert_eq!(got.values("Host"), [host], "{asked}");
    };
    check("/client/a?q=1", "/client/a?q=1", "site.example");
    check("/upstream/a", "/upstream/a", &own);
    check("/fixed/a", "/fixed/a", "fixed.example:81");
    check("/strip/a/b?q", "/a/b?q", "site.example");
    check("/strip/", "/", "site.example");
    check("/url/a", "/shop/a", "site.example");
    check("/group/a", "/api/group/a", "site.example");
    // What is encoded stays encoded: the origin decides what it means.
    check("/client/a%2Fb%20c?x=%26", "/client/a%2Fb%20c?x=%26", "site.example");
}

#[test]
fn options_of_the_server_as_a_whole_are_asked_as_such() {
    let origin = Origin::start(|_| ok("x"));
    let (_weir, address) = before(&origin);
    for (target, line) in [("*", "OPTIONS * HTTP/1.1"), ("/a", "OPTIONS /a HTTP/1.1")] {
        assert_eq!(client::ask(address, "OPTIONS", target, &[]).status, 200);
        assert_eq!(one(&origin).line(), line);
    }
    let site = format!(r#"route "/*" {{ proxy "{}/base"; }}"#, origin.url());
    let (_weir, address) = Weir::front("", &site);
    assert_eq!(client::ask(address, "OPTIONS", "*", &[]).status, 200);
    assert_eq!(one(&origin).line(), "OPTIONS /base/ HTTP/1.1");
}

#[test]
fn a_client_that_expects_100_gets_it_when_the_body_is_wanted() {
    let origin = Origin::start(|request| ok(&format!("{} bytes", request.body.len())));
    let (_weir, address) = before(&origin);
    let mut client = Client::connect(address).unwrap();
    client
        .send(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert!(client.head().unwrap().starts_with(b"HTTP/1.1 100 "));
    client.send(b"hello").unwrap();
    assert_eq!(client.response("POST").unwrap().body, b"5 bytes");
    assert_eq!(one(&origin).body, b"hello");
}

#[test]
fn request_bodies_keep_their_framing_and_trailers() {
    let origin = origin::raw(|_, mut stream| {
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        let ends = |got: &[u8]| client::find(got, b"\r\n0\r\n").is_some();
        while !(ends(&got) && got.ends_with(b"\r\n\r\n")) {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => got.extend_from_slice(&buffer[..count]),
            }
        }
        let at = client::find(&got, b"\r\n\r\n").map_or(0, |at| at + 4);
        let body = got[at..].escape_ascii().to_string().to_lowercase();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(head.as_bytes());
    });
    let (_weir, address) =
        Weir::front("", &format!(r#"route "/*" {{ proxy "http://{origin}"; }}"#));
    let mut client = Client::connect(address).unwrap();
    client
        .send(
            b"POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
              3\r\nabc\r\n",
        )
        .unwrap();
    client.send(b"4;x=y\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n").unwrap();
    let got = String::from_utf8(client.response("POST").unwrap().body).unwrap();
    // Where chunks begin and end is nobody's business.
    let joined = got.replace(r"3\r\nabc\r\n4\r\ndefg", r"7\r\nabcdefg");
    assert_eq!(joined, r"7\r\nabcdefg\r\n0\r\nx-sum: 7\r\n\r\n");
}

#[test]
fn response_trailers_reach_a_client_that_takes_them() {
    let origin = Origin::start(|_| {
        let text = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTrailer: X-Sum\r\n\
                    Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n";
        vec![Step::Send(text.into())]
    });
    let (_weir, address) = before(&origin);
    let mut client = Client::connect(address).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n";
    client.send(request.as_bytes()).unwrap();
    let got = client.read_to_end().unwrap().escape_ascii().to_string().to_lowercase();
    assert!(got.ends_with(r"3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n"), "{got}");
}

#[test]
fn a_body_is_passed_on_as_it_comes() {
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let origin = origin::raw(move |_, mut stream| {
        read_head(&mut stream).unwrap();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // The rest comes only after the client has seen the beginning.
        gone.lock().unwrap().recv_timeout(common::PATIENCE).unwrap();
        stream.write_all(b"4\r\nlast\r\n0\r\n\r\n").unwrap();
        let _ = read_head(&mut stream);
    });
    for cache in ["cache \"off\"", "cache ttl=\"1h\""] {
        let route = format!(r#"route "/*" {{ proxy "http://{origin}"; {cache}; }}"#);
        let (_weir, address) = Weir::front("", &route);
        let mut client = Client::connect(address).unwrap();
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client.head().unwrap();
        assert_eq!(client.take(10).unwrap(), b"5\r\nfirst\r\n", "{cache}");
        go.send(()).unwrap();
        assert_eq!(client.take(14).unwrap(), b"4\r\nlast\r\n0\r\n\r\n", "{cache}");
    }
}

/// An origin that takes the second request of its first connection and closes without a word, as
/// one whose keep-alive has just run out.
fn forgetful() -> Origin {
    let seen = AtomicUsize::new(0);
    Origin::start(move |request| match (seen.fetch_add(1, Ordering::SeqCst), request.connection) {
        (1, 0) => vec![Step::Close],
        _ => answer("200 OK", "Cache-Control: no-store\r\n", b"x"),
    })
}

#[test]
fn what_is_safe_is_sent_again_when_a_kept_connection_was_dead() {
    let check = |request: &str, expect: u16, attempts: usize| {
        let origin = forgetful();
        let route = format!(r#"route "/*" {{ proxy "{}"; }}"#, origin.url());
        let (weir, address) = Weir::front(r#"server { workers 1; admin "off"; }"#, &route);
        let mut client = Client::connect(address).unwrap();
        assert_eq!(client.ask("GET", "/first", &[]).unwrap().status, 200);
        client.send(request.as_bytes()).unwrap();
        let method = request.split(' ').next().unwrap();
        assert_eq!(client.response(method).unwrap().status, expect, "{request}");
        let received = origin.take();
        assert_eq!(received.len(), 1 + attempts, "{request}: {received:?}");
        assert_eq!(received[1].connection, 0, "the kept connection was not used");
        if expect == 502 {
            weir.wait_for_log(&origin.address.to_string());
        }
    };
    check("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", 200, 2);
    check("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n", 200, 2);
    check("DELETE /a HTTP/1.1\r\nHost: a\r\n\r\n", 200, 2);
    check("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200, 2);
    // The origin may have acted on it.
    check("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 502, 1);
    check("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 502, 1);
    // A body that has been passed on is gone.
    let body = "x".repeat(100_000);
    check(&format!("PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{body}"), 502, 1);
}

#[test]
fn a_target_cannot_split_a_response() {
    let route = r#"route "/*" { redirect "https://b.example{uri}"; }"#;
    let (_weir, address) = Weir::front("", route);
    for target in ["/%0d%0aSet-Cookie:%20a=b", "/a?x=%0d%0aSet-Cookie:%20a=b", "/%0A%0A%3Cb%3E"] {
        let got = client::ask(address, "GET", target, &[]);
        assert_eq!(got.status, 302, "{target}");
        assert_eq!(got.header("set-cookie"), None, "{target}");
        let location = got.header("location").unwrap().to_ascii_lowercase();
        assert!(
            location.starts_with("https://b.example/") && location.contains("%0a"),
            "{location}"
        );
    }
}

#[test]
fn a_loop_is_cut() {
    let address = common::free_address();
    // A request that waits for what itself has begun would wait as long as this.
    let route =
        format!(r#"route "/*" {{ proxy "http://{address}"; cache collapse-timeout="60s"; }}"#);
    let config = common::server::front_config(address, "", &route);
    let _weir = Weir::run(&config, &[address]);
    let mut client = Client::connect(address).unwrap();
    client.set_patience(Duration::from_secs(10));
    assert_eq!(client.ask("GET", "/", &[]).unwrap().status, 508);
    assert_eq!(client.ask("DELETE", "/", &[]).unwrap().status, 508);
}

#[test]
fn options_travel_as_far_as_they_may() {
    let origin = Origin::start(|received| {
        let left = received.values("max-forwards").join(", ");
        answer("200 OK", "", left.as_bytes())
    });
    let route = format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url());
    let (_weir, address) = Weir::front("", &route);
    for (count, expected) in [("3", "2"), ("1", "0"), ("x", "x")] {
        let got = client::ask(address, "OPTIONS", "/", &[("max-forwards", count)]);
        assert_eq!((got.status, &got.body[..]), (200, expected.as_bytes()), "{count}");
    }
    let got = client::ask(address, "OPTIONS", "/", &[("max-forwards", "0")]);
    assert_eq!(got.status, 204);
    assert!(got.header("allow").unwrap().starts_with("GET, HEAD, OPTIONS"));
    // It is a matter of OPTIONS and TRACE alone.
    let got = client::ask(address, "GET", "/", &[("max-forwards", "0")]);
    assert_eq!((got.status, &got.body[..]), (200, &b"0"[..]));
}
