//! Clients that send content slowly: they hold buffers, and no places at an upstream.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::{self, Client, ask};
use common::origin::{self, Origin};
use common::server::Weir;
use common::{PATIENCE, free_address, wait_for};

/// Bytes that are gathered.
const HELD: &str = "weir_body_buffer_bytes";

/// Places at the upstream that are taken.
const USED: &str = "weir_upstream_limit_used{upstream=\"app\"}";

/// In front of an origin that may have so many requests at a time.
struct Front {
    weir: Weir,
    address: SocketAddr,
    admin: SocketAddr,
    origin: Origin,
}

/// `limits` are the server's; requests below `/x/` have these of their route.
fn front(concurrency: usize, limits: &str, of_route: &str) -> Front {
    let origin = Origin::start(|request| {
        let framing = request.values("content-length");
        origin::ok(&format!("{} bytes, {framing:?}", request.body.len()))
    });
    let (admin, address) = (free_address(), free_address());
    let config = format!(
        "server {{ workers 2; admin \"{admin}\"; limits {{ {limits} }} }}
         guard {{ class \"default\" priority=2 wait=\"1s\"; }}
         upstream \"app\" {{ server \"{}\"; concurrency {concurrency}; }}
         site \"*\" {{
             listen \"{address}\"
             access-log \"access.log\" format=\"json\"
             route \"/x/*\" {{ proxy \"app\"; limits {of_route}; }}
             route \"/*\" {{ proxy \"app\"; }}
         }}",
        origin.url()
    );
    Front { weir: Weir::run(&config, &[address, admin]), address, admin, origin }
}

impl Front {
    fn begin(&self, target: &str, framing: &str, content: &[u8]) -> Client {
        let mut client = Client::connect(self.address).unwrap();
        let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        client.send(&[head.as_bytes(), content].concat()).unwrap();
        client
    }

    fn metric(&self, name: &str) -> u64 {
        let page = client::get(self.admin, "localhost", "/metrics").unwrap();
        let page = String::from_utf8(page.body).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
    }

    fn wait_for_metric(&self, name: &str, expect: u64) {
        let found = wait_for(PATIENCE, || (self.metric(name) == expect).then_some(()));
        assert!(found.is_some(), "{name} is {}", self.metric(name));
    }

    fn held_bytes(&self) -> u64 {
        self.metric(HELD)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 241 + i % 241) as u8).collect()
}

fn text(response: &client::Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[test]
fn slow_uploads_hold_no_places() {
    let front = front(8, "", "body-buffer=\"64KiB\"");
    let mut slow: Vec<Client> =
        (0..8).map(|_| front.begin("/x/up", "Content-Length: 10", b"slow")).collect();
    front.wait_for_metric(HELD, 8 * 4);
    for _ in 0..8 {
        assert_eq!(ask(front.address, "GET", "/page", &[]).status, 200);
    }
    let asked = front.origin.take();
    assert!(asked.iter().all(|request| request.line().contains("/page")));
    for client in &mut slow {
        client.send(b"ly").unwrap();
        client.send(b"sent").unwrap();
        assert_eq!(text(&client.response("POST").unwrap()), "10 bytes, [\"10\"]");
    }
    for request in front.origin.take() {
        assert_eq!(request.body, b"slowlysent");
    }
    front.wait_for_metric(HELD, 0);
}

/// What the test above would see if nothing were gathered.
#[test]
fn without_a_buffer_slow_uploads_hold_places() {
    let front = front(2, "body-buffer 0", "body-size=\"1MiB\"");
    let mut slow: Vec<Client> =
        (0..2).map(|_| front.begin("/x/up", "Content-Length: 6", b"slow")).collect();
    let refused = wait_for(PATIENCE, || {
        (ask(front.address, "GET", "/page", &[]).status == 503).then_some(())
    });
    assert!(refused.is_some());
    assert_eq!(front.held_bytes(), 0);
    for client in &mut slow {
        client.send(b"ly").unwrap();
        assert_eq!(text(&client.response("POST").unwrap()), "6 bytes, [\"6\"]");
    }
}

/// Smaller than a buffer, as large, and larger; in one write, byte by byte, and in chunks.
#[test]
fn content_arrives_whole_and_in_order() {
    let front = front(8, "", "body-buffer=\"100KiB\"");
    for target in ["/up", "/x/up"] {
        for len in [1, 100, 65_535, 65_536, 65_537, 150_000, 1 << 20] {
            let sent = pattern(len);
            let mut client = front.begin(target, &format!("Content-Length: {len}"), &sent);
            let answer = text(&client.response("POST").unwrap());
            assert_eq!(answer, format!("{len} bytes, [\"{len}\"]"));
            let asked = front.origin.take();
            assert!(asked.len() == 1 && asked[0].body == sent, "{target} {len}");
            assert_eq!(asked[0].values("transfer-encoding"), [""; 0]);
        }
        let sent = pattern(1 << 20);
        let mut client = front.begin(target, "Transfer-Encoding: chunked", b"");
        // Pieces of many sizes, small and large by turns.
        let (mut rest, mut size) = (&sent[..], 1);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            client.send(&chunk).unwrap();
            (rest, size) = (after, size * 7 % 30_011 + 1);
        }
        client.send(b"0\r\n\r\n").unwrap();
        assert!(text(&client.response("POST").unwrap()).starts_with("1048576 bytes"));
        assert!(front.origin.take()[0].body == sent, "{target} in chunks");
    }
    front.wait_for_metric(HELD, 0);
}

#[test]
fn content_that_comes_byte_by_byte_arrives_whole() {
    let front = front(8, "", "body-buffer=\"300B\"");
    let sent = pattern(1000);
    for target in ["/up", "/x/up"] {
        let mut client = front.begin(target, "Content-Length: 1000", b"");
        for byte in &sent {
            client.send(&[*byte]).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(text(&client.response("POST").unwrap()), "1000 bytes, [\"1000\"]");
        assert!(front.origin.take()[0].body == sent, "{target}");
    }
}

/// Content in chunks may be one half of a conversation: after a pause it is sent on.
#[test]
fn chunks_are_sent_on_after_a_pause() {
    let front = front(8, "", "body-size=\"1MiB\"");
    let mut client = front.begin("/up", "Transfer-Encoding: chunked", b"3\r\nabc\r\n");
    front.wait_for_metric(USED, 1);
    assert!(front.origin.take().is_empty(), "it is not complete");
    client.send(b"4\r\ndefg\r\n").unwrap();
    client.send(b"0\r\n\r\n").unwrap();
    assert_eq!(text(&client.response("POST").unwrap()), "7 bytes, []");
    assert_eq!(front.origin.take()[0].body, b"abcdefg");
    // Complete without a pause: the origin is told the length.
    let mut client = front.begin("/up", "Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(text(&client.response("POST").unwrap()), "3 bytes, [\"3\"]");
    let mut client = front.begin("/up", "Transfer-Encoding: chunked", b"0\r\n\r\n");
    assert_eq!(text(&client.response("POST").unwrap()), "0 bytes, [\"0\"]");
}

#[test]
fn a_client_that_expects_100_gets_it_before_the_upstream_is_asked() {
    let front = front(1, "", "body-size=\"1MiB\"");
    let framing = "Content-Length: 5\r\nExpect: 100-continue";
    let mut client = front.begin("/up", framing, b"");
    assert!(client.head().unwrap().starts_with(b"HTTP/1.1 100 "));
    assert_eq!(ask(front.address, "GET", "/page", &[]).status, 200);
    front.origin.take();
    client.send(b"hello").unwrap();
    assert_eq!(text(&client.response("POST").unwrap()), "5 bytes, [\"5\"]");
    let asked = front.origin.take();
    assert_eq!((&asked[0].body[..], asked[0].values("expect")), (&b"hello"[..], vec![]));
}

#[test]
fn content_that_is_too_large_for_its_route_does_not_reach_the_origin() {
    let front = front(1, "", "body-size=\"10KiB\"");
    let chunk = [b"4000\r\n".as_slice(), &[b'x'; 0x4000], b"\r\n0\r\n\r\n"].concat();
    let mut client = front.begin("/x/up", "Transfer-Encoding: chunked", &chunk);
    let refused = client.response("POST").unwrap();
    assert_eq!((refused.status, refused.says_close()), (413, true));
    let mut client = front.begin("/x/up", "Content-Length: 20000", b"");
    assert_eq!(client.response("POST").unwrap().status, 413);
    assert_eq!(front.metric("weir_request_bodies_refused_total{reason=\"too-large\"}"), 2);
    assert!(front.origin.take().is_empty());
    assert_eq!(front.held_bytes(), 0);
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let front = front(1, "", "body-size=\"1MiB\"");
    for framing in ["Content-Length: 1000", "Transfer-Encoding: chunked"] {
        let clients: Vec<Client> =
            (0..20).map(|_| front.begin("/up", framing, b"5\r\nslow\n\r\n")).collect();
        let held = wait_for(PATIENCE, || (front.held_bytes() > 0).then_some(()));
        assert!(held.is_some(), "{framing}");
        drop(clients);
        front.wait_for_metric(HELD, 0);
        front.wait_for_metric(USED, 0);
    }
    assert_eq!(ask(front.address, "GET", "/page", &[]).status, 200);
    let asked: Vec<String> = front.origin.take().iter().map(|request| request.line()).collect();
    assert_eq!(asked, ["GET /page HTTP/1.1"]);
}

/// A place that is held for content is given back when it comes too slowly.
#[test]
fn content_that_comes_too_slowly_gives_its_place_back() {
    let front = front(1, "body-min-rate \"100B\"", "body-buffer=0");
    let began = Instant::now();
    let mut client = front.begin("/x/up", "Content-Length: 100000", b"slow");
    front.wait_for_metric(USED, 1);
    client.set_patience(Duration::from_millis(300));
    let answer = wait_for(2 * PATIENCE, || {
        let _ = client.send(b"x");
        client.response("POST").ok()
    });
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.says_close()), (408, true), "{}", text(&answer));
    assert!(began.elapsed() > Duration::from_secs(9), "{:?}", began.elapsed());
    client.set_patience(PATIENCE);
    assert!(client.is_closed());
    front.wait_for_metric(USED, 0);
    assert_eq!(ask(front.address, "GET", "/page", &[]).status, 200);
    assert_eq!(front.metric("weir_request_bodies_refused_total{reason=\"too-slow\"}"), 1);
    let logged = wait_for(PATIENCE, || {
        let log = std::fs::read_to_string(front.weir.directory().join("access.log")).ok()?;
        log.contains("\"slow-body\"").then_some(())
    });
    assert!(logged.is_some());
}

/// An origin that does not read for longer than a client may be waited for is no client's fault.
#[test]
fn an_origin_that_takes_its_time_is_waited_for() {
    const LEN: usize = 24 << 20;
    let read = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&read);
    let origin = origin::raw(move |_, mut stream| {
        std::thread::sleep(Duration::from_secs(11));
        let mut buffer = vec![0; 1 << 20];
        while counted.load(SeqCst) < LEN {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => counted.fetch_add(count, SeqCst),
            };
        }
        let _ = std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone",
        );
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let site = format!("route \"/*\" {{ proxy \"http://{origin}\"; }}");
    let (_weir, address) = Weir::front("", &site);
    let mut client = Client::connect(address).unwrap();
    let mut stream = client.stream().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes())?;
        std::io::Write::write_all(&mut stream, &vec![b'x'; LEN])
    });
    client.set_patience(2 * PATIENCE);
    assert_eq!(client.response("POST").unwrap().body, b"done");
    sending.join().unwrap().unwrap();
}

/// Nor is it the fault of an origin over HTTP/2, whose stream is reset: it goes on being asked.
#[test]
fn an_http2_origin_is_not_blamed_for_a_slow_client() {
    // It gathers, and so reads the stream and does not answer.
    let behind = front(1, "body-min-rate 0", "body-size=\"1MiB\"");
    let (admin, address) = (free_address(), free_address());
    let config = format!(
        "server {{ workers 1; admin \"{admin}\"; limits {{ body-buffer 0; }} }}
         upstream \"app\" {{ server \"http://{}\"; protocol \"http2\"; }}
         site \"*\" {{ listen \"{address}\"; route \"/*\" {{ proxy \"app\"; }}; }}",
        behind.address
    );
    let weir = Weir::run(&config, &[address, admin]);
    let front = Front { weir, address, admin, origin: Origin::start(|_| Vec::new()) };
    let mut client = front.begin("/up", "Content-Length: 1000", b"slow");
    client.set_patience(2 * PATIENCE);
    let answer = client.response("POST").unwrap();
    assert_eq!((answer.status, answer.says_close()), (408, true), "{}", text(&answer));
    let page =
        String::from_utf8(client::get(admin, "localhost", "/metrics").unwrap().body).unwrap();
    let failures = page.lines().filter(|line| line.starts_with("weir_upstream_failures_total"));
    let failures: Vec<_> = failures.filter_map(|line| line.split_once(",kind=")).collect();
    assert!(failures.iter().all(|(_, kind)| *kind == "\"request_body\"} 1"), "{failures:?}");
    assert_eq!(ask(front.address, "GET", "/page", &[]).status, 200);
    behind.wait_for_metric(HELD, 0);
}
