//! One attempt at one server: a connection, the request on it, and the wait for a response head.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::connect::Http1;
use super::head::Job;
use super::limits::CONNECTIONS_MAX;
use super::pool::Conn;
use super::request::{Outgoing, Progress};
use super::response::{Lease, ResponseBody, Tunnel};
use super::stream::Open;
use super::timer::Timer;
use super::{Group, Slot};
use crate::error::{ErrorKind, OriginError};

/// A response head and what it came on.
struct Arrived {
    response: Response<Incoming>,
    conn: Conn,
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
    let Arrived { response, conn, timer } = outcome?;
    Ok(accept(slot, worker, response, job.is_head, conn, timer))
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
    let server = &group.servers[index];
    let limit = group.config.first_byte_timeout;
    let received_before = conn.link().received();
    let gone = || OriginError::new(ErrorKind::Request, &*server.name, "the request is used up");
    let (outcome, conn, timer) = match conn {
        Conn::Http1(mut conn) => {
            let request = job.http1(server, group.config.keep_alive == 0).ok_or_else(gone)?;
            let mut timer = std::mem::take(&mut conn.timer);
            let progress = request.body().progress.clone();
            let sent = conn.sender.try_send_request(request);
            let outcome = wait(sent, &mut timer, limit, progress.as_deref()).await;
            (outcome, Conn::Http1(conn), timer)
        }
        Conn::Http2(mut conn, place) => {
            let request = job.http2(server).ok_or_else(gone)??;
            let mut timer = Timer::default();
            let progress = request.body().progress.clone();
            let sent = conn.sender.try_send_request(request);
            let outcome = wait(sent, &mut timer, limit, progress.as_deref()).await;
            (outcome, Conn::Http2(conn, place), timer)
        }
    };
    let silent = match &conn {
        Conn::Http1(conn) => conn.link.received() == received_before,
        // Other streams' bytes say nothing; without a head nothing of this one was seen.
        Conn::Http2(..) => true,
    };
    let harmless = job.repeatable && silent;
    match outcome {
        Some(Ok(response)) => match checked(response, job.upgrade) {
            Ok(response) => Ok(Arrived { response, conn, timer }),
            Err(cause) => Err(OriginError::new(ErrorKind::Garbage, &*server.name, cause)),
        },
        Some(Err(error)) => Err(failure(error, &server.name, job, harmless)),
        None => {
            let cause = format!("no response head within {limit:?}");
            let error = OriginError::new(ErrorKind::FirstByteTimeout, &*server.name, cause);
            Err(error.retry(harmless))
        }
    }
}

/// Waits for the head for `limit` after the request's last byte; `None` when that has passed.
async fn wait<F: Future>(
    sent: F,
    timer: &mut Timer,
    limit: Duration,
    progress: Option<&Progress>,
) -> Option<F::Output> {
    let mut sent = pin!(sent);
    timer.start(Instant::now() + limit);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = sent.as_mut().poll(cx) {
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
fn failure(
    mut error: TrySendError<Request<Outgoing>>,
    server: &str,
    job: &mut Job,
    harmless: bool,
) -> OriginError {
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
    let kind = if error.is_user() {
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
    let safe = (harmless && kind == ErrorKind::ClosedEarly) || unprocessed;
    OriginError::new(kind, server, error).retry(safe && job.is_whole())
}

/// Refuses what cannot be passed on truthfully and leaves one statement of the length.
fn checked(
    mut response: Response<Incoming>,
    upgrade: bool,
) -> Result<Response<Incoming>, &'static str> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && !upgrade {
        return Err("101 Switching Protocols without having been asked");
    }
    let known_length = response.body().size_hint().exact();
    let has_body = !response.body().is_end_stream();
    let headers = response.headers_mut();
    if headers.contains_key(TRANSFER_ENCODING) {
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let first = codings.next().map_or(&b""[..], HeaderValue::as_bytes);
        // We never ask for others, so the body would reach the client still encoded.
        if has_body && (!first.eq_ignore_ascii_case(b"chunked") || codings.next().is_some()) {
            return Err("a transfer coding other than chunked");
        }
        // RFC 9112, section 6.3: Transfer-Encoding overrides Content-Length, which goes.
        headers.remove(CONTENT_LENGTH);
    } else if has_body && let Some(length) = known_length {
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        let first = lengths.next().map_or(&b""[..], HeaderValue::as_bytes);
        if lengths.next().is_some() || first.contains(&b',') {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
    }
    Ok(response)
}

/// Joins the head with a body that gives the connection back at its end.
fn accept(
    slot: Slot,
    worker: usize,
    response: Response<Incoming>,
    is_head: bool,
    conn: Conn,
    timer: Timer,
) -> Response<ResponseBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if let Conn::Http1(conn) = conn {
            Http1::detach(conn);
        }
        let (mut parts, body) = response.into_parts();
        parts.extensions.insert(Tunnel::new(slot));
        return Response::from_parts(parts, ResponseBody::unowned(body));
    }
    // RFC 9110, section 8.6: here Content-Length speaks of the body that is not sent.
    let bodiless = is_head || response.status() == StatusCode::NOT_MODIFIED;
    let lease = Lease { slot, worker, conn };
    response.map(|body| ResponseBody::new(body, bodiless, lease, timer))
}
