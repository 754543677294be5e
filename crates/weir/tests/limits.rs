//! What a client may make the server hold, and for how long: sizes, counts, times, connections.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::client::{self, Client};
use common::origin::{self, Origin};
use common::server::Weir;
use common::{PATIENCE, wait_for};

/// A server with these limits and a route of each kind.
fn limited(limits: &str, origin: &Origin) -> (Weir, SocketAddr) {
    let rest = format!("server {{ workers 1; admin \"off\"; limits {{ {limits} }}; }}");
    let site = format!(
        r#"
        route "/small" {{ respond "small"; }}
        route "/proxied/*" {{ proxy "{0}"; cache "off"; }}
        route "/roomy/*" {{ proxy "{0}"; cache "off"; limits body-size="1MiB"; }}
        route "/*" {{ files "."; }}
        "#,
        origin.url()
    );
    Weir::front(&rest, &site)
}

fn echo_length() -> Origin {
    Origin::start(|request| origin::ok(&request.body.len().to_string()))
}

#[test]
fn a_head_may_not_be_too_large() {
    let origin = echo_length();
    let (_weir, address) = limited("header-size \"8KiB\"", &origin);
    let check = |head: String, expected: u16| {
        let mut client = Client::connect(address).unwrap();
        client.send(head.as_bytes()).unwrap();
        let response = client.response("GET").unwrap();
        assert_eq!(response.status, expected, "{} bytes", head.len());
        if expected != 200 {
            assert!(client.is_closed(), "{} bytes", head.len());
        }
    };
    let with_field =
        |len| format!("GET /small HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(len));
    check(with_field(7000), 200);
    check(with_field(9000), 431);
    check(with_field(200_000), 431);
    let fields = "X: 1234567890123456789012345678901234567890\r\n".repeat(90);
    check(format!("GET /small HTTP/1.1\r\nHost: a\r\n{fields}{fields}{fields}\r\n"), 431);
    let target = "/".repeat(9000);
    let mut client = Client::connect(address).unwrap();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    assert!(matches!(client.response("GET").unwrap().status, 414 | 431));
    assert!(client.is_closed());
}

#[test]
fn a_head_may_not_have_too_many_fields() {
    let origin = echo_length();
    let (_weir, address) = limited("header-count 20", &origin);
    for (count, expected) in [(20, 200), (21, 431), (500, 431)] {
        let mut client = Client::connect(address).unwrap();
        let fields: String = (1..count).map(|i| format!("X-{i}: a\r\n")).collect();
        client.send(format!("GET /small HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).unwrap();
        assert_eq!(client.response("GET").unwrap().status, expected, "{count} fields");
        assert_eq!(client.answers_again(), expected == 200, "{count} fields");
    }
}

/// Whether another request is answered.
trait IsOpen {
    fn answers_again(&mut self) -> bool;
}

impl IsOpen for Client {
    fn answers_again(&mut self) -> bool {
        self.send(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n").is_ok() && self.response("GET").is_ok()
    }
}

#[test]
fn a_body_may_not_be_too_large() {
    let origin = echo_length();
    let (_weir, address) = limited("body-size \"64KiB\"", &origin);
    let post = |target: &str, framing: &str, body: &[u8]| {
        let mut client = Client::connect(address).unwrap();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        client.send(head.as_bytes()).unwrap();
        // The server may have stopped reading: what counts is its answer.
        let _ = client.send(body);
        let response = client.response("POST").unwrap();
        (response.status, response.says_close())
    };
    let body = vec![b'x'; 300_000];
    let chunks = |len: usize| {
        let mut text = Vec::new();
        for piece in body[..len].chunks(5000) {
            text.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            text.extend_from_slice(piece);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\n\r\n");
        text
    };
    assert_eq!(post("/proxied/", "Content-Length: 65536", &body[..65536]).0, 200);
    assert_eq!(post("/proxied/", "Content-Length: 65537", &body[..65537]), (413, true));
    // Announced and not even begun.
    assert_eq!(post("/proxied/", "Content-Length: 99999999999", b""), (413, true));
    assert_eq!(post("/small", "Content-Length: 65537", b""), (413, true));
    assert_eq!(post("/proxied/", "Transfer-Encoding: chunked", &chunks(65_536)).0, 200);
    assert_eq!(post("/proxied/", "Transfer-Encoding: chunked", &chunks(65_537)), (413, true));
    assert_eq!(post("/proxied/", "Transfer-Encoding: chunked", &chunks(300_000)), (413, true));
    assert_eq!(post("/roomy/", "Content-Length: 300000", &body).0, 200);
    assert_eq!(post("/roomy/", "Transfer-Encoding: chunked", &chunks(300_000)).0, 200);
    for request in origin.take() {
        let limit = if request.line().contains("/roomy/") { 1 << 20 } else { 65_536 };
        assert!(request.body.len() <= limit, "{} bytes passed", request.body.len());
    }
}

#[test]
fn a_client_that_goes_on_sending_still_gets_the_refusal() {
    let origin = echo_length();
    let (_weir, address) = limited("body-size \"64KiB\"", &origin);
    for framing in ["Content-Length: 100000000", "Transfer-Encoding: chunked"] {
        let mut client = Client::connect(address).unwrap();
        let head = format!("POST /proxied/ HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        client.send(head.as_bytes()).unwrap();
        let mut writer = client.stream().try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            let piece = [b"8000\r\n".as_slice(), &[b'x'; 0x8000], b"\r\n"].concat();
            // Far more than the server would read for nothing; it must end this.
            let mut sent = 0;
            while sent < 100_000_000 && writer.write_all(&piece).is_ok() {
                sent += piece.len();
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let response = client.response("POST").expect(framing);
        assert_eq!((response.status, response.says_close()), (413, true), "{framing}");
        let sent = sending.join().unwrap();
        assert!(sent < 100_000_000, "{framing}: {sent} bytes were taken");
    }
}

#[test]
fn a_head_that_does_not_arrive_is_given_up() {
    let origin = echo_length();
    let (_weir, address) = limited("header-timeout \"400ms\"", &origin);
    // Standing still.
    let mut client = Client::connect(address).unwrap();
    let began = Instant::now();
    client.send(b"GET /small HTTP/1.1\r\nHost: a\r\n").unwrap();
    let response = client.response("GET").unwrap();
    assert_eq!((response.status, response.says_close()), (408, true));
    assert!(client.is_closed());
    assert!(began.elapsed() > Duration::from_millis(300), "{:?}", began.elapsed());
    // Dribbling does not help, on a connection's first request or a later one.
    let mut client = Client::connect(address).unwrap();
    assert_eq!(client.ask("GET", "/small", &[]).unwrap().status, 200);
    let began = Instant::now();
    client.send(b"GET /small HTTP/1.1\r\nX: ").unwrap();
    client.set_patience(Duration::from_millis(50));
    let response = wait_for(PATIENCE, || {
        let _ = client.send(b"x");
        client.response("GET").ok()
    });
    assert_eq!(response.expect("an answer").status, 408);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_head_that_begins_behind_another_request_must_arrive_too() {
    let origin = echo_length();
    let (_weir, address) = limited("header-timeout \"400ms\"", &origin);
    // Without content, which hyper does not see, and with some, which it does.
    for first in [
        "GET /small HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = Client::connect(address).unwrap();
        let begun = Instant::now();
        client.send(format!("{first}GET /small HTTP/1.1\r\nHos").as_bytes()).unwrap();
        assert_eq!(client.response("GET").unwrap().status, 200);
        assert_eq!(client.response("GET").unwrap().status, 408, "{first}");
        assert!(client.is_closed() && begun.elapsed() < Duration::from_secs(3), "{first}");
    }
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let origin = echo_length();
    let (_weir, address) = limited("idle-timeout \"500ms\"", &origin);
    let began = Instant::now();
    let mut client = Client::connect(address).unwrap();
    for _ in 0..4 {
        assert_eq!(client.ask("GET", "/small", &[]).unwrap().status, 200);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(began.elapsed() > Duration::from_millis(400));
    let last = Instant::now();
    assert!(client.is_closed());
    assert!(last.elapsed() < Duration::from_secs(5), "{:?}", last.elapsed());
}

#[test]
fn a_body_that_does_not_arrive_is_given_up() {
    let origin = echo_length();
    let (_weir, address) = limited("body-timeout \"400ms\"", &origin);
    let mut client = Client::connect(address).unwrap();
    client
        .send(b"POST /proxied/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nonly this")
        .unwrap();
    let began = Instant::now();
    // With or without a word (RFC 9110 section 15.5.9), but soon and for good.
    let rest = client.read_to_end().unwrap_or_default();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", rest.escape_ascii());
    let elapsed = began.elapsed();
    assert!((300..5000).contains(&elapsed.as_millis()), "{elapsed:?}");
    // One that arrives slowly, but does arrive, is waited for.
    let mut client = Client::connect(address).unwrap();
    client.send(b"POST /proxied/ HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n").unwrap();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        client.send(b"x").unwrap();
    }
    assert_eq!(client.response("POST").unwrap().body, b"8");
}

#[test]
fn connections_are_counted() {
    let origin = echo_length();
    let (_weir, address) = limited("connections 4; header-timeout \"5s\"", &origin);
    // The harness's own connection may still be open.
    let mut kept: Vec<Client> = Vec::new();
    let settled = wait_for(PATIENCE, || {
        kept = (0..4).map(|_| Client::connect(address).unwrap()).collect();
        kept.iter_mut().all(|client| client.ask("GET", "/small", &[]).is_ok()).then_some(())
    });
    assert!(settled.is_some());
    // All are idle: the one that has been so longest makes room.
    let mut fifth = Client::connect(address).unwrap();
    assert_eq!(fifth.ask("GET", "/small", &[]).unwrap().status, 200);
    let mut closed = kept.iter_mut().map(|client| {
        client.set_patience(Duration::from_millis(300));
        client.is_closed()
    });
    assert_eq!(closed.by_ref().filter(|closed| *closed).count(), 1);
    kept.retain_mut(|client| client.ask("GET", "/small", &[]).is_ok());
    kept.push(fifth);
    assert_eq!(kept.len(), 4);
    // All are busy: whoever comes now is told so.
    for client in &mut kept {
        client.set_patience(PATIENCE);
        client.send(b"GET /small HTTP/1.1\r\n").unwrap();
    }
    let refused = wait_for(PATIENCE, || {
        let response = client::get(address, "site.example", "/small").ok()?;
        (response.status == 503).then_some(response)
    });
    let refused = refused.expect("a refusal");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.says_close());
    // And those who were there are served.
    for client in &mut kept {
        client.send(b"Host: a\r\n\r\n").unwrap();
        assert_eq!(client.response("GET").unwrap().body, b"small");
    }
}

#[test]
fn a_client_that_takes_nothing_loses_the_connection() {
    const LEN: usize = 24 << 20;
    let origin = echo_length();
    let (weir, address) = limited("send-timeout \"1s\"", &origin);
    std::fs::write(weir.directory().join("large"), vec![b'x'; LEN]).unwrap();
    // One from the disk and one from the cache.
    let mut streams = [(); 2].map(|()| {
        let mut client = Client::connect(address).unwrap();
        client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client.stream().try_clone().unwrap()
    });
    std::thread::sleep(Duration::from_millis(2500));
    for stream in &mut streams {
        let mut received = Vec::new();
        // Cut off or reset, once what was under way is read.
        let _ = stream.read_to_end(&mut received);
        assert!(received.len() < LEN, "all of {} bytes came", received.len());
        assert!(received.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    // A slow client that takes a good deal all the time gets everything, however long it needs.
    let client = Client::connect(address).unwrap();
    let mut stream = client.stream().try_clone().unwrap();
    write!(stream, "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let began = Instant::now();
    let mut count = 0;
    loop {
        let received = (&mut stream).take(1 << 20).read_to_end(&mut Vec::new()).unwrap();
        count += received;
        if received == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(80));
    }
    assert!(count > LEN, "{count} bytes");
    assert!(began.elapsed() > Duration::from_millis(1200), "{:?}", began.elapsed());
}
