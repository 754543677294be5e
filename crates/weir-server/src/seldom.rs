//! Warnings that could come with every request: one a second of each kind, with the number of those
//! that were left out. What happened to each request is in the access log and the metrics.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::shared::coarse_unix_ms;

/// Between two warnings of a kind.
const INTERVAL_MS: u64 = 1000;

/// One kind of warning.
pub(crate) struct Seldom {
    last_ms: AtomicU64,
    unsaid: AtomicU32,
}

impl Seldom {
    pub(crate) const fn new() -> Seldom {
        Seldom { last_ms: AtomicU64::new(0), unsaid: AtomicU32::new(0) }
    }

    /// `Some(n)` if a warning may be written now, n having been left out since the last: a field
    /// that is not written if there were none.
    pub(crate) fn may_warn(&self) -> Option<Option<NonZeroU32>> {
        self.may_warn_at(coarse_unix_ms())
    }

    fn may_warn_at(&self, now_ms: u64) -> Option<Option<NonZeroU32>> {
        let last_ms = self.last_ms.load(Relaxed);
        // A clock that was set back must not silence anything.
        let due = now_ms.abs_diff(last_ms) >= INTERVAL_MS;
        if due && self.last_ms.compare_exchange(last_ms, now_ms, Relaxed, Relaxed).is_ok() {
            return Some(NonZeroU32::new(self.unsaid.swap(0, Relaxed)));
        }
        self.unsaid.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_and_the_others_are_counted() {
        let seldom = Seldom::new();
        for (now_ms, expect) in [
            (5_000, Some(0)),
            (5_001, None),
            (5_999, None),
            (6_000, Some(2)),
            (6_500, None),
            (4_000, Some(1)),
        ] {
            let expect = expect.map(NonZeroU32::new);
            assert_eq!(seldom.may_warn_at(now_ms), expect, "at {now_ms}");
        }
    }
}
