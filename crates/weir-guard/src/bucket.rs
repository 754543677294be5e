//! Token buckets as one word each: the generic cell rate algorithm (GCRA, ITU-T I.371, Annex A).
//!
//! The word is the *theoretical arrival time*, in nanoseconds: when the bucket will be full again.
//! One compare-and-swap takes a token; a word of zero, or any time that has passed, is a full
//! bucket, so that forgetting an idle one changes nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_config::Rate;

/// A rate, as a bucket is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Nanoseconds that a token takes to come back; 1 or more.
    pub token_ns: u64,
    /// Nanoseconds that a whole bucket takes: the burst.
    pub bucket_ns: u64,
}

/// What a bucket says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// There was a token, and it is taken.
    Token,
    /// There is none before so many nanoseconds have passed.
    Wait(u64),
}

impl Pace {
    /// The pace of a configured rate.
    pub fn new(rate: &Rate) -> Pace {
        let period_ns = u64::try_from(rate.period.as_nanos()).unwrap_or(u64::MAX);
        let token_ns = (period_ns / u64::from(rate.count.max(1))).max(1);
        Pace { token_ns, bucket_ns: token_ns.saturating_mul(u64::from(rate.burst.max(1))) }
    }

    /// Takes a token, if there is one.
    #[inline]
    pub fn take(&self, word: &AtomicU64, now_ns: u64) -> Taken {
        let mut known = word.load(Relaxed);
        loop {
            let full_at = self.heal(known, now_ns).saturating_add(self.token_ns);
            let limit = now_ns.saturating_add(self.bucket_ns);
            if full_at > limit {
                return Taken::Wait(full_at - limit);
            }
            match word.compare_exchange_weak(known, full_at, Relaxed, Relaxed) {
                Ok(_) => return Taken::Token,
                Err(changed) => known = changed,
            }
        }
    }

    /// Gives a token back that was taken for nothing.
    pub fn give_back(&self, word: &AtomicU64) {
        // Below zero is as full as zero.
        let _ = word.fetch_update(Relaxed, Relaxed, |at| Some(at.saturating_sub(self.token_ns)));
    }

    /// Tokens that are there now, in whole ones.
    pub fn left(&self, word: &AtomicU64, now_ns: u64) -> u64 {
        let taken_ns = self.heal(word.load(Relaxed), now_ns) - now_ns;
        self.bucket_ns.saturating_sub(taken_ns) / self.token_ns
    }

    /// When the bucket is full again, at the latest a whole bucket from now: a clock that went
    /// back, or a rate that was lowered, would else keep it empty for longer than it takes to
    /// fill.
    #[inline]
    fn heal(&self, full_at: u64, now_ns: u64) -> u64 {
        full_at.clamp(now_ns, now_ns.saturating_add(self.bucket_ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(count: u32, burst: u32) -> Rate {
        Rate { count, period: Duration::from_secs(1), burst }
    }

    fn takes(pace: &Pace, word: &AtomicU64, now_ns: u64) -> bool {
        pace.take(word, now_ns) == Taken::Token
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (pace, word) = (Pace::new(&rate(10, 3)), AtomicU64::new(0));
        let now = 7 * SECOND;
        let burst = (0..5).filter(|_| takes(&pace, &word, now)).count();
        assert_eq!((burst, pace.left(&word, now)), (3, 0));
        assert_eq!(pace.take(&word, now), Taken::Wait(SECOND / 10));
        assert!(takes(&pace, &word, now + SECOND / 10));
        assert!(!takes(&pace, &word, now + SECOND / 10));
        pace.give_back(&word);
        assert!(takes(&pace, &word, now + SECOND / 10));
    }

    #[test]
    fn clocks_that_jump_and_times_at_the_end_of_time() {
        let (pace, word) = (Pace::new(&rate(10, 3)), AtomicU64::new(0));
        assert!(takes(&pace, &word, 1000 * SECOND));
        // The clock went back by a quarter of an hour: a bucket takes a third of a second to fill.
        assert!(!takes(&pace, &word, 100 * SECOND));
        word.store(1000 * SECOND, Relaxed);
        assert!(!takes(&pace, &word, 100 * SECOND));
        assert_eq!(pace.take(&word, 100 * SECOND), Taken::Wait(SECOND / 10));
        let last = AtomicU64::new(u64::MAX);
        let fresh = AtomicU64::new(0);
        assert!(!takes(&pace, &last, 5));
        // Nothing wraps; near the end of time nothing is refused.
        assert!((0..10).all(|_| takes(&pace, &fresh, u64::MAX - 1)));
        let slow = Pace::new(&Rate { count: 1, period: Duration::MAX, burst: u32::MAX });
        assert!(takes(&slow, &AtomicU64::new(0), 0));
    }

    /// Tokens as a fraction, refilled by the time that has passed.
    struct Model {
        tokens: f64,
        last_ns: u64,
    }

    impl Model {
        fn takes(&mut self, rate: &Rate, now_ns: u64) -> Option<bool> {
            let came = (now_ns - self.last_ns) as f64 * f64::from(rate.count) / SECOND as f64;
            self.tokens = (self.tokens + came).min(f64::from(rate.burst));
            self.last_ns = now_ns;
            // Too close to tell: the word counts whole nanoseconds.
            if (self.tokens - 1.0).abs() < 1e-3 {
                return None;
            }
            let takes = self.tokens >= 1.0;
            if takes {
                self.tokens -= 1.0;
            }
            Some(takes)
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_bucket_of_tokens_does(
            count in 1_u32..2000,
            burst in 1_u32..50,
            steps in prop::collection::vec(0_u64..SECOND / 10, 1..200),
        ) {
            let rate = rate(count, burst);
            let (pace, word) = (Pace::new(&rate), AtomicU64::new(0));
            let mut now = 3 * SECOND;
            let mut model = Model { tokens: f64::from(burst), last_ns: now };
            for step in steps {
                now += step;
                match model.takes(&rate, now) {
                    Some(expected) => prop_assert_eq!(takes(&pace, &word, now), expected),
                    None => {
                        if takes(&pace, &word, now) {
                            model.tokens -= 1.0;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn threads_share_one_bucket() {
        let (pace, word) = (Pace::new(&rate(1, 1000)), AtomicU64::new(0));
        let taken: usize = std::thread::scope(|scope| {
            let run = || (0..1000).filter(|_| takes(&pace, &word, SECOND)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000);
    }
}
