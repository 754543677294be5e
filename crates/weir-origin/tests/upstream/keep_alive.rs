//! Connections: reuse, limits, age, death while idle.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use weir_origin::error::ErrorKind;
use weir_origin::upstream::{Choice, Group, RequestBody};

use crate::support::*;

#[tokio::test]
async fn a_connection_is_used_again_and_again() {
    let (address, seen) = origin(|_, request| ok(&request.to_string())).await;
    let group = group(&config(&[address]));
    for number in 0..5 {
        assert_eq!(text(&group, get("/")).await.unwrap(), number.to_string());
    }
    assert_eq!(seen.connections(), 1);
    let status = status(&group, 0);
    assert_eq!((status.requests, status.connects, status.idle, status.in_flight), (5, 1, 1, 0));
    assert_eq!(status.connections, 1);
}

#[tokio::test]
async fn responses_without_a_body_give_their_connection_back() {
    let (address, seen) = origin(|_, request| match request {
        0 => Act::Say("HTTP/1.1 204 No Content\r\n\r\n".into()),
        1 => Act::Say("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".into()),
        2 => Act::Say("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n".into()),
        _ => ok("end"),
    })
    .await;
    let group = group(&config(&[address]));
    for _ in 0..2 {
        // Dropped unread: there is nothing to read.
        drop(send(&group, get("/")).await.unwrap());
    }
    let mut head = get("/");
    *head.method_mut() = http::Method::HEAD;
    let response = send(&group, head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "99");
    drop(response);
    assert_eq!(text(&group, get("/")).await.unwrap(), "end");
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn keep_alive_0_closes_after_each_request() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let mut config = config(&[address]);
    config.keep_alive = 0;
    let group = group(&config);
    for _ in 0..3 {
        text(&group, get("/")).await.unwrap();
    }
    assert_eq!(seen.connections(), 3);
    assert!(seen.requests()[0].contains("connection: close"));
    until("all closed", || status(&group, 0).connections == 0).await;
}

#[tokio::test]
async fn no_more_than_keep_alive_stay_idle() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let mut config = config(&[address]);
    config.keep_alive = 2;
    let group = group(&config);
    let five = (0..5).map(|_| text(&group, get("/")));
    for result in futures_util::future::join_all(five).await {
        result.unwrap();
    }
    assert_eq!(seen.connections(), 5);
    until("three closed", || status(&group, 0).connections == 2).await;
    assert_eq!(status(&group, 0).idle, 2);
}

#[tokio::test]
async fn idle_connections_are_closed_in_time_without_traffic() {
    let (address, _) = origin(|_, _| ok("x")).await;
    let mut config = config(&[address]);
    config.keep_alive_timeout = SHORT;
    let group = group(&config);
    text(&group, get("/")).await.unwrap();
    assert_eq!(status(&group, 0).idle, 1);
    until("closed", || status(&group, 0).connections == 0).await;
    assert_eq!(status(&group, 0).idle, 0);
    // And the next request finds its way, and the next sweep too.
    text(&group, get("/")).await.unwrap();
    until("closed again", || status(&group, 0).connections == 0).await;
}

#[tokio::test]
async fn a_connection_that_died_while_idle_is_replaced_for_any_method() {
    let (address, seen) = origin(|_, _| match ok("x") {
        Act::Say(text) => Act::Last(text),
        other => other,
    })
    .await;
    let group = group(&config(&[address]));
    for _ in 0..3 {
        assert_eq!(text(&group, post("data")).await.unwrap(), "x");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(seen.connections(), 3);
    assert!(status(&group, 0).failures.is_empty());
}

#[tokio::test]
async fn a_kept_connection_that_closes_on_a_request_is_replaced_for_get_only() {
    // Every connection answers one request and closes at the second.
    let closes_at_second = |_, request| if request == 0 { ok("x") } else { Act::Close };
    let (address, seen) = origin(closes_at_second).await;
    let group = group(&config(&[address]));
    assert_eq!(text(&group, get("/")).await.unwrap(), "x");
    assert_eq!(text(&group, get("/")).await.unwrap(), "x");
    assert_eq!(seen.connections(), 2);
    assert_eq!(status(&group, 0).retries, 0, "a stale connection is not a retry");

    let error = text(&group, post("data")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClosedEarly);
    assert!(!error.may_retry());
    assert_eq!(seen.requests().len(), 4, "the POST was sent once");
}

#[tokio::test]
async fn bytes_after_a_response_never_answer_the_next_request() {
    let (address, seen) = origin(|connection, _| match connection {
        0 => Act::Say(
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\
             content-length: 4\r\n\r\nevil"
                .into(),
        ),
        _ => ok("good"),
    })
    .await;
    let group = group(&config(&[address]));
    assert_eq!(text(&group, get("/")).await.unwrap(), "a");
    assert_eq!(text(&group, get("/")).await.unwrap(), "good");
    assert_eq!(seen.connections(), 2);
}

#[tokio::test]
async fn an_unfinished_response_closes_its_connection() {
    let stall = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let (address, _) = origin(move |_, _| Act::Stall(stall.into())).await;
    let group = group(&config(&[address]));
    let response = send(&group, get("/")).await.unwrap();
    assert_eq!(status(&group, 0).in_flight, 1);
    drop(response);
    assert_eq!(status(&group, 0).in_flight, 0);
    until("closed", || status(&group, 0).connections == 0).await;
    assert!(status(&group, 0).failures.is_empty(), "the server did nothing wrong");
}

#[tokio::test]
async fn a_connection_whose_request_is_never_taken_is_closed_in_time() {
    let address = raw(|_, mut stream| async move {
        // Answers at once and reads nothing of 32 MB, far more than the sockets hold.
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        tokio::time::sleep(LONG * 2).await;
    })
    .await;
    let mut config = config(&[address]);
    config.keep_alive_timeout = SHORT;
    let group = group(&config);
    let mut request = post("");
    *request.body_mut() = RequestBody::Full(vec![b'.'; 32 << 20].into());
    assert_eq!(text(&group, request).await.unwrap(), "ok");
    until("closed", || status(&group, 0).connections == 0).await;
}

#[tokio::test]
async fn an_abandoned_request_frees_its_place() {
    let (address, _) = origin(|_, _| Act::Stall(String::new())).await;
    let group = group(&config(&[address]));
    let sent = tokio::time::timeout(SHORT, send(&group, get("/"))).await;
    assert!(sent.is_err());
    assert_eq!(status(&group, 0).in_flight, 0);
    until("closed", || status(&group, 0).connections == 0).await;
}

#[tokio::test]
async fn each_worker_has_its_own_connections() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let group = Group::new(&config(&[address]), 2).unwrap();
    for worker in [0, 1, 0, 1] {
        let response = group.send(worker, get("/"), Choice::default()).await.unwrap();
        finish(response).await.unwrap();
    }
    assert_eq!(seen.connections(), 2);
    assert_eq!(status(&group, 0).requests, 4);
}

#[tokio::test]
async fn a_dropped_group_closes_its_connections() {
    let (closed, mut closes) = tokio::sync::mpsc::unbounded_channel();
    let address = raw(move |_, stream| {
        let closed = closed.clone();
        async move {
            converse(stream, |_| ok("x"), &Seen::default()).await;
            closed.send(()).unwrap();
        }
    })
    .await;
    let group = group(&config(&[address]));
    text(&group, get("/")).await.unwrap();
    drop(group);
    tokio::time::timeout(LONG, closes.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn unix_sockets_are_servers_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("origin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move { converse(stream, |_| ok("unix"), &Seen::default()).await });
        }
    });
    let mut config = config(&[]);
    config.servers = vec![unix_server(&path)];
    let reachable = group(&config);
    assert_eq!(text(&reachable, get("/")).await.unwrap(), "unix");
    assert_eq!(text(&reachable, get("/")).await.unwrap(), "unix");
    assert_eq!(status(&reachable, 0).connects, 1);

    config.servers = vec![unix_server(&directory.path().join("none.sock"))];
    let error = text(&group(&config), get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
}
