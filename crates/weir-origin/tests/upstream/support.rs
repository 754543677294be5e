//! Origins and shorthand for the tests.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_config::{
    Balance, Passive, Target, Upstream, UpstreamProtocol, UpstreamServer, UpstreamTls,
};
use weir_origin::error::OriginError;
use weir_origin::upstream::{Choice, Group, RequestBody, ResponseBody, ServerStatus};

/// Long enough never to pass in a test that works.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// Short enough to wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(60);

pub(crate) fn server(address: SocketAddr) -> UpstreamServer {
    UpstreamServer {
        tls: false,
        target: Target::Host(address.ip().to_string(), address.port()),
        authority: address.to_string(),
        weight: 1,
    }
}

pub(crate) fn unix_server(path: &Path) -> UpstreamServer {
    UpstreamServer {
        tls: false,
        target: Target::Unix(path.to_owned()),
        authority: "unix.test".into(),
        weight: 1,
    }
}

/// A group of plain servers with nothing switched on that a test does not ask for.
pub(crate) fn config(addresses: &[SocketAddr]) -> Upstream {
    Upstream {
        name: "test".into(),
        servers: addresses.iter().copied().map(server).collect(),
        balance: Balance::RoundRobin,
        protocol: UpstreamProtocol::Auto,
        keep_alive: 8,
        keep_alive_timeout: LONG,
        connect_timeout: LONG,
        first_byte_timeout: LONG,
        idle_timeout: LONG,
        retries: 0,
        max_requests: 0,
        concurrency: weir_config::Concurrency::Auto,
        health_check: None,
        passive: Passive { failures: 0, window: LONG, eject: LONG },
        tls: UpstreamTls::default(),
    }
}

pub(crate) fn group(config: &Upstream) -> Arc<Group> {
    Group::new(config, 1).unwrap()
}

pub(crate) fn get(path: &str) -> Request<RequestBody> {
    Request::get(path).header("host", "site.test").body(RequestBody::Empty).unwrap()
}

pub(crate) fn post(body: &'static str) -> Request<RequestBody> {
    let body = RequestBody::Full(Bytes::from_static(body.as_bytes()));
    Request::post("/").header("host", "site.test").body(body).unwrap()
}

pub(crate) async fn send(
    group: &Arc<Group>,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, OriginError> {
    let sent = group.send(0, request, Choice::default());
    tokio::time::timeout(LONG, sent).await.expect("send neither succeeded nor failed")
}

/// Sends and reads to the end.
pub(crate) async fn text(
    group: &Arc<Group>,
    request: Request<RequestBody>,
) -> Result<String, OriginError> {
    Ok(finish(send(group, request).await?).await?.0)
}

/// Reads a body and its trailers.
pub(crate) async fn finish(
    response: Response<ResponseBody>,
) -> Result<(String, Option<HeaderMap>), OriginError> {
    let body = tokio::time::timeout(LONG, response.into_body().collect());
    let body = body.await.expect("the body neither ended nor failed")?;
    let trailers = body.trailers().cloned();
    Ok((String::from_utf8(body.to_bytes().to_vec()).unwrap(), trailers))
}

pub(crate) fn status(group: &Group, index: usize) -> ServerStatus {
    group.status().servers[index].clone()
}

/// Waits until `true`, for at most `LONG`.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A listener nobody accepts from, and its address.
pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address that refuses connections.
pub(crate) async fn refusing() -> SocketAddr {
    listener().await.1
}

/// Runs `serve` with each connection and its number, from 0.
pub(crate) async fn raw<F, W>(serve: F) -> SocketAddr
where
    F: Fn(usize, TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(serve(number, stream));
        }
    });
    address
}

/// What an HTTP/1.1 origin does with a request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Writes this and reads the next request.
    Say(String),
    /// Writes this and closes.
    Last(String),
    /// Closes without a word.
    Close,
    /// Writes this, then nothing, and keeps the connection.
    Stall(String),
}

pub(crate) fn ok(body: &str) -> Act {
    Act::Say(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// What an origin has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Heads, and bodies as far as their length was declared.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// An HTTP/1.1 origin that decides by connection number and request number on it.
pub(crate) async fn origin(
    act: impl Fn(usize, usize) -> Act + Send + Sync + 'static,
) -> (SocketAddr, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let (act, kept) = (Arc::new(act), Arc::clone(&seen));
    let address = raw(move |number, stream| {
        seen.connections.fetch_add(1, Ordering::SeqCst);
        let (act, seen) = (Arc::clone(&act), Arc::clone(&seen));
        async move { converse(stream, |request| act(number, request), &seen).await }
    })
    .await;
    (address, kept)
}

/// Answers requests on one connection.
pub(crate) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    act: impl Fn(usize) -> Act,
    seen: &Seen,
) {
    for number in 0.. {
        let Some(request) = read_request(&mut stream).await else { return };
        seen.requests.lock().unwrap().push(request);
        match act(number) {
            Act::Say(text) => stream.write_all(text.as_bytes()).await.unwrap_or(()),
            Act::Last(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                let _ = stream.shutdown().await;
                return;
            }
            Act::Close => return,
            Act::Stall(text) => {
                let _ = stream.write_all(text.as_bytes()).await;
                // Until the other side gives up.
                let _ = stream.read(&mut [0; 16]).await;
                return;
            }
        }
    }
}

/// A head, and a body if its length is declared or it is chunked.
pub(crate) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let mut text = String::from_utf8(bytes).unwrap();
    let lower = text.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    text.push_str(&String::from_utf8(body).unwrap());
    if lower.contains("transfer-encoding: chunked") {
        while !text.ends_with("0\r\n\r\n") {
            text.push(char::from(stream.read_u8().await.ok()?));
        }
    }
    Some(text)
}
