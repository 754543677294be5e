//! The body of a request on its way to a server, and what its progress says about timeouts.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::error::BoxError;

/// A request body. `Empty` and `Full` can be sent again; the others are streamed as the server
/// takes them, with back-pressure, and trailers pass.
pub enum RequestBody {
    /// No body.
    Empty,
    /// A body that is in memory.
    Full(Bytes),
    /// A client's body as hyper receives it.
    Incoming(Incoming),
    /// Any other body, for example a client's with limits around it.
    Boxed(Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl RequestBody {
    /// A body of any type.
    pub fn boxed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        RequestBody::Boxed(Box::pin(body))
    }

    /// A second copy, if the body can be sent twice.
    pub(super) fn duplicate(&self) -> Option<RequestBody> {
        match self {
            RequestBody::Empty => Some(RequestBody::Empty),
            RequestBody::Full(bytes) => Some(RequestBody::Full(bytes.clone())),
            RequestBody::Incoming(_) | RequestBody::Boxed(_) => None,
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestBody::Empty => "Empty",
            RequestBody::Full(_) => "Full",
            RequestBody::Incoming(_) => "Incoming",
            RequestBody::Boxed(_) => "Boxed",
        })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match this {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = RequestBody::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            RequestBody::Incoming(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|f| f.map_err(BoxError::from)))
            }
            RequestBody::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Full(bytes) => bytes.is_empty(),
            RequestBody::Incoming(body) => body.is_end_stream(),
            RequestBody::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            RequestBody::Incoming(body) => body.size_hint(),
            RequestBody::Boxed(body) => body.size_hint(),
        }
    }
}

/// How far a streamed body has come. The first-byte timeout runs from the request's last byte, so
/// it must not run while the body still moves, nor while it is the client that is slow.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    /// Milliseconds from `started` to the last frame that the connection took.
    moved_ms: AtomicU64,
    /// The connection wants more and the client has not sent it.
    starved: AtomicBool,
}

impl Progress {
    pub(super) fn new(started: Instant) -> Self {
        Progress { started, moved_ms: AtomicU64::new(0), starved: AtomicBool::new(false) }
    }

    /// When the first-byte timeout ends as things stand at `now`.
    pub(super) fn deadline(&self, now: Instant, limit: Duration) -> Instant {
        if self.starved.load(Relaxed) {
            return now + limit;
        }
        self.started + Duration::from_millis(self.moved_ms.load(Relaxed)) + limit
    }

    fn moved(&self) {
        let elapsed_ms = self.started.elapsed().as_millis() as u64;
        self.moved_ms.store(elapsed_ms, Relaxed);
        self.starved.store(false, Relaxed);
    }
}

/// The body that is sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) body: RequestBody,
    /// Only for bodies that are streamed.
    pub(super) progress: Option<Arc<Progress>>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Some(progress) = &self.progress else { return polled };
        if polled.is_pending() {
            progress.starved.store(true, Relaxed);
        }
        let frame = ready!(polled);
        progress.moved();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
