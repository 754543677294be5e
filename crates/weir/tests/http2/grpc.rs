//! What gRPC needs of a proxy: trailers both ways, `TE: trailers`, and messages that pass while
//! both sides go on sending.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::{Body, connect, empty, request, send};
use crate::common::PATIENCE;
use crate::common::origin::{Origin, Step};
use crate::common::server::Weir;

/// Answers each piece of a request with the same piece, at once, and its trailers with trailers.
async fn echo(request: Request<Incoming>) -> Result<Response<Channel<Bytes>>, Infallible> {
    assert_eq!(request.version(), Version::HTTP_2);
    let (mut sender, body) = Channel::new(1);
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", "application/grpc".parse().unwrap());
    let te = request.headers().get("te").cloned();
    headers.insert("x-te", te.unwrap_or_else(|| "none".parse().unwrap()));
    if request.uri().path() == "/trailers-only" {
        // A call that fails at once: everything is in the head, and there is no body.
        headers.insert("grpc-status", "12".parse().unwrap());
        return Ok(response);
    }
    tokio::spawn(async move {
        let mut body = request.into_body();
        let mut trailers = HeaderMap::new();
        while let Some(Ok(frame)) = body.frame().await {
            match frame.into_data() {
                Ok(data) => {
                    if sender.send_data(data).await.is_err() {
                        return;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("grpc-message", "fine".parse().unwrap());
        let _ = sender.send_trailers(trailers).await;
    });
    Ok(response)
}

async fn start_grpc_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(echo);
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

fn front(origin: SocketAddr) -> (Weir, SocketAddr) {
    Weir::front(
        &format!("upstream \"grpc\" {{ server \"http://{origin}\"; protocol \"http2\"; }}"),
        "route \"/*\" { proxy \"grpc\"; }",
    )
}

/// A request whose body is sent by hand.
fn call(path: &str) -> (Sender<Bytes>, Request<Body>) {
    let (sender, body) = Channel::<Bytes>::new(1);
    let request = request(Method::POST, path)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(body.map_err(|never: Infallible| match never {}).boxed());
    (sender, request.unwrap())
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let (_weir, address) = front(start_grpc_origin().await);
    let (sender, _connection) = connect(address).await;
    for _ in 0..2 {
        let (mut body, request) = call("/unary");
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
        let sending = tokio::spawn(async move {
            body.send_data(Bytes::from_static(b"\0\0\0\0\x05hello")).await.unwrap();
            body.send_trailers(trailers).await.unwrap();
        });
        let answer = send(&sender, request).await.unwrap();
        sending.await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"\0\0\0\0\x05hello"[..]));
        assert_eq!(answer.header("x-te"), Some("trailers"));
        let trailers = answer.trailers.expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["grpc-message"], "fine");
        assert_eq!(trailers["x-sum"], "7", "the request's trailers reached the origin");
    }
    // Without TE the origin is not told that trailers are welcome.
    let plain = request(Method::POST, "/unary").body(empty()).unwrap();
    assert_eq!(send(&sender, plain).await.unwrap().header("x-te"), Some("none"));
}

#[tokio::test]
async fn a_call_may_fail_in_its_head() {
    let (_weir, address) = front(start_grpc_origin().await);
    let (sender, _connection) = connect(address).await;
    let (body, request) = call("/trailers-only");
    let answer = send(&sender, request).await.unwrap();
    drop(body);
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    assert_eq!(answer.header("grpc-status"), Some("12"));
}

#[tokio::test]
async fn both_sides_may_send_by_turns() {
    let (_weir, address) = front(start_grpc_origin().await);
    let (mut sender, _connection) = connect(address).await;
    let (mut body, request) = call("/stream");
    let talk = async {
        let mut answer = sender.send_request(request).await.unwrap().into_body();
        for i in 0..50 {
            let message = Bytes::from(format!("message {i}"));
            body.send_data(message.clone()).await.unwrap();
            // The reply comes before the next message is sent: nobody waits for more.
            let frame = answer.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), message);
        }
        drop(body);
        let end = answer.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(end["grpc-status"], "0");
        assert!(answer.frame().await.is_none());
    };
    tokio::time::timeout(PATIENCE, talk).await.expect("the talk goes on");
}

#[tokio::test]
async fn trailers_of_an_http1_origin_pass() {
    let origin = Origin::start(|_| {
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                      5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
        vec![Step::Send(answer.as_bytes().to_vec())]
    });
    let (_weir, address) =
        Weir::front("", &format!("route \"/*\" {{ proxy \"{}\"; }}", origin.url()));
    let (sender, _connection) = connect(address).await;
    let asked = request(Method::GET, "/").header("te", "trailers").body(empty()).unwrap();
    let answer = send(&sender, asked).await.unwrap();
    assert_eq!(answer.body, "hello");
    assert_eq!(answer.trailers.expect("trailers")["x-sum"], "7");
}
