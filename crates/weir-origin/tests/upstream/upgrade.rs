//! Tunnels: 101 and what follows it.

use http::{HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_origin::upstream::{RequestBody, Tunnel};

use crate::support::*;

pub(crate) fn upgrade() -> http::Request<RequestBody> {
    let mut request = get("/socket");
    request.headers_mut().insert("connection", HeaderValue::from_static("upgrade"));
    request.headers_mut().insert("upgrade", HeaderValue::from_static("echo"));
    request
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let address = raw(|_, mut stream| async move {
        let request = read_request(&mut stream).await.unwrap();
        assert!(request.contains("connection: upgrade\r\n"), "{request}");
        assert!(request.contains("upgrade: echo\r\n"), "{request}");
        // The first bytes of the new protocol may come with the head.
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                       upgrade: echo\r\n\r\nhello";
        stream.write_all(switch).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    })
    .await;
    let group = group(&config(&[address]));
    let response = send(&group, upgrade()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let tunnel = response.extensions().get::<Tunnel>().unwrap().clone();
    let mut socket = tunnel.take().unwrap();
    assert!(tunnel.take().is_none());
    drop(response);
    assert_eq!(status(&group, 0).in_flight, 1, "a tunnel is a request in flight");

    let mut five = [0; 5];
    socket.read_exact(&mut five).await.unwrap();
    assert_eq!(&five, b"hello");
    for word in [b"first", b"other"] {
        socket.write_all(word).await.unwrap();
        socket.read_exact(&mut five).await.unwrap();
        assert_eq!(&five, word);
    }
    assert_eq!(status(&group, 0).connections, 1);
    drop(tunnel);
    assert_eq!(status(&group, 0).in_flight, 0);
    drop(socket);
    until("closed", || status(&group, 0).connections == 0).await;
    assert_eq!(status(&group, 0).idle, 0);
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let (address, seen) = origin(|_, _| ok("no")).await;
    let group = group(&config(&[address]));
    for _ in 0..2 {
        assert_eq!(text(&group, upgrade()).await.unwrap(), "no");
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn a_dropped_tunnel_closes_its_connection() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let (address, _) = origin(move |_, _| Act::Stall(switch.into())).await;
    let group = group(&config(&[address]));
    drop(send(&group, upgrade()).await.unwrap());
    until("closed", || status(&group, 0).connections == 0).await;
    assert_eq!(status(&group, 0).in_flight, 0);
}
