//! What calls of a generation cost, and how often they fail. Written by one thread a place, read by
//! whoever asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::failure::FailureKind;

/// Upper bounds of the histogram's buckets are 2^n times this; the last has none.
const FIRST_BUCKET_NS: u64 = 64;

/// Up to 64 ns × 2^25, two seconds.
const BUCKETS: usize = 27;

/// One call in so many is timed; those that may be long are all timed.
pub(crate) const SAMPLE_EVERY: u64 = 16;

/// Counters of one place.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PlaceStats {
    calls: AtomicU64,
    streams: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
    timed_ns: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// Responses that went through, and those with 5xx among them.
    responses: AtomicU64,
    errors: AtomicU64,
}

impl Default for PlaceStats {
    fn default() -> PlaceStats {
        PlaceStats {
            calls: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            timed_ns: AtomicU64::new(0),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            responses: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }
}

/// Adds without a locked instruction: each place has one writer at a time.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

impl PlaceStats {
    /// Counts a call; tells whether it should be timed.
    #[inline]
    pub(crate) fn count_call(&self) -> bool {
        let calls = self.calls.load(Relaxed);
        self.calls.store(calls + 1, Relaxed);
        calls.is_multiple_of(SAMPLE_EVERY)
    }

    pub(crate) fn count_stream(&self) {
        add(&self.streams, 1);
    }

    pub(crate) fn record(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (0..BUCKETS - 1).find(|n| ns <= FIRST_BUCKET_NS << n).unwrap_or(BUCKETS - 1);
        add(&self.buckets[bucket], 1);
        add(&self.timed_ns, ns);
    }

    /// May come from any thread.
    pub(crate) fn count_failure(&self, kind: FailureKind) {
        if let Some(at) = FailureKind::ALL.iter().position(|known| *known == kind) {
            self.failures[at].fetch_add(1, Relaxed);
        }
    }

    /// May come from any thread.
    pub(crate) fn count_response(&self, is_error: bool) {
        self.responses.fetch_add(1, Relaxed);
        if is_error {
            self.errors.fetch_add(1, Relaxed);
        }
    }
}

/// Counters of a generation, over all places.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Calls into the plugin.
    pub calls: u64,
    /// Requests that passed it.
    pub streams: u64,
    /// Calls that were timed.
    pub timed: u64,
    /// What those took, in nanoseconds.
    pub timed_ns: u64,
    /// Timed calls by bucket: the upper bound in nanoseconds, and how many.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// Failures by kind.
    pub failures: Vec<(FailureKind, u64)>,
    /// Responses that went through it.
    pub responses: u64,
    /// Those with a status of 5xx.
    pub errors: u64,
}

impl Stats {
    pub(crate) fn sum<'a>(places: impl Iterator<Item = &'a PlaceStats>) -> Stats {
        let mut buckets = [0; BUCKETS];
        let mut failures = [0; FailureKind::ALL.len()];
        let mut sum = Stats::default();
        for place in places {
            sum.calls += place.calls.load(Relaxed);
            sum.streams += place.streams.load(Relaxed);
            sum.timed_ns += place.timed_ns.load(Relaxed);
            sum.responses += place.responses.load(Relaxed);
            sum.errors += place.errors.load(Relaxed);
            for (total, counter) in buckets.iter_mut().zip(&place.buckets) {
                *total += counter.load(Relaxed);
            }
            for (total, counter) in failures.iter_mut().zip(&place.failures) {
                *total += counter.load(Relaxed);
            }
        }
        sum.timed = buckets.iter().sum();
        sum.failures = FailureKind::ALL.into_iter().zip(failures).collect();
        let bound = |n: usize| (n < BUCKETS - 1).then(|| FIRST_BUCKET_NS << n);
        sum.buckets = buckets.into_iter().enumerate().map(|(n, count)| (bound(n), count)).collect();
        sum
    }

    /// Failures of every kind.
    pub fn failed(&self) -> u64 {
        self.failures.iter().map(|(_, count)| count).sum()
    }

    /// The duration that this share of the timed calls did not exceed, in nanoseconds: the upper
    /// bound of its bucket.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let wanted = (self.timed as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bound, count) in &self.buckets {
            seen += count;
            if seen >= wanted.max(1) {
                return Some(bound.unwrap_or(u64::MAX));
            }
        }
        None
    }

    /// Mean of the timed calls, in nanoseconds.
    pub fn mean_ns(&self) -> Option<u64> {
        self.timed_ns.checked_div(self.timed)
    }
}
