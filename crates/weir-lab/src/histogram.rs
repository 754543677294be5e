//! A latency histogram with a bounded relative error: each power of two is divided into 64 equal
//! steps, so a value is off by at most 1.6 %, in a fixed 30 KB of memory.

/// Steps per power of two.
const STEPS: u64 = 64;
/// log2 of [`STEPS`].
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Buckets for any `u64`: the first `STEPS` values exactly, then `STEPS` per remaining power of
/// two.
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

/// Counts of values (here: nanoseconds).
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// How many values were counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.total
    }

    /// True if nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The value that a share `quantile` (0 to 1) of all values does not exceed, to within 1.6 %;
    /// 0 if nothing was counted.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let rank = ((self.total as f64 * quantile).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(index).min(self.max);
            }
        }
        0
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - STEP_BITS;
    let step = (value >> shift) - STEPS;
    ((u64::from(shift) + 1) * STEPS + step) as usize
}

/// The greatest value that falls into bucket `index`.
fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    let step = index % STEPS + STEPS;
    // In the last bucket of all the sum wraps to exactly 2^64.
    ((step + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_bounds_its_values(value: u64) {
            let upper = upper_bound(bucket(value));
            prop_assert!(upper >= value);
            prop_assert!((upper - value) as f64 <= value as f64 / 64.0 + 1.0);
        }
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=10_000).for_each(|value| histogram.record(value));
        for (quantile, expect) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let got = histogram.quantile(quantile) as f64;
            assert!((got - expect).abs() <= expect * 0.016, "{quantile}: {got}");
        }
        assert_eq!(histogram.len(), 10_000);
    }

    #[test]
    fn extremes_have_a_bucket() {
        let mut histogram = Histogram::default();
        histogram.record(0);
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile(0.1), 0);
        assert_eq!(histogram.quantile(1.0), u64::MAX);
    }
}
