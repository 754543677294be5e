//! What comes of a body: read, and shown to the plugin piece by piece, and the trailers after it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::Flow;
use crate::exchange::Want;
use crate::failure::{Failure, FailureKind};
use crate::limits::{AHEAD_BYTES_MAX, HELD_BYTES_MAX, PIECE_BYTES_MAX};

impl Flow {
    /// Reads until there is something to show, or nothing more to read.
    pub(super) fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.source_ended && (self.unseen.is_empty() || self.want == Want::Whole) {
            let Some(source) = &mut self.source else { break };
            match ready!(Pin::new(&mut *source).poll_frame(cx)) {
                None => self.source_ended = true,
                Some(Err(error)) => {
                    self.source_ended = true;
                    self.is_done = true;
                    self.is_body_shown = true;
                    self.is_head_held = false;
                    self.error = Some(error);
                    break;
                }
                Some(Ok(frame)) => {
                    self.source_ended = source.is_end_stream();
                    self.take_frame(frame);
                }
            }
            if self.unseen_bytes + self.held_bytes > HELD_BYTES_MAX {
                let message = format!("it holds back more than {HELD_BYTES_MAX} bytes of a body");
                self.fail_alive(Failure::new(FailureKind::Overflow, message));
                break;
            }
        }
        Poll::Ready(())
    }

    fn take_frame(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(mut data) => {
                self.unseen_bytes += data.len();
                while data.len() > PIECE_BYTES_MAX && self.want == Want::Pieces {
                    self.unseen.push_back(data.split_to(PIECE_BYTES_MAX));
                }
                if !data.is_empty() {
                    self.unseen.push_back(data);
                }
            }
            Err(frame) => self.trailers_in = frame.into_trailers().ok(),
        }
    }

    /// Shows what has been read: the next piece, or all of the body.
    pub(super) fn show(&mut self) {
        if self.is_body_shown {
            return;
        }
        let pieces: Vec<Bytes> = match self.want {
            Want::Pieces => self.unseen.pop_front().into_iter().collect(),
            Want::Whole | Want::Nothing => self.unseen.drain(..).collect(),
        };
        let is_last = self.source_ended && self.unseen.is_empty();
        self.is_body_shown = is_last;
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        self.unseen_bytes -= bytes;
        if self.want == Want::Nothing {
            self.out.extend(pieces);
            return;
        }
        self.held_bytes += bytes;
        self.held.extend(pieces.iter().cloned());
        // proxy-wasm: where trailers follow, theirs is the end, if the plugin looks at them.
        let has_end = is_last && self.ends_with_trailers();
        if has_end && pieces.is_empty() {
            return;
        }
        let end = is_last && !has_end;
        let (side, offset) = (self.side, self.passed_bytes);
        let call = self.call(side.body(), end, move |exchange| {
            exchange.again = false;
            *side.offset(exchange) = offset;
            let buffer = side.buffer(exchange);
            pieces.into_iter().for_each(|piece| buffer.push(piece));
        });
        self.start(call, side.body(), end);
    }

    /// Trailers are there, whose hook is told of the end, and that for the body is not.
    pub(super) fn ends_with_trailers(&self) -> bool {
        let is_bound = self.stream.generation().is_bound();
        self.trailers_in.is_some() && is_bound && self.stream.has(self.side.trailers())
    }

    /// Whether a plugin that has paused is shown more of the body. Little of one that it does not
    /// hold back itself, but that waits for the head: who sends it waits too.
    pub(super) fn shows_more(&self) -> bool {
        let has_room =
            !self.is_head_held || self.is_body_paused || self.held_bytes < AHEAD_BYTES_MAX;
        !self.is_body_shown && self.want == Want::Pieces && has_room
    }

    /// Shows the trailers, if there are any and the plugin looks at them.
    pub(super) fn show_trailers(&mut self) {
        let phase = self.side.trailers();
        let Some(mut trailers) = self.trailers_in.take() else {
            self.is_done = true;
            return;
        };
        // Those that the body's hook has added.
        trailers.extend(self.trailers_out.take().unwrap_or_default());
        if !self.stream.has(phase) || self.want == Want::Nothing && self.failure.is_some() {
            self.trailers_out.get_or_insert(trailers);
            self.is_done = true;
            return;
        }
        let side = self.side;
        let call = self.call(phase, true, move |exchange| {
            exchange.again = false;
            *side.trailer_section(exchange) = trailers;
        });
        self.start(call, phase, true);
    }
}
