//! Collapsing: of the requests that miss at the same time, one leads and the others follow.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderMap, StatusCode};
use tokio::sync::watch;

use super::flights::Flight;
use super::lead::Lead;
use super::shared::Fill;
use crate::key::KeyRef;
use crate::object::Object;
use crate::policy::{RequestDirectives, is_confined};
use crate::store::{Cache, Lookup, Mark};

/// The part of a request that missed.
#[derive(Debug)]
pub enum Collapse {
    /// Ask the source, and tell the others.
    Lead(Lead),
    /// Wait for the one that leads.
    Follow(Follow),
    /// A response to send has been stored since the lookup.
    Hit(Arc<Object>),
    /// Ask the source without waiting for others: a recent response could not be stored, or (no
    /// mark) too many variants of the key are being fetched.
    Pass(Option<Mark>),
}

/// What followers get.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A body that is being written, to be read from its first byte.
    Fill(Arc<Fill>),
    /// A complete response.
    Object(Arc<Object>),
    /// The response cannot be shared: ask the source, under the mark that it leaves.
    Pass(Mark),
    /// The leader's request failed.
    Failed(Failure),
    /// The leader's response is not one that this request selects, or the leader did not ask for
    /// one: look up and collapse again.
    Retry,
}

/// Why the leader got no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the leader's client is told.
    pub status: StatusCode,
    /// The cause, for the log.
    pub reason: Arc<str>,
}

impl Outcome {
    pub(super) fn suits(&self, request: &HeaderMap) -> bool {
        match self {
            Outcome::Fill(fill) => fill.head().selectors.matches(request),
            Outcome::Object(object) => object.selectors().matches(request),
            Outcome::Pass(_) | Outcome::Failed(_) | Outcome::Retry => true,
        }
    }
}

/// A request that waits for another's answer. Dropping it ends the waiting and nothing else.
pub struct Follow {
    flight: Arc<Flight>,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Follow {
    /// Tells the leader how urgent it is: the more, the greater the number, which means what the
    /// callers agree on. Followers are many; it costs next to nothing where another has said as
    /// much.
    pub fn urge(&self, urgency: u64) {
        self.flight.urge(urgency);
    }

    /// Waits until the leader knows. `request` is this request's head, to see whether the answer is
    /// one it selects. The limit on the waiting is the caller's.
    pub async fn wait(mut self, request: &HeaderMap) -> Outcome {
        let outcome = match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        match outcome {
            Some(outcome) if outcome.suits(request) => outcome,
            Some(_) => Outcome::Retry,
            // Not while this holds the flight, whose sender it is; a leader always sends, too.
            None => Outcome::Failed(Failure::abandoned()),
        }
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("key", &self.flight.key).finish_non_exhaustive()
    }
}

impl Failure {
    /// A failure with the status for the client and the cause for the log.
    pub fn new(status: StatusCode, reason: impl Into<Arc<str>>) -> Failure {
        Failure { status, reason: reason.into() }
    }

    pub(super) fn abandoned() -> Failure {
        let reason = "the request that led to the source ended without an answer";
        Failure::new(StatusCode::BAD_GATEWAY, reason)
    }
}

impl Cache {
    /// Decides who goes to the source for a request that missed, or that found a response in need
    /// of validation. The arguments are those of the lookup. Requests that different variants are
    /// expected for lead flights of their own, and nobody waits for a request with Authorization or
    /// no-store but others that have one.
    pub fn collapse(
        &self,
        key: &KeyRef<'_>,
        request: &HeaderMap,
        directives: &RequestDirectives,
        now_ms: u64,
    ) -> Collapse {
        let inner = &self.inner;
        let hash = inner.hash(key);
        let confined = is_confined(request, directives);
        let mut flights = inner.flights(hash).lock();
        if let Some(flight) = flights.to_follow(hash, key, request, confined) {
            inner.counters.collapsed.fetch_add(1, Relaxed);
            let (outcome, flight) = (flight.outcome.subscribe(), Arc::clone(flight));
            return Collapse::Follow(Follow { flight, outcome });
        }
        // A fill stores its object before it leaves the table, so what has landed since the lookup
        // is found here.
        match inner.find(hash, key, request, directives, now_ms) {
            Lookup::Fresh(object) => return Collapse::Hit(object),
            Lookup::Pass(mark) => return Collapse::Pass(Some(mark)),
            Lookup::Stale(_) | Lookup::VaryMiss | Lookup::Miss => {}
        }
        let varies = flights
            .varies(hash, key)
            .or_else(|| inner.newest(hash, key).map(|object| object.selectors().clone()));
        let expected = varies.map(|selectors| selectors.for_request(request));
        let flight = Arc::new(Flight::new(key.to_key(), hash, expected, confined));
        if !flights.add(&flight) {
            return Collapse::Pass(None);
        }
        drop(flights);
        Collapse::Lead(Lead::new(self.clone(), flight))
    }

    /// The answer to a request that passed under `mark` may be stored: its request leads after all,
    /// and others may join. That is for the first such answer; `None` for those after it, or if the
    /// key was purged since the request was looked up.
    pub fn lead_after_all(&self, mark: Mark, key: &KeyRef<'_>) -> Option<Lead> {
        let inner = &self.inner;
        let flight = Arc::new(Flight::new(key.to_key(), mark.hash, None, mark.confined));
        // Until the flight is in the table, where purges find it, no purge may take the mark.
        let mut flights = inner.flights(mark.hash).lock();
        let leads = inner.take_mark(mark) && flights.add(&flight);
        drop(flights);
        leads.then(|| Lead::new(self.clone(), flight))
    }
}
