//! What a gate has counted, for metrics and `weir status`.

use crate::queue::ShedReason;

/// Upper bounds of [`DelayHistogram`]'s buckets but the last, in nanoseconds: from a tenth of the
/// usual target to a wait nobody configures.
pub const DELAY_BOUNDS_NS: [u64; 12] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
];

/// Counts of one class since the gate was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Requests that came.
    pub offered: u64,
    /// Requests that were let through, at once or later.
    pub admitted: u64,
    /// Requests that had to wait.
    pub queued: u64,
    /// Requests that were refused, by [`ShedReason::index`].
    pub shed: [u64; ShedReason::ALL.len()],
    /// Waiting requests whose client went away.
    pub cancelled: u64,
    /// Waiting requests that went on waiting in a higher class, where they count as offered, too.
    pub raised: u64,
    /// How long those waited that were admitted; those that did not wait are in it.
    pub delay: DelayHistogram,
}

impl ClassCounts {
    pub(super) fn add(&mut self, other: &ClassCounts) {
        let ClassCounts { offered, admitted, queued, shed, cancelled, raised, delay } = other;
        self.offered += offered;
        self.admitted += admitted;
        self.queued += queued;
        self.cancelled += cancelled;
        self.raised += raised;
        self.shed.iter_mut().zip(shed).for_each(|(count, more)| *count += more);
        self.delay.buckets.iter_mut().zip(delay.buckets).for_each(|(count, more)| *count += more);
        self.delay.sum_ns = self.delay.sum_ns.saturating_add(delay.sum_ns);
    }

    /// So many wait that have come to another class.
    pub(super) fn wait_here(&mut self, waiting: u64) {
        self.offered += waiting;
        self.queued += waiting;
    }
}

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayHistogram {
    /// Counts by [`DELAY_BOUNDS_NS`], each without those of the buckets before; the last is for
    /// whatever took longer.
    pub buckets: [u64; DELAY_BOUNDS_NS.len() + 1],
    /// Their sum in nanoseconds.
    pub sum_ns: u64,
}

impl DelayHistogram {
    pub(super) fn add(&mut self, delay_ns: u64) {
        let bucket = DELAY_BOUNDS_NS.iter().position(|bound_ns| delay_ns <= *bound_ns);
        self.buckets[bucket.unwrap_or(DELAY_BOUNDS_NS.len())] += 1;
        self.sum_ns = self.sum_ns.saturating_add(delay_ns);
    }
}
