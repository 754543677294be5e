//! A latency histogram with fixed bounds: recording is two additions.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in microseconds, about three a decade: from a hit on loopback to a patient origin.
pub(crate) const BOUNDS_US: [u64; 18] = [
    25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// Counts of durations.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// A histogram's values at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    /// Counts by bucket, the last one unbounded; not cumulative.
    pub(crate) buckets: [u64; BOUNDS_US.len() + 1],
    pub(crate) sum_ns: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn record(&self, took: Duration) {
        let took_ns = took.as_nanos() as u64;
        // Most requests are in the first buckets: a scan beats a binary search.
        let bucket = BOUNDS_US.iter().position(|bound| took_ns <= bound * 1000);
        self.buckets[bucket.unwrap_or(BOUNDS_US.len())].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(took_ns, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Relaxed)),
            sum_ns: self.sum_ns.load(Relaxed),
        }
    }
}

impl Snapshot {
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The upper bound of the bucket in which the quantile lies, in microseconds; `None` without
    /// observations or when it lies beyond the last bound.
    pub(crate) fn quantile_us(&self, quantile: f64) -> Option<u64> {
        let rank = (self.count() as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (bound, count) in BOUNDS_US.iter().zip(self.buckets) {
            seen += count;
            if seen >= rank && seen > 0 {
                return Some(*bound);
            }
        }
        None
    }
}

impl Sum for Snapshot {
    fn sum<I: Iterator<Item = Snapshot>>(snapshots: I) -> Snapshot {
        snapshots.fold(Snapshot::default(), |mut total, one| {
            for (sum, count) in total.buckets.iter_mut().zip(one.buckets) {
                *sum += count;
            }
            total.sum_ns += one.sum_ns;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_the_bucket_that_bounds_them() {
        let histogram = Histogram::new();
        for us in [1, 25, 26, 999, 60_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets[0], 2);
        assert_eq!(snapshot.buckets[1], 1);
        assert_eq!(snapshot.buckets[5], 1);
        assert_eq!(snapshot.buckets[BOUNDS_US.len()], 1);
        assert_eq!(snapshot.sum_ns, 60_001_051_000);
    }

    #[test]
    fn quantiles_are_bucket_bounds() {
        let histogram = Histogram::new();
        assert_eq!(histogram.snapshot().quantile_us(0.5), None);
        for us in [10, 10, 10, 4_000] {
            histogram.record(Duration::from_micros(us));
        }
        assert_eq!(histogram.snapshot().quantile_us(0.5), Some(25));
        assert_eq!(histogram.snapshot().quantile_us(0.99), Some(5_000));
    }
}
