//! A response that is adapted while it is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use weir_adapt::stream::{Coder, Work};

use super::keep::Keep;
use crate::body::{BodyError, ReplyBody};
use crate::shared::Shared;

/// Bytes that are coded at a time: some 0.5 ms of work.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// A body on its way through the stages of a stream. Whenever its source has no more for the
/// moment, the client gets all that there is.
pub(crate) struct Coded {
    from: ReplyBody,
    coder: Coder,
    /// Where what is made goes, too, if what it is made of is stored.
    keep: Option<Keep>,
    /// Where pages are counted.
    shared: Arc<Shared>,
    /// Of a piece that is too large to be coded at a time, what is left.
    left: Bytes,
    /// What the source was asked for already: its next frame, or that there is none.
    ahead: Option<Option<Result<Frame<Bytes>, BodyError>>>,
    trailers: Option<HeaderMap>,
    /// What was made before it was asked for: the first frame, or that there is none.
    begun: Option<Option<Result<Frame<Bytes>, BodyError>>>,
    /// Something was coded that the client may not be able to decode yet.
    is_held: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Ended,
    /// It cannot go on, and is no whole response.
    Torn,
}

impl Coded {
    pub(super) fn new(
        from: ReplyBody,
        coder: Coder,
        keep: Option<Keep>,
        shared: Arc<Shared>,
    ) -> Coded {
        Coded {
            from,
            coder,
            keep,
            shared,
            left: Bytes::new(),
            ahead: None,
            trailers: None,
            begun: None,
            is_held: false,
            stage: Stage::Coming,
        }
    }

    /// Waits for what can be made at once, which goes out with the head then; if that is all, its
    /// length is told. Where the source has nothing yet, the head goes first.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun.is_none() {
            match self.poll_made(cx) {
                Poll::Ready(first) => self.begun = Some(first),
                Poll::Pending if self.coder.is_busy() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        Poll::Ready(())
    }

    /// Hands the next piece over, or what stands for it. Not ready if there is nothing to do.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.coder.has_more() {
            self.coder.start(Work::GoOn);
            return Poll::Ready(Ok(()));
        }
        if self.left.is_empty() {
            match self.poll_source(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => {
                    self.coder.start(Work::Finish);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending if self.is_held => {
                    self.is_held = false;
                    self.coder.start(Work::Flush);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        if !self.left.is_empty() {
            self.gather(cx);
            let piece = self.left.split_to(self.left.len().min(PIECE_BYTES_MAX));
            // Where it is known that there is no more, the end need not be handed over.
            let is_last = self.left.is_empty() && matches!(self.ahead, Some(None));
            self.is_held = true;
            self.coder.start(if is_last { Work::Last(piece) } else { Work::Piece(piece) });
        }
        Poll::Ready(Ok(()))
    }

    /// Adds what has come already to what is left, as much as is coded at a time.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while self.ahead.is_none() {
            let Poll::Ready(next) = self.poll_source(cx) else { return };
            let data = next.as_ref().and_then(|next| next.as_ref().ok()?.data_ref());
            match data {
                Some(data) if self.left.len() + data.len() <= PIECE_BYTES_MAX => {
                    let mut left = BytesMut::from(std::mem::take(&mut self.left));
                    left.extend_from_slice(data);
                    self.left = left.freeze();
                }
                _ => self.ahead = Some(next),
            }
        }
    }

    /// Takes note of what there is of the result, and of its end.
    fn note(&mut self, coded: &Bytes) {
        if let Some(keep) = &mut self.keep {
            keep.take(coded);
        }
        if self.coder.is_finished() {
            self.stage = Stage::Ended;
            let page = self.coder.detail();
            if let Some(detail) = page {
                self.shared.adaptation.note_page(detail);
            }
            if let Some(keep) = self.keep.take().filter(|_| self.trailers.is_none()) {
                keep.end(page);
            }
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.ahead.take() {
            Some(next) => Poll::Ready(next),
            None => Pin::new(&mut self.from).poll_frame(cx),
        }
    }

    /// What is made next.
    fn poll_made(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.coder.is_busy() {
                let coded = match ready!(self.coder.poll_done(cx)) {
                    Ok(coded) => coded,
                    Err(gone) => {
                        self.stage = Stage::Torn;
                        return Poll::Ready(Some(Err(gone.into())));
                    }
                };
                let coded = Bytes::from(coded);
                self.note(&coded);
                if !coded.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(coded))));
                }
            }
            if self.stage == Stage::Torn {
                // It has been told.
                return Poll::Ready(None);
            }
            if self.stage == Stage::Ended {
                return Poll::Ready(self.trailers.take().map(|all| Ok(Frame::trailers(all))));
            }
            if let Err(error) = ready!(self.poll_next(cx)) {
                self.stage = Stage::Torn;
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Whether all has been made.
    fn has_ended(&self) -> bool {
        self.stage == Stage::Ended && self.trailers.is_none()
    }
}

impl Body for Coded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.begun.take() {
            Some(first) => Poll::Ready(first),
            None => self.poll_made(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        !matches!(self.begun, Some(Some(_))) && self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.begun.as_ref().and_then(|first| first.as_ref()?.as_ref().ok()?.data_ref());
        match self.has_ended() {
            true => SizeHint::with_exact(first.map_or(0, |data| data.len() as u64)),
            false => SizeHint::default(),
        }
    }
}
