//! Bodies in both directions: framing, truncation, trailers, back-pressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weir_origin::error::{BoxError, ErrorKind};
use weir_origin::upstream::{Choice, RequestBody};

use crate::support::*;

#[tokio::test]
async fn a_truncated_body_is_an_error_not_an_end() {
    let cases = [
        ("short", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", ErrorKind::Truncated),
        (
            "no last chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            ErrorKind::Truncated,
        ),
        (
            "half a chunk",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
            ErrorKind::Truncated,
        ),
        (
            "bad chunk size",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nhalf\r\n0\r\n\r\n",
            ErrorKind::Garbage,
        ),
    ];
    for (name, answer, kind) in cases {
        let (address, _) = origin(move |_, _| Act::Last(answer.into())).await;
        let group = group(&config(&[address]));
        let error = text(&group, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let status = status(&group, 0);
        assert_eq!(status.failures[kind.as_str()], 1, "{name}");
        assert_eq!(status.in_flight, 0, "{name}");
    }
}

#[tokio::test]
async fn what_was_looked_at_is_still_there() {
    for (answer, beginning, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwhole", "whole", Ok("whole")),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", Ok("")),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n1\r\ny\r\n0\r\n\r\n",
            "x",
            Ok("xy"),
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "", Err(ErrorKind::Truncated)),
    ] {
        let (address, _) = origin(move |_, _| Act::Last(answer.into())).await;
        let group = group(&config(&[address]));
        let mut body = send(&group, get("/")).await.unwrap().into_body();
        let declared = http_body::Body::size_hint(&body).exact();
        body.begin().await;
        // A second look finds the same.
        body.begin().await;
        assert!(body.beginning().starts_with(beginning.as_bytes()), "{answer:?}");
        assert_eq!(body.beginning().is_empty(), beginning.is_empty(), "{answer:?}");
        if let (Ok(text), Some(declared)) = (expected, declared) {
            assert_eq!(http_body::Body::size_hint(&body).exact(), Some(declared), "{answer:?}");
            assert_eq!(http_body::Body::is_end_stream(&body), text.is_empty(), "{answer:?}");
        }
        let read = body.collect().await.map(|all| all.to_bytes()).map_err(|error| error.kind());
        assert_eq!(read, expected.map(Bytes::from), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_longer_than_declared_is_cut_at_its_length() {
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfourand much more";
    let (address, seen) = origin(move |_, _| Act::Say(long.into())).await;
    let group = group(&config(&[address]));
    for _ in 0..3 {
        assert_eq!(text(&group, get("/")).await.unwrap(), "four");
    }
    assert_eq!(seen.connections(), 3, "such a connection is not used again");
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_whole() {
    let plain = "HTTP/1.1 200 OK\r\nx: y\r\n\r\nuntil the end";
    let (address, _) = origin(move |_, _| Act::Last(plain.into())).await;
    assert_eq!(text(&group(&config(&[address])), get("/")).await.unwrap(), "until the end");
}

#[tokio::test]
async fn lengths_are_stated_once_and_truly() {
    let check = async |head: &str, body: &str, expect: Option<&str>| {
        let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
        let (address, _) = origin(move |_, _| Act::Last(answer.clone())).await;
        let response = send(&group(&config(&[address])), get("/")).await.unwrap();
        let lengths: Vec<_> = response.headers().get_all("content-length").iter().collect();
        assert_eq!(lengths, expect.into_iter().collect::<Vec<_>>(), "{head}");
        assert_eq!(finish(response).await.unwrap().0, "abc", "{head}");
    };
    check("content-length: 3", "abc", Some("3")).await;
    check("content-length: 3\r\ncontent-length: 3", "abc", Some("3")).await;
    check("transfer-encoding: Chunked\r\ncontent-length: 9", "3\r\nabc\r\n0\r\n\r\n", None).await;
}

#[tokio::test]
async fn request_bodies_are_framed_by_what_is_known_of_them() {
    let (address, seen) = origin(|_, _| ok("x")).await;
    let group = group(&config(&[address]));
    let unknown = || {
        let (mut sender, body) = http_body_util::channel::Channel::<Bytes, BoxError>::new(2);
        tokio::spawn(async move { sender.send_data(Bytes::from_static(b"abc")).await });
        RequestBody::boxed(body)
    };
    let full = || RequestBody::Full(Bytes::from_static(b"abc"));
    let build = |method: &str, fields: &[(&str, &str)], body| {
        let mut request = Request::builder().method(method).uri("/").header("host", "a");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(body).unwrap()
    };
    // (request, field it must have, fields it must not have, end)
    let chunked = "transfer-encoding: chunked";
    let cases = [
        (build("POST", &[], full()), Some("content-length: 3"), vec!["transfer"], "abc"),
        (
            build("POST", &[("content-length", "9")], full()),
            Some("content-length: 3"),
            vec!["9"],
            "abc",
        ),
        (
            build("POST", &[("transfer-encoding", "chunked")], full()),
            Some("content-length: 3"),
            vec!["transfer"],
            "abc",
        ),
        (build("POST", &[], unknown()), Some(chunked), vec!["length"], "3\r\nabc\r\n0\r\n\r\n"),
        (build("GET", &[], unknown()), Some(chunked), vec!["length"], "3\r\nabc\r\n0\r\n\r\n"),
        (
            build("PUT", &[("content-length", "3")], unknown()),
            Some("content-length: 3"),
            vec!["transfer"],
            "abc",
        ),
        (build("POST", &[], RequestBody::Empty), Some("content-length: 0"), vec![], "\r\n\r\n"),
        (
            build("GET", &[("content-length", "5")], RequestBody::Empty),
            None,
            vec!["length", "transfer"],
            "\r\n\r\n",
        ),
        (
            build(
                "POST",
                &[("expect", "100-continue"), ("keep-alive", "timeout=5"), ("te", "trailers")],
                full(),
            ),
            Some("connection: te"),
            vec!["expect", "keep-alive"],
            "abc",
        ),
        (
            build("POST", &[("te", "gzip;q=0.5, Trailers")], full()),
            Some("te: trailers"),
            vec!["gzip"],
            "abc",
        ),
        (build("POST", &[("te", "gzip")], full()), None, vec!["te:", "connection"], "abc"),
    ];
    for (index, (request, has, has_not, end)) in cases.into_iter().enumerate() {
        let mut request = request;
        // As it comes from an HTTP/2 client; hyper must be told otherwise.
        *request.version_mut() = http::Version::HTTP_2;
        text(&group, request).await.unwrap();
        let sent = seen.requests()[index].clone();
        assert!(sent.contains(" HTTP/1.1\r\n"), "{sent}");
        assert!(has.is_none_or(|has| sent.contains(&format!("\r\n{has}\r\n"))), "{sent}");
        assert!(has_not.iter().all(|not| !sent.contains(not)), "{sent}");
        assert!(sent.ends_with(end), "{sent}");
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn informational_responses_are_absorbed() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                  HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfinal";
    let (address, seen) = origin(move |_, _| Act::Say(answer.into())).await;
    let group = group(&config(&[address]));
    for _ in 0..2 {
        let response = send(&group, post("data")).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("link"));
        assert_eq!(finish(response).await.unwrap().0, "final");
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn trailers_of_a_chunked_response_pass() {
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                  3\r\nabc\r\n0\r\nx-sum: 42\r\n\r\n";
    let (address, seen) = origin(move |_, _| Act::Say(answer.into())).await;
    let group = group(&config(&[address]));
    for _ in 0..2 {
        let (body, trailers) = finish(send(&group, get("/")).await.unwrap()).await.unwrap();
        assert_eq!((&*body, &trailers.unwrap()["x-sum"]), ("abc", &"42".parse().unwrap()));
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn a_slow_reader_holds_the_server_back() {
    let written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let address = raw(move |_, mut stream| {
        let count = Arc::clone(&count);
        async move {
            read_request(&mut stream).await.unwrap();
            let size = 256 << 20;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            while let Ok(()) = stream.write_all(&[b'.'; 64 << 10]).await {
                count.fetch_add(64 << 10, Ordering::SeqCst);
            }
        }
    })
    .await;
    let group = group(&config(&[address]));
    let mut body = send(&group, get("/")).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    // The writer stops when the sockets' buffers are full.
    let mut last = usize::MAX;
    until("the writer stops", || {
        std::thread::sleep(std::time::Duration::from_millis(5));
        std::mem::replace(&mut last, written.load(Ordering::SeqCst)) == last && last > 0
    })
    .await;
    assert!(last < 64 << 20, "{last} bytes taken for a reader that took one frame");
}

#[tokio::test]
async fn large_bodies_arrive_whole_and_the_future_is_send() {
    let body = "0123456789abcdef".repeat(1 << 16);
    let expect = body.clone();
    let (address, seen) = origin(move |_, _| ok(&body)).await;
    let group = group(&config(&[address]));
    for _ in 0..3 {
        let (group, expect) = (Arc::clone(&group), expect.clone());
        // Spawned: what a worker does with a fill.
        let task = tokio::spawn(async move {
            let response = group.send(0, get("/"), Choice::default()).await.unwrap();
            assert!(finish(response).await.unwrap().0 == expect);
        });
        task.await.unwrap();
    }
    assert_eq!(seen.connections(), 1);
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on() {
    let address = raw(|_, mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo much";
        stream.write_all(answer).await.unwrap();
        // Takes nothing more, until the other side has had enough.
        let _ = stream.shutdown().await;
        tokio::time::sleep(LONG).await;
    })
    .await;
    let group = group(&config(&[address]));
    let endless = futures_util::stream::repeat_with(|| {
        Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b'.'; 16 << 10])))
    });
    let request = Request::post("/").header("host", "a");
    let request = request.body(RequestBody::boxed(StreamBody::new(endless))).unwrap();
    let response = send(&group, request).await.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(finish(response).await.unwrap().0, "too much");
    until("closed", || status(&group, 0).connections == 0).await;
}

#[tokio::test]
async fn a_request_goes_on_while_nobody_reads_its_response() {
    const SIZE: usize = 16 << 20;
    let (taken, mut all_taken) = tokio::sync::mpsc::unbounded_channel();
    let address = raw(move |_, mut stream| {
        let taken = taken.clone();
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na").await.unwrap();
            let mut body = vec![0; SIZE];
            stream.read_exact(&mut body).await.unwrap();
            taken.send(()).unwrap();
            stream.write_all(b"b").await.unwrap();
            converse(stream, |_| ok("next"), &Seen::default()).await;
        }
    })
    .await;
    let group = group(&config(&[address]));
    let frames = (0..SIZE >> 16).map(|_| Ok(Frame::data(Bytes::from_static(&[b'.'; 1 << 16]))));
    let body = RequestBody::boxed(StreamBody::new(futures_util::stream::iter(frames)));
    let request = Request::post("/").header("host", "a").header("content-length", SIZE);
    let response = send(&group, request.body(body).unwrap()).await.unwrap();
    // A client that sends all of its request before it reads.
    tokio::time::timeout(LONG, all_taken.recv()).await.unwrap().unwrap();
    assert_eq!(finish(response).await.unwrap().0, "ab");
    until("the connection is back", || status(&group, 0).idle == 1).await;
    assert_eq!(text(&group, get("/")).await.unwrap(), "next");
    assert_eq!(status(&group, 0).connects, 1);
}

#[tokio::test]
async fn any_bytes_end_in_a_response_or_an_error() {
    let valid: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: a\r\n\r\n\
                         3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\na: b\r\n\r\n";
    let address = raw(move |number, mut stream| async move {
        let mut random = fastrand::Rng::with_seed(number as u64);
        let mut bytes = valid.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = random.u8(..),
                2 => drop(bytes.splice(at..at, [b'\r', b'\n'])),
                _ => bytes.extend_from_within(at..),
            }
        }
        read_request(&mut stream).await.unwrap();
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let group = group(&config(&[address]));
    let (mut whole, mut failed) = (0, 0);
    for _ in 0..300 {
        match send(&group, get("/")).await {
            Ok(response) => match response.into_body().collect().await {
                Ok(_) => whole += 1,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Garbage | ErrorKind::Truncated));
                    failed += 1;
                }
            },
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Garbage | ErrorKind::ClosedEarly));
                failed += 1;
            }
        }
    }
    assert!(whole > 10 && failed > 100, "{whole} whole, {failed} failed");
    assert_eq!(status(&group, 0).in_flight, 0);
}
