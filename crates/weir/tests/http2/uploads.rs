//! Request bodies over HTTP/2: gathered before an upstream is asked, whatever the window, and not
//! where both sides may speak by turns.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Full};

use super::{Body, connect, get, pattern, request, send};
use crate::common::origin::{self, Origin};
use crate::common::server::Weir;

fn front(origin: &Origin, lines: &str) -> (Weir, std::net::SocketAddr) {
    Weir::front(
        &format!("upstream \"app\" {{ server \"{}\"; concurrency 2; }}", origin.url()),
        &format!("route \"/*\" {{ proxy \"app\"; cache \"off\"; {lines}; }}"),
    )
}

fn lengths() -> Origin {
    Origin::start(|request| origin::ok(&request.body.len().to_string()))
}

/// A request whose body is sent by hand.
fn by_hand(fields: &[(&str, &str)]) -> (Sender<Bytes>, Request<Body>) {
    let (sender, body) = Channel::<Bytes>::new(1);
    let mut request = request(Method::POST, "/up");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let body = body.map_err(|never: Infallible| match never {}).boxed();
    (sender, request.body(body).unwrap())
}

/// A window is smaller than the buffer: it must be given back while the buffer fills.
#[tokio::test]
async fn what_is_gathered_may_be_larger_than_a_window() {
    let origin = lengths();
    let (_weir, address) = front(&origin, "limits body-buffer=\"1MiB\"");
    let (sender, _connection) = connect(address).await;
    for len in [1, 65_535, 65_536, 300_000, 1 << 20, 3 << 20] {
        let sent = pattern(len);
        let asked = request(Method::POST, "/up").body(Full::from(sent.clone()).boxed()).unwrap();
        assert_eq!(send(&sender, asked).await.unwrap().body, len.to_string());
        assert!(origin.take()[0].body == sent, "{len}");
    }
}

#[tokio::test]
async fn slow_streams_hold_no_places() {
    let origin = lengths();
    let (_weir, address) = front(&origin, "limits body-buffer=\"64KiB\"");
    let (sender, _connection) = connect(address).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let (mut body, request) = by_hand(&[("content-length", "8")]);
        let sender = sender.clone();
        let answer = tokio::spawn(async move { send(&sender, request).await });
        body.send_data(Bytes::from_static(b"slow")).await.unwrap();
        slow.push((body, answer));
    }
    for _ in 0..4 {
        assert_eq!(get(&sender, "/page").await.body, "0");
    }
    assert!(origin.take().iter().all(|asked| asked.line().contains("/page")));
    for (mut body, answer) in slow {
        body.send_data(Bytes::from_static(b"last")).await.unwrap();
        drop(body);
        assert_eq!(answer.await.unwrap().unwrap().body, "8");
    }
}

/// A stream that its client resets in the middle leaves nothing that would be sent.
#[tokio::test]
async fn a_stream_that_is_reset_is_forgotten() {
    let origin = lengths();
    let (_weir, address) = front(&origin, "limits body-buffer=\"64KiB\"");
    let (sender, _connection) = connect(address).await;
    let (mut body, request) = by_hand(&[("content-length", "8")]);
    let of_stream = sender.clone();
    let answer = tokio::spawn(async move { send(&of_stream, request).await });
    body.send_data(Bytes::from_static(b"slow")).await.unwrap();
    answer.abort();
    assert!(answer.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(get(&sender, "/page").await.body, "0");
    let asked: Vec<String> = origin.take().iter().map(|asked| asked.line()).collect();
    assert_eq!(asked, ["GET /page HTTP/1.1"]);
}

/// Whatever it says that it is reset for, and whether its upstream has been asked by then or not.
#[tokio::test]
async fn a_stream_that_is_reset_is_no_whole_request() {
    let origin = lengths();
    let (_weir, address) = front(&origin, "limits body-buffer=\"64KiB\"");
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    for len in [10, 200_000] {
        for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL] {
            client = client.ready().await.unwrap();
            let request = Request::post("http://localhost/up").body(()).unwrap();
            let (answer, mut body) = client.send_request(request, false).unwrap();
            body.reserve_capacity(len);
            let mut left = Bytes::from(pattern(len));
            while !left.is_empty() {
                let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await.unwrap();
                let piece = left.split_to(room.unwrap().min(left.len()));
                body.send_data(piece, false).unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            body.send_reset(reason);
            assert!(answer.await.is_err(), "{len} {reason}");
        }
    }
    let (sender, _connection) = connect(address).await;
    assert_eq!(get(&sender, "/page").await.body, "0");
    let asked: Vec<String> = origin.take().iter().map(|asked| asked.line()).collect();
    assert_eq!(asked, ["GET /page HTTP/1.1"]);
}
