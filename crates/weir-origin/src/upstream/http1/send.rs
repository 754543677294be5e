//! A request on its way out: head and body as they are framed, one piece of the body at a time.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName};
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::super::request::Outgoing;
use super::super::stream::Stream;
use super::Failure;
use crate::error::ErrorKind;

/// A request in the form of HTTP/1.1.
pub(in super::super) struct Outbound {
    /// Request line and fields.
    pub(in super::super) head: Vec<u8>,
    pub(in super::super) body: Outgoing,
    pub(in super::super) framing: Framing,
    pub(in super::super) is_head: bool,
    pub(in super::super) upgrade: bool,
    /// It says that the connection closes behind it.
    pub(in super::super) close: bool,
}

/// How the end of the body is told.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Framing {
    /// Bytes still to be sent.
    Length(u64),
    Chunked,
}

/// What is left of a request. Written in the order of the fields.
#[derive(Default)]
pub(super) struct Sending {
    /// The head, the size of a chunk, or trailers.
    front: Vec<u8>,
    /// Bytes of `front` that are written.
    front_written: usize,
    data: Bytes,
    /// What ends a chunk.
    back: &'static [u8],
    /// Absent once it has ended.
    body: Option<(Outgoing, Framing)>,
    /// Bytes may lie in TLS's buffer.
    unflushed: bool,
}

impl Sending {
    pub(super) fn new(request: Outbound) -> Self {
        let ended = matches!(request.framing, Framing::Length(0)) && request.body.is_end_stream();
        Sending {
            front: request.head,
            body: (!ended).then_some((request.body, request.framing)),
            ..Sending::default()
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.body.is_none() && self.is_written() && !self.unflushed
    }

    /// Whether some of the body has not been taken from whoever sends it.
    pub(super) fn is_streaming(&self) -> bool {
        self.body.as_ref().is_some_and(|(body, _)| body.progress.is_some())
    }

    fn is_written(&self) -> bool {
        self.front_written == self.front.len() && self.data.is_empty() && self.back.is_empty()
    }

    /// Sends until all is sent or the server takes no more, or the body has no more to give.
    /// After an error nothing is left to be sent.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let polled = self.poll_all(stream, cx);
        if let Poll::Ready(Err(_)) = &polled {
            *self = Sending::default();
        }
        polled
    }

    fn poll_all(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            // A first piece that is at hand goes out with the head.
            let waiting =
                self.data.is_empty() && self.back.is_empty() && self.poll_frame(cx)?.is_pending();
            while !self.is_written() {
                ready!(self.poll_write(stream, cx)).map_err(closed)?;
            }
            if self.unflushed && (waiting || self.body.is_none()) {
                ready!(Pin::new(&mut *stream).poll_flush(cx)).map_err(closed)?;
                self.unflushed = false;
            }
            if waiting {
                return Poll::Pending;
            }
            if self.body.is_none() && self.is_written() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next piece of the body, if there is to be one.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        let Some((body, framing)) = &mut self.body else { return Ok(Poll::Ready(())) };
        let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) else {
            return Ok(Poll::Pending);
        };
        let is_end = body.is_end_stream();
        let failed = |cause| Failure { kind: ErrorKind::RequestBody, cause };
        let frame = frame.transpose().map_err(failed)?;
        if self.front_written == self.front.len() {
            self.front.clear();
            self.front_written = 0;
        }
        match (framing, frame.map(Frame::into_data)) {
            (Framing::Length(left), Some(Ok(data))) => {
                let Some(rest) = left.checked_sub(data.len() as u64) else {
                    return Err(failed("the body is longer than it was said to be".into()));
                };
                *left = rest;
                self.data = data;
                if rest == 0 && is_end {
                    self.body = None;
                }
            }
            (Framing::Length(0), None) => self.body = None,
            (Framing::Length(_), None) => {
                return Err(failed("the body is shorter than it was said to be".into()));
            }
            (Framing::Chunked, Some(Ok(data))) => {
                if !data.is_empty() {
                    // Writing to a Vec does not fail.
                    let _ = write!(self.front, "{:X}\r\n", data.len());
                    self.data = data;
                    self.back = if is_end { b"\r\n0\r\n\r\n" } else { b"\r\n" };
                } else if is_end {
                    self.back = b"0\r\n\r\n";
                }
                if is_end {
                    self.body = None;
                }
            }
            (Framing::Chunked, Some(Err(frame))) => {
                self.front.extend_from_slice(b"0\r\n");
                if let Ok(trailers) = frame.into_trailers() {
                    write_trailers(&mut self.front, &trailers);
                }
                self.back = b"\r\n";
                self.body = None;
            }
            (Framing::Chunked, None) => {
                self.back = b"0\r\n\r\n";
                self.body = None;
            }
            // A body of declared length has no place for trailers.
            (Framing::Length(_), Some(Err(_))) => {}
        }
        Ok(Poll::Ready(()))
    }

    fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let front = &self.front[self.front_written..];
        let slices = [IoSlice::new(front), IoSlice::new(&self.data), IoSlice::new(self.back)];
        let stream = Pin::new(stream);
        let written = match self.data.is_empty() && self.back.is_empty() {
            true => ready!(stream.poll_write(cx, front))?,
            false => ready!(stream.poll_write_vectored(cx, &slices))?,
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.unflushed = true;
        let of_front = written.min(front.len());
        self.front_written += of_front;
        let of_data = (written - of_front).min(self.data.len());
        let _ = self.data.split_to(of_data);
        self.back = &self.back[written - of_front - of_data..];
        Poll::Ready(Ok(()))
    }
}

fn closed(error: io::Error) -> Failure {
    Failure::new(ErrorKind::ClosedEarly, error)
}

/// Writes the fields that may be trailers (RFC 9110, section 6.5.1): none that frames or routes
/// the request, or says who asks.
fn write_trailers(out: &mut Vec<u8>, trailers: &HeaderMap) {
    for (name, value) in trailers {
        if !FORBIDDEN_TRAILERS.contains(name) {
            write_field(out, name, value.as_bytes());
        }
    }
}

static FORBIDDEN_TRAILERS: [HeaderName; 14] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Writes a field line.
pub(in super::super) fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
