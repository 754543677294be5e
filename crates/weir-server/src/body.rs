//! The body of a response, whatever its source, and the record that is completed when it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use http_body::{Body, Frame, SizeHint};
use weir_cache::{FillReader, Object};
use weir_origin::files::FileStream;
use weir_origin::upstream::ResponseBody;

use crate::pipeline::Coded;
use crate::record::Record;

/// Bytes given to hyper at once. It takes the next only when most of the last is written, so that a
/// record says what a client took, give or take this much and the socket's buffer.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Any failure under a body. It tears the response down: a client must never take half a body for
/// a whole one.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A response body.
pub(crate) struct ReplyBody {
    content: Content,
    record: Option<Record>,
}

/// Where the bytes come from.
pub(crate) enum Content {
    /// No bytes.
    Empty,
    /// One piece that is at hand.
    One(Bytes),
    /// Several pieces that are at hand, `left` bytes in all.
    Pieces {
        /// What is still to be sent.
        pieces: std::vec::IntoIter<Bytes>,
        /// Its length.
        left: u64,
    },
    /// A fill in progress, read while it is written.
    Fill(Box<FillPart>),
    /// A file too large to store.
    File(Box<FileStream>),
    /// An origin's response as it arrives.
    Upstream(Box<ResponseBody>),
    /// What is adapted while it is sent.
    Coded(Box<Coded>),
    /// Breaks off at once; an HTTP/2 stream for this reason.
    Torn(Reason),
}

/// A fill, or the part of it that a range asks for.
pub(crate) struct FillPart {
    pub(crate) reader: FillReader,
    /// Bytes to pass over.
    pub(crate) skip: u64,
    /// Bytes to send after those; `None` if the length is not known.
    pub(crate) left: Option<u64>,
}

impl Content {
    /// The part `start..end` of a stored object's body.
    pub(crate) fn of_object(object: &Object, start: u64, end: u64) -> Content {
        let body = object.body();
        if let [chunk] = body.chunks() {
            // Both are at most the chunk's length, by the callers' arithmetic on it.
            return Content::One(chunk.slice(start as usize..end as usize));
        }
        let pieces: Vec<Bytes> = body.slices(start..end).collect();
        match pieces.len() {
            0 => Content::Empty,
            _ => Content::Pieces { pieces: pieces.into_iter(), left: end - start },
        }
    }

    /// The length, if it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Content::Empty => Some(0),
            Content::One(bytes) => Some(bytes.len() as u64),
            Content::Pieces { left, .. } => Some(*left),
            Content::Fill(part) => part.left,
            Content::File(stream) => Some(stream.remaining()),
            Content::Upstream(body) => body.size_hint().exact(),
            Content::Coded(body) => body.size_hint().exact(),
            Content::Torn(_) => None,
        }
    }
}

impl ReplyBody {
    /// A body whose end completes `record`.
    pub(crate) fn new(content: Content, record: Option<Record>) -> ReplyBody {
        let content = match content {
            Content::One(bytes) if bytes.is_empty() => Content::Empty,
            content => content,
        };
        let mut body = ReplyBody { content, record };
        // hyper does not ask for what has no bytes.
        let (ends, is_unbounded) = (body.is_end_stream(), body.content.len().is_none());
        match &mut body.record {
            Some(record) if ends => record.end(),
            Some(record) if is_unbounded => record.begin_unbounded(),
            _ => {}
        }
        body
    }

    /// Takes the account away, to be completed by another body.
    pub(crate) fn take_record(&mut self) -> Option<Record> {
        self.record.take()
    }

    /// What is left of it, without its account.
    pub(crate) fn into_content(self) -> Content {
        self.content
    }

    /// What was handed over did not reach the client to its end.
    pub(crate) fn cut_off(&mut self) {
        if let Some(record) = &mut self.record {
            record.complete = false;
        }
    }

    /// Whether it breaks off at once: there is to be no response.
    pub(crate) fn is_torn(&self) -> bool {
        matches!(self.content, Content::Torn(_))
    }

    /// Whether all that is left lies in memory anyway, so that nothing is gained by waiting for it.
    pub(crate) fn is_at_hand(&self) -> bool {
        !matches!(self.content, Content::File(_) | Content::Upstream(_) | Content::Coded(_))
    }

    /// Waits for a beginning that is being made, if there is one.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.content {
            Content::Coded(body) => body.poll_begin(cx),
            _ => Poll::Ready(()),
        }
    }

    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.content {
            Content::Empty => None,
            Content::One(bytes) if bytes.len() > FRAME_BYTES_MAX => {
                return Poll::Ready(Some(Ok(Frame::data(bytes.split_to(FRAME_BYTES_MAX)))));
            }
            Content::One(bytes) => Some(Ok(Frame::data(std::mem::take(bytes)))),
            Content::Pieces { pieces, left } => next_piece(pieces).map(|piece| {
                *left -= piece.len() as u64;
                Ok(Frame::data(piece))
            }),
            Content::Fill(part) => ready!(part.poll_frame(cx)),
            Content::File(stream) => ready!(Pin::new(stream.as_mut()).poll_frame(cx))
                .map(|frame| frame.map_err(BodyError::from)),
            Content::Upstream(body) => {
                ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(BodyError::from))
            }
            Content::Coded(body) => ready!(Pin::new(body).poll_frame(cx)),
            // hyper resets the stream with it.
            Content::Torn(reason) => Some(Err(h2::Error::from(*reason).into())),
        };
        if frame.is_none() || matches!(self.content, Content::One(_)) {
            self.content = Content::Empty;
        }
        Poll::Ready(frame)
    }
}

fn next_piece(pieces: &mut std::vec::IntoIter<Bytes>) -> Option<Bytes> {
    match pieces.as_mut_slice().first_mut() {
        Some(piece) if piece.len() > FRAME_BYTES_MAX => Some(piece.split_to(FRAME_BYTES_MAX)),
        _ => pieces.next(),
    }
}

impl FillPart {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.left == Some(0) && self.skip == 0 && !self.wants_trailers() {
                return Poll::Ready(None);
            }
            let mut chunk = match ready!(self.reader.poll_chunk(cx)) {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => {
                    // Handed out once; afterwards the content is `Empty`.
                    return Poll::Ready(self.reader.trailers().map(|t| Ok(Frame::trailers(t))));
                }
            };
            let passed_over = self.skip.min(chunk.len() as u64);
            self.skip -= passed_over;
            let _ = chunk.split_to(passed_over as usize);
            if let Some(left) = &mut self.left {
                chunk.truncate((*left).min(chunk.len() as u64) as usize);
                *left -= chunk.len() as u64;
            }
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
        }
    }

    /// A body of declared length ends with its last byte; only one without may have trailers.
    fn wants_trailers(&self) -> bool {
        self.left.is_none()
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.poll_content(cx));
        if let Some(record) = &mut self.record {
            match &frame {
                Some(Ok(frame)) => {
                    record.body_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Some(Err(error)) => record.torn(error.as_ref()),
                None => record.end(),
            }
        }
        if self.is_end_stream()
            && let Some(record) = &mut self.record
        {
            record.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::One(_) => false,
            Content::Fill(part) => part.left == Some(0) && part.skip == 0,
            Content::Pieces { left, .. } => *left == 0,
            Content::File(stream) => stream.remaining() == 0,
            Content::Upstream(body) => body.is_end_stream(),
            Content::Coded(body) => body.is_end_stream(),
            Content::Torn(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Upstream(body) => body.size_hint(),
            content => content.len().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
