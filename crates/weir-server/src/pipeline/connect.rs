//! CONNECT (RFC 9110 §9.3.6): a tunnel through a forward proxy, if this client may have one to
//! where it wants to.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::header::{HeaderValue, PROXY_AUTHORIZATION};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_http::Malformed;
use weir_http::request::validate_connect;

use super::refuse::{self, Barred, Refusal};
use super::relay::{self, Limits};
use super::route::{self, Unrouted};
use super::{admit, forward_mode, refuse_unrouted, refused, stream_end};
use crate::body::{Content, ReplyBody};
use crate::connection::{Connection, Reply, serve_bytes, serve_http2};
use crate::live::{Live, Origin, Route, Word};
use crate::metrics::Tunnel;
use crate::properties::Session;
use crate::record::Record;
use crate::stall::Breaker;

/// Whom a CONNECT is for.
struct Way {
    route: Arc<Route>,
    to: Arc<Origin>,
}

/// Finds the forward proxy that a CONNECT is for: the route of all paths, `/`, at the site that has
/// its host's name.
///
/// # Errors
/// The refusal to answer with: malformed, unknown host, no forward proxy.
fn way(live: &Live, connection: &Connection, head: &Parts) -> Result<Way, Unrouted> {
    let host = validate_connect(&head.uri, head.version, &head.headers);
    // Where there is no forward proxy, that is what is wrong with it.
    let name = host.as_ref().map_or("", |host| &host.name);
    let site = route::site(live, connection, name)?;
    let found = site.routes.find("/").filter(|route| route.source.forward_proxy().is_some());
    // Nor is there one inside of a tunnel, which is for one host.
    let found = found.filter(|_| connection.inspected.is_none());
    let of_site = |refusal| Unrouted { refusal, site: Some(Arc::clone(&site.info)) };
    let route = found.ok_or_else(|| of_site(Malformed::Connect.into()))?;
    let host = host.map_err(|malformed| of_site(malformed.into()))?;
    let to = forward_mode::origin_at(true, &host).map_err(of_site)?;
    Ok(Way { route: Arc::clone(route), to })
}

/// Answers a CONNECT.
pub(super) fn answer(
    connection: &Arc<Connection>,
    live: &Live,
    head: Parts,
    body: Option<Incoming>,
    mut record: Record,
) -> Reply {
    let way = match way(live, connection, &head) {
        Ok(way) => way,
        Err(unrouted) => return refuse_unrouted(live, unrouted, record, &head, body),
    };
    let route = &way.route;
    record.set_route(route, &head.method, &head.uri, head.version, &head.headers);
    let (site, started) = (Arc::clone(&route.site), record.started());
    if let Err(refusal) = admit::admit_unrouted(&site, &head, started, &mut record) {
        return refused(refusal, record, &head, body);
    }
    match forward_mode::asking(connection, route, &head) {
        None => admitted(way, head, body, record, None),
        Some(asking) => Reply::Later(Box::pin(async move {
            let word = Some(asking.wait().await);
            admitted(way, head, body, record, word).wait().await
        })),
    }
}

/// Answers one that rules let pass, when it is known whose it is if that was to be found out.
fn admitted(
    way: Way,
    head: Parts,
    body: Option<Incoming>,
    record: Record,
    word: Option<Word>,
) -> Reply {
    let (Way { route, to }, connection) = (&way, record.connection());
    let judged = forward_mode::judge_tunnel(connection, route, to, &head, word);
    let tunnel =
        judged.and_then(|()| Tunnel::begin(connection, route).ok_or(Refusal::Barred(Barred::Full)));
    match tunnel {
        Err(refusal) => refused(refusal, record, &head, body),
        Ok(tunnel) => Reply::Later(Box::pin(open(way, head, record, tunnel))),
    }
}

/// Connects, says so, and joins the two connections.
async fn open(
    way: Way,
    mut head: Parts,
    mut record: Record,
    tunnel: Tunnel,
) -> Response<ReplyBody> {
    let Way { route, to } = way;
    let client = head.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let (Some(proxy), Some(client)) = (route.source.forward_proxy(), client) else {
        let refusal = Refusal::Malformed(Malformed::Connect);
        return refuse::refuse(refusal, record, &head, None);
    };
    match proxy.inspects(&to) {
        Ok(None) => {}
        // Other streams have the same connection.
        Ok(Some(_)) if head.version == Version::HTTP_2 => {
            let refusal =
                Refusal::Source(StatusCode::NOT_IMPLEMENTED, "inspected over HTTP/1.1 only");
            return refuse::refuse(refusal, record, &head, None);
        }
        Ok(Some(tls)) => {
            record.status = StatusCode::OK.as_u16();
            let opened = Opened { tls, host: to, shown: head.headers.remove(PROXY_AUTHORIZATION) };
            tokio::spawn(async move {
                match client.await {
                    Ok(client) => inspect(client, opened, record, tunnel).await,
                    Err(cause) => tracing::debug!(%cause, "no tunnel"),
                }
            });
            return Response::new(ReplyBody::new(Content::Empty, None));
        }
        Err(error) => {
            tracing::warn!(host = to.name, %error, "no certificate for a host that is inspected");
            let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "no certificate can be made");
            return refuse::refuse(refusal, record, &head, None);
        }
    }
    let origin = match proxy.tunnel(&to).await {
        Ok(origin) => origin,
        Err(error) => {
            tracing::debug!(%error, "no tunnel");
            let refusal = forward_mode::refusal(&error);
            return refuse::refuse(refusal, record, &head, None);
        }
    };
    let connect = &proxy.settings.connect;
    let limits = Limits { idle: Some(connect.idle), bytes: connect.bytes };
    record.status = StatusCode::OK.as_u16();
    let breaks = match head.version < Version::HTTP_2 {
        true => Breaks::Connection,
        false => Breaks::Stream(Breaker::new()),
    };
    tokio::spawn(async move {
        match client.await {
            Ok(client) => join(client, origin, limits, breaks, record, tunnel).await,
            Err(cause) => tracing::debug!(%cause, "no tunnel"),
        }
    });
    Response::new(ReplyBody::new(Content::Empty, None))
}

/// A tunnel that is inspected.
struct Opened {
    /// What its client is answered with.
    tls: Arc<ServerConfig>,
    host: Arc<Origin>,
    /// The credentials that it was asked for with.
    shown: Option<HeaderValue>,
}

/// Answers a tunnel in the host's name, and serves what is inside.
async fn inspect(client: Upgraded, opened: Opened, mut record: Record, tunnel: Tunnel) {
    let Opened { tls, host, shown } = opened;
    let outer = Arc::clone(record.connection());
    let _open = outer.stays_open();
    // Whatever is served next on this socket has to be polled by itself.
    outer.socket.forbid_deferral();
    let inside = match tokio::time::timeout(HANDSHAKE_TIME_MAX, Inside::begin(client, tls)).await {
        Ok(Ok(inside)) => inside,
        Ok(Err(cause)) => {
            outer.worker.shared.connections.tls_failures.fetch_add(1, Relaxed);
            tracing::debug!(host = host.name, %cause, "a client does not take our certificate");
            return tunnel.end(relay::End::Broken, 0, 0);
        }
        Err(_) => return tunnel.end(relay::End::Idle, 0, 0),
    };
    record.complete = true;
    // Requests are counted and logged by themselves from here on.
    drop(record);
    // Boxed: the pipeline that this is part of serves it.
    let serving: Pin<Box<dyn Future<Output = ()> + Send>> = match inside {
        Inside::Cleartext(stream) => {
            let host = Arc::new(Origin { tls: false, ..(*host).clone() });
            Box::pin(serve_bytes(stream, outer.inside(host, shown, None)))
        }
        Inside::Tls(stream) => {
            outer.socket.set_encrypted();
            let session = stream.get_ref().1;
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let inner = outer.inside(host, shown, Some(Session::new(session)));
            match is_http2 {
                true => Box::pin(serve_http2(stream, inner)),
                false => Box::pin(serve_bytes(stream, inner)),
            }
        }
    };
    serving.await;
    tunnel.end(relay::End::Whole, 0, 0);
}

/// A client's side of a tunnel that is inspected, of which nothing has been taken yet.
type Client = BufReader<TokioIo<Upgraded>>;

/// What a client speaks in a tunnel.
enum Inside {
    /// HTTP: some clients have a tunnel for whatever they ask of a proxy.
    Cleartext(Client),
    /// Boxed: a session is ten times the other's size.
    Tls(Box<TlsStream<Client>>),
}

impl Inside {
    /// Looks at the client's first byte, and does the handshake if it begins one.
    ///
    /// # Errors
    /// The client's or the network's.
    async fn begin(client: Upgraded, tls: Arc<ServerConfig>) -> io::Result<Inside> {
        let mut client = BufReader::new(TokioIo::new(client));
        match client.fill_buf().await?.first() {
            None => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(&TLS_HANDSHAKE) => {
                let stream = TlsAcceptor::from(tls).accept(client).await?;
                Ok(Inside::Tls(Box::new(stream)))
            }
            Some(_) => Ok(Inside::Cleartext(client)),
        }
    }
}

/// The first byte of a TLS connection: a record's type (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 22;

/// How long a client may take for its handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// What a client loses with a tunnel that breaks.
enum Breaks {
    /// Its connection, which has nothing else.
    Connection,
    Stream(Option<Breaker>),
}

/// Passes bytes to the tunnel's end. One that breaks on one side is reset on the other, so that
/// nobody takes what he has for the whole (RFC 9113 §8.5).
async fn join(
    client: Upgraded,
    mut origin: TcpStream,
    limits: Limits,
    breaks: Breaks,
    mut record: Record,
    tunnel: Tunnel,
) {
    let open = record.connection().stays_open();
    let mut client = stream_end::Client::new(TokioIo::new(client));
    if matches!(breaks, Breaks::Connection) {
        record.connection().socket.set_tunnel();
    }
    let (passed, end) = relay::relay(&mut client, &mut origin, limits).await;
    if end == relay::End::Broken {
        // If it cannot be set, an end is told at least.
        let _ = origin.set_zero_linger();
    }
    match breaks {
        Breaks::Stream(Some(breaker)) if end != relay::End::Whole => breaker.reset(),
        Breaks::Connection if end == relay::End::Broken => {
            record.connection().socket.reset_on_close(true);
        }
        _ => {}
    }
    drop((client, origin));
    record.body_bytes = passed.to_client;
    record.complete = end == relay::End::Whole;
    drop((record, open));
    // Last: whoever sees that it has ended sees all of that.
    tunnel.end(end, passed.from_client, passed.to_client);
}
