//! One client connection: PROXY header, TLS, protocol, then HTTP until it ends.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use weir_http::forward::client_address;
use weir_net::{Protocol, Socket, Stream, detect, read_proxy_header};

use crate::body::ReplyBody;
use crate::chain::Chain;
use crate::fast_lane::{self, Lane};
use crate::lane_choice::LaneChoice;
use crate::live::Origin;
use crate::pipeline::{self, Introduction, Seen};
use crate::properties::{FirstAbout, Session};
use crate::record;
use crate::stall::WatchedBody;
use crate::taps;
use crate::worker::Worker;

/// What the pipeline knows of the connection a request came by.
pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    pub(crate) socket: Arc<Socket>,
    /// The client, as the PROXY header says or as the socket shows.
    pub(crate) client: Option<SocketAddr>,
    /// Where the client connected to, likewise.
    pub(crate) destination: Option<SocketAddr>,
    /// Port the client connected to, for X-Forwarded-Port.
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// What the handshake agreed on, once it has.
    pub(crate) session: OnceLock<Session>,
    /// Which listener accepted it; see [`crate::shared::Shared::listener_number`].
    pub(crate) listener: usize,
    /// Its number among all that were accepted.
    pub(crate) id: u64,
    /// The client as origins are told of it, since the first request that one got.
    pub(crate) introduction: OnceLock<Introduction>,
    /// As plugins are told of it, since the first request that met one.
    pub(crate) first_about: OnceLock<FirstAbout>,
    /// The host for which a forward proxy has opened the tunnel that this is.
    pub(crate) inspected: Option<Arc<Origin>>,
    /// What its client showed to have that tunnel: what is inside comes with nothing of its own.
    pub(crate) shown: Option<HeaderValue>,
    lane_choice: LaneChoice,
}

impl Connection {
    /// What is inside of a tunnel that was opened for whoever has `shown` these credentials.
    pub(crate) fn inside(
        &self,
        host: Arc<Origin>,
        shown: Option<HeaderValue>,
        session: Option<Session>,
    ) -> Arc<Connection> {
        Arc::new(Connection {
            worker: Arc::clone(&self.worker),
            socket: Arc::clone(&self.socket),
            client: self.client,
            destination: self.destination,
            port: host.port,
            tls: host.tls,
            session: session.map_or_else(OnceLock::new, OnceLock::from),
            listener: self.listener,
            id: self.id,
            introduction: OnceLock::new(),
            first_about: OnceLock::new(),
            inspected: Some(host),
            shown,
            lane_choice: LaneChoice::new(),
        })
    }

    /// Whether the connection should go back to the fast lane, and can: nothing is being served,
    /// and all that was said has left.
    fn is_for_fast_lane(&self) -> bool {
        self.lane_choice.is_due() && self.socket.is_idle()
    }

    /// The client of a request: whom trusted proxies name, or else whose connection it is.
    pub(crate) fn client_of(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = self.client?.ip();
        let live = self.worker.shared.live.load();
        let trusted = &live.config.server.trusted_proxies;
        if trusted.is_empty() {
            return Some(peer);
        }
        let is_trusted = |address| trusted.iter().any(|prefix| prefix.contains(address));
        Some(client_address(headers, peer, is_trusted))
    }
}

/// An accepted connection that nobody has read from yet.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) listener: usize,
    pub(crate) id: u64,
}

/// Serves a connection to its end. Errors are the client's or the network's: counted, not logged
/// above debug, since anybody can cause them.
pub(crate) async fn serve(worker: Arc<Worker>, accepted: Accepted) {
    let _open = OpenGuard::new(&worker);
    let Accepted { fd, peer, local, listener, id } = accepted;
    let mut stream = Stream::new(fd, peer, local, &worker.table);
    let Some(sites) = worker.listener(listener) else { return };
    let (mut client, mut destination) = (peer, local);
    if sites.proxy_protocol {
        match read_proxy_header(&mut stream).await {
            Ok(Some(addresses)) => {
                client = Some(addresses.source);
                destination = Some(addresses.destination);
            }
            Ok(None) => {}
            Err(cause) => {
                worker.shared.connections.malformed.fetch_add(1, Relaxed);
                tracing::debug!(?peer, %cause, "no PROXY header where one is required");
                return;
            }
        }
    }
    let context = |stream: &Stream, tls| {
        Arc::new(Connection {
            worker: Arc::clone(&worker),
            socket: Arc::clone(stream.socket()),
            client,
            destination,
            port: destination.map_or(0, |address| address.port()),
            tls,
            session: OnceLock::new(),
            listener,
            id,
            introduction: OnceLock::new(),
            first_about: OnceLock::new(),
            inspected: None,
            shown: None,
            lane_choice: LaneChoice::new(),
        })
    };
    let connection = context(&stream, sites.tls.is_some());
    if !worker.shared.guard.lets_in(&connection) {
        connection.socket.reset_on_close(true);
        return;
    }
    match &sites.tls {
        Some(tls) => {
            let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
            let chain = sites.chain.load_full();
            drop(sites);
            Box::pin(serve_tls(acceptor, stream, connection, chain)).await;
        }
        None => {
            let chain = sites.chain.load_full();
            drop(sites);
            if chain.is_empty() {
                serve_cleartext(stream, connection).await;
            } else {
                Box::pin(serve_tapped(stream, connection, &chain)).await;
            }
        }
    }
}

/// What serves HTTP is boxed, so that a connection that rests is small.
async fn serve_cleartext(mut stream: Stream, connection: Arc<Connection>) {
    loop {
        match fast_lane::serve(&mut stream, &connection).await {
            Lane::Ended => return,
            Lane::HandedOver { has_answered } => connection.lane_choice.left(has_answered),
        }
        match detect(&mut stream).await {
            Ok(Some(Protocol::Http1)) => {
                let Some((rested, unread)) =
                    Box::pin(serve_http1(stream, Arc::clone(&connection))).await
                else {
                    return;
                };
                stream = rested;
                if !unread.is_empty() {
                    // A copy: the bytes lie in a buffer of 8 KiB that would be kept with them.
                    stream.unread(unread.to_vec());
                }
            }
            Ok(Some(Protocol::Http2)) => return Box::pin(serve_http2(stream, connection)).await,
            Ok(None) | Err(_) => return,
        }
    }
}

/// Serves a connection that plugins see.
async fn serve_tapped(stream: Stream, connection: Arc<Connection>, chain: &Chain) {
    match taps::open(&connection, chain).await {
        None => {}
        Some(taps) if taps.see_bytes() => taps.serve(stream, connection).await,
        // They stay to the connection's end.
        Some(_taps) => serve_cleartext(stream, connection).await,
    }
}

async fn serve_tls(
    acceptor: TlsAcceptor,
    stream: Stream,
    connection: Arc<Connection>,
    chain: Arc<Chain>,
) {
    connection.socket.set_encrypted();
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(cause) => {
            connection.worker.shared.connections.tls_failures.fetch_add(1, Relaxed);
            tracing::debug!(client = ?connection.client, %cause, "TLS handshake failed");
            return;
        }
    };
    let session = stream.get_ref().1;
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let _ = connection.session.set(Session::new(session));
    let taps = match chain.is_empty() {
        true => None,
        false => match taps::open(&connection, &chain).await {
            Some(taps) if taps.see_bytes() && !is_http2 => {
                return taps.serve(stream, connection).await;
            }
            // Bytes of HTTP/2 mean nothing to those who know HTTP/1.1: only its connections are
            // shown.
            Some(taps) => Some(taps),
            None => return,
        },
    };
    let _to_the_end = taps;
    match is_http2 {
        true => serve_http2(stream, connection).await,
        false => serve_bytes(stream, connection).await,
    }
}

/// Serves until the connection ends, or until it should go back to the fast lane, because its
/// requests are such again or because it has been idle for so long that it should rest: then the
/// stream comes back, with what of the next request has been read from it already.
async fn serve_http1(stream: Stream, connection: Arc<Connection>) -> Option<(Stream, Bytes)> {
    let worker = Arc::clone(&connection.worker);
    let socket = Arc::clone(&connection.socket);
    let service = Pipeline { connection: Arc::clone(&connection) };
    let mut http = worker.http1.serve_connection(TokioIo::new(stream), service).with_upgrades();
    socket.allow_deferral();
    let ended = poll_fn(|cx| {
        loop {
            match Pin::new(&mut http).poll(cx) {
                Poll::Ready(result) => return Poll::Ready(Some(result)),
                Poll::Pending if connection.is_for_fast_lane() => return Poll::Ready(None),
                Poll::Pending if socket.take_deferred() => {}
                Poll::Pending => return socket.poll_rest(cx).map(|()| None),
            }
        }
    });
    if let Some(result) = ended.await {
        finish(&connection, result);
        return None;
    }
    socket.forbid_deferral();
    let parts = http.into_parts()?;
    Some((parts.io.into_inner(), parts.read_buf))
}

/// Serves HTTP/2 over whatever has the connection's bytes.
pub(crate) async fn serve_http2<S>(stream: S, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    connection.socket.set_multiplexed();
    connection.worker.shared.guard.spare(&connection);
    let worker = Arc::clone(&connection.worker);
    let mut drain = worker.drain.subscribe();
    let socket = Arc::clone(&connection.socket);
    let service = Multiplexed(Pipeline { connection: Arc::clone(&connection) });
    let mut http = std::pin::pin!(worker.http2.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        result = http.as_mut() => return finish(&connection, result),
        _ = drain.wait_for(|&draining| draining) => {}
        () = poll_fn(|cx| socket.poll_rest(cx)) => {}
    }
    // The client is told (RFC 9113 §6.8), and streams that have begun go on.
    http.as_mut().graceful_shutdown();
    finish(&connection, http.await);
}

/// Serves HTTP/1.1 over whatever has the connection's bytes.
pub(crate) async fn serve_bytes<S>(stream: S, connection: Arc<Connection>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = Pipeline { connection: Arc::clone(&connection) };
    let http = connection.worker.http1.serve_connection(TokioIo::new(stream), service);
    finish(&connection, http.with_upgrades().await);
}

fn finish(connection: &Connection, result: hyper::Result<()>) {
    let Err(cause) = result else { return };
    if cause.is_parse() {
        connection.worker.shared.connections.malformed.fetch_add(1, Relaxed);
        // hyper has answered by itself. It says 414 for a target above 64 KiB, if heads may be so
        // large, and does not tell that from a head that is too large.
        let status = if cause.is_parse_too_large() { 431 } else { 400 };
        if !cause.is_parse_version_h2() {
            record::log_unread(connection, status);
        }
    }
    tracing::debug!(%cause, "connection ended");
}

/// Whether the fast lane might have taken a request; what it says of it is the last word.
fn is_simple(head: &Parts, body: &Incoming) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && head.version == Version::HTTP_11
        && body.is_end_stream()
}

/// The pipeline as hyper's service.
struct Pipeline {
    connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for Pipeline {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Reply;

    fn call(&self, request: Request<Incoming>) -> Reply {
        let (head, body) = request.into_parts();
        self.connection.lane_choice.note(is_simple(&head, &body));
        pipeline::serve(&self.connection, head, Some(body), Seen::default())
    }
}

/// The pipeline as hyper's service for HTTP/2.
struct Multiplexed(Pipeline);

impl Service<Request<Incoming>> for Multiplexed {
    type Response = Response<WatchedBody>;
    type Error = Infallible;
    type Future = WatchedReply;

    fn call(&self, mut request: Request<Incoming>) -> WatchedReply {
        weir_http::cookie::join(request.headers_mut());
        WatchedReply(self.0.call(request))
    }
}

/// A [`Reply`] whose body is watched.
struct WatchedReply(Reply);

impl Future for WatchedReply {
    type Output = Result<Response<WatchedBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(|response| response.map(WatchedBody::new))
    }
}

/// A response that is ready, as a hit is, or one that must be waited for.
#[allow(clippy::large_enum_variant, reason = "a hit must not allocate for its reply")]
pub(crate) enum Reply {
    Now(Option<Response<ReplyBody>>),
    Later(Pin<Box<dyn Future<Output = Response<ReplyBody>> + Send>>),
}

impl Reply {
    /// Waits for the response.
    pub(crate) async fn wait(self) -> Response<ReplyBody> {
        match self {
            Reply::Now(Some(response)) => response,
            // As hyper does, nobody waits for what was taken.
            Reply::Now(None) => std::future::pending().await,
            Reply::Later(future) => future.await,
        }
    }
}

impl Future for Reply {
    type Output = Result<Response<ReplyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Reply::Later(future) = &mut *self {
            *self = Reply::Now(Some(ready!(future.as_mut().poll(cx))));
        }
        // hyper polls a future until it is ready and then drops it.
        let Reply::Now(waiting) = &mut *self else { return Poll::Pending };
        if let Some(response) = waiting {
            ready!(response.body_mut().poll_begin(cx));
        }
        waiting.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
    }
}

/// Counts an open connection for as long as it lives.
pub(crate) struct OpenGuard(Arc<Worker>);

impl Connection {
    /// Counts it for longer than HTTP is spoken on it: a tunnel is a connection, too.
    pub(crate) fn stays_open(&self) -> OpenGuard {
        self.worker.shared.connections.open.fetch_add(1, Relaxed);
        OpenGuard::new(&self.worker)
    }
}

impl OpenGuard {
    /// Of one that is counted already.
    fn new(worker: &Arc<Worker>) -> OpenGuard {
        OpenGuard(Arc::clone(worker))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.shared.connections.open.fetch_sub(1, Relaxed);
    }
}
