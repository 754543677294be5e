//! HTTP/2 to servers, by prior knowledge.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use weir_config::UpstreamProtocol;
use weir_origin::error::{BoxError, ErrorKind};
use weir_origin::upstream::{Choice, Extra, HostPolicy, RequestBody};

use crate::support::*;

type Heads = Arc<Mutex<Vec<Parts>>>;

/// An HTTP/2 origin that answers with `answer(head)` and keeps the heads.
pub(crate) async fn origin_h2(
    answer: impl Fn(&Parts) -> Response<Full<Bytes>> + Send + Sync + 'static,
) -> (SocketAddr, Heads) {
    let heads = Heads::default();
    let (answer, seen) = (Arc::new(answer), Arc::clone(&heads));
    let address = raw(move |_, stream| {
        let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
        let service = service_fn(move |request: Request<Incoming>| {
            let (head, _) = request.into_parts();
            let response = answer(&head);
            seen.lock().unwrap().push(head);
            async move { Ok::<_, Infallible>(response) }
        });
        async move {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    (address, heads)
}

fn http2(address: SocketAddr) -> weir_config::Upstream {
    let mut config = config(&[address]);
    config.protocol = UpstreamProtocol::Http2;
    config
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let (address, heads) =
        origin_h2(|head| Response::new(Bytes::copy_from_slice(head.uri.path().as_bytes()).into()))
            .await;
    let group = group(&http2(address));
    let paths: Vec<String> = (0..50).map(|number| format!("/{number}")).collect();
    let all = paths.iter().map(|path| text(&group, get(path)));
    for (path, result) in paths.iter().zip(futures_util::future::join_all(all).await) {
        assert_eq!(&result.unwrap(), path);
    }
    let status = status(&group, 0);
    assert_eq!((status.requests, status.connects, status.connections), (50, 1, 1));
    assert_eq!(heads.lock().unwrap().len(), 50);
}

#[tokio::test]
async fn heads_follow_the_rules_of_http2() {
    let (address, heads) = origin_h2(|_| Response::new("x".into())).await;
    let group = group(&http2(address));
    let mut request = get("/path?q=1");
    for (name, value) in
        [("connection", "keep-alive"), ("keep-alive", "5"), ("upgrade", "h2c"), ("te", "trailers")]
    {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    text(&group, request).await.unwrap();
    let extra = [(http::HeaderName::from_static("x-extra"), HeaderValue::from_static("a"))];
    let choice = Choice { host: HostPolicy::Server, extra: Extra::new(extra), client: None };
    finish(group.send(0, get("/"), choice).await.unwrap()).await.unwrap();

    let heads = heads.lock().unwrap();
    assert_eq!(heads[0].uri, "http://site.test/path?q=1");
    assert_eq!(heads[1].uri.authority().unwrap().as_str(), address.to_string());
    assert_eq!(heads[0].headers["te"], "trailers");
    assert_eq!(heads[1].headers["x-extra"], "a");
    for gone in ["connection", "keep-alive", "upgrade", "host"] {
        assert!(!heads[0].headers.contains_key(gone), "{gone}");
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    // As gRPC does it: data, then trailers, in both directions at once.
    let address = raw(|_, stream: TcpStream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let body = request.into_body().collect().await.unwrap();
            let mut trailers = body.trailers().cloned().unwrap_or_default();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let frames = [Frame::data(body.to_bytes()), Frame::trailers(trailers)];
            let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    let mut sent = HeaderMap::new();
    sent.insert("x-sent", HeaderValue::from_static("yes"));
    let frames = [Frame::data(Bytes::from_static(b"ping")), Frame::trailers(sent)];
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, BoxError>)));
    let request = Request::post("/grpc").header("host", "a").header("te", "trailers");
    let request = request.body(RequestBody::boxed(body)).unwrap();
    let response = send(&group(&http2(address)), request).await.unwrap();
    let (body, trailers) = finish(response).await.unwrap();
    let trailers = trailers.unwrap();
    assert_eq!(body, "ping");
    assert_eq!(
        (&trailers["x-sent"], &trailers["grpc-status"]),
        (&"yes".parse().unwrap(), &"0".parse().unwrap())
    );
}

#[tokio::test]
async fn a_connection_that_is_gone_is_replaced() {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let address = raw(move |_, stream| {
        let count = Arc::clone(&count);
        async move {
            let service = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("x"))))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                _ = &mut connection => {}
                // GOAWAY, and then the rest of what is open.
                _ = tokio::time::sleep(SHORT) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let group = group(&http2(address));
    let start = tokio::time::Instant::now();
    while served.load(Ordering::SeqCst) < 3 {
        assert_eq!(text(&group, post("data")).await.unwrap(), "x");
        assert!(start.elapsed() < LONG);
        tokio::task::yield_now().await;
    }
    assert!(status(&group, 0).connects >= 3);
}

#[tokio::test]
async fn a_server_that_allows_few_streams_gets_more_connections() {
    let address = raw(|_, stream| async move {
        let service = service_fn(|_| async {
            tokio::time::sleep(SHORT).await;
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("x"))))
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(2);
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    let group = group(&http2(address));
    // Learns the limit.
    text(&group, get("/")).await.unwrap();
    text(&group, get("/")).await.unwrap();
    let all = (0..6).map(|_| text(&group, get("/")));
    for result in futures_util::future::join_all(all).await {
        assert_eq!(result.unwrap(), "x");
    }
    let connects = status(&group, 0).connects;
    assert!((2..=8).contains(&connects), "{connects} connections for 6 requests at 2 a connection");
}

#[tokio::test]
async fn an_abandoned_response_resets_its_stream_only() {
    let address = raw(|_, stream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let endless = futures_util::stream::repeat_with(|| {
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'.'; 16 << 10])))
            });
            let body = match request.uri().path() {
                "/endless" => StreamBody::new(endless).boxed(),
                _ => Full::new(Bytes::from("x")).boxed(),
            };
            Ok::<_, Infallible>(Response::new(body))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    })
    .await;
    let group = group(&http2(address));
    for _ in 0..3 {
        let mut response = send(&group, get("/endless")).await.unwrap();
        response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(text(&group, get("/")).await.unwrap(), "x");
        drop(response);
    }
    let status = status(&group, 0);
    assert_eq!((status.connects, status.in_flight), (1, 0));
}

/// An origin below hyper, for what hyper would not do: handles each stream by its number.
async fn origin_streams<F>(act: F) -> SocketAddr
where
    F: Fn(usize, h2::server::SendResponse<Bytes>) + Clone + Send + 'static,
{
    raw(move |_, stream| {
        let act = act.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            for number in 0.. {
                let Some(Ok((_, respond))) = connection.accept().await else { return };
                act(number, respond);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_refused_stream_is_sent_again_whatever_the_method() {
    let check = async |reason: h2::Reason, request: Request<RequestBody>, expect: bool| {
        let what = format!("{} reset with {reason}", request.method());
        let address = origin_streams(move |number, mut respond| match number {
            0 => respond.send_reset(reason),
            _ => drop(respond.send_response(Response::new(()), true).unwrap()),
        })
        .await;
        let mut config = http2(address);
        config.retries = 1;
        let result = send(&group(&config), request).await;
        assert_eq!(result.is_ok(), expect, "{what}: {result:?}");
    };
    check(h2::Reason::REFUSED_STREAM, post("data"), true).await;
    check(h2::Reason::REFUSED_STREAM, get("/"), true).await;
    check(h2::Reason::INTERNAL_ERROR, post("data"), false).await;
    check(h2::Reason::INTERNAL_ERROR, get("/"), true).await;
}

#[tokio::test]
async fn a_stream_that_is_reset_before_its_end_is_truncated() {
    let reasons = [h2::Reason::NO_ERROR, h2::Reason::CANCEL];
    for (reason, declares) in reasons.into_iter().flat_map(|one| [(one, true), (one, false)]) {
        let address = origin_streams(move |_, mut respond| {
            let head = match declares {
                true => Response::builder().header("content-length", "10"),
                false => Response::builder(),
            };
            let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from_static(b"half"), false).unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(SHORT).await;
                body.send_reset(reason);
            });
        })
        .await;
        let group = group(&http2(address));
        let error = text(&group, get("/")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{reason}: {error}");
        assert_eq!(status(&group, 0).in_flight, 0);
    }
}

/// A server may answer before it has read everything, and want no more (RFC 9113, section 8.1).
#[tokio::test]
async fn a_stream_that_is_reset_behind_its_end_is_whole() {
    let address = origin_streams(move |_, mut respond| {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"whole"), true).unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            body.send_reset(h2::Reason::NO_ERROR);
        });
    })
    .await;
    let group = group(&http2(address));
    let content: &str = String::leak("x".repeat(1 << 20));
    for request in [get("/"), post(content)] {
        let response = send(&group, request).await.unwrap();
        // It is read after the reset has come.
        tokio::time::sleep(3 * SHORT).await;
        assert_eq!(finish(response).await.unwrap().0, "whole");
    }
}

#[tokio::test]
async fn the_length_of_a_head_response_is_not_that_of_its_body() {
    // Two ways to end the stream: with the head, and with an empty frame of data after it.
    for with_head in [true, false] {
        let address = origin_streams(move |_, mut respond| {
            let head = Response::builder().header("content-length", "10").body(()).unwrap();
            let mut body = respond.send_response(head, with_head).unwrap();
            if !with_head {
                body.send_data(Bytes::new(), true).unwrap();
            }
        })
        .await;
        let mut request = get("/");
        *request.method_mut() = http::Method::HEAD;
        let response = send(&group(&http2(address)), request).await.unwrap();
        assert_eq!(response.headers()["content-length"], "10");
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(0));
        assert_eq!(finish(response).await.unwrap().0, "");
    }
}
