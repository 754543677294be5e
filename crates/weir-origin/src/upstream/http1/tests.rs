//! Responses in every form, whole and in pieces, over a real socket.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;

use bytes::Bytes;
use http::Method;
use http_body::Frame;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::error::ErrorKind;
use crate::upstream::request::{Outgoing, RequestBody};
use crate::upstream::stream::Socket;

fn pair() -> (Http1, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let open = Open::reserve(&Arc::new(AtomicUsize::new(0)), 1).unwrap();
    (Http1::new(Stream::Plain(Socket::Unix(ours)), open), theirs)
}

fn request(method: &Method, body: RequestBody, framing: Framing) -> Outbound {
    Outbound {
        head: b"X\r\n\r\n".to_vec(),
        body: Outgoing { body, progress: None },
        framing,
        is_head: method == Method::HEAD,
        upgrade: false,
        close: false,
    }
}

/// What came of a response: status, body, trailers, and whether the connection may be used again.
#[derive(Debug, PartialEq)]
struct Came(u16, String, Option<String>, bool);

async fn receive(method: &Method, pieces: Vec<Vec<u8>>) -> Result<Came, ErrorKind> {
    let (mut conn, mut server) = pair();
    conn.begin(request(method, RequestBody::Empty, Framing::Length(0)));
    let serving = async move {
        for piece in pieces {
            server.write_all(&piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        // Open while the client looks whether it may use the connection again.
        let mut sent = [0; 5];
        server.read_exact(&mut sent).await.unwrap();
        let _ = server.shutdown().await;
        server
    };
    let reading = async {
        let head = poll_fn(|cx| conn.poll_head(cx, HeaderMap::new))
            .await
            .map_err(|failure| failure.kind)?;
        let (mut body, mut trailers) = (Vec::new(), None);
        while let Some(frame) = poll_fn(|cx| conn.poll_body(cx)).await {
            match frame.map_err(|failure| failure.kind)?.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let trailers = trailers.map(|fields| format!("{:?}", fields.get("x").unwrap()));
        // The server has shut its side, which only a look at the socket finds.
        let reusable = conn.reusable && conn.has_sent() && conn.received.is_empty();
        Ok(Came(head.status().as_u16(), String::from_utf8(body).unwrap(), trailers, reusable))
    };
    let (came, _server) = tokio::join!(reading, serving);
    came
}

#[tokio::test]
async fn responses_end_where_their_fields_say() {
    let came = |body: &str, reusable| Ok(Came(200, body.to_owned(), None, reusable));
    let garbage = || Err(ErrorKind::Garbage);
    let get = |head: &'static str| (Method::GET, head);
    let cases = [
        (get("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc"), came("abc", true)),
        (get("HTTP/1.1 200\r\nContent-Length: 3, 3\r\n\r\nabc"), came("abc", true)),
        (get("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd"), came("abc", false)),
        (get("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), came("", true)),
        (get("HTTP/1.1 200 OK\r\n\r\nabc"), came("abc", false)),
        (get("HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc"), came("abc", false)),
        (
            get("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 3\r\n\r\nabc"),
            came("abc", true),
        ),
        (
            get("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 3\r\n\r\nabc"),
            came("abc", false),
        ),
        (
            get("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\nab\r\n01\r\nc\r\n\
                 0\r\n\r\n"),
            came("abc", true),
        ),
        (
            get(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
            ),
            Ok(Came(200, "abc".into(), Some("\"y\"".into()), true)),
        ),
        (
            get("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\n\
                 HTTP/1.1 204 No\r\n\r\n"),
            Ok(Came(204, String::new(), None, true)),
        ),
        ((Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"), came("", true)),
        ((Method::HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), came("", true)),
        (get("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc"), Err(ErrorKind::Truncated)),
        (get("HTTP/1.1 200 OK\r\ncontent-le"), Err(ErrorKind::ClosedEarly)),
        (get(""), Err(ErrorKind::ClosedEarly)),
        (get("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc"), garbage()),
        (get("HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc"), garbage()),
        (get("HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\nabc"), garbage()),
        (get("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nabc"), garbage()),
        (get("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), garbage()),
        (get("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"), garbage()),
        (get("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"), garbage()),
        (get("HTTP/1.1 099 Low\r\n\r\n"), garbage()),
        (get("SSH-2.0-OpenSSH_9\r\n"), garbage()),
    ];
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for bad in
        ["\r\n", "x\r\n", "-1\r\n", "3\r\nabcd\r\n", "3\r\nabc0\r\n\r\n", "0\r\na b: c\r\n\r\n"]
    {
        let answer = format!("{chunked}{bad}");
        let whole = receive(&Method::GET, vec![answer.clone().into_bytes()]).await;
        assert_eq!(whole, garbage(), "{answer:?}");
    }
    for ((method, answer), expect) in cases {
        let whole = receive(&method, vec![answer.into()]).await;
        assert_eq!(whole, expect, "{method} {answer:?}");
        let bytes = answer.bytes().map(|byte| vec![byte]).collect();
        let slowly = receive(&method, bytes).await;
        // What lies behind a body has not come when the body ends.
        let behind = answer.ends_with("abcd");
        assert!(behind || slowly == expect, "by bytes: {method} {answer:?}: {slowly:?}");
    }
}

#[tokio::test]
async fn heads_and_trailers_are_limited() {
    let field = format!("a: {}\r\n", "x".repeat(1000));
    let long = format!("HTTP/1.1 200 OK\r\n{}", field.repeat(70));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let trailers = format!("{chunked}0\r\n{}", field.repeat(70));
    let size = format!("{chunked}1;{}", "x".repeat(20 << 10));
    for answer in [long, many, trailers, size] {
        let came = receive(&Method::GET, vec![answer.clone().into_bytes()]).await;
        assert_eq!(came, Err(ErrorKind::Garbage), "{}", &answer[..60]);
    }
}

const FIELDS: usize = super::super::limits::FIELDS_MAX;

#[tokio::test]
async fn requests_are_framed_and_their_lengths_are_kept() {
    let frames = |texts: &'static [&'static str]| {
        let frames = texts.iter().map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
        RequestBody::boxed(http_body_util::StreamBody::new(futures_util::stream::iter(frames)))
    };
    // (body, framing, what is sent; none if it must fail)
    let cases: [(RequestBody, Framing, Option<&str>); 7] = [
        (RequestBody::Empty, Framing::Length(0), Some("X\r\n\r\n")),
        (RequestBody::Full("abc".into()), Framing::Length(3), Some("X\r\n\r\nabc")),
        (frames(&["a", "", "bc"]), Framing::Length(3), Some("X\r\n\r\nabc")),
        (
            frames(&["a", "", "0123456789"]),
            Framing::Chunked,
            Some("X\r\n\r\n1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n"),
        ),
        (RequestBody::Full("abc".into()), Framing::Chunked, Some("X\r\n\r\n3\r\nabc\r\n0\r\n\r\n")),
        (frames(&["ab"]), Framing::Length(3), None),
        (frames(&["ab", "cd"]), Framing::Length(3), None),
    ];
    for (index, (body, framing, expect)) in cases.into_iter().enumerate() {
        let (mut conn, mut server) = pair();
        conn.begin(request(&Method::POST, body, framing));
        let sent = poll_fn(|cx| match conn.poll_send(cx) {
            Ok(()) if !conn.has_sent() => Poll::Pending,
            done => Poll::Ready(done),
        });
        match (sent.await, expect) {
            (Ok(()), Some(expect)) => {
                drop(conn);
                let mut text = String::new();
                server.read_to_string(&mut text).await.unwrap();
                assert_eq!(text, expect, "{index}");
            }
            (Err(failure), None) => assert_eq!(failure.kind, ErrorKind::RequestBody, "{index}"),
            (outcome, _) => panic!("{index}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_connection_is_fit_until_its_server_stirs() {
    let (mut conn, mut server) = pair();
    assert!(conn.is_fit(Waker::noop()));
    server.write_all(b"x").await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(5), async {
        while conn.is_fit(Waker::noop()) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_chunked_body_arrives_however_it_is_cut(
        chunks in prop::collection::vec("[a-z]{1,40}", 0..8),
        cuts in prop::collection::vec(1_usize..60, 1..12),
    ) {
        let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            answer.extend_from_slice(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        let mut pieces = Vec::new();
        let mut rest = &answer[..];
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let came = runtime.block_on(receive(&Method::GET, pieces));
        prop_assert_eq!(came, Ok(Came(200, chunks.concat(), None, true)));
    }
}
