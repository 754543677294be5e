//! A new connection to a server: dial, TLS, HTTP handshake, and what drives it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use weir_config::{Upstream, UpstreamProtocol};

use super::dial::{Resolved, dial};
use super::http1::Http1;
use super::limits::{
    HEAD_SIZE_MAX, HTTP2_CONNECTION_WINDOW, HTTP2_PING_INTERVAL, HTTP2_PING_TIMEOUT,
    HTTP2_STREAM_WINDOW,
};
use super::peer::Peer;
use super::request::Outgoing;
use super::server::Server;
use super::stream::{Link, Open, Socket, Stream, Wire};
use super::tls::{Tls, is_http2};
use super::way::{Exit, Way};
use crate::error::{ErrorKind, OriginError};

/// A shared HTTP/2 connection.
#[derive(Clone)]
pub(super) struct Http2 {
    pub(super) sender: http2::SendRequest<Outgoing>,
    pub(super) link: Arc<Link>,
    pub(super) peer: Arc<Peer>,
    /// When its last stream began or ended.
    pub(super) used: Instant,
}

/// One stream's place on an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct StreamPlace(Arc<Link>);

impl StreamPlace {
    pub(super) fn take(link: &Arc<Link>) -> Self {
        link.streams.fetch_add(1, Relaxed);
        StreamPlace(Arc::clone(link))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

/// A connection just made.
pub(super) enum Fresh {
    /// Boxed: it is moved with every request.
    Http1(Box<Http1>),
    Http2(Http2),
}

/// What a group needs to make connections.
pub(super) struct Connector {
    protocol: UpstreamProtocol,
    timeout: Duration,
    tls: Option<Tls>,
    /// Where it may connect to; `None` means wherever its servers are.
    exit: Option<Exit>,
    http2: http2::Builder<TokioExecutor>,
}

impl Connector {
    pub(super) fn new(config: &Upstream) -> Result<Connector, OriginError> {
        let needs_tls = config.servers.iter().any(|server| server.tls);
        let tls = match needs_tls {
            true => Some(Tls::new(&config.tls, config.protocol, &config.name)?),
            false => None,
        };
        Ok(Connector::with(config, tls, None))
    }

    /// One that connects only where `way` leads.
    pub(super) fn by(config: &Upstream, way: &Way) -> Result<Connector, OriginError> {
        if way.tls.is_none() && config.servers.iter().any(|server| server.tls) {
            // Not in cleartext instead.
            let cause = "there are no roots to verify it by";
            return Err(OriginError::new(ErrorKind::Config, &*config.name, cause));
        }
        Ok(Connector::with(config, way.tls.clone(), Some(way.requests.clone())))
    }

    fn with(config: &Upstream, tls: Option<Tls>, exit: Option<Exit>) -> Connector {
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .max_header_list_size(HEAD_SIZE_MAX as u32)
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_TIMEOUT);
        let (protocol, timeout) = (config.protocol, config.connect_timeout);
        Connector { protocol, timeout, tls, exit, http2 }
    }

    /// Whether connections to `server` are, or may turn out to be, shared HTTP/2 connections.
    pub(super) fn may_share(&self, server: &Server) -> bool {
        match self.protocol {
            UpstreamProtocol::Http1 => false,
            UpstreamProtocol::Http2 => true,
            UpstreamProtocol::Auto => server.tls,
        }
    }

    /// Whether an upgrade can be asked for: HTTP/2 has none (RFC 9113, section 8.6).
    pub(super) fn can_upgrade(&self) -> bool {
        self.protocol != UpstreamProtocol::Http2
    }

    /// The limit on establishing a connection.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Makes a connection by `deadline`.
    pub(super) async fn connect(
        &self,
        server: &Server,
        resolved: &Resolved,
        http1_only: bool,
        open: Open,
        deadline: Instant,
    ) -> Result<Fresh, OriginError> {
        let work = self.establish(server, resolved, http1_only, open);
        tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            let cause = format!("no connection within {:?}", self.timeout);
            Err(OriginError::new(ErrorKind::ConnectTimeout, &*server.name, cause))
        })
    }

    async fn establish(
        &self,
        server: &Server,
        resolved: &Resolved,
        http1_only: bool,
        open: Open,
    ) -> Result<Fresh, OriginError> {
        let socket = dial(&server.target, resolved, &server.name, self.exit.as_ref()).await?;
        let prior_knowledge = self.protocol == UpstreamProtocol::Http2;
        let (stream, http2) = match (&self.tls, &server.tls_name) {
            (Some(tls), Some(name)) => {
                self.handshake(tls, name, socket, http1_only, &server.name).await?
            }
            _ => (Stream::Plain(socket), prior_knowledge),
        };
        if !http2 {
            return Ok(Fresh::Http1(Box::new(Http1::new(stream, open))));
        }
        let link = Arc::new(Link::default());
        let peer = Arc::new(Peer::of(&stream));
        let io = TokioIo::new(Wire::new(stream, open));
        self.start_http2(io, link, peer, server).await
    }

    async fn handshake(
        &self,
        tls: &Tls,
        name: &ServerName<'static>,
        socket: Socket,
        http1_only: bool,
        server: &str,
    ) -> Result<(Stream, bool), OriginError> {
        let connector = if http1_only { &tls.http1 } else { &tls.any };
        let stream = connector
            .connect(name.clone(), socket)
            .await
            .map_err(|error| OriginError::new(ErrorKind::Tls, server, error))?;
        let http2 = is_http2(stream.get_ref().1.alpn_protocol());
        if self.protocol == UpstreamProtocol::Http2 && !http2 {
            // RFC 9113, section 3.2: over TLS, HTTP/2 begins with ALPN and only with it.
            let cause = "the server did not agree to HTTP/2 by ALPN";
            return Err(OriginError::new(ErrorKind::Tls, server, cause));
        }
        Ok((Stream::Tls(Box::new(stream)), http2))
    }

    async fn start_http2(
        &self,
        io: TokioIo<Wire>,
        link: Arc<Link>,
        peer: Arc<Peer>,
        server: &Server,
    ) -> Result<Fresh, OriginError> {
        let (sender, connection) = self
            .http2
            .handshake(io)
            .await
            .map_err(|error| OriginError::new(ErrorKind::Connect, &*server.name, error))?;
        link.streams_max.store(connection.current_max_send_streams(), Relaxed);
        let driver = Http2Driver { connection, link: Arc::clone(&link) };
        let name = Arc::clone(&server.name);
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(server = &*name, %error, "connection ended");
            }
        });
        Ok(Fresh::Http2(Http2 { sender, link, peer, used: Instant::now() }))
    }
}

type Http2Connection = http2::Connection<TokioIo<Wire>, Outgoing, TokioExecutor>;

/// Drives an HTTP/2 connection and tells how many streams its server allows; hyper answers that
/// only here.
struct Http2Driver {
    connection: Http2Connection,
    link: Arc<Link>,
}

impl Future for Http2Driver {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.connection).poll(cx);
        let streams_max = this.connection.current_max_send_streams();
        this.link.streams_max.store(streams_max, Relaxed);
        polled
    }
}

/// Connections open to one server from one worker.
pub(super) type OpenCount = Arc<AtomicUsize>;
