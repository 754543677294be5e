//! A response that is not stored, coded while it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use weir_adapt::stream::{Coder, Work};
use weir_origin::upstream::ResponseBody;

use crate::body::BodyError;

/// Bytes that are coded at a time: some 0.5 ms of work.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// A body on its way through an encoder. Whenever its origin has no more for the moment, the client
/// gets all that there is.
pub(super) struct Coded {
    from: Box<ResponseBody>,
    coder: Coder,
    /// Of a piece that is too large to be coded at a time, what is left.
    left: Bytes,
    trailers: Option<HeaderMap>,
    /// Something was coded that the client may not be able to decode yet.
    is_held: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    /// All has been handed to the encoder.
    Ending,
    Ended,
}

impl Coded {
    pub(super) fn new(from: Box<ResponseBody>, coder: Coder) -> Coded {
        Coded {
            from,
            coder,
            left: Bytes::new(),
            trailers: None,
            is_held: false,
            stage: Stage::Coming,
        }
    }

    /// Hands the next piece over, or what stands for it. Not ready if there is nothing to do.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if self.left.is_empty() {
            match Pin::new(&mut *self.from).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Ready(None) => {
                    self.stage = Stage::Ending;
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
            let piece = self.left.split_to(self.left.len().min(PIECE_BYTES_MAX));
            self.is_held = true;
            self.coder.start(Work::Piece(piece));
        }
        Poll::Ready(Ok(()))
    }
}

impl Body for Coded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.coder.is_busy() {
                let coded = ready!(self.coder.poll_done(cx))?;
                if self.stage == Stage::Ending {
                    self.stage = Stage::Ended;
                }
                if !coded.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(coded.into()))));
                }
            }
            if self.stage == Stage::Ended {
                return Poll::Ready(self.trailers.take().map(|all| Ok(Frame::trailers(all))));
            }
            ready!(self.poll_next(cx))?;
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::Ended && self.trailers.is_none()
    }
}
