//! A client's request body on its way to an origin: limited in size, watched for standing still,
//! and remembered if it was not read to its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use weir_net::Socket;

use crate::body::BodyError;

/// The body went beyond the route's limit.
#[derive(Debug, thiserror::Error)]
#[error("request body larger than the route's limit of {limit_bytes} bytes")]
pub(super) struct TooLarge {
    limit_bytes: u64,
}

/// Tells, after the body is gone into a request, whether its limit was what ended it.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict(Arc<AtomicBool>);

impl Verdict {
    pub(super) fn is_too_large(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The body, with its limit.
pub(super) struct ClientBody {
    incoming: Incoming,
    socket: Arc<Socket>,
    limit_bytes: u64,
    left_bytes: u64,
    verdict: Verdict,
}

impl ClientBody {
    pub(super) fn new(
        incoming: Incoming,
        socket: &Arc<Socket>,
        limit_bytes: u64,
    ) -> (ClientBody, Verdict) {
        let verdict = Verdict::default();
        let body = ClientBody {
            incoming,
            socket: Arc::clone(socket),
            limit_bytes,
            left_bytes: limit_bytes,
            verdict: verdict.clone(),
        };
        (body, verdict)
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
        let frame = ready!(polled);
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let len = data.len() as u64;
            if len > self.left_bytes {
                self.verdict.0.store(true, Relaxed);
                let error = TooLarge { limit_bytes: self.limit_bytes };
                return Poll::Ready(Some(Err(error.into())));
            }
            self.left_bytes -= len;
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
