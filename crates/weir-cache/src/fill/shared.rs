//! What the writer and the readers of a fill share: the bytes so far, who has read how much, and
//! who waits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use slab::Slab;

use super::reader::FillReader;
use crate::error::CacheError;
use crate::limits::STREAM_AHEAD_BYTES_MAX;
use crate::object::{Head, Object};

/// A response whose body is being written. Kept alive by its writer and its readers.
pub struct Fill {
    head: Head,
    declared_length: Option<u64>,
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// What was written and not given up yet, without gaps. Only the last one ever changes, and
    /// only by being replaced with a longer view of the same bytes.
    pub(super) segments: VecDeque<Segment>,
    /// Bytes written in all.
    pub(super) written: u64,
    /// Nothing is stored: bytes are given up when all readers have them.
    pub(super) streaming: bool,
    end: Option<Result<Option<HeaderMap>, CacheError>>,
    /// What it is stored as, once it has ended.
    pub(super) stored: Option<Arc<Object>>,
    readers: Slab<Reader>,
    writer: Option<Waker>,
}

/// A run of bytes and its place in the body.
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

struct Reader {
    position: u64,
    waker: Option<Waker>,
}

impl Reader {
    fn wait(&mut self, cx: &Context<'_>) {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => self.waker = Some(cx.waker().clone()),
        }
    }
}

impl Fill {
    pub(super) fn new(head: Head, declared_length: Option<u64>) -> Arc<Fill> {
        Arc::new(Fill { head, declared_length, state: Mutex::default() })
    }

    /// The response's head.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The length the source declared, if it did.
    pub fn declared_length(&self) -> Option<u64> {
        self.declared_length
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.state.lock().written
    }

    /// What the body is stored as, if it has ended and is.
    pub fn stored(&self) -> Option<Arc<Object>> {
        self.state.lock().stored.clone()
    }

    /// What has been written first, if that has not been given up.
    pub fn beginning(&self) -> Bytes {
        let state = self.state.lock();
        let first = state.segments.front().filter(|segment| segment.start == 0);
        first.map(|segment| segment.bytes.clone()).unwrap_or_default()
    }

    /// Ready as soon as anything is written, or that is known not to come.
    pub(super) fn poll_begun(&self, slot: usize, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.written > 0 || state.end.is_some() {
            return Poll::Ready(());
        }
        state.readers[slot].wait(cx);
        Poll::Pending
    }

    /// A reader from the first byte on.
    ///
    /// # Errors
    /// [`CacheError::TooLate`] if the body is not being stored and its beginning was given up.
    pub fn reader(self: &Arc<Fill>) -> Result<FillReader, CacheError> {
        let mut state = self.state.lock();
        let first = state.segments.front().map_or(state.written, |segment| segment.start);
        if first > 0 {
            return Err(CacheError::TooLate);
        }
        let slot = state.readers.insert(Reader { position: 0, waker: None });
        drop(state);
        Ok(FillReader::new(Arc::clone(self), slot))
    }

    /// The leader's reader; there is nothing yet that it could be too late for.
    pub(super) fn first_reader(self: &Arc<Fill>) -> FillReader {
        let slot = self.state.lock().readers.insert(Reader { position: 0, waker: None });
        FillReader::new(Arc::clone(self), slot)
    }

    /// Ends the body, well or not; later ends count for nothing.
    pub(super) fn end(&self, end: Result<Option<HeaderMap>, CacheError>) {
        let mut state = self.state.lock();
        state.end.get_or_insert(end);
        let woken = state.take_wakers();
        drop(state);
        wake(woken);
    }

    pub(super) fn poll_read(
        &self,
        slot: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, CacheError>>> {
        let mut state = self.state.lock();
        let position = state.readers[slot].position;
        if position < state.written {
            let bytes = state.at(position);
            state.readers[slot].position = position + bytes.len() as u64;
            let writer = state.give_up_read();
            drop(state);
            wake(writer);
            return Poll::Ready(Some(Ok(bytes)));
        }
        match &state.end {
            Some(Ok(_)) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error.clone()))),
            None => {
                state.readers[slot].wait(cx);
                Poll::Pending
            }
        }
    }

    /// What it is stored as, when that is known: `None` if it is not.
    pub(super) fn poll_stored(
        &self,
        slot: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Arc<Object>>, CacheError>> {
        let mut state = self.state.lock();
        match &state.end {
            Some(Err(error)) => Poll::Ready(Err(error.clone())),
            Some(Ok(_)) => Poll::Ready(Ok(state.stored.clone())),
            None if state.streaming => Poll::Ready(Ok(None)),
            None => {
                state.readers[slot].wait(cx);
                Poll::Pending
            }
        }
    }

    /// Whether the body has not ended yet.
    pub(super) fn is_open(&self) -> bool {
        self.state.lock().end.is_none()
    }

    pub(super) fn trailers(&self) -> Option<HeaderMap> {
        self.state.lock().end.as_ref().and_then(|end| end.clone().ok().flatten())
    }

    pub(super) fn leave(&self, slot: usize) {
        let mut state = self.state.lock();
        state.readers.remove(slot);
        let writer = state.give_up_read();
        drop(state);
        wake(writer);
    }

    /// Makes bytes visible to the readers.
    pub(super) fn publish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        state.written = state.segments.back().map_or(state.written, Segment::end);
        let woken = state.take_wakers();
        drop(state);
        wake(woken);
    }

    /// Whether `len` more bytes may be streamed: yes if the slowest reader is near enough.
    pub(super) fn poll_room(&self, len: u64, cx: &mut Context<'_>) -> Poll<Result<(), CacheError>> {
        let mut state = self.state.lock();
        let Some(slowest) = state.slowest() else {
            return Poll::Ready(Err(CacheError::NoReaders));
        };
        let ahead = state.written - slowest;
        if ahead == 0 || ahead + len <= STREAM_AHEAD_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl State {
    /// What is published from `position`, which is below `written`, up to its segment's end.
    fn at(&self, position: u64) -> Bytes {
        let index = self.segments.partition_point(|segment| segment.end() <= position);
        let segment = &self.segments[index];
        segment.bytes.slice((position - segment.start) as usize..)
    }

    fn slowest(&self) -> Option<u64> {
        self.readers.iter().map(|(_, reader)| reader.position).min()
    }

    /// Drops what every reader has, if nothing is stored. Returns the writer to wake, if it waits.
    pub(super) fn give_up_read(&mut self) -> Option<Waker> {
        if !self.streaming {
            return None;
        }
        if let Some(slowest) = self.slowest() {
            while self.segments.front().is_some_and(|segment| segment.end() <= slowest) {
                self.segments.pop_front();
            }
        }
        self.writer.take()
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        self.readers.iter_mut().filter_map(|(_, reader)| reader.waker.take()).collect()
    }
}

/// Called without the lock, since a waker may run anything.
pub(super) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill")
            .field("status", &self.head.status)
            .field("declared_length", &self.declared_length)
            .field("written", &self.written())
            .finish_non_exhaustive()
    }
}
