//! One attempt at one server: a connection, the request on it, and the wait for a response head.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::connect::{Http2, StreamPlace};
use super::head::Job;
use super::http1::{Failure, Http1, Relay};
use super::limits::CONNECTIONS_MAX;
use super::pool::Conn;
use super::request::{Outgoing, Progress};
use super::response::{Lease, ResponseBody, Source, Tunnel};
use super::server::Server;
use super::stream::Open;
use super::timer::Timer;
use super::{Group, Slot};
use crate::error::{ErrorKind, OriginError};

/// A response head, and where its body comes from.
struct Arrived {
    response: Response<()>,
    source: Source,
    timer: Timer,
}

/// How a kept connection may be used for an attempt.
#[derive(Clone, Copy, PartialEq)]
enum Reuse {
    /// Any.
    Yes,
    /// Not an idle HTTP/1.1 connection: one has just turned out dead, the others are older.
    OnlyShared,
}

/// Sends `job` to `slot`'s server. A kept connection that turns out to be dead is replaced by a
/// new one once, which is not a retry: the server never refused anything.
pub(super) async fn exchange(
    slot: Slot,
    worker: usize,
    job: &mut Job,
) -> Result<Response<ResponseBody>, OriginError> {
    let group = Arc::clone(&slot.group);
    let pool = group.pool(worker, slot.server);
    pool.stats.requests.fetch_add(1, Relaxed);
    let (conn, reused) = connection(&group, worker, slot.server, job.upgrade, Reuse::Yes).await?;
    let mut outcome = send_on(&group, slot.server, conn, job).await;
    if let Err(error) = &outcome
        && reused
        && error.may_retry()
        && error.kind() == ErrorKind::ClosedEarly
    {
        tracing::debug!(server = error.server(), cause = error.cause(), "kept connection was dead");
        let (conn, _) =
            connection(&group, worker, slot.server, job.upgrade, Reuse::OnlyShared).await?;
        outcome = send_on(&group, slot.server, conn, job).await;
    }
    Ok(accept(slot, worker, job, outcome?))
}

/// A connection to the server, and whether it has been used before.
async fn connection(
    group: &Arc<Group>,
    worker: usize,
    index: usize,
    upgrade: bool,
    reuse: Reuse,
) -> Result<(Conn, bool), OriginError> {
    let pool = group.pool(worker, index);
    let server = &group.servers[index];
    let connector = &group.connector;
    let http1_only = upgrade && connector.can_upgrade();
    let may_share = !http1_only && group.config.keep_alive > 0 && connector.may_share(server);
    if may_share && let Some(conn) = pool.take_http2() {
        return Ok((conn, true));
    }
    if reuse == Reuse::Yes
        && let Some(conn) = pool.take_http1(group.config.keep_alive_timeout)
    {
        return Ok((conn, true));
    }
    let deadline = Instant::now() + connector.timeout();
    let overloaded =
        |what: &str| OriginError::new(ErrorKind::Overloaded, &*server.name, what).retry(true);
    // Of those who could share a connection, one makes it and the others wait for it.
    let mut gate = None;
    if may_share && !pool.is_http1() {
        let place = pool.wait().ok_or_else(|| overloaded("too many wait for a connection"))?;
        let Ok(held) = tokio::time::timeout_at(deadline, pool.gate.lock()).await else {
            let cause = format!("no connection within {:?}", connector.timeout());
            return Err(
                OriginError::new(ErrorKind::ConnectTimeout, &*server.name, cause).retry(true)
            );
        };
        drop(place);
        if let Some(conn) = pool.take_http2() {
            return Ok((conn, true));
        }
        gate = (!pool.is_http1()).then_some(held);
    }
    let open = Open::reserve(&pool.open, CONNECTIONS_MAX)
        .ok_or_else(|| overloaded("too many connections"))?;
    let resolved = &group.resolved[index];
    let fresh = connector.connect(server, resolved, http1_only, open, deadline).await;
    // Nothing has been sent yet, so whatever went wrong, another server may be tried.
    let fresh = fresh.map_err(|error| error.retry(true))?;
    let (conn, sweep) = pool.adopt(fresh, group.config.keep_alive, http1_only);
    drop(gate);
    if sweep {
        group.start_sweeper(worker, index);
    }
    Ok((conn, false))
}

/// Sends the request on `conn` and waits for the response head.
async fn send_on(
    group: &Group,
    index: usize,
    conn: Conn,
    job: &mut Job,
) -> Result<Arrived, OriginError> {
    match conn {
        Conn::Http1(conn) => send_http1(group, index, conn, job).await,
        Conn::Http2(conn, place) => send_http2(group, index, conn, place, job).await,
    }
}

async fn send_http1(
    group: &Group,
    index: usize,
    mut conn: Box<Http1>,
    job: &mut Job,
) -> Result<Arrived, OriginError> {
    let server = &group.servers[index];
    let limit = group.config.first_byte_timeout;
    let request = job.http1(server, group.config.keep_alive == 0).ok_or_else(|| gone(server))?;
    let progress = request.body.progress.clone();
    let mut timer = std::mem::take(&mut conn.timer);
    conn.begin(request);
    others_first().await;
    let mut head = |cx: &mut Context<'_>| conn.poll_head(cx, || job.take_table());
    let outcome = wait(&mut head, &mut timer, limit, progress.as_deref()).await;
    let harmless = job.repeatable && conn.is_silent();
    match outcome {
        Some(Ok(response)) => Ok(Arrived { response, source: Source::Http1(conn), timer }),
        Some(Err(Failure { kind, cause })) => {
            let again = harmless && kind == ErrorKind::ClosedEarly;
            Err(OriginError::new(kind, &*server.name, cause).retry(again && job.is_whole()))
        }
        None => Err(too_slow(server, limit).retry(harmless)),
    }
}

/// Lets what else is ready in this turn of the event loop run first, so that the requests of one
/// turn leave together. A server that waits is woken by the first and finds the others with it;
/// woken for each, it costs us a tenth more CPU (1 KB, 40 clients, application on another core).
async fn others_first() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn send_http2(
    group: &Group,
    index: usize,
    mut conn: Http2,
    place: StreamPlace,
    job: &mut Job,
) -> Result<Arrived, OriginError> {
    let server = &group.servers[index];
    let limit = group.config.first_byte_timeout;
    let request = job.http2(server).ok_or_else(|| gone(server))??;
    let mut timer = Timer::default();
    let progress = request.body().progress.clone();
    let mut sent = Box::pin(conn.sender.try_send_request(request));
    let outcome = wait(|cx| sent.as_mut().poll(cx), &mut timer, limit, progress.as_deref()).await;
    match outcome {
        Some(Ok(response)) => {
            let (parts, incoming) = response.into_parts();
            let response = checked(Response::from_parts(parts, ()), &incoming);
            let response = response
                .map_err(|cause| OriginError::new(ErrorKind::Garbage, &*server.name, cause))?;
            let source = Source::Http2 { incoming, conn, _place: place };
            Ok(Arrived { response, source, timer })
        }
        // Other streams' bytes say nothing; without a head nothing of this one was seen.
        Some(Err(error)) => Err(failure(error, &server.name, job)),
        None => Err(too_slow(server, limit).retry(job.repeatable)),
    }
}

fn gone(server: &Server) -> OriginError {
    OriginError::new(ErrorKind::Request, &*server.name, "the request is used up")
}

fn too_slow(server: &Server, limit: Duration) -> OriginError {
    let cause = format!("no response head within {limit:?}");
    OriginError::new(ErrorKind::FirstByteTimeout, &*server.name, cause)
}

/// Waits for the head for `limit` after the request's last byte; `None` when that has passed.
async fn wait<T>(
    mut head: impl FnMut(&mut Context<'_>) -> Poll<T>,
    timer: &mut Timer,
    limit: Duration,
    progress: Option<&Progress>,
) -> Option<T> {
    timer.start(Instant::now() + limit);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = head(cx) {
            return Poll::Ready(Some(outcome));
        }
        while timer.poll(cx).is_ready() {
            let now = Instant::now();
            match progress.map(|progress| progress.deadline(now, limit)) {
                Some(deadline) if deadline > now => timer.start(deadline),
                _ => return Poll::Ready(None),
            }
        }
        Poll::Pending
    })
    .await
}

/// What hyper's error means, and whether the request may be sent again.
fn failure(mut error: TrySendError<Request<Outgoing>>, server: &str, job: &mut Job) -> OriginError {
    if let Some(request) = error.take_message() {
        // Not a byte of it was written.
        if !job.is_whole() {
            job.restore(request);
        }
        let error = error.into_error();
        return OriginError::new(ErrorKind::ClosedEarly, server, error).retry(true);
    }
    let error = error.into_error();
    let http2 = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<h2::Error>());
    // The stream was reset since its body failed.
    let is_own_reset =
        |error: &h2::Error| error.is_reset() && !error.is_remote() && !error.is_library();
    let kind = if error.is_user() || http2.is_some_and(is_own_reset) {
        ErrorKind::RequestBody
    } else if error.is_parse() || http2.is_some_and(h2::Error::is_library) {
        ErrorKind::Garbage
    } else {
        ErrorKind::ClosedEarly
    };
    // RFC 9113, section 8.7: refused streams and those above GOAWAY's last were not processed.
    let unprocessed = http2.is_some_and(|error| {
        error.is_remote()
            && (error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR)
                || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    });
    let safe = (job.repeatable && kind == ErrorKind::ClosedEarly) || unprocessed;
    OriginError::new(kind, server, error).retry(safe && job.is_whole())
}

/// Refuses what cannot be passed on truthfully and leaves one statement of the length.
fn checked(mut response: Response<()>, incoming: &Incoming) -> Result<Response<()>, &'static str> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err("101 Switching Protocols, which HTTP/2 does not have");
    }
    let headers = response.headers_mut();
    if !incoming.is_end_stream()
        && let Some(length) = incoming.size_hint().exact()
    {
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        let first = lengths.next().map_or(&b""[..], HeaderValue::as_bytes);
        if lengths.next().is_some() || first.contains(&b',') {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    Ok(response)
}

/// Joins the head with a body that gives the connection back at its end.
fn accept(slot: Slot, worker: usize, job: &Job, arrived: Arrived) -> Response<ResponseBody> {
    let Arrived { mut response, source, timer } = arrived;
    let status = response.status();
    let peer = source.peer();
    let source = match source {
        Source::Http1(conn) if status == StatusCode::SWITCHING_PROTOCOLS => {
            response.extensions_mut().insert(Tunnel::new(slot, conn.into_tunnel()));
            return response.map(|()| ResponseBody::unowned(peer));
        }
        Source::Http1(conn) if conn.is_streaming() => {
            Source::Relay(Relay::start(conn, &slot.group, worker, slot.server))
        }
        source => source,
    };
    // RFC 9110, section 8.6: here Content-Length speaks of the body that is not sent.
    let bodiless = job.is_head || status == StatusCode::NOT_MODIFIED;
    let lease = Lease { slot, worker };
    response.map(|()| ResponseBody::new(source, bodiless, lease, timer).sent_by(peer))
}
