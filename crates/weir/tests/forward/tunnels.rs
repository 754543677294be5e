//! CONNECT: bytes both ways as they are, to where tunnels may lead.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use super::common::client::get;
use super::common::origin::{raw, read_head};
use super::common::{PATIENCE, wait_for};
use super::*;

/// A server that speaks first, and then echoes.
pub(super) fn greeter() -> SocketAddr {
    raw(|_, mut stream: TcpStream| {
        let _ = stream.write_all(b"220 hello\r\n");
        let mut buffer = [0; 64 << 10];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"bye");
    })
}

/// A proxy that opens tunnels to any high port of loopback, with its admin API.
pub(super) fn tunnels(connect: &str) -> (Weir, SocketAddr, SocketAddr) {
    let admin = free_address();
    let server = format!("server {{ admin \"{admin}\"; drain-timeout \"20s\"; }}");
    let (_, weir, address) = proxy_with(&server, &format!("connect \"1024-65535\" {connect}"), "");
    (weir, address, admin)
}

/// Asks for a tunnel.
pub(super) fn connect(proxy: SocketAddr, to: &str) -> (Client, Response) {
    let mut client = Client::connect(proxy).unwrap();
    client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    (client, Response { status, headers, body: Vec::new() })
}

pub(super) fn metric(admin: SocketAddr, name: &str) -> u64 {
    let page = text(&get(admin, "localhost", "/metrics").unwrap());
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is not in\n{page}")).parse().unwrap()
}

#[test]
fn bytes_pass_as_they_are_and_are_counted() {
    let (weir, proxy, admin) = tunnels("");
    let to = greeter().to_string();
    let (mut client, response) = connect(proxy, &to);
    assert_eq!(response.status, 200);
    for absent in ["content-length", "transfer-encoding"] {
        assert_eq!(response.header(absent), None, "{absent}");
    }
    // The other side speaks at once, and the client later: it once hung.
    assert_eq!(client.take(11).unwrap(), b"220 hello\r\n");
    std::thread::sleep(Duration::from_millis(300));
    client.send(b"GET / HTTP/1.1\r\n\r\n\x00\xff").unwrap();
    assert_eq!(client.take(20).unwrap(), b"GET / HTTP/1.1\r\n\r\n\x00\xff");
    assert_eq!(metric(admin, "weir_forward_tunnels"), 1);
    // It counts among the connections, too; the admin API's do not.
    assert_eq!(metric(admin, "weir_connections_open"), 1);
    let sent: Vec<u8> = (0..4_u32 << 20).map(|n| (n % 251) as u8).collect();
    let (mut writer, much) = (client.stream().try_clone().unwrap(), sent.clone());
    let writing = std::thread::spawn(move || writer.write_all(&much));
    assert!(client.take(sent.len()).unwrap() == sent, "4 MiB came back changed");
    writing.join().unwrap().unwrap();
    // Its end is passed on, and what is said after that comes back.
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.take(3).unwrap(), b"bye");
    assert!(client.is_closed());
    let closed = wait_for(PATIENCE, || (metric(admin, "weir_forward_tunnels") == 0).then_some(()));
    assert!(closed.is_some());
    assert_eq!(metric(admin, "weir_connections_open"), 0);
    assert_eq!(metric(admin, "weir_forward_tunnels_total{end=\"whole\"}"), 1);
    let bytes = |direction| {
        metric(admin, &format!("weir_forward_tunnel_bytes_total{{direction=\"{direction}\"}}"))
    };
    let echoed = 20 + (4 << 20);
    assert_eq!((bytes("in"), bytes("out")), (echoed, echoed + 11 + 3));
    weir.wait_for_log("\"method\":\"CONNECT\"");
}

/// CPython asks for tunnels like this up to its version 3.11.
#[test]
fn clients_may_speak_the_older_version() {
    let (_weir, proxy, _admin) = tunnels("");
    let to = greeter();
    let mut client = Client::connect(proxy).unwrap();
    client.send(format!("CONNECT {to} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    let head = String::from_utf8(client.head().unwrap()).unwrap();
    assert!(head.starts_with("HTTP/1.") && head[8..].starts_with(" 200 "), "{head}");
    assert_eq!(client.take(11).unwrap(), b"220 hello\r\n");
    client.send(b"hi").unwrap();
    assert_eq!(client.take(2).unwrap(), b"hi");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.take(3).unwrap(), b"bye");
}

/// Nobody takes what came before it broke for the whole.
#[test]
fn a_tunnel_that_breaks_on_one_side_is_reset_on_the_other() {
    let breaking = raw(|_, mut stream: TcpStream| {
        // What is not read when it is closed makes it a reset.
        let _ = stream.read(&mut [0; 1]);
    });
    let (_weir, proxy, admin) = tunnels("");
    let (mut client, response) = connect(proxy, &breaking.to_string());
    assert_eq!(response.status, 200);
    client.send(b"0123456789").unwrap();
    let error = client.stream().read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let counted = "weir_forward_tunnels_total{end=\"broken\"}";
    assert!(wait_for(PATIENCE, || (metric(admin, counted) == 1).then_some(())).is_some());
}

#[test]
fn a_tunnel_leads_where_it_may() {
    let (_weir, proxy, _admin) = tunnels("");
    let greeter = greeter();
    let port = greeter.port();
    for (to, status, details) in [
        (format!("localhost:{port}"), 200, None),
        ("127.0.0.1:22".to_owned(), 403, Some("port")),
        ("127.0.0.1:0".to_owned(), 400, None),
        ("127.0.0.1:65536".to_owned(), 400, None),
        (format!("127.0.0.2:{port}"), 403, Some("private")),
        (format!("[::ffff:10.0.0.1]:{port}"), 403, Some("private")),
        (format!("169.254.169.254:{port}"), 403, Some("private")),
        (proxy.to_string(), 403, Some("own")),
        (format!("2130706433:{port}"), 400, None),
        (format!("127.1:{port}"), 400, None),
        ("127.0.0.1".to_owned(), 400, None),
        (format!("user@127.0.0.1:{port}"), 400, None),
        (format!("/127.0.0.1:{port}"), 400, None),
        (format!("http://127.0.0.1:{port}/"), 400, None),
        ("nowhere.invalid:8080".to_owned(), 502, None),
        (free_address().to_string(), 502, None),
    ] {
        let (_client, response) = connect(proxy, &to);
        let field = response.header("proxy-status").unwrap_or_default();
        assert_eq!(response.status, status, "{to}: {response:?}");
        assert_eq!(field.split('"').nth(1), details, "{to}");
    }
}

#[test]
fn tunnels_have_limits() {
    let (_weir, proxy, admin) = tunnels("idle=\"1s\" bytes=20 open=1");
    let to = greeter().to_string();
    let (mut client, _) = connect(proxy, &to);
    assert_eq!(client.take(11).unwrap(), b"220 hello\r\n");
    // One at a time.
    let (_, second) = connect(proxy, &to);
    assert_eq!((second.status, second.header("retry-after")), (503, Some("1")));
    assert_eq!(metric(admin, "weir_forward_denied_total{reason=\"tunnels\"}"), 1);
    // Silent for too long.
    assert!(client.is_closed());
    let ended = |end: &str| metric(admin, &format!("weir_forward_tunnels_total{{end=\"{end}\"}}"));
    let idle = wait_for(PATIENCE, || (ended("idle") == 1).then_some(()));
    assert!(idle.is_some());
    // 11 to the client, 9 from it.
    let (mut client, _) = connect(proxy, &to);
    assert_eq!(client.take(11).unwrap(), b"220 hello\r\n");
    client.send(b"0123456789").unwrap();
    let _ = client.read_to_end();
    let full = wait_for(PATIENCE, || (ended("bytes") == 1).then_some(()));
    assert!(full.is_some());
}

/// What asks for another protocol by a whole URL is a tunnel, too.
#[test]
fn upgraded_connections_have_the_limits_of_tunnels() {
    let (_weir, proxy, admin) = tunnels("idle=\"1s\" bytes=20 open=1");
    let to = raw(|_, mut stream: TcpStream| {
        read_head(&mut stream).unwrap();
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count]).unwrap();
        }
    });
    let upgrade = || {
        let mut client = Client::connect(proxy).unwrap();
        let head = format!(
            "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"
        );
        client.send(head.as_bytes()).unwrap();
        let answer = client.response("GET").unwrap();
        (client, answer.status)
    };
    let ended = |end: &str| {
        let name = format!("weir_forward_tunnels_total{{end=\"{end}\"}}");
        wait_for(PATIENCE, || (metric(admin, &name) == 1).then_some(()))
    };
    let (mut client, status) = upgrade();
    assert_eq!((status, metric(admin, "weir_forward_tunnels")), (101, 1));
    client.send(b"hello").unwrap();
    assert_eq!(client.take(5).unwrap(), b"hello");
    // One at a time, whichever way it was asked for.
    assert_eq!(upgrade().1, 503);
    assert_eq!(connect(proxy, &to.to_string()).1.status, 503);
    // Silent for too long.
    assert!(client.is_closed());
    assert!(ended("idle").is_some());
    let (mut client, status) = upgrade();
    assert_eq!(status, 101);
    client.send(b"0123456789").unwrap();
    assert_eq!(client.take(10).unwrap(), b"0123456789");
    let _ = client.read_to_end();
    assert!(ended("bytes").is_some());
}

#[test]
fn connect_is_refused_where_there_are_no_tunnels() {
    let (_origin, _weir, proxy) = proxy("connect", "");
    let (_client, response) = connect(proxy, "127.0.0.1:443");
    assert_eq!(response.status, 403);
    let (_origin, _weir, proxy) = self::proxy("from \"10.0.0.0/8\"", "");
    assert_eq!(connect(proxy, "127.0.0.1:443").1.status, 403);
    // No forward proxy at all.
    let (_weir, address) = Weir::front("", "route \"/*\" { respond \"\"; }");
    assert_eq!(connect(address, "127.0.0.1:443").1.status, 501);
}

#[test]
fn rules_decide_about_tunnels() {
    let guard = "guard { rule \"no\" { method \"CONNECT\"; always; refuse; }\n}";
    let (_origin, _weir, proxy) = proxy_with(guard, "connect \"1024-65535\"", "");
    assert_eq!(connect(proxy, &greeter().to_string()).1.status, 503);
}

#[test]
fn a_graceful_stop_waits_for_tunnels() {
    let (mut weir, proxy, _admin) = tunnels("");
    let (mut client, _) = connect(proxy, &greeter().to_string());
    client.take(11).unwrap();
    weir.signal(Signal::TERM);
    assert!(weir.wait(Duration::from_millis(500)).is_none());
    client.send(b"still here").unwrap();
    assert_eq!(client.take(10).unwrap(), b"still here");
    client.stream().shutdown(Shutdown::Both).unwrap();
    assert!(weir.wait(PATIENCE).is_some());
}
