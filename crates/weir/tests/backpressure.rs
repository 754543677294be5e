//! Bodies are streamed and never held: whoever is slow holds up the other side, and the server's
//! memory stays what it was.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::client::Client;
use common::origin::{self, Origin, raw, read_head};
use common::server::Weir;
use common::{PATIENCE, wait_for};

/// What a body is made of.
const TOTAL: u64 = 200 << 20;

/// What may be on its way through the server: its own buffers and those of four sockets, of which
/// the system gives each a few megabytes.
const UNDER_WAY_MAX: u64 = 40 << 20;

/// How much the server may grow, its buffers and the allocator's slack together.
const GROWTH_MAX: u64 = 24 << 20;

/// How long nothing moves before it counts as standing still.
const STILL: Duration = Duration::from_millis(300);

/// One at a time: memory and speed are what is measured.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until a count stands still and returns it.
fn standstill(count: &AtomicU64) -> u64 {
    let mut last = (count.load(SeqCst), Instant::now());
    let still = wait_for(PATIENCE, || {
        let now = count.load(SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (now > 0 && last.1.elapsed() > STILL).then_some(now)
    });
    still.expect("it goes on and on")
}

/// The server's memory at its highest while `during` runs, and what that returned.
fn highest<T>(weir: &Weir, during: impl FnOnce() -> T) -> (u64, T) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut highest = 0;
            while !over.load(SeqCst) {
                highest = highest.max(weir.resident_bytes());
                thread::sleep(Duration::from_millis(5));
            }
            highest
        });
        let result = during();
        over.store(true, SeqCst);
        (watching.join().unwrap(), result)
    })
}

fn front(origin: SocketAddr, lines: &str) -> (Weir, SocketAddr) {
    let rest = "cache { memory \"16MiB\"; object-max \"2MiB\"; }";
    Weir::front(rest, &format!(r#"route "/*" {{ proxy "http://{origin}"; {lines}; }}"#))
}

#[test]
fn an_upload_waits_for_a_slow_origin() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for chunked in [false, true] {
        upload(chunked);
    }
}

fn upload(chunked: bool) {
    let (reading, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (may_read, counted) = (Arc::clone(&reading), Arc::clone(&received));
    let origin = raw(move |_, mut stream| {
        while !may_read.load(SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        let mut buffer = vec![0; 256 << 10];
        // Some of it is framing.
        while counted.load(SeqCst) < TOTAL {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => counted.fetch_add(count as u64, SeqCst),
            };
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        // Closing with framing unread would destroy the answer.
        while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    let (weir, address) = front(origin, "limits body-size=\"1GiB\"");
    let before = weir.resident_bytes();
    let mut client = Client::connect(address).unwrap();
    let mut stream = client.stream().try_clone().unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&sent);
    let sender = thread::spawn(move || send_body(&mut stream, chunked, &counting));

    let under_way = standstill(&sent);
    assert!(under_way < UNDER_WAY_MAX, "{under_way} bytes are taken that the origin does not read");
    reading.store(true, SeqCst);
    let (highest, got) = highest(&weir, || client.response("POST").unwrap());
    assert_eq!((got.status, &got.body[..]), (200, &b"done"[..]));
    // The origin answers when it has seen as many bytes, framing included.
    let _ = sender.join().unwrap();
    let growth = highest.saturating_sub(before);
    assert!(growth < GROWTH_MAX, "the server grew by {growth} bytes");
}

fn send_body(stream: &mut TcpStream, chunked: bool, sent: &AtomicU64) -> io::Result<()> {
    const PIECE: usize = 256 << 10;
    let framing = match chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {TOTAL}"),
    };
    write!(stream, "POST /up HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")?;
    let mut piece = vec![b'x'; PIECE];
    if chunked {
        let size = format!("{PIECE:x}\r\n");
        piece = [size.as_bytes(), &piece, b"\r\n"].concat();
    }
    while sent.load(SeqCst) < TOTAL {
        stream.write_all(&piece)?;
        sent.fetch_add(PIECE as u64, SeqCst);
    }
    stream.write_all(if chunked { b"0\r\n\r\n" } else { b"" })
}

#[test]
fn an_endless_download_waits_for_a_slow_client() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for lines in ["cache \"off\"", "cache ttl=\"1h\""] {
        download(lines);
    }
}

fn download(lines: &str) {
    let (sent, broken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counting, ended) = (Arc::clone(&sent), Arc::clone(&broken));
    let origin = raw(move |_, mut stream| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let piece = vec![b'x'; 256 << 10];
        while stream.write_all(&piece).is_ok() {
            counting.fetch_add(piece.len() as u64, SeqCst);
        }
        ended.store(true, SeqCst);
    });
    let (weir, address) = front(origin, lines);
    let before = weir.resident_bytes();
    let mut client = Client::connect(address).unwrap();
    client.send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let under_way = standstill(&sent);
    assert!(under_way < UNDER_WAY_MAX, "{under_way} bytes are fetched that nobody reads");

    let mut stream = client.stream().try_clone().unwrap();
    let (highest, ()) = highest(&weir, || {
        let mut buffer = vec![0; 256 << 10];
        let mut read = 0;
        while read < TOTAL {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the download ended after {read} bytes");
            read += count as u64;
        }
    });
    let growth = highest.saturating_sub(before);
    assert!(growth < GROWTH_MAX, "{lines}: the server grew by {growth} bytes");

    // When the client leaves, so does the server: nobody wants the rest.
    drop((client, stream));
    let ended = wait_for(PATIENCE, || broken.load(SeqCst).then_some(()));
    assert!(ended.is_some(), "{lines}: the server goes on fetching");
}

#[test]
fn a_client_that_does_not_read_costs_little_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Memory may come in pages of 2 MB, which is 7 KB for each of so many.
    const CLIENTS: usize = 300;
    const BODY: usize = 512 << 10;
    const KB_MAX: u64 = 32;
    let origin = Origin::start(|_| {
        origin::answer("200 OK", "Cache-Control: no-store\r\n", &vec![b'x'; BODY])
    });
    let site = format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url());
    let (weir, address) = Weir::front("server { workers 1; admin \"off\"; }", &site);
    let ask = || {
        let mut client = Client::connect(address).unwrap();
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client.head().unwrap();
        client
    };
    // What the first ones cost is the server's own.
    let first: Vec<Client> = (0..20).map(|_| ask()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let before = weir.resident_bytes();
    let mut slow: Vec<Client> = (0..CLIENTS).map(|_| ask()).collect();
    std::thread::sleep(Duration::from_millis(300));
    let each = weir.resident_bytes().saturating_sub(before) / CLIENTS as u64;
    assert!(each < KB_MAX << 10, "{each} bytes for each client that does not read");
    let rest = slow[7].take(BODY).unwrap();
    assert!(rest.iter().all(|&byte| byte == b'x'), "the response is not what it was");
    drop(first);
}
