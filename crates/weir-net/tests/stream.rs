//! The stream and its listener on real sockets: bytes of an arena arrive unchanged whatever the
//! client's pace, slow clients lose their connection, and closing does not cut off a response.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::future::Future;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_arena::Arena;
use weir_net::{
    ConnectionTable, Listener, Phase, Protocol, Reaped, Stream, TICK, Timeouts, bind_tcp,
    bind_unix, detect, local_address, probe_tcp, read_proxy_header, remove_stale_unix,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("took too long") })
}

fn listen() -> (OwnedFd, SocketAddr) {
    let fd = bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = local_address(&fd).unwrap();
    (fd, address)
}

async fn accept(listener: &Listener, table: &Arc<ConnectionTable>) -> Stream {
    let (fd, peer) = listener.accept().await.unwrap();
    Stream::new(fd, peer, None, table)
}

fn client(address: SocketAddr, said: &'static [u8]) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(said).unwrap();
    client
}

fn timeouts(limit: Duration) -> Timeouts {
    Timeouts { idle: limit, header: limit, body: limit, send: limit }
}

async fn write_all_vectored(stream: &mut Stream, parts: &[&[u8]]) {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        let n = stream.write_vectored(rest).await.unwrap();
        assert!(n > 0);
        IoSlice::advance_slices(&mut rest, n);
    }
}

#[test]
fn heap_and_arena_slices_arrive_in_order() {
    let (fd, address) = listen();
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
    let expected = [b"head: ".as_slice(), &body, b" between ", &body[100..40_000], b"end"].concat();
    let reader = thread::spawn(move || {
        let mut client = client(address, b"go");
        let mut received = Vec::new();
        let mut part = [0; 50_000];
        loop {
            match client.read(&mut part).unwrap() {
                0 => return received,
                n => received.extend_from_slice(&part[..n]),
            }
            if received.len() < 400_000 {
                // Slow at first, so that sendfile meets a full send buffer.
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    run(async {
        let arena = Arena::new(16 << 20).unwrap();
        let mut extent = arena.reserve(body.len()).unwrap();
        extent.write(&body).unwrap();
        let stored = extent.freeze();
        let table = Arc::new(ConnectionTable::new());
        let listener = Listener::new(fd).unwrap();
        let mut stream = accept(&listener, &table).await;
        assert_eq!(stream.read_u16().await.unwrap().to_be_bytes(), *b"go");
        let parts = [b"head: ".as_slice(), &stored, b" between ", &stored[100..40_000], b"end"];
        write_all_vectored(&mut stream, &parts).await;
        assert_eq!(table.len(), 1);
        drop((stream, stored));
        assert_eq!(arena.used(), 0);
        assert_eq!(table.len(), 0, "a dropped stream leaves the table");
    });
    assert!(reader.join().unwrap() == expected, "the client received something else");
}

#[test]
fn the_first_bytes_tell_the_protocol() {
    fn check(said: &'static [u8], expected: Option<Protocol>) {
        let (fd, address) = listen();
        let client = thread::spawn(move || {
            let client = client(address, said);
            client.shutdown(std::net::Shutdown::Write).unwrap();
            client
        });
        run(async {
            let table = Arc::new(ConnectionTable::new());
            let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
            let name = String::from_utf8_lossy(said);
            assert_eq!(detect(&mut stream).await.unwrap(), expected, "{name:?}");
            let mut read = Vec::new();
            stream.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, said, "what was looked at is read again");
        });
        drop(client.join().unwrap());
    }
    check(b"GET / HTTP/1.1\r\n\r\n", Some(Protocol::Http1));
    check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nframes", Some(Protocol::Http2));
    check(b"PRI * HTTP/2.0\r\n\r\nSM", Some(Protocol::Http1));
    check(b"PRINT / HTTP/1.1\r\n\r\n", Some(Protocol::Http1));
    check(b"P", Some(Protocol::Http1));
    check(b"GET /\r\n", Some(Protocol::Http1));
    check(b"GET / HTTP/9.9 \r\n", Some(Protocol::Http1));
    check(b"GET /a b", Some(Protocol::Http1));
    check(b"INVALID CONNECTION PREFACE\r\n\r\n", None);
    check(b"", None);
}

#[test]
fn a_proxy_header_is_taken_off_and_the_rest_stays() {
    let (fd, address) = listen();
    let client =
        thread::spawn(move || client(address, b"PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\nGET /"));
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let addresses = read_proxy_header(&mut stream).await.unwrap().unwrap();
        assert_eq!(addresses.source, "192.0.2.1:5".parse().unwrap());
        let mut rest = [0; 5];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"GET /");
    });
    drop(client.join().unwrap());
}

/// Sweeps as a worker does until something is reaped.
async fn sweep_until_reaped(table: &ConnectionTable, timeouts: &Timeouts) -> Reaped {
    let started = Instant::now();
    loop {
        tokio::time::sleep(TICK / 20).await;
        let mut reason = None;
        table.sweep(timeouts, |_, reaped| reason = Some(reaped));
        if let Some(reason) = reason {
            return reason;
        }
        assert!(started.elapsed() < PATIENCE, "nothing was reaped");
    }
}

#[test]
fn a_client_that_stalls_in_its_head_is_told_and_closed() {
    let (fd, address) = listen();
    let client = thread::spawn(move || {
        let mut answer = String::new();
        client(address, b"GET / HT").read_to_string(&mut answer).unwrap();
        answer
    });
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        detect(&mut stream).await.unwrap();
        assert_eq!(stream.socket().phase(), Phase::Head);
        assert_eq!(sweep_until_reaped(&table, &timeouts(TICK)).await, Reaped::SlowHead);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    });
    assert!(client.join().unwrap().starts_with("HTTP/1.1 408 "));
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    let (fd, address) = listen();
    let client = thread::spawn(move || client(address, b"GET"));
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let mut head = [0; 3];
        stream.read_exact(&mut head).await.unwrap();
        stream.socket().request_started();
        let socket = Arc::clone(stream.socket());
        let writer = tokio::spawn(async move { stream.write_all(&vec![1; 64 << 20]).await });
        assert_eq!(sweep_until_reaped(&table, &timeouts(TICK)).await, Reaped::SlowRead);
        assert!(writer.await.unwrap().is_err(), "the writer is told");
        socket.request_finished();
    });
    drop(client.join().unwrap());
}

#[test]
fn waiting_for_a_body_is_limited_and_an_idle_connection_makes_room() {
    let (fd, address) = listen();
    let client = thread::spawn(move || client(address, b"POST"));
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.unwrap();
        stream.socket().request_started();
        table.sweep(&timeouts(Duration::ZERO), |_, reason| panic!("{reason:?} while serving"));
        assert!(!table.evict_idle(), "a busy connection is never evicted");
        stream.socket().await_body(true);
        assert_eq!(sweep_until_reaped(&table, &timeouts(TICK)).await, Reaped::SlowBody);
        stream.socket().request_finished();
    });
    drop(client.join().unwrap());
}

#[test]
fn the_kernel_watches_over_tunnels() {
    let (fd, address) = listen();
    let client = thread::spawn(move || client(address, b"GET"));
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let keepalive = || rustix::net::sockopt::socket_keepalive(stream.socket()).unwrap();
        assert!(!keepalive());
        stream.socket().set_tunnel();
        assert!(keepalive());
    });
    drop(client.join().unwrap());
}

/// A request may have reached the kernel while the worker was busy with others.
#[test]
fn a_connection_with_a_request_to_read_is_not_idle() {
    let (fd, address) = listen();
    let client = thread::spawn(move || client(address, b"GET"));
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let client = client.join().unwrap();
        assert_eq!(stream.socket().phase(), Phase::Idle);
        assert!(!table.evict_idle(), "evicted before its request was read");
        for _ in 0..4 {
            table.sweep(&timeouts(Duration::ZERO), |_, reason| panic!("{reason:?}"));
        }
        drop(client);
    });
}

/// A response sent while the client is still sending its body must arrive.
#[test]
fn closing_lingers_until_the_client_has_seen_the_response() {
    let (fd, address) = listen();
    let client = thread::spawn(move || {
        let mut client = client(address, b"POST");
        for _ in 0..100 {
            client.write_all(&[7; 1000]).unwrap();
        }
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    });
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.unwrap();
        stream.socket().set_body_left();
        stream.write_all(b"413").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    assert_eq!(client.join().unwrap(), b"413");
}

/// What a client of HTTP/2 sends while the last response is on its way must not reset it.
#[test]
fn closing_lingers_where_clients_send_of_their_own_accord() {
    let (fd, address) = listen();
    let (is_read, may_send) = mpsc::channel();
    let (has_sent, is_sent) = mpsc::channel();
    let client = thread::spawn(move || {
        let mut client = client(address, b"GOAWAY");
        may_send.recv().unwrap();
        client.write_all(b"PING").unwrap();
        has_sent.send(()).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        answer
    });
    run(async {
        let table = Arc::new(ConnectionTable::new());
        let mut stream = accept(&Listener::new(fd).unwrap(), &table).await;
        stream.socket().set_multiplexed();
        let mut more_than_all = [0; 64];
        assert_eq!(stream.read(&mut more_than_all).await.unwrap(), b"GOAWAY".len());
        is_read.send(()).unwrap();
        is_sent.recv().unwrap();
        stream.write_all(b"done").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    assert_eq!(client.join().unwrap(), b"done");
}

#[test]
fn a_taken_port_is_noticed_in_spite_of_port_sharing() {
    let (_fd, address) = listen();
    assert_eq!(probe_tcp(address).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    bind_tcp(address).expect("a second worker may share it");
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.sock");
    assert!(!remove_stale_unix(&path).unwrap());
    let first = bind_unix(&path, 0o666).unwrap();
    assert_eq!(bind_unix(&path, 0o666).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(remove_stale_unix(&path).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert!(remove_stale_unix(&path).expect("nobody listens any more"));
    let _second = bind_unix(&path, 0o600).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert_eq!(remove_stale_unix(&file).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert!(file.exists());
}
