//! How fast a client's request body must come while an upstream waits for it. Only time in which
//! the client is waited for counts: an upstream that takes nothing asks for nothing.

use std::time::Duration;

use tokio::time::Instant;

/// How long a client may be waited for before its rate matters: the initial time of Apache's
/// mod_reqtimeout for heads. A body whose beginning was gathered is long under way.
const GRACE: Duration = Duration::from_secs(10);

/// What a fast client can save up for a pause: the usual `body-timeout`. Without a bound the first
/// megabytes would buy the right to hold a place for as long as anybody likes.
const CREDIT_MAX: Duration = Duration::from_secs(30);

/// The account of one body.
pub(super) struct Pace {
    min_rate: u64,
    /// How much longer the client may be waited for.
    credit: Duration,
    /// Since when it is.
    since: Option<Instant>,
}

impl Pace {
    /// At least `min_rate` bytes a second; `None` if any rate will do.
    pub(super) fn new(min_rate: u64) -> Option<Pace> {
        (min_rate > 0).then_some(Pace { min_rate, credit: GRACE, since: None })
    }

    pub(super) fn min_rate(&self) -> u64 {
        self.min_rate
    }

    /// The client is waited for; returns until when it may be.
    pub(super) fn wait(&mut self, now: Instant) -> Instant {
        *self.since.get_or_insert(now) + self.credit
    }

    /// The client has sent something.
    pub(super) fn moved(&mut self, now: Instant, bytes: usize) {
        if let Some(since) = self.since.take() {
            self.credit = self.credit.saturating_sub(now - since);
        }
        let earned_ns = (bytes as u64).saturating_mul(1_000_000_000) / self.min_rate;
        self.credit = (self.credit + Duration::from_nanos(earned_ns)).min(CREDIT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1024;
    const SECOND: Duration = Duration::from_secs(1);

    /// A client that sends `bytes` after each `pause`: how often it may.
    fn check(bytes: usize, pause: Duration, expect: Option<usize>) {
        let mut pace = Pace::new(RATE).unwrap();
        let mut now = Instant::now();
        let stopped = (0..1000).find(|_| {
            let end = pace.wait(now);
            now += pause;
            // Asked again without anything having come.
            assert_eq!(pace.wait(now), end);
            pace.moved(now, bytes);
            now > end
        });
        assert_eq!(stopped, expect, "{bytes} bytes every {pause:?}");
    }

    #[test]
    fn whoever_is_slower_than_the_rate_is_stopped_after_the_grace() {
        check(0, SECOND, Some(10));
        check(1, 3 * SECOND, Some(3));
        check(512, SECOND, Some(19));
        check(1024, SECOND, None);
        check(10 * 1024, 10 * SECOND, None);
        check(100 * 1024, 11 * SECOND, Some(0));
    }

    #[test]
    fn nobody_saves_up_more_than_half_a_minute() {
        let mut pace = Pace::new(RATE).unwrap();
        let now = Instant::now();
        pace.moved(now, 1 << 30);
        assert_eq!(pace.wait(now), now + CREDIT_MAX);
    }

    #[test]
    fn time_in_which_nobody_waits_does_not_count() {
        let mut pace = Pace::new(RATE).unwrap();
        let now = Instant::now();
        pace.wait(now);
        pace.moved(now + SECOND, 0);
        let later = now + 1000 * SECOND;
        pace.moved(later, 0);
        assert_eq!(pace.wait(later), later + GRACE - SECOND);
    }

    #[test]
    fn without_a_rate_nothing_is_watched() {
        assert!(Pace::new(0).is_none());
    }
}
