//! What calls of a generation cost, and how often they fail. Written by one thread a place, read by
//! whoever asks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::failure::FailureKind;

/// Upper bounds of a histogram's buckets are 2^n times its first; the last has none. Calls: up to
/// 64 ns × 2^25, two seconds.
const FIRST_CALL_NS: u64 = 64;
/// Requests: from 16 µs up to nine minutes.
const FIRST_REQUEST_NS: u64 = 16_000;
const BUCKETS: usize = 27;

/// One call in so many is timed; those that may be long are all timed.
pub(crate) const SAMPLE_EVERY: u64 = 16;

/// Counters of one place.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct PlaceStats {
    calls: AtomicU64,
    streams: AtomicU64,
    timed: Durations,
    failures: [AtomicU64; FailureKind::ALL.len()],
    /// Requests whose end is waited for, and those that ended without a whole response.
    followed: AtomicU64,
    broken: AtomicU64,
    /// Responses that went through, and those with 5xx among them.
    responses: AtomicU64,
    errors: AtomicU64,
    requests: Durations,
}

/// A histogram of durations.
#[derive(Debug)]
struct Durations {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_ns: AtomicU64::new(0) }
    }
}

/// The bucket of a duration, where buckets begin with this one.
fn bucket(ns: u64, first_ns: u64) -> usize {
    (0..BUCKETS - 1).find(|n| ns <= first_ns << n).unwrap_or(BUCKETS - 1)
}

fn nanoseconds(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for PlaceStats {
    fn default() -> PlaceStats {
        PlaceStats {
            calls: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            timed: Durations::default(),
            failures: [const { AtomicU64::new(0) }; FailureKind::ALL.len()],
            followed: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            requests: Durations::default(),
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
        let ns = nanoseconds(took);
        add(&self.timed.buckets[bucket(ns, FIRST_CALL_NS)], 1);
        add(&self.timed.sum_ns, ns);
    }

    /// May come from any thread.
    pub(crate) fn count_failure(&self, kind: FailureKind) {
        if let Some(at) = FailureKind::ALL.iter().position(|known| *known == kind) {
            self.failures[at].fetch_add(1, Relaxed);
        }
    }

    /// May come from any thread, as what follows.
    pub(crate) fn count_followed(&self) {
        self.followed.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_broken(&self) {
        self.broken.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_response(&self, is_error: bool, took: Duration) {
        self.responses.fetch_add(1, Relaxed);
        if is_error {
            self.errors.fetch_add(1, Relaxed);
        }
        let ns = nanoseconds(took);
        self.requests.buckets[bucket(ns, FIRST_REQUEST_NS)].fetch_add(1, Relaxed);
        self.requests.sum_ns.fetch_add(ns, Relaxed);
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
    /// Requests of clients that are in it, or were.
    pub followed: u64,
    /// Those that ended without a whole response.
    pub broken: u64,
    /// Whole responses that went through it.
    pub responses: u64,
    /// Those with a status of 5xx.
    pub errors: u64,
    /// What their requests took in all, in nanoseconds.
    pub requests_ns: u64,
    /// Those requests by bucket, as above.
    pub request_buckets: Vec<(Option<u64>, u64)>,
}

impl Stats {
    pub(crate) fn sum<'a>(places: impl Iterator<Item = &'a PlaceStats>) -> Stats {
        let mut buckets = [0; BUCKETS];
        let mut request_buckets = [0; BUCKETS];
        let mut failures = [0; FailureKind::ALL.len()];
        let mut sum = Stats::default();
        for place in places {
            sum.calls += place.calls.load(Relaxed);
            sum.streams += place.streams.load(Relaxed);
            sum.timed_ns += place.timed.sum_ns.load(Relaxed);
            sum.followed += place.followed.load(Relaxed);
            sum.broken += place.broken.load(Relaxed);
            sum.requests_ns += place.requests.sum_ns.load(Relaxed);
            sum.responses += place.responses.load(Relaxed);
            sum.errors += place.errors.load(Relaxed);
            for (totals, durations) in
                [(&mut buckets, &place.timed), (&mut request_buckets, &place.requests)]
            {
                for (total, counter) in totals.iter_mut().zip(&durations.buckets) {
                    *total += counter.load(Relaxed);
                }
            }
            for (total, counter) in failures.iter_mut().zip(&place.failures) {
                *total += counter.load(Relaxed);
            }
        }
        sum.timed = buckets.iter().sum();
        sum.failures = FailureKind::ALL.into_iter().zip(failures).collect();
        sum.buckets = bounded(buckets, FIRST_CALL_NS);
        sum.request_buckets = bounded(request_buckets, FIRST_REQUEST_NS);
        sum
    }

    /// Failures of every kind.
    pub fn failed(&self) -> u64 {
        self.failures.iter().map(|(_, count)| count).sum()
    }

    /// The duration that this share of the timed calls did not exceed, in nanoseconds: the upper
    /// bound of its bucket.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        quantile(&self.buckets, self.timed, share)
    }

    /// The same of whole requests.
    pub fn request_quantile_ns(&self, share: f64) -> Option<u64> {
        quantile(&self.request_buckets, self.responses, share)
    }

    /// Mean duration of the requests that had a whole response, in nanoseconds.
    pub fn request_mean_ns(&self) -> Option<u64> {
        self.requests_ns.checked_div(self.responses)
    }

    /// Mean of the timed calls, in nanoseconds.
    pub fn mean_ns(&self) -> Option<u64> {
        self.timed_ns.checked_div(self.timed)
    }
}

fn bounded(counts: [u64; BUCKETS], first_ns: u64) -> Vec<(Option<u64>, u64)> {
    let bound = |n: usize| (n < BUCKETS - 1).then(|| first_ns << n);
    counts.into_iter().enumerate().map(|(n, count)| (bound(n), count)).collect()
}

fn quantile(buckets: &[(Option<u64>, u64)], of: u64, share: f64) -> Option<u64> {
    let wanted = (of as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (bound, count) in buckets {
        seen += count;
        if seen >= wanted.max(1) {
            return Some(bound.unwrap_or(u64::MAX));
        }
    }
    None
}
