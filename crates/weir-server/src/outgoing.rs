//! A response on its way over HTTP/1.1, as the fast lane sends it: head, framing, body, trailers.
//! One piece of the body is held at a time, and the next is asked for when the socket has taken it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;
use tokio::io::AsyncWrite;
use weir_http::date::Ticker;
use weir_http::forward::may_be_trailer;
use weir_net::Stream;

use crate::body::ReplyBody;
use crate::shared::coarse_unix_ms;

/// Bytes set aside for a head; most need half of it.
pub(crate) const HEAD_BYTES: usize = 768;

/// Bytes of a body that are sent before it is asked whether the client takes them: what every send
/// buffer holds with the piece that follows. A client with a small window was seen to take 35 KB.
const UNCHECKED_BYTES: u64 = 16 << 10;

/// A piece below this size is worth another look at the body before it is sent.
const SMALL_PIECE_BYTES: usize = 16 << 10;

/// A body of which no more than this is left may come in one piece, whoever takes it.
const SHORT_REST_BYTES: u64 = 64 << 10;

/// Appends a field line.
pub(crate) fn write_field(to: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    to.extend_from_slice(name.as_str().as_bytes());
    to.extend_from_slice(b": ");
    to.extend_from_slice(value.as_bytes());
    to.extend_from_slice(b"\r\n");
}

/// Appends the Date field.
pub(crate) fn write_date(to: &mut Vec<u8>, now_ms: u64) {
    thread_local! {
        static DATE: RefCell<Option<Ticker>> = const { RefCell::new(None) };
    }
    DATE.with_borrow_mut(|date| {
        let now = UNIX_EPOCH + Duration::from_millis(now_ms);
        let ticker = date.get_or_insert_with(|| Ticker::new(now));
        write_field(to, &header::DATE, &ticker.at(now));
    });
}

/// How the end of the body is told (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// There is no body, whatever the head says.
    Empty,
    /// So many bytes are still to come.
    Length(u64),
    Chunked,
}

/// A response that is being sent.
pub(crate) struct Outgoing {
    body: ReplyBody,
    framing: Framing,
    /// Names that the head announced as trailers.
    announced: Vec<HeaderValue>,
    /// What is sent before `piece`: the head, a chunk's size.
    front: Vec<u8>,
    piece: Bytes,
    /// What came right behind a small piece of a body whose length is known.
    second: Bytes,
    /// What is sent after them: a chunk's end, trailers.
    back: Vec<u8>,
    /// Bytes of these four that the socket has taken.
    sent: usize,
    /// Bytes of the body that were taken from it.
    taken: u64,
    /// The connection ends with this response.
    last: bool,
    ended: bool,
}

impl Outgoing {
    /// Prepares a response to GET, or to HEAD if `is_head`. If `last`, it says that it is the
    /// connection's last; it may do so by itself.
    pub(crate) fn new(response: Response<ReplyBody>, is_head: bool, last: bool) -> Outgoing {
        let (parts, body) = response.into_parts();
        let mut front = Vec::with_capacity(HEAD_BYTES);
        write_status(&mut front, parts.status);
        let declared = parts.headers.get(header::CONTENT_LENGTH).and_then(parse_length);
        let mut says_close = false;
        for (name, value) in &parts.headers {
            if *name == header::TRANSFER_ENCODING
                || *name == header::CONTENT_LENGTH && declared.is_none()
            {
                continue;
            }
            says_close |= *name == header::CONNECTION && value.as_bytes() == b"close";
            write_field(&mut front, name, value);
        }
        if last && !says_close {
            front.extend_from_slice(b"connection: close\r\n");
        }
        let bodyless = is_head || matches!(parts.status.as_u16(), 100..=199 | 204 | 304);
        let framing = match (bodyless, declared, body.size_hint().exact()) {
            (true, _, _) => Framing::Empty,
            (false, Some(length), _) => Framing::Length(length),
            (false, None, Some(length)) => {
                write_field(&mut front, &header::CONTENT_LENGTH, &HeaderValue::from(length));
                Framing::Length(length)
            }
            (false, None, None) => {
                front.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Framing::Chunked
            }
        };
        if !parts.headers.contains_key(header::DATE) {
            write_date(&mut front, coarse_unix_ms());
        }
        front.extend_from_slice(b"\r\n");
        Outgoing {
            body,
            framing,
            announced: parts.headers.get_all(header::TRAILER).iter().cloned().collect(),
            front,
            piece: Bytes::new(),
            second: Bytes::new(),
            back: Vec::new(),
            sent: 0,
            taken: 0,
            last: last || says_close,
            ended: matches!(framing, Framing::Empty | Framing::Length(0)),
        }
    }

    /// Sends all of it, and stops when the client goes. Tells whether the connection ends with it.
    ///
    /// # Errors
    /// What the socket says, or the body's own failure: the client must not take what it has for
    /// the whole.
    pub(crate) async fn send(mut self, stream: &mut Stream) -> io::Result<bool> {
        poll_fn(|cx| self.poll_send(stream, cx)).await?;
        Ok(self.last)
    }

    fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let waits =
                !self.ended && self.piece.is_empty() && self.poll_next(stream, cx)?.is_pending();
            if self.has_room_for_second() {
                // Pending or not: what is at hand goes now.
                let _ = self.poll_piece(cx)?;
            }
            if self.sent < self.staged() {
                ready!(self.poll_write(stream, cx))?;
            } else if self.ended {
                return Poll::Ready(Ok(()));
            }
            if waits {
                return stream.poll_ahead(cx).map(Err);
            }
        }
    }

    fn staged(&self) -> usize {
        self.front.len() + self.piece.len() + self.second.len() + self.back.len()
    }

    /// Whether another piece that is at hand should go along: an origin's head often brings the
    /// first bytes of a body that lies ready.
    fn has_room_for_second(&self) -> bool {
        let is_small = (1..SMALL_PIECE_BYTES).contains(&self.piece.len());
        let is_short = matches!(self.framing, Framing::Length(1..=SHORT_REST_BYTES));
        is_small && is_short && self.sent == 0 && self.second.is_empty()
    }

    /// Takes the next piece of the body, when the client has taken most of those before.
    fn poll_next(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.taken >= UNCHECKED_BYTES && !self.body.is_at_hand() {
            ready!(stream.poll_room(cx))?;
        }
        self.poll_piece(cx)
    }

    /// Takes the next piece of the body.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => self.end(None)?,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => self.take(data)?,
                Err(frame) => self.end(frame.into_trailers().ok())?,
            },
            Some(Err(cause)) => return Poll::Ready(Err(io::Error::other(cause))),
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::Empty => return Ok(()),
            Framing::Length(left) => {
                let rest = left.checked_sub(data.len() as u64);
                *left = rest.ok_or_else(|| io::Error::other("body longer than declared"))?;
                self.ended = *left == 0;
            }
            Framing::Chunked => {
                // Writing to memory does not fail.
                let _ = write!(self.front, "{:x}\r\n", data.len());
                self.back.extend_from_slice(b"\r\n");
            }
        }
        self.taken += data.len() as u64;
        let place = if self.piece.is_empty() { &mut self.piece } else { &mut self.second };
        *place = data;
        if self.framing == Framing::Chunked && self.body.is_end_stream() {
            self.end(None)?;
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> io::Result<()> {
        match self.framing {
            Framing::Length(1..) => return Err(io::Error::other("body shorter than declared")),
            Framing::Empty | Framing::Length(0) => {}
            Framing::Chunked => {
                self.back.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.iter().flatten() {
                    if may_be_trailer(name) && announces(&self.announced, name) {
                        write_field(&mut self.back, name, value);
                    }
                }
                self.back.extend_from_slice(b"\r\n");
            }
        }
        self.ended = true;
        Ok(())
    }
}

impl Outgoing {
    fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.staged() {
            let mut slices = [IoSlice::new(&[]); 4];
            let pieces = [&self.front[..], &self.piece, &self.second, &self.back];
            let count = fill(&mut slices, pieces.into_iter(), self.sent);
            self.sent += ready!(poll_write_some(stream, &slices[..count], cx))?;
        }
        self.front.clear();
        self.piece = Bytes::new();
        self.second = Bytes::new();
        self.back.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

/// Whether Trailer fields name a field (RFC 9110 §6.6.2); trailers that they do not are not sent.
fn announces(trailer: &[HeaderValue], name: &HeaderName) -> bool {
    let names = trailer.iter().flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    let mut names = names.map(<[u8]>::trim_ascii);
    names.any(|announced| announced.eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// Writes what the socket takes.
///
/// # Errors
/// What the socket says.
pub(crate) fn poll_write_some(
    stream: &mut Stream,
    slices: &[IoSlice<'_>],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let written = ready!(Pin::new(stream).poll_write_vectored(cx, slices))?;
    if written == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    Poll::Ready(Ok(written))
}

/// Fills `slices` with what follows the first `skip` bytes of `pieces`; returns how many it took.
pub(crate) fn fill<'a>(
    slices: &mut [IoSlice<'a>],
    pieces: impl Iterator<Item = &'a [u8]>,
    mut skip: usize,
) -> usize {
    let mut count = 0;
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        if count == slices.len() {
            break;
        }
        slices[count] = IoSlice::new(&piece[skip..]);
        count += 1;
        skip = 0;
    }
    count
}

fn write_status(head: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        return head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    // As hyper words statuses that nobody has named.
    head.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// A length in plain digits (RFC 9110 §8.6).
fn parse_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.to_str().ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
