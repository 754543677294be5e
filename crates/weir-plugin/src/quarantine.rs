//! When a plugin that fails again and again may run again. No clock: time is a parameter.

use std::collections::VecDeque;
use std::time::Duration;

use weir_config::Quarantine as Rules;

/// A plugin's recent failures.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// When they happened, as time since some start.
    failures: VecDeque<Duration>,
    /// Rests in a row.
    rests: u32,
    /// End of the rest.
    until: Option<Duration>,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A new instance takes its place at once.
    Restart,
    /// The plugin rests until then.
    Rest(Duration),
}

impl Quarantine {
    /// The plugin failed at `now`.
    pub(crate) fn failed(&mut self, rules: &Rules, now: Duration) -> Verdict {
        if let Some(until) = self.until.filter(|until| now < *until) {
            // Others fail while it is being sent to rest.
            return Verdict::Rest(until);
        }
        // One that has just come back from a rest and fails goes back at once.
        let is_on_probation = self.until.is_some_and(|until| now < until + rules.window);
        if !is_on_probation {
            self.until = None;
            self.rests = 0;
        }
        while self.failures.front().is_some_and(|at| now.saturating_sub(*at) > rules.window) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
        if !is_on_probation && self.failures.len() < rules.failures.max(1) as usize {
            return Verdict::Restart;
        }
        self.failures.clear();
        let doubled = rules.back_off.saturating_mul(1 << self.rests.min(16));
        self.rests += 1;
        let until = now + doubled.min(rules.back_off_max);
        self.until = Some(until);
        Verdict::Rest(until)
    }

    /// Rests in a row so far.
    pub(crate) fn rests(&self) -> u32 {
        self.rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules {
            failures: 3,
            window: Duration::from_secs(10),
            back_off: Duration::from_secs(1),
            back_off_max: Duration::from_secs(5),
        }
    }

    /// Failures at these times (in ms), and whether each sends it to rest, until when.
    fn check(times: &[(u64, Option<u64>)]) {
        let mut quarantine = Quarantine::default();
        for &(now, expected) in times {
            let verdict = quarantine.failed(&rules(), Duration::from_millis(now));
            let expected = match expected {
                None => Verdict::Restart,
                Some(until) => Verdict::Rest(Duration::from_millis(until)),
            };
            assert_eq!(verdict, expected, "at {now} of {times:?}");
        }
    }

    #[test]
    fn rests_after_too_many_failures_within_the_window() {
        check(&[(0, None), (100, None), (200, Some(1200))]);
        check(&[(0, None), (9_000, None), (10_500, None), (10_600, Some(11_600))]);
    }

    #[test]
    fn rests_longer_each_time() {
        check(&[
            (0, None),
            (1, None),
            (2, Some(1002)),
            (3, Some(1002)),
            (1100, Some(3100)),
            (3200, Some(7200)),
            (7300, Some(12_300)),
            (12_400, Some(17_400)),
        ]);
    }

    #[test]
    fn is_forgiven_after_a_quiet_window() {
        check(&[
            (0, None),
            (1, None),
            (2, Some(1002)),
            (12_000, None),
            (12_001, None),
            (12_002, Some(13_002)),
        ]);
    }
}
