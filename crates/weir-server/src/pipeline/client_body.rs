//! A client's request body on its way to an origin: limited in size, watched for standing still
//! and for coming too slowly while a place at an upstream is held for it, and remembered if it was
//! not read to its end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};
use weir_net::Socket;

use super::pace::Pace;
use crate::body::BodyError;
use crate::live::Route;

/// The body went beyond the route's limit.
#[derive(Debug, thiserror::Error)]
#[error("request body larger than the route's limit of {limit_bytes} bytes")]
pub(super) struct TooLarge {
    limit_bytes: u64,
}

/// The body came too slowly while an upstream waited for it.
#[derive(Debug, thiserror::Error)]
#[error("request body slower than the route's minimum of {min_rate} bytes a second")]
pub(super) struct TooSlow {
    min_rate: u64,
}

/// The body was given up by its client (RFC 9113 §8.1).
#[derive(Debug, thiserror::Error)]
#[error("request body cut short: its stream was reset")]
struct CutShort;

/// Tells, after the body is gone into a request, whether it was Weir that ended it.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict(Arc<Fate>);

#[derive(Debug, Default)]
struct Fate {
    is_too_large: AtomicBool,
    is_too_slow: AtomicBool,
    /// A place at an upstream is held for the request.
    is_held_for: AtomicBool,
}

impl Verdict {
    pub(super) fn is_too_large(&self) -> bool {
        self.0.is_too_large.load(Relaxed)
    }

    pub(super) fn is_too_slow(&self) -> bool {
        self.0.is_too_slow.load(Relaxed)
    }

    /// Whether whoever asks for the body holds a place at an upstream meanwhile.
    pub(super) fn set_held_for(&self, is_held_for: bool) {
        self.0.is_held_for.store(is_held_for, Relaxed);
    }
}

/// The body, with its limits.
pub(super) struct ClientBody {
    incoming: Incoming,
    socket: Arc<Socket>,
    limit_bytes: u64,
    left_bytes: u64,
    pace: Option<Pace>,
    /// Made when the client is waited for.
    timer: Option<Pin<Box<Sleep>>>,
    verdict: Verdict,
}

impl ClientBody {
    pub(super) fn new(
        incoming: Incoming,
        socket: &Arc<Socket>,
        route: &Route,
    ) -> (ClientBody, Verdict) {
        let verdict = Verdict::default();
        let body = ClientBody {
            incoming,
            socket: Arc::clone(socket),
            limit_bytes: route.body_size_max,
            left_bytes: route.body_size_max,
            pace: Pace::new(route.body_min_rate),
            timer: None,
            verdict: verdict.clone(),
        };
        (body, verdict)
    }

    /// What watches its pace, as long as a place is held for it.
    fn pace(&mut self) -> Option<&mut Pace> {
        let is_held_for = self.verdict.0.is_held_for.load(Relaxed);
        self.pace.as_mut().filter(|_| is_held_for)
    }

    /// The client sends nothing at the moment. Ready with an error when that has been so for too
    /// long.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let Some(pace) = self.pace() else { return Poll::Pending };
        let (end, min_rate) = (pace.wait(Instant::now()), pace.min_rate());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if timer.deadline() != end {
            timer.as_mut().reset(end);
        }
        ready!(timer.as_mut().poll(cx));
        self.verdict.0.is_too_slow.store(true, Relaxed);
        Poll::Ready(TooSlow { min_rate }.into())
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        self.socket.await_body(polled.is_pending());
        let Poll::Ready(frame) = polled else {
            return self.poll_pace(cx).map(|error| Some(Err(error)));
        };
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let len = data.len() as u64;
            if len > self.left_bytes {
                self.verdict.0.is_too_large.store(true, Relaxed);
                let error = TooLarge { limit_bytes: self.limit_bytes };
                return Poll::Ready(Some(Err(error.into())));
            }
            self.left_bytes -= len;
            if let Some(pace) = self.pace() {
                pace.moved(Instant::now(), data.len());
            }
        }
        if frame.is_none() && self.socket.is_multiplexed() && !self.incoming.is_end_stream() {
            // hyper takes a reset with NO_ERROR for the end.
            return Poll::Ready(Some(Err(CutShort.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        self.socket.await_body(false);
        if !self.incoming.is_end_stream() {
            self.socket.set_body_left();
        }
    }
}
