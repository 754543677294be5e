//! Tunnels as streams of HTTP/2 (RFC 9113, section 8.5), and HTTP/2 inside of tunnels.

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Version};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::common::{PATIENCE, wait_for};
use super::inspection::{inspected, trusting};
use super::tunnels::{greeter, metric, tunnels};
use super::*;

pub(super) fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, what).await.unwrap() })
}

pub(super) async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client.ready().await.unwrap()
}

/// Begins a stream.
pub(super) async fn begin(
    client: &mut SendRequest<Bytes>,
    method: Method,
    target: &str,
) -> (u16, RecvStream, SendStream<Bytes>) {
    let is_over = method != Method::CONNECT;
    let request = Request::builder().method(method).uri(target).version(Version::HTTP_2);
    let (response, sender) = client.send_request(request.body(()).unwrap(), is_over).unwrap();
    let response = response.await.unwrap();
    (response.status().as_u16(), response.into_body(), sender)
}

/// Reads so many bytes, or to the end.
async fn take(from: &mut RecvStream, len: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    while taken.len() < len
        && let Some(piece) = from.data().await
    {
        let piece = piece.unwrap();
        from.flow_control().release_capacity(piece.len()).unwrap();
        taken.extend_from_slice(&piece);
    }
    taken
}

#[test]
fn a_stream_is_a_tunnel_beside_other_requests() {
    let (_weir, proxy, admin) = tunnels("");
    let (to, origin) = (greeter().to_string(), Origin::start(echo));
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        let (status, mut first, mut to_first) = begin(&mut client, Method::CONNECT, &to).await;
        assert_eq!((status, &take(&mut first, 11).await[..]), (200, &b"220 hello\r\n"[..]));
        let (status, mut other, mut to_other) = begin(&mut client, Method::CONNECT, &to).await;
        assert_eq!((status, &take(&mut other, 11).await[..]), (200, &b"220 hello\r\n"[..]));
        let (status, mut page, _) = begin(&mut client, Method::GET, &origin.url()).await;
        let page = take(&mut page, usize::MAX).await;
        assert_eq!((status, page.ends_with(b" GET / HTTP/1.1")), (200, true));
        // Much, in both directions at once, and nothing of it to the other.
        let sent: Vec<u8> = (0..1_u32 << 20).map(|n| (n % 251) as u8).collect();
        to_first.send_data(Bytes::from(sent.clone()), false).unwrap();
        to_other.send_data(Bytes::from_static(b"\x00\xff"), false).unwrap();
        assert!(take(&mut first, sent.len()).await == sent, "1 MiB came back changed");
        assert_eq!(take(&mut other, 2).await, b"\x00\xff");
        // Its end is passed on, and what is said after that comes back.
        to_first.send_data(Bytes::new(), true).unwrap();
        assert_eq!(take(&mut first, usize::MAX).await, b"bye");
        assert_eq!(metric(admin, "weir_forward_tunnels"), 1);
        // A stream that is reset closes its tunnel alone.
        to_other.send_reset(h2::Reason::CANCEL);
        let closed = async {
            while metric(admin, "weir_forward_tunnels") > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        closed.await;
        let (status, _, _) = begin(&mut client, Method::GET, &origin.url()).await;
        assert_eq!(status, 200);
    });
    assert_eq!(metric(admin, "weir_forward_tunnels_total{end=\"whole\"}"), 1);
}

/// What is asked for at once is asked by one for all, and what it may not, nobody may.
#[test]
fn whoever_waits_is_refused_like_who_asks() {
    let address = free_address();
    let route = "route \"/*\" { forward { ports \"1024-65535\"; }\n}";
    let _weir = Weir::run(&front_config(address, "", route), &[address]);
    run(async {
        let mut client = speak(TcpStream::connect(address).await.unwrap()).await;
        let asked: Vec<_> = (0..40)
            .map(|_| {
                let request = Request::get("http://localhost:8080/").version(Version::HTTP_2);
                client.send_request(request.body(()).unwrap(), true).unwrap().0
            })
            .collect();
        for answer in asked {
            let answer = answer.await.unwrap();
            let field = answer.headers().get("proxy-status").map(|field| field.to_str().unwrap());
            let expected = "weir; error=destination_ip_prohibited; details=\"private\"";
            assert_eq!((answer.status().as_u16(), field), (403, Some(expected)));
        }
    });
}

/// The error that a stream is reset with, or `None` if it ended like one that is over.
async fn reset(from: &mut RecvStream) -> Option<h2::Reason> {
    while let Some(piece) = from.data().await {
        match piece {
            Ok(piece) => from.flow_control().release_capacity(piece.len()).unwrap(),
            Err(error) => return error.reason(),
        }
    }
    None
}

#[test]
fn a_tunnel_that_breaks_is_reset() {
    let (_weir, proxy, admin) = tunnels("idle=\"1s\" bytes=30");
    let breaking = super::common::origin::raw(|_, mut stream| {
        use std::io::Read;
        // What is not read when it is closed makes it a reset.
        let _ = stream.read(&mut [0; 1]);
    });
    let ended = |end: &str| metric(admin, &format!("weir_forward_tunnels_total{{end=\"{end}\"}}"));
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        for (to, sent, expected) in [
            (breaking, &b"0123456789"[..], "broken"),
            (greeter(), &b""[..], "idle"),
            (greeter(), &[b'x'; 40][..], "bytes"),
        ] {
            let (status, mut tunnel, mut sender) =
                begin(&mut client, Method::CONNECT, &to.to_string()).await;
            assert_eq!(status, 200, "{expected}");
            sender.send_data(Bytes::from_static(sent), false).unwrap();
            assert_eq!(reset(&mut tunnel).await, Some(h2::Reason::CANCEL), "{expected}");
            let counted = wait_for(PATIENCE, || (ended(expected) == 1).then_some(()));
            assert!(counted.is_some(), "{expected}");
        }
    });
}

/// Whatever a client says it resets a stream for, its server does not take what came for the whole.
#[test]
fn a_stream_that_is_reset_is_no_end() {
    let (_weir, proxy, _admin) = tunnels("");
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let to = super::common::origin::raw(move |_, mut stream| {
        let mut all = Vec::new();
        let ended = std::io::Read::read_to_end(&mut stream, &mut all);
        tell.lock().unwrap().send((all, ended.is_ok())).unwrap();
    });
    let to = to.to_string();
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        for reason in [
            None,
            Some(h2::Reason::CANCEL),
            Some(h2::Reason::NO_ERROR),
            Some(h2::Reason::INTERNAL_ERROR),
        ] {
            let (status, tunnel, mut sender) = begin(&mut client, Method::CONNECT, &to).await;
            assert_eq!(status, 200);
            sender.send_data(Bytes::from_static(b"half"), reason.is_none()).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            reason.into_iter().for_each(|reason| sender.send_reset(reason));
            let received = || told.try_recv().ok();
            let (all, is_end) = loop {
                match received() {
                    Some(received) => break received,
                    None => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
                }
            };
            assert_eq!((&*all, is_end), (&b"half"[..], reason.is_none()), "{reason:?}");
            drop(tunnel);
        }
    });
}

#[test]
fn streams_lead_where_they_may() {
    let (_weir, proxy, _admin) = tunnels("");
    run(async {
        let mut client = speak(TcpStream::connect(proxy).await.unwrap()).await;
        for (to, expected) in [
            ("127.0.0.1:22", 403),
            ("169.254.169.254:8080", 403),
            (&*proxy.to_string(), 403),
            ("2130706433:8080", 400),
            ("nowhere.invalid:8080", 502),
            (&*greeter().to_string(), 200),
        ] {
            assert_eq!(begin(&mut client, Method::CONNECT, to).await.0, expected, "{to}");
        }
    });
}

#[test]
fn what_is_inside_may_be_http2() {
    let inspected = inspected("\"localhost\"", true, "header { set \"X-Seen\" \"1\"; }");
    let (proxy, to) = (inspected.address, format!("localhost:{}", inspected.port));
    let mut config = trusting(&inspected.proxy.directory().join("ca.pem"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    run(async {
        // Streams of a connection cannot be opened one by one.
        let mut outer = speak(TcpStream::connect(proxy).await.unwrap()).await;
        assert_eq!(begin(&mut outer, Method::CONNECT, &to).await.0, 501);

        let mut tunnel = TcpStream::connect(proxy).await.unwrap();
        let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        tunnel.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(tunnel.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let connecting = TlsConnector::from(std::sync::Arc::new(config)).connect(name, tunnel);
        let stream = connecting.await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut client = speak(stream).await;
        for _ in 0..2 {
            let url = format!("https://{to}/a");
            let (status, mut page, _) = begin(&mut client, Method::GET, &url).await;
            assert_eq!((status, &take(&mut page, usize::MAX).await[..]), (200, &b"inside"[..]));
        }
        // Another host than the tunnel's is not asked, and there is no tunnel inside of one.
        for (method, target, expected) in [
            (Method::GET, "https://other.example/", 421),
            (Method::GET, &*format!("https://localhost:{}/", inspected.port ^ 1), 421),
            (Method::CONNECT, &*to, 501),
        ] {
            let (status, _, _) = begin(&mut client, method, target).await;
            assert_eq!(status, expected, "{target}");
        }
    });
}
