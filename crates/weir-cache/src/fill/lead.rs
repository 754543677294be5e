//! The leader's side of a flight, until the response's head is known.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;

use super::collapse::{Failure, Outcome};
use super::flights::Flight;
use super::reader::FillReader;
use super::shared::Fill;
use super::writer::FillWriter;
use crate::body::Body;
use crate::key::Key;
use crate::object::{Head, Object};
use crate::policy::Freshened;
use crate::store::Cache;

/// The right and the duty to ask the source for a key. Dropping it without an outcome releases the
/// followers with a failure.
pub struct Lead {
    cache: Cache,
    /// `None` once an outcome is known or the writer has taken over.
    flight: Option<Arc<Flight>>,
}

/// What became of a response whose body is to come.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "matched at once, never kept")]
pub enum Started {
    /// The fill has begun.
    Fill {
        /// Where the body goes. Hand it to a task that lives on when the client leaves.
        writer: FillWriter,
        /// The leader's own reader; drop it if no client waits.
        reader: FillReader,
    },
    /// The body is declared larger than what is stored: send it to this client alone. The
    /// followers ask the source themselves.
    Pass,
}

impl Lead {
    pub(super) fn new(cache: Cache, flight: Arc<Flight>) -> Lead {
        Lead { cache, flight: Some(flight) }
    }

    /// The key being fetched.
    pub fn key(&self) -> Option<&Key> {
        self.flight.as_ref().map(|flight| &flight.key)
    }

    /// Waits until somebody follows to whom it is more urgent than that, and says how urgent. If
    /// nobody ever does, it waits for ever; dropping it loses nothing.
    pub async fn more_urgent(&self, than: u64) -> u64 {
        match &self.flight {
            Some(flight) => flight.more_urgent(than).await,
            // It has landed.
            None => std::future::pending().await,
        }
    }

    /// The response cannot be stored: the followers ask the source themselves, and so do others
    /// for the next seconds, without waiting for each other, until an answer can be stored.
    pub fn pass(mut self, now_ms: u64) {
        self.land_as_pass(now_ms);
    }

    fn land_as_pass(&mut self, now_ms: u64) {
        if let Some(flight) = &self.flight {
            let mark = self.cache.inner.mark_pass(flight.hash, flight.confined, now_ms);
            self.land(Outcome::Pass(mark));
        }
    }

    /// The source failed; the followers are told so.
    pub fn fail(mut self, failure: Failure) {
        self.land(Outcome::Failed(failure));
    }

    /// The source was not asked, for reasons that were this request's own: one of the followers
    /// asks it instead.
    pub fn step_down(mut self) {
        self.land(Outcome::Retry);
    }

    /// Lets the followers have an object as it is, e.g. a stale one when validation failed. It is
    /// not stored.
    pub fn release(mut self, object: Arc<Object>) {
        self.land(Outcome::Object(object));
    }

    /// Another response takes the place of the source's: for this request and all that follow it,
    /// and not stored.
    pub fn answer(self, head: Head, body: Body, trailers: Option<HeaderMap>) -> Arc<Object> {
        // Invariant: as in `complete`.
        let flight = self.flight.as_ref().expect("a lead has a flight until it lands");
        let object = Object::new(flight.key.clone(), flight.hash, head, body, trailers);
        let object = Arc::new(object);
        self.release(Arc::clone(&object));
        object
    }

    /// The stored object `old` was validated: stores one with the new head and the old body, and
    /// lets the followers have it. If the 304 forbids storing, `old` is forgotten, the answer is
    /// for this request alone, and the followers ask the source themselves.
    pub fn refreshed(mut self, old: &Arc<Object>, freshened: Freshened) -> Arc<Object> {
        let Freshened { head, storable } = freshened;
        let (body, trailers) = (old.body().clone(), old.trailers().cloned());
        if storable {
            return self.complete(head, body, trailers);
        }
        self.cache.inner.discard(old);
        self.land_as_pass(head.freshness.response_time_ms);
        Arc::new(Object::new(old.key.clone(), old.hash, head, body, trailers))
    }

    /// The response is here in full: stores it, if it fits and was not purged meanwhile, and lets
    /// the followers have it.
    pub fn complete(mut self, head: Head, body: Body, trailers: Option<HeaderMap>) -> Arc<Object> {
        // Invariant: only `land` and `start` take the flight, and both end the lead's life.
        let flight = self.flight.as_ref().expect("a lead has a flight until it lands");
        let object = Object::new(flight.key.clone(), flight.hash, head, body, trailers);
        let object = Arc::new(object);
        // Whether it was stored makes no difference to who gets it now.
        let _ = self.cache.inner.insert(&object, Some(&flight.purged));
        self.land(Outcome::Object(Arc::clone(&object)));
        object
    }

    /// The head is here and the body is to come, of this length if it was declared. Followers may
    /// read from now on.
    pub fn start(mut self, head: Head, declared_length: Option<u64>) -> Started {
        let max = self.cache.inner.settings.object_bytes_max;
        if declared_length.is_some_and(|len| len > max) {
            self.land_as_pass(head.freshness.response_time_ms);
            return Started::Pass;
        }
        // Invariant: as in `complete`.
        let flight = self.flight.take().expect("a lead has a flight until it lands");
        self.cache.inner.counters.fills.fetch_add(1, Relaxed);
        let fill = Fill::new(head, declared_length);
        let reader = fill.first_reader();
        flight.outcome.send_replace(Some(Outcome::Fill(Arc::clone(&fill))));
        let writer = FillWriter::new(self.cache.clone(), flight, fill);
        Started::Fill { writer, reader }
    }

    fn land(&mut self, outcome: Outcome) {
        if let Some(flight) = self.flight.take() {
            self.cache.inner.flights(flight.hash).lock().remove(&flight);
            flight.outcome.send_replace(Some(outcome));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.land(Outcome::Failed(Failure::abandoned()));
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead").field("key", &self.key()).finish_non_exhaustive()
    }
}
