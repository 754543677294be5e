//! Upgraded connections, as WebSockets are: bytes both ways as they are, ends passed on, tunnels
//! counted and waited for.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::client::Client;
use common::origin::{raw, read_head};
use common::server::{Weir, front_config};
use common::{PATIENCE, free_address, wait_for};
use rustix::process::Signal;

const ASK: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: echo/1\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// What an origin saw of a tunnel: the request's head first, then "end" when it was closed.
type Seen = Receiver<String>;

/// An origin that echoes after the switch; "bye" makes it close.
fn echo() -> (SocketAddr, Seen) {
    let (send, seen) = channel();
    let send = Mutex::new(send);
    let address = raw(move |_, mut stream| {
        let send: Sender<String> = send.lock().unwrap().clone();
        let Ok(head) = read_head(&mut stream) else { return };
        let head = String::from_utf8_lossy(&head).into_owned();
        let upgrades = head.to_lowercase().contains("upgrade: echo/1\r\n");
        let _ = send.send(head);
        if !upgrades {
            let _ = stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        stream.write_all(SWITCH).unwrap();
        let mut buffer = [0; 64 << 10];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if buffer[..count].starts_with(b"bye") {
                return;
            }
            if stream.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = send.send("end".to_owned());
    });
    (address, seen)
}

fn front(origin: SocketAddr) -> (Weir, SocketAddr, SocketAddr) {
    let (address, admin) = (free_address(), free_address());
    let rest = format!("server {{ workers 2; admin \"{admin}\"; drain-timeout \"20s\"; }}");
    let route = format!(r#"route "/*" {{ proxy "http://{origin}"; }}"#);
    let config = front_config(address, &rest, &route);
    (Weir::run(&config, &[address, admin]), address, admin)
}

/// A client whose connection is a tunnel.
fn tunnel(address: SocketAddr) -> Client {
    let mut client = Client::connect(address).unwrap();
    client.send(ASK).unwrap();
    let switched = client.response("GET").unwrap();
    assert_eq!(switched.status, 101);
    assert_eq!(switched.header("upgrade"), Some("echo/1"));
    assert_eq!(switched.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let connection = switched.header("connection").unwrap_or_default();
    assert!(connection.eq_ignore_ascii_case("upgrade"), "{connection}");
    client
}

/// Requests and tunnels in flight at the origin, as `weir status` tells.
fn in_flight(admin: SocketAddr) -> u64 {
    let body = common::client::get(admin, "localhost", "/status").unwrap().body;
    let status: serde_json::Value = serde_json::from_slice(&body).unwrap();
    status["upstreams"][0]["servers"][0]["in_flight"].as_u64().unwrap()
}

fn waits_for(admin: SocketAddr, count: u64) {
    let reached = wait_for(PATIENCE, || (in_flight(admin) == count).then_some(()));
    assert!(reached.is_some(), "{} in flight, not {count}", in_flight(admin));
}

#[test]
fn bytes_pass_both_ways_and_the_tunnel_is_counted() {
    let (origin, seen) = echo();
    let (_weir, address, admin) = front(origin);
    let mut client = tunnel(address);
    let head = seen.recv_timeout(PATIENCE).unwrap().to_lowercase();
    assert!(head.contains("connection: upgrade\r\n"), "{head}");
    assert!(head.contains("sec-websocket-key: "), "{head}");
    assert_eq!(in_flight(admin), 1);

    // No HTTP any more, whatever it looks like.
    client.send(b"GET / HTTP/1.1\r\n\r\n\x00\xff").unwrap();
    assert_eq!(client.take(20).unwrap(), b"GET / HTTP/1.1\r\n\r\n\x00\xff");
    let sent: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8).collect();
    let mut writer = client.stream().try_clone().unwrap();
    let much = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&much));
    assert!(client.take(sent.len()).unwrap() == sent, "4 MiB came back changed");
    writing.join().unwrap().unwrap();

    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "end");
    assert!(client.is_closed());
    waits_for(admin, 0);
}

/// The connection of a client that has said all it wants to, and is not known to the event loop,
/// was once asked for more by nobody.
#[test]
fn a_client_that_is_silent_at_first_is_heard() {
    let (origin, _seen) = echo();
    let (_weir, address, _) = front(origin);
    for _ in 0..20 {
        let mut client = tunnel(address);
        std::thread::sleep(Duration::from_millis(20));
        client.send(b"late").unwrap();
        assert_eq!(client.take(4).unwrap(), b"late");
    }
}

#[test]
fn what_a_client_sends_at_once_is_not_lost() {
    let (origin, _seen) = echo();
    let (_weir, address, _) = front(origin);
    let mut client = Client::connect(address).unwrap();
    client.send(&[ASK, b"early bytes"].concat()).unwrap();
    assert_eq!(client.response("GET").unwrap().status, 101);
    assert_eq!(client.take(11).unwrap(), b"early bytes");
}

#[test]
fn the_origin_may_end_it_or_refuse() {
    let (origin, seen) = echo();
    let (_weir, address, admin) = front(origin);
    let mut client = tunnel(address);
    client.send(b"bye").unwrap();
    assert!(client.is_closed(), "the origin closed, the client was not told");
    drop(client);
    waits_for(admin, 0);

    seen.recv_timeout(PATIENCE).unwrap();
    let mut client = Client::connect(address).unwrap();
    let other = String::from_utf8_lossy(ASK).replace("echo/1", "other");
    client.send(other.as_bytes()).unwrap();
    assert_eq!(client.response("GET").unwrap().status, 426);
    // The connection is an ordinary one and goes on.
    assert_eq!(client.ask("GET", "/", &[]).unwrap().status, 426);
}

/// A tunnel of HTTP to the origin would be past every route, and past the cache.
#[test]
fn no_tunnel_for_http_itself() {
    let (origin, seen) = echo();
    let (_weir, address, _) = front(origin);
    for (sent, expect) in [
        ("h2c", None),
        ("HTTP/2.0, h2c", None),
        ("TLS/1.2", None),
        ("echo/1, H2C", Some("upgrade: echo/1")),
    ] {
        let mut client = Client::connect(address).unwrap();
        let fields = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
        let ask = format!("GET /chat HTTP/1.1\r\nHost: a\r\n{fields}\r\nUpgrade: {sent}\r\n\r\n");
        client.send(ask.as_bytes()).unwrap();
        let head = String::from_utf8(client.head().unwrap()).unwrap();
        assert_eq!(head.starts_with("HTTP/1.1 101"), expect.is_some(), "{sent}: {head}");
        let seen = seen.recv_timeout(PATIENCE).unwrap().to_lowercase();
        let upgrade = seen.lines().find(|line| line.starts_with("upgrade:"));
        assert_eq!(upgrade, expect, "{sent}");
        assert!(!seen.contains("http2-settings"), "{sent}: {seen}");
    }
}

#[test]
fn a_client_that_vanishes_ends_the_tunnel() {
    let (origin, seen) = echo();
    let (_weir, address, admin) = front(origin);
    drop(tunnel(address));
    seen.recv_timeout(PATIENCE).unwrap();
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "end");
    waits_for(admin, 0);
}

#[test]
fn an_unasked_switch_is_a_bad_gateway() {
    let origin = raw(|_, mut stream: TcpStream| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(SWITCH);
        let _ = stream.read(&mut [0; 10]);
    });
    let (weir, address, _) = front(origin);
    let mut client = Client::connect(address).unwrap();
    assert_eq!(client.ask("GET", "/", &[]).unwrap().status, 502);
    weir.wait_for_log(&origin.to_string());
}

#[test]
fn a_stop_waits_for_a_tunnel() {
    let (origin, _seen) = echo();
    let (mut weir, address, _) = front(origin);
    let mut client = tunnel(address);
    weir.signal(Signal::TERM);
    weir.wait_for_log("draining");
    let refused = wait_for(PATIENCE, || TcpStream::connect(address).is_err().then_some(()));
    assert!(refused.is_some(), "new connections are let in");
    // Longer than idle connections are given.
    std::thread::sleep(Duration::from_millis(800));
    client.send(b"still here").unwrap();
    assert_eq!(client.take(10).unwrap(), b"still here");
    drop(client);
    assert_eq!(weir.wait(PATIENCE).unwrap().code(), Some(0));
}
