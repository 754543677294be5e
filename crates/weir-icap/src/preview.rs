//! Content that is shown, and kept as long as it may be needed again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::error::IcapError;
use crate::{BoxError, Content};

/// Bytes of a message's content that are kept until its service has answered.
pub const KEPT_BYTES_MAX: usize = 1 << 20;

/// A message's content: pieces that were read of it, and the rest.
pub(crate) struct Held {
    /// Read, whether they were shown or not; `None` if that became too much.
    kept: Option<VecDeque<Bytes>>,
    kept_len: usize,
    /// Pieces that were read and are still to be shown.
    unshown: VecDeque<Bytes>,
    /// What was not read.
    rest: Option<Content>,
    /// The fields after the content.
    trailers: Option<http::HeaderMap>,
    /// It broke off.
    broken: Option<BoxError>,
}

impl Held {
    pub(crate) fn new(content: Option<Content>) -> Held {
        Held {
            kept: Some(VecDeque::new()),
            kept_len: 0,
            unshown: VecDeque::new(),
            rest: content.filter(|content| !content.is_end_stream()),
            trailers: None,
            broken: None,
        }
    }

    /// Whether there is content at all, as far as is known without waiting.
    pub(crate) fn has_content(&self) -> bool {
        self.rest.is_some() || !self.unshown.is_empty()
    }

    /// Whether all of it can be kept.
    pub(crate) fn fits(&self) -> bool {
        let upper = self.rest.as_ref().map_or(Some(0), |rest| rest.size_hint().upper());
        upper.is_some_and(|upper| upper <= KEPT_BYTES_MAX as u64)
    }

    /// Reads until there are `len` bytes to show, or all. Returns whether that is all.
    pub(crate) async fn read(&mut self, len: usize) -> Result<bool, IcapError> {
        while self.unshown.iter().map(Bytes::len).sum::<usize>() < len {
            match self.next_read().await? {
                Some(piece) => self.unshown.push_back(piece),
                None => break,
            }
        }
        // Of content whose length is known, the end is known with its last byte.
        if self.rest.as_ref().is_some_and(Body::is_end_stream) {
            self.rest = None;
        }
        let unshown: usize = self.unshown.iter().map(Bytes::len).sum();
        Ok(self.rest.is_none() && unshown <= len)
    }

    /// Takes pieces of at most `len` bytes together from those that were read and not shown.
    pub(crate) fn show(&mut self, mut len: usize) -> Vec<Bytes> {
        let mut shown = Vec::new();
        while len > 0
            && let Some(mut piece) = self.unshown.pop_front()
        {
            if piece.len() > len {
                self.unshown.push_front(piece.split_off(len));
            }
            len -= piece.len();
            shown.push(piece);
        }
        shown
    }

    /// The next piece to show.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, IcapError> {
        match self.unshown.pop_front() {
            Some(piece) => Ok(Some(piece)),
            None => self.next_read().await,
        }
    }

    async fn next_read(&mut self) -> Result<Option<Bytes>, IcapError> {
        loop {
            let Some(rest) = &mut self.rest else { return Ok(None) };
            let frame = match rest.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(cause)) => {
                    let text = cause.to_string();
                    (self.rest, self.broken) = (None, Some(cause));
                    return Err(IcapError::Content(text.into()));
                }
                None => {
                    self.rest = None;
                    return Ok(None);
                }
            };
            match frame.into_data() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => {
                    self.keep(&piece);
                    return Ok(Some(piece));
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
    }

    fn keep(&mut self, piece: &Bytes) {
        self.kept_len += piece.len();
        match &mut self.kept {
            Some(kept) if self.kept_len <= KEPT_BYTES_MAX => kept.push_back(piece.clone()),
            _ => self.kept = None,
        }
    }

    /// Has all content shown again, from its beginning. Returns whether all that was read of it is
    /// still there.
    pub(crate) fn rewind(&mut self) -> bool {
        let Some(kept) = &self.kept else { return false };
        self.unshown.clone_from(kept);
        true
    }

    /// The content as it was, if all that was read of it is still there.
    pub(crate) fn restore(self) -> Option<Content> {
        let Held { kept, rest, trailers, broken, .. } = self;
        Some(Restored { kept: kept?, rest, trailers, broken }.boxed_unsync())
    }
}

/// What was read, and then the rest.
struct Restored {
    kept: VecDeque<Bytes>,
    rest: Option<Content>,
    trailers: Option<http::HeaderMap>,
    broken: Option<BoxError>,
}

impl Body for Restored {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(piece) = self.kept.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(rest) = &mut self.rest {
            return Pin::new(rest).poll_frame(cx);
        }
        if let Some(cause) = self.broken.take() {
            return Poll::Ready(Some(Err(cause)));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_empty()
            && self.trailers.is_none()
            && self.broken.is_none()
            && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let kept: u64 = self.kept.iter().map(|piece| piece.len() as u64).sum();
        let rest = self.rest.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(kept + rest.lower());
        if let Some(upper) = rest.upper().filter(|_| self.broken.is_none()) {
            hint.set_upper(kept + upper);
        }
        hint
    }
}
