//! What is sent again and what never is.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use weir_origin::error::{BoxError, ErrorKind};
use weir_origin::upstream::RequestBody;

use crate::support::*;

fn streamed(method: Method, body: &'static str) -> Request<RequestBody> {
    let body = Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {});
    let body = RequestBody::boxed(body.map_err(|error: std::io::Error| BoxError::from(error)));
    Request::builder().method(method).uri("/").header("host", "a").body(body).unwrap()
}

fn with_method(method: Method) -> Request<RequestBody> {
    let mut request = post("data");
    *request.method_mut() = method;
    request
}

#[tokio::test]
async fn a_refused_connection_is_tried_elsewhere_whatever_the_method() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let dead = refusing().await;
    for request in [get("/"), post("data"), streamed(Method::POST, "data")] {
        let mut config = config(&[dead, address]);
        config.retries = 1;
        let group = group(&config);
        assert_eq!(text(&group, request).await.unwrap(), "x");
        let dead = status(&group, 0);
        assert_eq!((dead.retries, dead.failures["connect"]), (1, 1));
    }
    let requests = seen.requests();
    assert!(requests[1].ends_with("data") && requests[2].ends_with("data"), "{requests:?}");
}

#[tokio::test]
async fn only_idempotent_requests_with_a_body_in_memory_are_sent_twice() {
    let cases = [
        ("GET", get("/"), true),
        ("PUT", with_method(Method::PUT), true),
        ("DELETE", with_method(Method::DELETE), true),
        ("POST", post("data"), false),
        ("PATCH", with_method(Method::PATCH), false),
        ("streamed PUT", streamed(Method::PUT, "data"), false),
    ];
    for (name, request, twice) in cases {
        let (bad, bad_seen) = origin(|_, _| Act::Close).await;
        let (good, good_seen) = origin(|_, _| ok("x")).await;
        let mut config = config(&[bad, good]);
        config.retries = 3;
        let group = group(&config);
        match text(&group, request).await {
            Ok(body) => assert!(twice && body == "x", "{name}"),
            Err(error) => {
                assert!(!twice, "{name}: {error}");
                assert_eq!(error.kind(), ErrorKind::ClosedEarly, "{name}");
            }
        }
        assert_eq!(bad_seen.requests().len(), 1, "{name}");
        assert_eq!(good_seen.requests().len(), usize::from(twice), "{name}");
        if twice {
            assert_eq!(bad_seen.requests(), good_seen.requests(), "{name}");
        }
    }
}

#[tokio::test]
async fn nothing_is_sent_twice_after_a_byte_of_a_response() {
    for partial in ["H", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let (bad, _) = origin(move |_, _| Act::Last(partial.into())).await;
        let (good, good_seen) = origin(|_, _| ok("x")).await;
        let mut config = config(&[bad, good]);
        config.retries = 3;
        let group = group(&config);
        let error = text(&group, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClosedEarly, "{error}");
        assert_eq!(good_seen.requests().len(), 0);
    }
}

#[tokio::test]
async fn retries_are_limited_and_end_with_the_last_error() {
    let dead = [refusing().await, refusing().await, refusing().await];
    for (retries, attempts) in [(0, 1), (1, 2), (2, 3), (4, 5)] {
        let mut config = config(&dead);
        config.retries = retries;
        let group = group(&config);
        let error = text(&group, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        let made: Vec<u64> = group.status().servers.iter().map(|s| s.requests).collect();
        assert_eq!(made.iter().sum::<u64>(), attempts, "{made:?}");
        // Others first, then again.
        assert!(made.iter().max().unwrap() - made.iter().min().unwrap() <= 2, "{made:?}");
        if attempts == 3 {
            assert_eq!(made, [1, 1, 1]);
        }
    }
}

#[tokio::test]
async fn a_slow_server_is_replaced_by_another_but_not_asked_twice() {
    let (slow, slow_seen) = origin(|_, _| Act::Stall(String::new())).await;
    let (good, _) = origin(|_, _| ok("x")).await;
    let mut two = config(&[slow, good]);
    (two.retries, two.first_byte_timeout) = (2, SHORT);
    assert_eq!(text(&group(&two), get("/")).await.unwrap(), "x");

    let mut one = config(&[slow]);
    (one.retries, one.first_byte_timeout) = (2, SHORT);
    let error = text(&group(&one), get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FirstByteTimeout);
    assert_eq!(slow_seen.requests().len(), 2);
}

#[tokio::test]
async fn an_outage_is_not_amplified() {
    let dead = [refusing().await, refusing().await];
    let mut config = config(&dead);
    config.retries = 5;
    let group = group(&config);
    let before = group.status().retries_left;
    for _ in 0..200 {
        text(&group, get("/")).await.unwrap_err();
    }
    let attempts: u64 = group.status().servers.iter().map(|server| server.requests).sum();
    let budget = u64::from(before) + 200 / 5;
    assert!((200 + budget - 2..=200 + budget).contains(&attempts), "{attempts} attempts");
}

#[tokio::test]
async fn a_stalled_client_is_not_the_servers_fault() {
    let (address, _) = origin(|_, _| ok("x")).await;
    let mut config = config(&[address]);
    config.first_byte_timeout = SHORT;
    let group = group(&config);
    let (sender, body) = http_body_util::channel::Channel::<Bytes, BoxError>::new(1);
    let request = Request::post("/").header("host", "a").header("content-length", "4");
    let request = request.body(RequestBody::boxed(body)).unwrap();
    let slow_client = tokio::spawn(async move {
        let mut sender = sender;
        for half in ["ab", "cd"] {
            tokio::time::sleep(Duration::from_millis(150)).await;
            sender.send_data(Bytes::from_static(half.as_bytes())).await.unwrap();
        }
    });
    assert_eq!(text(&group, request).await.unwrap(), "x");
    slow_client.await.unwrap();
}

#[tokio::test]
async fn a_failing_request_body_is_the_clients_fault() {
    let (address, _) = origin(|_, _| ok("x")).await;
    let mut config = config(&[address]);
    config.retries = 2;
    let group = group(&config);
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes, BoxError>::new(1);
    sender.send_data(Bytes::from_static(b"ab")).await.unwrap();
    sender.abort("client went away".into());
    let request = Request::put("/").header("host", "a").header("content-length", "4");
    let request = request.body(RequestBody::boxed(body)).unwrap();
    let error = text(&group, request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RequestBody, "{error}");
    assert_eq!(error.status(), http::StatusCode::BAD_REQUEST);
    assert_eq!(status(&group, 0).requests, 1);
}

#[tokio::test]
async fn connect_requests_are_refused() {
    let group = group(&config(&[refusing().await]));
    let mut request = get("/");
    *request.method_mut() = Method::CONNECT;
    let error = send(&group, request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
}
