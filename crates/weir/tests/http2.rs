//! HTTP/2 with prior knowledge: many streams on one connection, large bodies both ways, trailers to
//! and from origins as gRPC needs them, and a stop that lets streams finish.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "http2/grpc.rs"]
mod grpc;

#[path = "http2/guard.rs"]
mod guard;

#[path = "http2/idle.rs"]
mod idle;

#[path = "http2/stall.rs"]
mod stall;

#[path = "http2/uploads.rs"]
mod uploads;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use common::origin::{self, Origin, Step};
use common::server::Weir;
use common::{PATIENCE, wait_for};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// A connection, and the task that ends with it.
async fn connect(address: SocketAddr) -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // The client's own windows are not what is tested.
    builder.initial_stream_window_size(1 << 20).initial_connection_window_size(16 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://site.example{path}"))
}

fn empty() -> Body {
    Empty::new().boxed()
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn send(sender: &SendRequest<Body>, request: Request<Body>) -> hyper::Result<Answer> {
    let mut sender = sender.clone();
    sender.ready().await?;
    let asked = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let collected = body.collect().await?;
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body, trailers })
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("an answer in time")
}

async fn get(sender: &SendRequest<Body>, path: &str) -> Answer {
    send(sender, request(Method::GET, path).body(empty()).unwrap()).await.unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 241 + i % 241) as u8).collect()
}

/// Browsers send each cookie in a field of its own over HTTP/2, and only there may they.
#[tokio::test]
async fn an_origin_gets_one_cookie_field() {
    let origin = Origin::start(|request| origin::ok(&request.values("cookie").join(" AND ")));
    let (_weir, address) =
        Weir::front("", &format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url()));
    let (sender, _connection) = connect(address).await;
    for (sent, expect) in [
        (&["a=1; b=2"][..], "a=1; b=2"),
        (&["a=1", "b=2", "c=\"3\"; d=4"][..], "a=1; b=2; c=\"3\"; d=4"),
        (&[][..], ""),
    ] {
        let cookies =
            |builder: http::request::Builder, value: &&str| builder.header("cookie", *value);
        let asked = sent.iter().fold(request(Method::GET, "/"), cookies);
        let answer = send(&sender, asked.body(empty()).unwrap()).await.unwrap();
        assert_eq!(answer.body, expect, "{sent:?}");
    }
}

/// What reads logs looks for paths, and has never seen a scheme there.
#[tokio::test]
async fn a_logged_target_is_a_path_as_with_http1() {
    for (format, expect) in [
        ("combined", r#""GET /a?b=1 HTTP/2.0" 200 5"#),
        ("json", r#""uri":"/a?b=1","protocol":"HTTP/2.0","host":"site.example""#),
    ] {
        let site = format!(
            "access-log \"log\" format=\"{format}\"; route \"/*\" {{ respond \"fixed\"; }}"
        );
        let (weir, address) = Weir::front("", &site);
        let (sender, _connection) = connect(address).await;
        assert_eq!(get(&sender, "/a?b=1").await.status, 200);
        let path = weir.directory().join("log");
        let text = || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
        let text = wait_for(PATIENCE, text).unwrap();
        assert!(text.contains(expect), "no {expect} in {text}");
    }
}

#[tokio::test]
async fn many_streams_share_a_connection() {
    const STREAMS: usize = 600;
    let origin = Origin::start(|request| origin::ok(&request.line()));
    let (weir, address) = Weir::front(
        "cache { memory \"8MiB\"; object-max \"64KiB\"; }",
        &format!(
            r#"
            route "/fixed" {{ respond "fixed"; }}
            route "/proxied/*" {{ proxy "{}"; cache "off"; }}
            route "/*" {{ files "."; }}
            "#,
            origin.url()
        ),
    );
    let (small, large) = (pattern(5000), pattern(300_000));
    std::fs::write(weir.directory().join("small"), &small).unwrap();
    std::fs::write(weir.directory().join("large"), &large).unwrap();
    let (sender, connection) = connect(address).await;
    let mut asked = tokio::task::JoinSet::new();
    for i in 0..STREAMS {
        let sender = sender.clone();
        let path = match i % 5 {
            0 => "/fixed".to_owned(),
            1 => format!("/proxied/{i}"),
            2 => "/small".to_owned(),
            3 => "/large".to_owned(),
            _ => format!("/missing/{i}"),
        };
        asked.spawn(async move { (i, get(&sender, &path).await) });
    }
    let mut count = 0;
    while let Some(answered) = asked.join_next().await {
        let (i, answer) = answered.unwrap();
        let proxied = format!("GET /proxied/{i} HTTP/1.1");
        let (status, body): (u16, &[u8]) = match i % 5 {
            0 => (200, b"fixed"),
            1 => (200, proxied.as_bytes()),
            2 => (200, &small),
            3 => (200, &large),
            _ => (404, b"404 Not Found\n"),
        };
        assert_eq!(answer.status, status, "stream {i}");
        assert!(answer.body == body, "stream {i}: wrong bytes");
        for name in ["connection", "transfer-encoding", "keep-alive"] {
            assert_eq!(answer.header(name), None, "stream {i}: RFC 9113 section 8.2.2");
        }
        count += 1;
    }
    assert_eq!(count, STREAMS);
    drop(sender);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn large_bodies_both_ways() {
    let origin = Origin::start(|request| {
        let sum: u64 = request.body.iter().map(|byte| u64::from(*byte)).sum();
        origin::ok(&format!("{} {sum}", request.body.len()))
    });
    let (weir, address) = Weir::front(
        "cache { memory \"64MiB\"; object-max \"16MiB\"; }",
        &format!(
            "route \"/upload\" {{ proxy \"{}\"; }}\n\
             route \"/small/*\" {{ proxy \"{0}\"; limits body-size=\"10KiB\"; }}\n\
             route \"/*\" {{ files \".\"; }}",
            origin.url()
        ),
    );
    let (stored, streamed) = (pattern(10_000_000), pattern(20_000_000));
    std::fs::write(weir.directory().join("stored"), &stored).unwrap();
    std::fs::write(weir.directory().join("streamed"), &streamed).unwrap();
    let (sender, _connection) = connect(address).await;
    for (path, expected) in [("/stored", &stored), ("/stored", &stored), ("/streamed", &streamed)] {
        let answer = get(&sender, path).await;
        assert!(answer.body == expected[..], "{path}: {} bytes", answer.body.len());
        let head = request(Method::HEAD, path).body(empty()).unwrap();
        let head = send(&sender, head).await.unwrap();
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(&*expected.len().to_string()), "{path}");
        let part = request(Method::GET, path).header("range", "bytes=5000000-8999999");
        let part = send(&sender, part.body(empty()).unwrap()).await.unwrap();
        assert_eq!(part.status, 206, "{path}");
        assert!(part.body == expected[5_000_000..9_000_000], "{path}: wrong part");
    }
    let upload = |path: &str, body: &[u8]| {
        let body = Full::new(Bytes::copy_from_slice(body)).boxed();
        request(Method::POST, path).body(body).unwrap()
    };
    let answer = send(&sender, upload("/upload", &stored)).await.unwrap();
    let sum: u64 = stored.iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(answer.body, format!("{} {sum}", stored.len()));
    let refused = send(&sender, upload("/small/a", &stored)).await.unwrap();
    assert_eq!(refused.status, 413);
    assert_eq!(get(&sender, "/stored").await.status, 200, "only the stream was refused");
}

#[tokio::test]
async fn a_head_that_is_too_large_costs_only_its_stream() {
    let (_weir, address) = Weir::front(
        "server { workers 1; admin \"off\"; limits { header-size \"8KiB\"; }; }",
        "route \"/*\" { respond \"fixed\"; }",
    );
    let (sender, _connection) = connect(address).await;
    let large = request(Method::GET, "/").header("x", "x".repeat(20_000)).body(empty()).unwrap();
    let refused = send(&sender, large).await;
    assert_eq!(refused.expect("an answer").status, 431);
    assert_eq!(get(&sender, "/").await.body, "fixed");
}

#[tokio::test]
async fn a_stop_lets_streams_finish() {
    let origin = Origin::start(|_| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst".to_vec();
        vec![
            Step::Pause(Duration::from_millis(300)),
            Step::Send(head),
            Step::Pause(Duration::from_millis(900)),
            Step::Send(b"later".to_vec()),
        ]
    });
    let (mut weir, address) = Weir::front(
        "",
        &format!(
            "route \"/slow\" {{ proxy \"{}\"; }}\nroute \"/*\" {{ files \".\"; }}",
            origin.url()
        ),
    );
    let large = pattern(20_000_000);
    std::fs::write(weir.directory().join("large"), &large).unwrap();
    let (sender, connection) = connect(address).await;
    let (idle_sender, idle) = connect(address).await;
    assert_eq!(get(&idle_sender, "/none").await.status, 404);
    // Two streams in flight: one waits for the origin, of the other some is read.
    let slow = tokio::spawn({
        let sender = sender.clone();
        async move { get(&sender, "/slow").await }
    });
    let mut asking = sender.clone();
    let download = asking.send_request(request(Method::GET, "/large").body(empty()).unwrap());
    let mut download = download.await.unwrap().into_body();
    let mut received = download.frame().await.unwrap().unwrap().into_data().unwrap().to_vec();
    while origin.take().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    weir.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_millis(200)).await;
    received.extend_from_slice(&download.collect().await.unwrap().to_bytes());
    assert!(received == large, "{} bytes", received.len());
    let slow = slow.await.unwrap();
    assert_eq!((slow.status.as_u16(), &slow.body[..]), (200, &b"firstlater"[..]));
    // Told to go away: nothing more on these connections, and they end without an error.
    assert!(send(&sender, request(Method::GET, "/").body(empty()).unwrap()).await.is_err());
    connection.await.unwrap().unwrap();
    idle.await.unwrap().unwrap();
    let status = wait_for(PATIENCE, || weir.wait(Duration::ZERO));
    assert!(status.expect("the server ends").success());
}
