//! When failures say that an upstream has too much to do.

use super::Outcome;

/// Failures of a tenth, and several, are no accident: of 1 %, five among fifty come once in some
/// hundred thousand requests.
const FAILURES_MIN: u32 = 5;
const FAILURE_SHARE: u32 = 10;
/// Outcomes after which failures are counted anew.
const OUTCOMES: u32 = 100;

#[derive(Debug, Default)]
pub(super) struct Failures {
    failures: u32,
    outcomes: u32,
    /// When the upstream was last said to fail.
    said_ns: u64,
}

impl Failures {
    /// Counts how a request ended that was sent at `started_ns`. Whether the upstream fails by now:
    /// said once for all that were under way.
    pub(super) fn add(&mut self, now_ns: u64, started_ns: u64, outcome: Outcome) -> bool {
        // What started before says nothing about what was done since.
        if started_ns < self.said_ns || outcome == Outcome::Unknown {
            return false;
        }
        if self.outcomes >= OUTCOMES {
            (self.outcomes, self.failures) = (0, 0);
        }
        self.outcomes += 1;
        self.failures += u32::from(outcome == Outcome::Failed);
        let is_failing = self.failures >= FAILURES_MIN
            && self.failures * FAILURE_SHARE >= self.outcomes
            && outcome == Outcome::Failed;
        if is_failing {
            *self = Failures { said_ns: now_ns, ..Failures::default() };
        }
        is_failing
    }
}
