//! The flights of a shard: what is being fetched now, by key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use http::HeaderMap;
use tokio::sync::{Notify, watch};

use super::collapse::Outcome;
use crate::key::{Key, KeyRef};
use crate::limits::FLIGHTS_PER_KEY_MAX;
use crate::selectors::Selectors;

/// One request to a source and those who wait for it.
pub(crate) struct Flight {
    pub(super) key: Key,
    pub(super) hash: u64,
    /// What the response's selectors will be if it varies as its predecessors did.
    expected: Option<Selectors>,
    /// Its request confines the response to itself, so that others had better not wait for it.
    pub(super) confined: bool,
    pub(super) outcome: watch::Sender<Option<Outcome>>,
    /// Its response must not be stored.
    pub(super) purged: AtomicBool,
    urgency: Urgency,
}

/// How urgent those who follow a flight are; what that means is their affair.
#[derive(Default)]
struct Urgency {
    most: AtomicU64,
    /// It has risen. The leader alone waits for that.
    rises: Notify,
}

impl Flight {
    pub(super) fn new(key: Key, hash: u64, expected: Option<Selectors>, confined: bool) -> Flight {
        let (outcome, _) = watch::channel(None);
        let (purged, urgency) = (AtomicBool::new(false), Urgency::default());
        Flight { key, hash, expected, confined, outcome, purged, urgency }
    }

    /// Somebody follows to whom it is so urgent. One load, unless it is more urgent to nobody else.
    pub(super) fn urge(&self, urgency: u64) {
        let Urgency { most, rises } = &self.urgency;
        if most.load(Ordering::Relaxed) < urgency
            && most.fetch_max(urgency, Ordering::Relaxed) < urgency
        {
            rises.notify_one();
        }
    }

    /// Waits until it is more urgent than that to somebody.
    pub(super) async fn more_urgent(&self, than: u64) -> u64 {
        let Urgency { most, rises } = &self.urgency;
        loop {
            // A rise that nobody waits for yet is kept for whoever waits next.
            let urgency = most.load(Ordering::Relaxed);
            if urgency > than {
                return urgency;
            }
            rises.notified().await;
        }
    }

    /// Whether the flight's response is, or is likely to be, one that `request` selects.
    fn suits(&self, request: &HeaderMap, confined: bool) -> bool {
        match &*self.outcome.borrow() {
            Some(outcome) => outcome.suits(request),
            None if self.confined && !confined => false,
            None => self.expected.as_ref().is_none_or(|expected| expected.matches(request)),
        }
    }

    /// How the response varies, as far as known.
    fn varies(&self) -> Option<Selectors> {
        match &*self.outcome.borrow() {
            Some(Outcome::Fill(fill)) => Some(fill.head().selectors.clone()),
            _ => self.expected.clone(),
        }
    }
}

/// The flights of one shard.
#[derive(Default)]
pub(crate) struct Flights {
    keys: HashTable<KeyFlights>,
}

struct KeyFlights {
    hash: u64,
    key: Key,
    /// Never empty.
    flights: Vec<Arc<Flight>>,
}

impl Flights {
    fn find(&self, hash: u64, key: &KeyRef<'_>) -> &[Arc<Flight>] {
        let found = self.keys.find(hash, |k| k.hash == hash && k.key.is(key));
        found.map_or(&[], |k| &k.flights)
    }

    /// A flight that `request` may follow.
    pub(super) fn to_follow(
        &self,
        hash: u64,
        key: &KeyRef<'_>,
        request: &HeaderMap,
        confined: bool,
    ) -> Option<&Arc<Flight>> {
        self.find(hash, key).iter().find(|flight| flight.suits(request, confined))
    }

    /// How the key's responses vary, as far as flights know.
    pub(super) fn varies(&self, hash: u64, key: &KeyRef<'_>) -> Option<Selectors> {
        self.find(hash, key).iter().rev().find_map(|flight| flight.varies())
    }

    /// Adds a flight; `false` if the key has too many.
    pub(super) fn add(&mut self, flight: &Arc<Flight>) -> bool {
        let is_key = |k: &KeyFlights| k.hash == flight.hash && k.key == flight.key;
        match self.keys.entry(flight.hash, is_key, |k| k.hash) {
            Entry::Occupied(mut entry) => {
                let flights = &mut entry.get_mut().flights;
                if flights.len() >= FLIGHTS_PER_KEY_MAX {
                    return false;
                }
                flights.push(Arc::clone(flight));
            }
            Entry::Vacant(entry) => {
                let (hash, key) = (flight.hash, flight.key.clone());
                entry.insert(KeyFlights { hash, key, flights: vec![Arc::clone(flight)] });
            }
        }
        true
    }

    /// Takes out this flight, if it is still there.
    pub(super) fn remove(&mut self, flight: &Arc<Flight>) {
        let is_key = |k: &KeyFlights| k.hash == flight.hash && k.key == flight.key;
        let Ok(mut entry) = self.keys.find_entry(flight.hash, is_key) else { return };
        let flights = &mut entry.get_mut().flights;
        flights.retain(|other| !Arc::ptr_eq(other, flight));
        if flights.is_empty() {
            entry.remove();
        }
    }

    /// Takes out the flights of a key and forbids them to store.
    pub(crate) fn purge(&mut self, hash: u64, key: &KeyRef<'_>) {
        if let Ok(entry) = self.keys.find_entry(hash, |k| k.hash == hash && k.key.is(key)) {
            forbid(&entry.remove().0.flights);
        }
    }

    /// As `purge`, for every key for which `matches` says so.
    pub(crate) fn purge_if(&mut self, matches: impl Fn(&Key) -> bool) {
        self.keys.retain(|k| {
            let purge = matches(&k.key);
            if purge {
                forbid(&k.flights);
            }
            !purge
        });
    }

    /// Keys with a flight.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

fn forbid(flights: &[Arc<Flight>]) {
    for flight in flights {
        flight.purged.store(true, Ordering::SeqCst);
    }
}
