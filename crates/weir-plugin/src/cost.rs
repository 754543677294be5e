//! What a hook is expected to cost, by what it has cost: decides whether it runs on the worker or
//! leaves it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bodies beyond this size are taken for long work until one has been measured.
const UNKNOWN_BYTES_MAX: usize = 64 << 10;

/// Moving average of one kind of call. Races lose a sample, which is harmless.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// Nanoseconds of a call, shifted left by 4; 0 means unknown.
    call_ns: AtomicU64,
    /// Nanoseconds of a mebibyte, shifted left by 4; 0 means unknown.
    mebibyte_ns: AtomicU64,
    /// The last call took suddenly long. The clock on the wall cannot tell a call that works from
    /// one that was interrupted: only the second in a row is believed.
    is_suspect: AtomicBool,
}

/// Weight of what is known against one new sample.
const INERTIA: u64 = 8;

/// So many times the average is sudden.
const SUDDEN: u64 = 4;

/// Pieces smaller than this say nothing about the price of a byte.
const TELLING_BYTES: usize = 4096;

impl Cost {
    /// A call over so many bytes took so long.
    pub(crate) fn learn(&self, bytes: usize, took: Duration) {
        let ns = (took.as_nanos() as u64) << 4;
        let (known, sample) = match bytes < TELLING_BYTES {
            true => (&self.call_ns, ns),
            false => (&self.mebibyte_ns, (u128::from(ns) * (1 << 20) / bytes as u128) as u64),
        };
        let before = known.load(Relaxed);
        let is_sudden = before != 0 && sample > before.saturating_mul(SUDDEN);
        if is_sudden && !self.is_suspect.swap(true, Relaxed) {
            return;
        }
        if !is_sudden {
            self.is_suspect.store(false, Relaxed);
        }
        average(known, sample);
    }

    /// Whether a call over so many bytes is expected to take longer than `threshold`.
    pub(crate) fn is_long(&self, bytes: usize, threshold: Duration) -> bool {
        let (call, mebibyte) = (self.call_ns.load(Relaxed), self.mebibyte_ns.load(Relaxed));
        if call == 0 && mebibyte == 0 {
            return bytes > UNKNOWN_BYTES_MAX;
        }
        let by_size = u128::from(mebibyte) * bytes as u128 / (1 << 20);
        let expected = (u128::from(call) + by_size) >> 4;
        expected > threshold.as_nanos()
    }
}

fn average(known: &AtomicU64, sample: u64) {
    let before = known.load(Relaxed);
    let after = match before {
        0 => sample.max(1),
        // What is believed is believed at once; it is forgiven slowly.
        _ if sample > before.saturating_mul(SUDDEN) => sample,
        _ => (before * (INERTIA - 1) + sample) / INERTIA,
    };
    known.store(after, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: Duration = Duration::from_millis(1);

    #[test]
    fn a_large_body_is_long_until_proved_otherwise() {
        let cost = Cost::default();
        assert!(cost.is_long(1 << 20, THRESHOLD));
        assert!(!cost.is_long(1000, THRESHOLD));
        cost.learn(256 << 10, Duration::from_micros(50));
        assert!(!cost.is_long(256 << 10, THRESHOLD));
        assert!(cost.is_long(8 << 20, THRESHOLD));
    }

    #[test]
    fn the_second_slow_call_is_believed_and_then_slowly_forgotten() {
        let cost = Cost::default();
        for _ in 0..10 {
            cost.learn(0, Duration::from_micros(1));
        }
        assert!(!cost.is_long(100, THRESHOLD));
        cost.learn(0, Duration::from_millis(20));
        assert!(!cost.is_long(100, THRESHOLD), "it may have been interrupted");
        cost.learn(0, Duration::from_micros(1));
        cost.learn(0, Duration::from_millis(20));
        assert!(!cost.is_long(100, THRESHOLD), "again, but not in a row");
        cost.learn(0, Duration::from_millis(20));
        assert!(cost.is_long(100, THRESHOLD));
        for _ in 0..10 {
            cost.learn(0, Duration::from_micros(1));
        }
        assert!(cost.is_long(100, THRESHOLD), "still remembered");
        for _ in 0..60 {
            cost.learn(0, Duration::from_micros(1));
        }
        assert!(!cost.is_long(100, THRESHOLD));
    }
}
