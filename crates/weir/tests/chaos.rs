//! Origins that fail in every way: the client gets a clear status or a torn body and never a whole
//! wrong one, the log names server and cause, and nothing of it is remembered.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::client::{self, Client, Response};
use common::origin::{Origin, answer, raw, read_head};
use common::server::Weir;
use common::{free_address, wait_for};
use rustix::net::sockopt::set_socket_linger;

/// What a bad origin does once it has read a request.
type Misdeed = Arc<dyn Fn(&mut TcpStream) + Send + Sync>;

/// What the client must see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    Status(u16),
    /// A response that ends before its framing says so.
    Torn,
    /// A whole response with this body, in one unambiguous framing.
    Whole(&'static str),
}
use Expect::{Status, Torn, Whole};

/// How long an origin may be silent in these tests.
const TIMEOUTS: &str = "timeout first-byte=\"300ms\" idle=\"300ms\"";

/// What the server may grow by while it is flooded.
const GROWTH_MAX: u64 = 16 << 20;

/// Words of the log for what happened.
const CLOSED: &str = "closed before a response";
const INVALID: &str = "invalid response";
const CUT: &str = "response cut short";
const SILENT: &str = "no response in time";
const STILL: &str = "response stood still";

/// An origin that misbehaves until it is healed, and then answers "healed".
struct Sick {
    address: SocketAddr,
    healed: Arc<AtomicBool>,
}

fn sick(misdeed: Misdeed) -> Sick {
    let healed = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&healed);
    let address = raw(move |_, mut stream| {
        while read_head(&mut stream).is_ok() {
            if !state.load(SeqCst) {
                misdeed(&mut stream);
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhealed");
        }
    });
    Sick { address, healed }
}

/// Weir before an origin, stored responses or not.
fn front(origin: SocketAddr, lines: &str) -> (Weir, SocketAddr) {
    let upstream = format!("upstream \"app\" {{ server \"http://{origin}\"; {TIMEOUTS}; }}");
    Weir::front(&upstream, &format!("route \"/*\" {{ proxy \"app\"; {lines}; }}"))
}

#[test]
fn an_origin_that_fails_each_time_does_not_fill_the_log() {
    const REQUESTS: usize = 60;
    for lines in ["", "cache \"off\""] {
        let sick = sick(Arc::new(|stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
        }));
        let (weir, address) = front(sick.address, lines);
        let begin = Instant::now();
        for n in 0..REQUESTS {
            let _ = Client::connect(address).unwrap().ask("GET", &format!("/{n}"), &[]);
        }
        let (log, seconds) = (weir.log(), begin.elapsed().as_secs() as usize);
        assert!(log.contains(CUT) && log.contains("response body torn"), "{lines}: {log}");
        let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
        assert!(warnings <= 5 * (seconds + 1), "{lines}: {warnings} in {seconds} s:\n{log}");
    }
}

fn seen(got: &std::io::Result<Response>) -> Expect {
    match got {
        Ok(response) if response.status == 200 => {
            let body = String::from_utf8_lossy(&response.body).into_owned();
            Whole(Box::leak(body.into_boxed_str()))
        }
        Ok(response) => Status(response.status),
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Torn,
            _ => panic!("the client cannot read the response: {error}"),
        },
    }
}

/// One misdeed, with and without the cache; afterwards the origin is well again.
fn check(
    name: &str,
    expect: Expect,
    cause: &str,
    misdeed: impl Fn(&mut TcpStream) + Send + Sync + 'static,
) {
    let misdeed: Misdeed = Arc::new(misdeed);
    for lines in ["", "cache \"off\"", "cache ttl=\"1h\""] {
        let origin = sick(Arc::clone(&misdeed));
        let (mut weir, address) = front(origin.address, lines);
        let before = weir.resident_bytes();
        let mut client = Client::connect(address).unwrap();
        let got = seen(&client.ask("GET", "/a", &[]));
        assert_eq!(got, expect, "{name} with {lines:?}\n{}", weir.log());
        let growth = weir.resident_bytes().saturating_sub(before);
        assert!(growth < GROWTH_MAX, "{name} with {lines:?}: {growth} bytes more");
        if !matches!(expect, Whole(_)) {
            weir.wait_for_log(&origin.address.to_string());
            weir.wait_for_log(cause);
        }
        origin.healed.store(true, SeqCst);
        let target = if matches!(expect, Whole(_)) { "/b" } else { "/a" };
        let healed = client::ask(address, "GET", target, &[]);
        assert_eq!((healed.status, &healed.body[..]), (200, &b"healed"[..]), "after {name}");
        assert!(weir.is_running(), "{name}");
    }
}

/// The same for an origin that sends these bytes and closes.
fn says(bytes: &'static str, expect: Expect, cause: &str) {
    check(&bytes.escape_debug().to_string(), expect, cause, move |stream| {
        let _ = stream.write_all(bytes.as_bytes());
    });
}

/// Ends a connection by a reset.
fn reset(stream: &mut TcpStream) {
    // What was written must have left before the reset takes the rest.
    thread::sleep(Duration::from_millis(100));
    set_socket_linger(&*stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn heads_that_do_not_come() {
    says("", Status(502), CLOSED);
    says("HTTP/1.1 200 OK\r\nContent-Le", Status(502), CLOSED);
    check("a reset", Status(502), CLOSED, reset);
    check("a reset in the head", Status(502), CLOSED, |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le");
        reset(stream);
    });
    check("silence", Status(504), SILENT, |stream| {
        let _ = stream.read(&mut [0; 1]);
    });
    check("a dribbled head", Status(504), SILENT, |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn heads_that_are_none() {
    says("hello\r\n\r\n", Status(502), INVALID);
    says("\x16\x03\x01\x02\x00\x01\x00\x01", Status(502), INVALID);
    says("HTTP/1.1 abc OK\r\n\r\n", Status(502), INVALID);
    says("HTTP/9.9 200 OK\r\n\r\n", Status(502), INVALID);
    says("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Status(502), INVALID);
    says("HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n", Status(502), INVALID);
    says("HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", Status(502), INVALID);
    says("HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n", Status(502), INVALID);
    says("HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", Status(502), INVALID);
}

#[test]
fn framing_that_contradicts_itself() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let of = |rest: &str| -> &'static str { Box::leak(format!("{ok}{rest}").into_boxed_str()) };
    for lengths in ["5\r\nContent-Length: 6", "5, 6", "-1", "abc", "+5", "0x5", ""] {
        let bytes = of(&format!("Content-Length: {lengths}\r\n\r\nhello!"));
        says(bytes, Status(502), INVALID);
    }
    for coding in [
        "gzip, chunked",
        "identity",
        "chunked, chunked",
        "xchunked",
        "chunked\r\nTransfer-Encoding: chunked",
    ] {
        let bytes = of(&format!("Transfer-Encoding: {coding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
        says(bytes, Status(502), INVALID);
    }
    // RFC 9112, section 6.3: these have one meaning.
    says(of("Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"), Whole("hello"), "");
    let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    says(of(both), Whole("hello"), "");
    says(of("\r\nuntil the end"), Whole("until the end"), "");
}

#[test]
fn bodies_that_break_off() {
    let ok = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n";
    let of = |rest: &str| -> &'static str { Box::leak(format!("{ok}{rest}").into_boxed_str()) };
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    says(of("Content-Length: 100\r\n\r\nnot all"), Torn, CUT);
    says(of(&format!("{chunked}5\r\nhello\r\n")), Torn, CUT);
    says(of(&format!("{chunked}5\r\nhel")), Torn, CUT);
    says(of(&format!("{chunked}5\r\nhello\r\nzz\r\n")), Torn, INVALID);
    says(of(&format!("{chunked}5\r\nhello!!!!\r\n0\r\n\r\n")), Torn, INVALID);
    says(of(&format!("{chunked}5\r\nhello\r\nFFFFFFFFFFFFFFFFF\r\n")), Torn, INVALID);
    says(of(&format!("{chunked}5\r\nhello\r\n-1\r\n")), Torn, INVALID);
    let head = of("Content-Length: 100000\r\n\r\nnot all");
    check("a reset in the body", Torn, CUT, |stream| {
        let _ = stream.write_all(head.as_bytes());
        reset(stream);
    });
    let head = of("\r\nnot all");
    check("a reset of a body without length", Torn, CUT, |stream| {
        let _ = stream.write_all(head.as_bytes());
        reset(stream);
    });
    let head = of("Content-Length: 100\r\n\r\nnot all");
    check("a body that stands still", Torn, STILL, |stream| {
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.read(&mut [0; 1]);
    });
}

#[test]
fn floods_cost_no_memory() {
    let flood = |start: &'static str, piece: &'static str| {
        move |stream: &mut TcpStream| {
            let _ = stream.write_all(start.as_bytes());
            let pieces = piece.repeat((256 << 10) / piece.len());
            while stream.write_all(pieces.as_bytes()).is_ok() {}
        }
    };
    let ok = "HTTP/1.1 200 OK\r\n";
    check("an endless head", Status(502), INVALID, flood(ok, "X-More: of the same\r\n"));
    check("an endless field", Status(502), INVALID, flood("HTTP/1.1 200 OK\r\nX: ", "more"));
    check("an endless status line", Status(502), INVALID, flood("HTTP/1.1 200 ", "more"));
    let start = Instant::now();
    let interim = flood("", "HTTP/1.1 100 Continue\r\n\r\n");
    check("endless interim responses", Status(504), SILENT, interim);
    assert!(start.elapsed() < Duration::from_secs(20));
    check("some interim responses", Whole("ok"), "", |stream| {
        for _ in 0..3 {
            let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
}

/// HTTP/1.0 ends a body of unknown length with the connection: only a reset says that it is torn.
#[test]
fn a_client_without_chunks_is_told_too() {
    for lines in ["cache \"off\"", "cache ttl=\"1h\""] {
        let origin = sick(Arc::new(|stream| {
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        }));
        let (_weir, address) = front(origin.address, lines);
        let ask = |target: &str| {
            let mut client = Client::connect(address).unwrap();
            let request = format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n");
            client.send(request.as_bytes()).unwrap();
            client.response("GET")
        };
        let torn = ask("/a").map(|got| String::from_utf8_lossy(&got.body).into_owned());
        assert_eq!(torn.unwrap_err().kind(), ErrorKind::ConnectionReset, "{lines}");
        origin.healed.store(true, SeqCst);
        assert_eq!(ask("/a").unwrap().body, b"healed", "{lines}");
    }
}

/// Whoever ends such a body before its time: the send timeout, or the end of a stop's patience.
#[test]
fn a_client_without_chunks_is_told_of_a_cut() {
    const PIECE: &[u8] = &[b'x'; 64 << 10];
    let origin = raw(|_, mut stream| {
        let Ok(head) = read_head(&mut stream) else { return };
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n\r\n");
        if client::find(&head, b"/quiet").is_some() {
            let _ = stream.write_all(b"something");
            thread::sleep(Duration::from_secs(60));
        }
        let pieces = if client::find(&head, b"/short").is_some() { 40 } else { usize::MAX };
        for _ in 0..pieces {
            if stream.write_all(PIECE).is_err() {
                return;
            }
        }
    });
    let server = r#"
        server { workers 1; admin "off"; drain-timeout "1s"; limits { send-timeout "1s"; }; }
    "#;
    let (mut weir, address) =
        Weir::front(server, &format!(r#"route "/*" {{ proxy "http://{origin}"; }}"#));
    let ask = |target: &str| {
        let mut client = Client::connect(address).unwrap();
        client.send(format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        client.head().unwrap();
        client
    };
    assert_eq!(ask("/short").read_to_end().unwrap().len(), 40 * PIECE.len(), "whole, and no reset");
    let mut endless = ask("/endless");
    thread::sleep(Duration::from_millis(2500));
    let error = endless.read_to_end().expect_err("the send timeout");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let mut quiet = ask("/quiet");
    assert!(weir.stop().success());
    let error = quiet.read_to_end().expect_err("the drain timeout");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// What comes after a response is no answer to the next request, whoever sends it.
#[test]
fn a_second_response_is_never_taken_for_the_answer_to_the_next_request() {
    const EVIL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    let check = |method: &str, head: &'static [u8], delay_ms: u64, body: &[u8]| {
        let origin = raw(move |number, mut stream| {
            while let Ok(got) = read_head(&mut stream) {
                let first = number == 0 && client::find(&got, b"/first").is_some();
                let sent = match (first, delay_ms) {
                    (true, 0) => stream.write_all(&[head, EVIL].concat()),
                    (true, _) => {
                        let _ = stream.write_all(head);
                        thread::sleep(Duration::from_millis(delay_ms));
                        stream.write_all(EVIL)
                    }
                    _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"),
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        let server = r#"server { workers 1; admin "off"; }"#;
        let route = format!(r#"route "/*" {{ proxy "http://{origin}"; }}"#);
        let (_weir, address) = Weir::front(server, &route);
        let mut client = Client::connect(address).unwrap();
        let first = client.ask(method, "/first", &[]).unwrap();
        assert_eq!(first.body, body, "{method}, {delay_ms} ms");
        thread::sleep(Duration::from_millis(delay_ms * 2));
        for target in ["/a", "/b", "/c"] {
            let next = client.ask("GET", target, &[]).unwrap();
            assert_eq!(next.body, b"good", "{method}, {delay_ms} ms, {target}");
        }
    };
    for delay_ms in [0, 50] {
        check("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", delay_ms, b"hello");
        check("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", delay_ms, b"");
        check("GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 42\r\n\r\n", delay_ms, b"");
        check("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n", delay_ms, b"");
    }
}

#[test]
fn an_origin_that_is_not_there_and_comes_back() {
    let address = free_address();
    let (mut weir, front) = front(address, "");
    let mut client = Client::connect(front).unwrap();
    for _ in 0..20 {
        assert_eq!(client.ask("GET", "/a", &[]).unwrap().status, 502);
    }
    weir.wait_for_log(&address.to_string());
    weir.wait_for_log("refused");
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nback");
        }
    });
    let back = wait_for(common::PATIENCE, || {
        let got = client.ask("GET", "/a", &[]).unwrap();
        (got.status == 200 && got.body == b"back").then_some(())
    });
    assert!(back.is_some() && weir.is_running());
}

/// Unsafe requests meet the same failures, and are never sent twice.
#[test]
fn uploads_meet_failing_origins() {
    let origin = Origin::start(|_| answer("413 Too Much", "Connection: close\r\n", b"no"));
    let (mut weir, address) = front(origin.address, "");
    let mut client = Client::connect(address).unwrap();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    assert_eq!(client.response("POST").unwrap().status, 413);

    // Answers before the body has come, and closes: the answer must arrive all the same.
    let early = raw(|_, mut stream| {
        let _ = read_head(&mut stream);
        let head = b"HTTP/1.1 403 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
        let _ = stream.write_all(head);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        thread::sleep(Duration::from_millis(100));
    });
    let (_other, address) = front(early, "");
    let mut client = Client::connect(address).unwrap();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n").unwrap();
    let mut stream = client.stream().try_clone().unwrap();
    let sending = thread::spawn(move || {
        for _ in 0..100 {
            if stream.write_all(&[b'x'; 100_000]).is_err() {
                return;
            }
        }
    });
    assert_eq!(client.response("POST").unwrap().status, 403);
    drop(client);
    sending.join().unwrap();
    assert!(weir.is_running());
}
