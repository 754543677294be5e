//! Each timeout and each way of not being HTTP has its own kind and status.

use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_config::{Target, UpstreamProtocol};
use weir_origin::error::{ErrorKind, OriginError};

use crate::support::*;

fn assert_kind(error: &OriginError, kind: ErrorKind, status: StatusCode) {
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(error.status(), status);
}

#[tokio::test]
async fn a_refused_connection_is_502() {
    let address = refusing().await;
    let error = text(&group(&config(&[address])), get("/")).await.unwrap_err();
    assert_kind(&error, ErrorKind::Connect, StatusCode::BAD_GATEWAY);
    assert_eq!(error.server(), address.to_string());
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_502() {
    let mut config = config(&[]);
    // RFC 6761, section 6.4: never resolves.
    config.servers = vec![server(([127, 0, 0, 1], 80).into())];
    config.servers[0].target = Target::Host("nowhere.invalid".into(), 80);
    let error = text(&group(&config), get("/")).await.unwrap_err();
    assert_kind(&error, ErrorKind::Resolve, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_name_that_resolves_is_connected_to() {
    let (address, _) = origin(|_, _| ok("named")).await;
    let mut config = config(&[address]);
    // May resolve to ::1 first, where nobody listens.
    config.servers[0].target = Target::Host("localhost".into(), address.port());
    assert_eq!(text(&group(&config), get("/")).await.unwrap(), "named");
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_is_a_connect_timeout() {
    let address = raw(|_, mut stream| async move {
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let mut config = config(&[address]);
    config.servers[0].tls = true;
    config.tls.insecure = true;
    config.connect_timeout = SHORT;
    let error = text(&group(&config), get("/")).await.unwrap_err();
    assert_kind(&error, ErrorKind::ConnectTimeout, StatusCode::GATEWAY_TIMEOUT);
}

#[tokio::test]
async fn silence_before_the_head_is_a_first_byte_timeout() {
    for begun in ["", "HTTP/1.1 200 OK\r\nx-slow: "] {
        let (address, _) = origin(move |_, _| Act::Stall(begun.into())).await;
        let mut config = config(&[address]);
        config.first_byte_timeout = SHORT;
        let group = group(&config);
        let error = text(&group, get("/")).await.unwrap_err();
        assert_kind(&error, ErrorKind::FirstByteTimeout, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(status(&group, 0).failures["first_byte_timeout"], 1);
        until("closed", || status(&group, 0).connections == 0).await;
    }
}

#[tokio::test]
async fn a_timeout_on_a_kept_connection_counts_from_its_own_request() {
    let (address, _) = origin(|_, request| match request {
        0 | 1 => ok("x"),
        _ => Act::Stall(String::new()),
    })
    .await;
    let mut config = config(&[address]);
    config.first_byte_timeout = Duration::from_millis(200);
    let group = group(&config);
    for _ in 0..2 {
        text(&group, get("/")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    let start = tokio::time::Instant::now();
    let error = text(&group, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FirstByteTimeout);
    assert!(start.elapsed() >= Duration::from_millis(195), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_body_that_stands_still_is_an_idle_timeout() {
    let stall = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let (address, _) = origin(move |_, _| Act::Stall(stall.into())).await;
    let mut config = config(&[address]);
    config.idle_timeout = SHORT;
    let group = group(&config);
    let response = send(&group, get("/")).await.unwrap();
    let error = finish(response).await.unwrap_err();
    assert_kind(&error, ErrorKind::IdleTimeout, StatusCode::GATEWAY_TIMEOUT);
    let status = status(&group, 0);
    assert_eq!((status.in_flight, status.failures["idle_timeout"]), (0, 1));
}

#[tokio::test]
async fn a_body_that_moves_slowly_is_no_timeout() {
    let address = raw(|_, mut stream| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n").await.unwrap();
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stream.write_all(b".").await.unwrap();
        }
    })
    .await;
    let mut config = config(&[address]);
    config.idle_timeout = Duration::from_millis(200);
    assert_eq!(text(&group(&config), get("/")).await.unwrap(), "........");
}

#[tokio::test]
async fn what_is_not_http_is_502() {
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "x-filler: 0123456789\r\n".repeat(30_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    let cases: [(&str, String); 9] = [
        ("garbage", "SSH-2.0-OpenSSH_9.7\r\n\r\n".into()),
        ("status", "HTTP/1.1 two hundred\r\n\r\n".into()),
        ("binary", "\0\u{1}\u{2}\r\n\r\n".into()),
        ("lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".into()),
        ("length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".into()),
        ("coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n".into()),
        ("unasked 101", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n".into()),
        ("endless head", endless),
        ("too many fields", many),
    ];
    for (name, answer) in cases {
        let (address, _) = origin(move |_, _| Act::Last(answer.clone())).await;
        let mut config = config(&[address]);
        config.retries = 2;
        let group = group(&config);
        let error = text(&group, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Garbage, "{name}: {error}");
        assert_eq!(error.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(status(&group, 0).requests, 1, "{name} must not be retried");
    }
}

#[tokio::test]
async fn http2_garbage_is_502() {
    let (address, _) = origin(|_, _| Act::Close).await;
    let mut config = config(&[address]);
    config.protocol = UpstreamProtocol::Http2;
    let error = text(&group(&config), get("/")).await.unwrap_err();
    assert_eq!(error.status(), StatusCode::BAD_GATEWAY, "{error}");
}

#[tokio::test]
async fn a_connection_closed_early_is_502() {
    let (address, _) = origin(|_, _| Act::Close).await;
    let error = text(&group(&config(&[address])), get("/")).await.unwrap_err();
    assert_kind(&error, ErrorKind::ClosedEarly, StatusCode::BAD_GATEWAY);
}
