//! Sums and differences of counters.

use crate::stats::Stats;

/// Both together.
pub(crate) fn plus(a: &Stats, b: &Stats) -> Stats {
    combine(a, b, u64::saturating_add)
}

/// What came since `before`.
pub(crate) fn since(now: &Stats, before: &Stats) -> Stats {
    combine(now, before, u64::saturating_sub)
}

/// Buckets and kinds are the same in all, or there are none yet.
fn combine(a: &Stats, b: &Stats, f: fn(u64, u64) -> u64) -> Stats {
    fn pairs<K: Copy>(a: &[(K, u64)], b: &[(K, u64)], f: fn(u64, u64) -> u64) -> Vec<(K, u64)> {
        let longer = if a.is_empty() { b } else { a };
        let value = |all: &[(K, u64)], i: usize| all.get(i).map_or(0, |(_, count)| *count);
        longer.iter().enumerate().map(|(i, (key, _))| (*key, f(value(a, i), value(b, i)))).collect()
    }
    Stats {
        calls: f(a.calls, b.calls),
        streams: f(a.streams, b.streams),
        timed: f(a.timed, b.timed),
        timed_ns: f(a.timed_ns, b.timed_ns),
        buckets: pairs(&a.buckets, &b.buckets, f),
        failures: pairs(&a.failures, &b.failures, f),
        responses: f(a.responses, b.responses),
        errors: f(a.errors, b.errors),
        followed: f(a.followed, b.followed),
        broken: f(a.broken, b.broken),
        requests_ns: f(a.requests_ns, b.requests_ns),
        request_buckets: pairs(&a.request_buckets, &b.request_buckets, f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    #[test]
    fn sums_and_differences_fit_together() {
        let some = Stats {
            calls: 7,
            timed: 3,
            buckets: vec![(Some(64), 1), (None, 2)],
            failures: vec![(FailureKind::Trap, 4)],
            ..Stats::default()
        };
        let none = Stats::default();
        let double = plus(&some, &some);
        assert_eq!((double.calls, double.failed()), (14, 8));
        assert_eq!(double.buckets, [(Some(64), 2), (None, 4)]);
        for (got, expected) in [
            (since(&double, &some), &some),
            (plus(&none, &some), &some),
            (since(&some, &none), &some),
        ] {
            assert_eq!((got.calls, got.timed), (expected.calls, expected.timed));
            assert_eq!(
                (got.buckets, got.failures),
                (expected.buckets.clone(), expected.failures.clone())
            );
        }
    }
}
