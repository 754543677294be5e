//! One HTTP/1.1 connection to a server, driven by whoever waits for its response: no task, no
//! channel, and nothing is read before it is asked for. hyper's client needs all three, and a
//! request through it cost twice the instructions (BENCHMARKS.md).
//!
//! A request is written by `send`, its response read by `head` and `receive`; both go on at once,
//! whichever of the two is polled. `relay` goes on with both while nobody may be polling.

mod head;
mod receive;
mod relay;
mod send;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use self::head::Head;
use self::receive::Body;
use self::send::Sending;
use super::limits::{HEAD_READ_SIZE, HEAD_SIZE_MAX, LAST_READ_SIZE_MAX, READ_SIZE_MAX};
use super::peer::Peer;
use super::stream::{Open, Stream};
use super::timer::Timer;
use crate::error::{BoxError, ErrorKind};

pub(super) use self::relay::Relay;
pub(super) use self::send::{Framing, Outbound, write_field};

/// A connection. Dropping it closes it, whatever is on it; that is how unfinished exchanges end.
pub(super) struct Http1 {
    stream: Stream,
    open: Open,
    /// Received and not yet used; without memory of its own while the connection is idle.
    received: BytesMut,
    sending: Sending,
    expected: Expected,
    body: Body,
    /// May carry another request, as far as is known.
    reusable: bool,
    /// Nothing of the response has come.
    silent: bool,
    pub(super) timer: Timer,
    pub(super) peer: Arc<Peer>,
}

/// What the request says about its response.
#[derive(Clone, Copy, Default)]
struct Expected {
    /// It has no body, whatever its fields say.
    is_head: bool,
    /// It may be a 101.
    upgrade: bool,
}

/// What went wrong on a connection.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) cause: BoxError,
}

impl Failure {
    fn new(kind: ErrorKind, cause: impl Into<BoxError>) -> Self {
        Failure { kind, cause: cause.into() }
    }
}

impl Http1 {
    pub(super) fn new(stream: Stream, open: Open) -> Self {
        Http1 {
            peer: Arc::new(Peer::of(&stream)),
            stream,
            open,
            received: BytesMut::new(),
            sending: Sending::default(),
            expected: Expected::default(),
            body: Body::Done,
            reusable: true,
            silent: true,
            timer: Timer::default(),
        }
    }

    /// Puts a request on an idle connection. It is sent while the response is waited for.
    pub(super) fn begin(&mut self, request: Outbound) {
        self.expected = Expected { is_head: request.is_head, upgrade: request.upgrade };
        self.reusable = !request.close;
        self.silent = true;
        self.sending = Sending::new(request);
    }

    /// Whether no byte of the response has come.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether the whole request has been sent, or never will be.
    pub(super) fn has_sent(&self) -> bool {
        self.sending.is_done()
    }

    /// Whether some of the request's body has not been taken from whoever sends it.
    pub(super) fn is_streaming(&self) -> bool {
        self.sending.is_streaming()
    }

    /// The length of what is still to come of the body, if it is known.
    pub(super) fn body_left(&self) -> Option<u64> {
        self.body.left()
    }

    /// Whether the response is over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.body, Body::Done)
    }

    /// Whether an exchange that is over leaves the connection fit for another one. What its server
    /// sends from now on wakes `listener`, and makes it unfit.
    pub(super) fn is_fit(&mut self, listener: &Waker) -> bool {
        if !self.reusable || !self.has_sent() || !self.is_done() || !self.received.is_empty() {
            return false;
        }
        self.received = BytesMut::new();
        self.poll_stir(&mut Context::from_waker(listener)).is_pending()
    }

    /// Waits for what must not come behind a response: an end, an error or a byte.
    fn poll_stir(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [0];
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)).map(drop)
    }

    /// Sends what is left of the request behind a response that is over; `false` if that has no
    /// use.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.poll_send(cx).is_err() || !self.reusable || !self.received.is_empty() {
            return Poll::Ready(false);
        }
        if self.has_sent() {
            return Poll::Ready(true);
        }
        self.poll_stir(cx).map(|()| false)
    }

    /// Sends what is left of the request, as far as that is possible now.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.sending.is_done() {
            return Ok(());
        }
        match self.sending.poll(&mut self.stream, cx) {
            Poll::Ready(Err(failure)) if failure.kind == ErrorKind::RequestBody => Err(failure),
            // A server that has refused a request may have closed its side for writing only: what
            // it said is still to be read.
            Poll::Ready(Err(_)) => {
                self.reusable = false;
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Waits for the head of the response, passing over 1xx responses except 101. `table` gives an
    /// empty table for its fields.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        mut table: impl FnMut() -> HeaderMap,
    ) -> Poll<Result<Response<()>, Failure>> {
        loop {
            self.poll_send(cx)?;
            if !self.received.is_empty() {
                match head::head(&mut self.received, self.expected, &mut table)? {
                    Some(Head { response, body, reusable }) => {
                        self.body = body;
                        self.reusable &= reusable;
                        let status = response.status();
                        if !status.is_informational() || status.as_u16() == 101 {
                            return Poll::Ready(Ok(response));
                        }
                        // However many come, they end with the first-byte timeout.
                        continue;
                    }
                    None if self.received.len() >= HEAD_SIZE_MAX => {
                        let cause = format!("a response head above {HEAD_SIZE_MAX} bytes");
                        return Poll::Ready(Err(Failure::new(ErrorKind::Garbage, cause)));
                    }
                    None => {}
                }
            }
            let early = |cause: BoxError| Failure::new(ErrorKind::ClosedEarly, cause);
            match ready!(self.poll_read(cx, HEAD_READ_SIZE)) {
                Ok(0) => {
                    let cause = "the connection ended before the response head was complete";
                    return Poll::Ready(Err(early(cause.into())));
                }
                Ok(_) => self.silent = false,
                Err(error) => return Poll::Ready(Err(early(error.into()))),
            }
        }
    }

    /// Waits for the next piece of the body; `None` at its end.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if let Err(failure) = self.poll_send(cx) {
            return Poll::Ready(Some(Err(failure)));
        }
        loop {
            let wanted = match self.body.take(&mut self.received) {
                Ok(receive::Piece::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(receive::Piece::End) => return Poll::Ready(None),
                Ok(receive::Piece::Wanted(count)) if count <= LAST_READ_SIZE_MAX => count,
                Ok(receive::Piece::Wanted(_)) => READ_SIZE_MAX,
                Err(failure) => return Poll::Ready(Some(Err(failure))),
            };
            match ready!(self.poll_read(cx, wanted)) {
                Ok(0) if matches!(self.body, Body::UntilClose) => {
                    self.body = Body::Done;
                    return Poll::Ready(None);
                }
                Ok(0) => {
                    let cause = "the connection ended before the body was complete";
                    let failure = Failure::new(ErrorKind::Truncated, cause);
                    return Poll::Ready(Some(Err(failure)));
                }
                Ok(_) => {}
                Err(error) => {
                    let kind = match error.kind() {
                        io::ErrorKind::InvalidData => ErrorKind::Garbage,
                        _ => ErrorKind::Truncated,
                    };
                    return Poll::Ready(Some(Err(Failure::new(kind, error))));
                }
            }
        }
    }

    /// Reads up to `count` bytes behind those received. Memory is taken when there are any.
    fn poll_read(&mut self, cx: &mut Context<'_>, count: usize) -> Poll<io::Result<usize>> {
        match self.received.capacity() {
            0 => self.received = BytesMut::with_capacity(count),
            _ => self.received.reserve(count),
        }
        pin!(self.stream.read_buf(&mut self.received)).poll(cx)
    }

    /// The connection after a 101, for whatever follows.
    pub(super) fn into_tunnel(self) -> TunnelStream {
        TunnelStream { stream: self.stream, received: self.received.freeze(), _open: self.open }
    }
}

/// A connection that has changed its protocol.
pub struct TunnelStream {
    stream: Stream,
    /// What came behind the head.
    received: Bytes,
    _open: Open,
}

impl std::fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelStream").finish_non_exhaustive()
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.received.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let count = self.received.len().min(buf.remaining());
        buf.put_slice(&self.received.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
