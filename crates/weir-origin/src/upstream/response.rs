//! The body of a response as it arrives: passes frames on, watches that the server does not stand
//! still, and gives the connection back at the end.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Slot;
use super::connect::{Http2, StreamPlace};
use super::http1::{Failure, Http1, Relay, TunnelStream};
use super::peer::Peer;
use super::timer::Timer;
use crate::error::{ErrorKind, OriginError};

/// A response body from an upstream server. Dropped before its end, it closes the connection
/// (HTTP/1.1) or resets the stream (HTTP/2). An error means that the body is not complete, even if
/// all bytes of it that came were passed on.
#[derive(Debug)]
pub struct ResponseBody {
    source: Source,
    /// Its Content-Length is not that of this body.
    bodiless: bool,
    /// Present until the end.
    lease: Option<Lease>,
    timer: Timer,
    /// The timer runs: the last poll had to wait.
    waiting: bool,
    /// What was read of it before it was its turn.
    ahead: Option<Result<Frame<Bytes>, OriginError>>,
    /// Who sends it.
    peer: Option<Arc<Peer>>,
    /// Where its end is noted.
    end: Option<Arc<OnceLock<std::time::Instant>>>,
}

/// Where the frames come from.
pub(super) enum Source {
    /// The connection comes back at the end.
    Http1(Box<Http1>),
    Relay(Relay),
    Http2 {
        incoming: Incoming,
        conn: Http2,
        _place: StreamPlace,
    },
    /// Made of an upstream's, or of nothing, on the way.
    Made(MadeBody),
    /// All have come.
    Ended,
}

/// A body that did not come from an upstream as it is.
pub type MadeBody = http_body_util::combinators::UnsyncBoxBody<Bytes, crate::error::BoxError>;

/// What an unfinished response holds.
pub(super) struct Lease {
    pub(super) slot: Slot,
    pub(super) worker: usize,
}

/// Put into the extensions of a 101 response: counts the tunnel as a request in flight for as
/// long as a clone of it lives.
#[derive(Clone, Debug)]
pub struct Tunnel {
    _slot: Arc<Slot>,
    stream: Arc<Mutex<Option<TunnelStream>>>,
}

impl Tunnel {
    pub(super) fn new(slot: Slot, stream: TunnelStream) -> Self {
        Tunnel { _slot: Arc::new(slot), stream: Arc::new(Mutex::new(Some(stream))) }
    }

    /// The connection; `None` if somebody has it already.
    pub fn take(&self) -> Option<TunnelStream> {
        self.stream.lock().take()
    }
}

impl ResponseBody {
    pub(super) fn new(source: Source, bodiless: bool, lease: Lease, timer: Timer) -> Self {
        let mut body = ResponseBody { bodiless, lease: Some(lease), timer, ..source.into() };
        if body.has_ended() {
            body.finish();
        }
        body
    }

    /// A body without a connection of its own.
    pub(super) fn unowned(peer: Option<Arc<Peer>>) -> Self {
        ResponseBody { bodiless: true, peer, ..Source::Ended.into() }
    }

    /// A body that somebody made, from an upstream's or from nothing.
    pub fn made(body: MadeBody) -> Self {
        Source::Made(body).into()
    }

    /// The body of a response by this connection.
    pub(super) fn sent_by(mut self, peer: Option<Arc<Peer>>) -> Self {
        self.peer = peer;
        self
    }

    /// Whose response it is, unless somebody made it.
    pub fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// Waits for the beginning, which stays there to be read. Cancel safe.
    pub async fn begin(&mut self) {
        if self.ahead.is_none() {
            self.ahead = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
        }
    }

    /// What [`ResponseBody::begin`] has found; nothing for a body without content.
    pub fn beginning(&self) -> Bytes {
        let frame = self.ahead.as_ref().and_then(|ahead| ahead.as_ref().ok());
        frame.and_then(Frame::data_ref).cloned().unwrap_or_default()
    }

    /// Has the moment noted at which the body ends, complete or not.
    pub fn note_end(&mut self, end: Arc<OnceLock<std::time::Instant>>) {
        self.end = Some(end);
        if self.has_ended() {
            self.has_come();
        }
    }

    fn has_come(&mut self) {
        if let Some(end) = self.end.take() {
            // Nobody else sets it.
            let _ = end.set(std::time::Instant::now());
        }
    }

    fn has_ended(&self) -> bool {
        match &self.source {
            Source::Http1(conn) => conn.is_done(),
            Source::Relay(relay) => relay.left() == Some(0),
            Source::Http2 { incoming, .. } => incoming.is_end_stream(),
            Source::Made(body) => body.is_end_stream(),
            Source::Ended => true,
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        match &mut self.source {
            Source::Http1(conn) => conn.poll_body(cx),
            Source::Relay(relay) => relay.poll_body(cx),
            Source::Http2 { incoming, .. } => {
                let failed = |error| Failure { kind: body_failure(&error), cause: error.into() };
                Pin::new(incoming).poll_frame(cx).map(|frame| frame.map(|f| f.map_err(failed)))
            }
            Source::Made(body) => {
                let failed = |cause| Failure { kind: ErrorKind::Truncated, cause };
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|f| f.map_err(failed)))
            }
            Source::Ended => Poll::Ready(None),
        }
    }

    /// Whether a body that hyper says has ended has not. A stream that is reset with NO_ERROR is
    /// over for it, be it behind the end of a response or before (RFC 9113, section 8.1).
    fn is_cut_short(&self) -> bool {
        match &self.source {
            Source::Http2 { incoming, .. } => !self.bodiless && !incoming.is_end_stream(),
            _ => self.size_left().lower() > 0,
        }
    }

    /// Gives the connection back.
    fn finish(&mut self) {
        self.has_come();
        let source = std::mem::replace(&mut self.source, Source::Ended);
        let Some(Lease { slot, worker }) = self.lease.take() else { return };
        if let Source::Http1(mut conn) = source {
            conn.timer = std::mem::take(&mut self.timer);
            slot.group.put_back(worker, slot.server, conn);
        }
    }

    fn fail(&mut self, kind: ErrorKind, cause: impl Into<crate::error::BoxError>) -> OriginError {
        self.has_come();
        let Some(lease) = self.lease.take() else {
            return OriginError::new(kind, "made here", cause);
        };
        let group = &lease.slot.group;
        let error = OriginError::new(kind, &*group.servers[lease.slot.server].name, cause);
        group.failed(lease.worker, lease.slot.server, &error);
        error
    }

    /// Arms the timer when a wait begins; ready when the wait has been too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<OriginError> {
        let Some(lease) = &self.lease else { return Poll::Pending };
        let limit = lease.slot.group.config.idle_timeout;
        if !std::mem::replace(&mut self.waiting, true) {
            self.timer.start(Instant::now() + limit);
        }
        match self.timer.poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let cause = format!("nothing received for {limit:?}");
                Poll::Ready(self.fail(ErrorKind::IdleTimeout, cause))
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let this = self.get_mut();
        if let Some(frame) = this.ahead.take() {
            return Poll::Ready(Some(frame));
        }
        match this.poll_source(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.waiting = false;
                if this.has_ended() {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                if this.lease.is_some() && this.is_cut_short() {
                    let cause = "the stream was reset before the body's end";
                    return Poll::Ready(Some(Err(this.fail(ErrorKind::Truncated, cause))));
                }
                this.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(Failure { kind, cause }))) => {
                Poll::Ready(Some(Err(this.fail(kind, cause))))
            }
            Poll::Pending => this.poll_idle(cx).map(|error| Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, ahead) = (self.size_left(), self.beginning().len() as u64);
        let (least, most) = (hint.lower() + ahead, hint.upper().map(|most| most + ahead));
        // The upper bound first: it may not be below the other.
        if let Some(most) = most {
            hint.set_upper(most);
        }
        hint.set_lower(least);
        hint
    }
}

impl ResponseBody {
    /// What its source is still to send.
    fn size_left(&self) -> SizeHint {
        if self.bodiless {
            return SizeHint::with_exact(0);
        }
        match &self.source {
            Source::Http1(conn) => {
                conn.body_left().map_or_else(SizeHint::new, SizeHint::with_exact)
            }
            Source::Relay(relay) => relay.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Source::Http2 { incoming, .. } => incoming.size_hint(),
            Source::Made(body) => body.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}

impl From<Source> for ResponseBody {
    fn from(source: Source) -> ResponseBody {
        let (bodiless, lease, timer, waiting) = (false, None, Timer::default(), false);
        let (ahead, peer, end) = (None, None, None);
        ResponseBody { source, bodiless, lease, timer, waiting, ahead, peer, end }
    }
}

impl Source {
    /// Who sends it.
    pub(super) fn peer(&self) -> Option<Arc<Peer>> {
        match self {
            Source::Http1(conn) => Some(Arc::clone(&conn.peer)),
            Source::Http2 { conn, .. } => Some(Arc::clone(&conn.peer)),
            Source::Relay(_) | Source::Made(_) | Source::Ended => None,
        }
    }
}

/// Bytes that break the framing are garbage; anything else cut the body short.
fn body_failure(error: &hyper::Error) -> ErrorKind {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind::{InvalidData, InvalidInput};
            if matches!(io.kind(), InvalidData | InvalidInput) {
                return ErrorKind::Garbage;
            }
        }
        source = inner.source();
    }
    if error.is_parse() { ErrorKind::Garbage } else { ErrorKind::Truncated }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Http1(_) => "Http1",
            Source::Relay(_) => "Relay",
            Source::Http2 { .. } => "Http2",
            Source::Made(_) => "Made",
            Source::Ended => "Ended",
        })
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.slot).finish_non_exhaustive()
    }
}
