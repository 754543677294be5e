//! The writing side of a fill: where the body's bytes go, and what happens when they end, tear or
//! become too many.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use weir_arena::Extent;

use super::flights::Flight;
use super::shared::{self, Fill, Segment, State};
use crate::body::Body;
use crate::error::CacheError;
use crate::limits::{CHAIN_FIRST_BYTES, CHAIN_LAST_BYTES, HEAP_BODY_BYTES_MAX};
use crate::object::Object;
use crate::store::{Cache, Refused};

/// Writes the body of a fill. Dropping it before [`FillWriter::finish`] tears the body.
pub struct FillWriter {
    cache: Cache,
    flight: Arc<Flight>,
    fill: Arc<Fill>,
    sink: Sink,
    landed: bool,
}

/// Where the next bytes go.
enum Sink {
    /// Segments on the heap, while the body is small.
    Heap,
    /// The extent whose view is the last segment. `full` extents are frozen segments before it.
    Extents { current: Option<Extent>, next_bytes: usize },
    /// Nowhere: segments are what the source gave, dropped when read.
    Stream,
}

/// What became of a body that ended well.
#[derive(Clone, Debug)]
pub enum Finished {
    /// It is stored, as this object.
    Stored(Arc<Object>),
    /// It was sent to its readers only.
    NotStored(NotStored),
}

/// Why a body that ended well was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// Its key was purged after the fill had begun.
    Purged,
    /// It did not fit into what may be stored, or into what could be freed.
    TooLarge,
}

impl FillWriter {
    pub(super) fn new(cache: Cache, flight: Arc<Flight>, fill: Arc<Fill>) -> FillWriter {
        FillWriter { cache, flight, fill, sink: Sink::Heap, landed: false }
    }

    /// The fill being written.
    pub fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Appends `data` and wakes the readers. Waits only when the body is not being stored and its
    /// slowest reader is far behind. Not cancel safe: `data` may be lost with the future.
    ///
    /// # Errors
    /// [`CacheError::Longer`], [`CacheError::NoReaders`]. After an error the body is torn: stop
    /// asking the source and drop the writer.
    pub async fn write(&mut self, data: Bytes) -> Result<(), CacheError> {
        if data.is_empty() {
            return Ok(());
        }
        let result = match self.store(data) {
            Ok(rest) if rest.is_empty() => Ok(()),
            Ok(rest) => self.stream(rest).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &result {
            self.tear(error.clone());
        }
        result
    }

    /// Ends the body. It is stored unless it was purged meanwhile or does not fit.
    ///
    /// # Errors
    /// [`CacheError::Shorter`]: the body is torn, and nothing is stored.
    pub fn finish(mut self, trailers: Option<HeaderMap>) -> Result<Finished, CacheError> {
        let got_bytes = self.fill.written();
        if let Some(declared_bytes) = self.fill.declared_length().filter(|&len| len != got_bytes) {
            let error = CacheError::Shorter { declared_bytes, got_bytes };
            self.tear(error.clone());
            return Err(error);
        }
        let finished = match std::mem::replace(&mut self.sink, Sink::Stream) {
            Sink::Stream => Finished::NotStored(NotStored::TooLarge),
            Sink::Heap => self.link(trailers.clone()),
            Sink::Extents { current, .. } => {
                self.settle(current);
                self.link(trailers.clone())
            }
        };
        self.land();
        if let Finished::Stored(object) = &finished {
            self.fill.state.lock().stored = Some(Arc::clone(object));
        }
        self.fill.end(Ok(trailers));
        Ok(finished)
    }

    /// The source failed: the readers are told after what they have been given, nothing is stored.
    pub fn fail(mut self, reason: impl Into<Arc<str>>) {
        self.tear(CacheError::Source(reason.into()));
    }

    /// Stores what of `data` is to be stored; returns what is to be streamed instead.
    fn store(&mut self, mut data: Bytes) -> Result<Bytes, CacheError> {
        let total = self.fill.written() + data.len() as u64;
        if let Some(declared_bytes) = self.fill.declared_length().filter(|&len| total > len) {
            return Err(CacheError::Longer { declared_bytes });
        }
        if matches!(self.sink, Sink::Stream) {
            return Ok(data);
        }
        if total > self.cache.inner.settings.object_bytes_max {
            self.turn_to_stream();
            return Ok(data);
        }
        let body_bytes = self.fill.declared_length().unwrap_or(total);
        if matches!(self.sink, Sink::Heap) {
            if body_bytes <= HEAP_BODY_BYTES_MAX as u64 {
                self.fill.publish(|state| push_heap(state, &data));
                return Ok(Bytes::new());
            }
            if !self.leave_heap() {
                return Ok(data);
            }
        }
        while !data.is_empty() {
            if !self.append(&mut data) {
                return Ok(data);
            }
        }
        Ok(data)
    }

    /// Moves what is on the heap into the first extent. `false` if there is no room for one, or
    /// the system has no memory for what is in it: the body is streamed from then on.
    fn leave_heap(&mut self) -> bool {
        // Declared lengths are at most `object_bytes_max`, which is checked against the arena by
        // `reserve_extent`; on 64-bit targets the cast is exact.
        let first = self.fill.declared_length().map_or(CHAIN_FIRST_BYTES, |len| len as usize);
        let Ok(mut extent) = self.cache.inner.reserve_extent(first) else {
            self.turn_to_stream();
            return false;
        };
        let mut copied = Ok(());
        self.fill.publish(|state| {
            copied = state.segments.iter().try_for_each(|s| extent.write(&s.bytes));
            if copied.is_ok() && !extent.is_empty() {
                state.segments.clear();
                state.segments.push_back(view(&extent, 0));
            }
        });
        if copied.is_err() {
            self.turn_to_stream();
            return false;
        }
        let next_bytes = (first * 2).min(CHAIN_LAST_BYTES);
        self.sink = Sink::Extents { current: Some(extent), next_bytes };
        true
    }

    /// Appends as much of `data` as the current extent takes, or gets a new one. `false` as for
    /// `leave_heap`.
    fn append(&mut self, data: &mut Bytes) -> bool {
        let Sink::Extents { current, next_bytes } = &mut self.sink else { return false };
        let Some(extent) = current else {
            let wanted = *next_bytes;
            let Ok(extent) = self.cache.inner.reserve_extent(wanted) else {
                self.turn_to_stream();
                return false;
            };
            *next_bytes = (wanted * 2).min(CHAIN_LAST_BYTES);
            *current = Some(extent);
            return true;
        };
        let room = extent.capacity() - extent.len();
        if room == 0 {
            let full = current.take();
            self.settle(full);
            return true;
        }
        let part = data.slice(..room.min(data.len()));
        if extent.write(&part).is_err() {
            self.turn_to_stream();
            return false;
        }
        data.advance(part.len());
        let grown = part.len() < extent.len();
        self.fill.publish(|state| {
            let start = match grown {
                // The last segment is a view of this extent: a longer one takes its place.
                true => state.segments.pop_back().map_or(0, |segment| segment.start),
                false => state.written,
            };
            state.segments.push_back(view(extent, start));
        });
        true
    }

    /// Freezes the current extent, if there is one, which gives back the pages it does not need.
    fn settle(&self, current: Option<Extent>) {
        let Some(extent) = current.filter(|extent| !extent.is_empty()) else { return };
        let bytes = extent.freeze();
        self.fill.publish(|state| {
            if let Some(last) = state.segments.back_mut() {
                last.bytes = bytes;
            }
        });
    }

    /// The body is not going to be stored: nobody may join, and what was read is given up.
    fn turn_to_stream(&mut self) {
        if let Sink::Extents { current, .. } = std::mem::replace(&mut self.sink, Sink::Stream) {
            self.settle(current);
        }
        self.land();
        self.cache.inner.counters.fills_streamed.fetch_add(1, Relaxed);
        let mut state = self.fill.state.lock();
        state.streaming = true;
        state.give_up_read();
        // Who waits for what is stored waits in vain.
        let woken = state.take_wakers();
        drop(state);
        shared::wake(woken);
    }

    async fn stream(&mut self, data: Bytes) -> Result<(), CacheError> {
        let len = data.len() as u64;
        poll_fn(|cx| self.fill.poll_room(len, cx)).await?;
        self.fill.publish(|state| {
            let start = state.written;
            state.segments.push_back(Segment { start, bytes: data });
        });
        Ok(())
    }

    /// Makes an object of the segments and stores it.
    fn link(&self, trailers: Option<HeaderMap>) -> Finished {
        let mut state = self.fill.state.lock();
        if state.written <= HEAP_BODY_BYTES_MAX as u64 && state.segments.len() > 1 {
            let mut whole = Vec::with_capacity(state.written as usize);
            state.segments.drain(..).for_each(|segment| whole.extend_from_slice(&segment.bytes));
            state.segments.push_back(Segment { start: 0, bytes: whole.into() });
        }
        let chunks = state.segments.iter().map(|segment| segment.bytes.clone()).collect();
        drop(state);
        let (key, head) = (self.flight.key.clone(), self.fill.head().clone());
        let body = Body::from_chunks(chunks);
        let object = Arc::new(Object::new(key, self.flight.hash, head, body, trailers));
        match self.cache.inner.insert(&object, Some(&self.flight.purged)) {
            Ok(()) => Finished::Stored(object),
            Err(Refused::Purged) => Finished::NotStored(NotStored::Purged),
            Err(Refused::TooLarge) => Finished::NotStored(NotStored::TooLarge),
        }
    }

    /// Takes the flight out of the table: nobody joins it any more.
    fn land(&mut self) {
        if !self.landed {
            self.landed = true;
            self.cache.inner.flights(self.flight.hash).lock().remove(&self.flight);
        }
    }

    fn tear(&mut self, error: CacheError) {
        self.land();
        self.cache.inner.counters.fills_failed.fetch_add(1, Relaxed);
        self.sink = Sink::Stream;
        self.fill.end(Err(error));
    }
}

impl Drop for FillWriter {
    fn drop(&mut self) {
        // Counts for nothing after `finish` or an earlier failure.
        if self.fill.is_open() {
            self.tear(CacheError::Abandoned);
        }
    }
}

impl fmt::Debug for FillWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FillWriter").field("fill", &self.fill).finish_non_exhaustive()
    }
}

fn view(extent: &Extent, start: u64) -> Segment {
    Segment { start, bytes: extent.published(0..extent.len()) }
}

/// Appends a copy of `data`: a slice of the source's read buffer would keep all of that alive.
/// Segments are merged as in a binary counter, so that a body of single bytes makes few of them
/// and copies each byte a few times.
fn push_heap(state: &mut State, data: &Bytes) {
    let mut start = state.written;
    let mut bytes = BytesMut::from(&data[..]);
    while let Some(last) = state.segments.pop_back_if(|last| last.bytes.len() <= bytes.len()) {
        let mut merged = BytesMut::with_capacity(last.bytes.len() + bytes.len());
        merged.extend_from_slice(&last.bytes);
        merged.extend_from_slice(&bytes);
        (start, bytes) = (last.start, merged);
    }
    state.segments.push_back(Segment { start, bytes: bytes.freeze() });
}
