//! Requests that started one after the other, and the latencies they had.

use super::{Cohort, Outcome};
use crate::queue::CLASSES_MAX;

/// What requests belong to that are not measured.
pub(super) const NO_COHORT: Cohort = Cohort(0);

/// A cohort of a second with fewer requests says nothing yet.
const STARTS_MIN: u32 = 20;
/// When a cohort of too few is given up.
const OPEN_NS_MAX: u64 = 10_000_000_000;
/// When one of enough is closed at the latest.
const OPEN_NS: u64 = 1_000_000_000;
/// Requests that are still out after so many times the mean latency count with their age.
const SETTLE_LATENCIES: u64 = 8;
/// So do those that are out after this.
const SETTLE_NS_MAX: u64 = 10_000_000_000;

/// Number, mean and spread of logarithms of latencies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Logs {
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) squares: f64,
}

impl Logs {
    fn add(&mut self, latency_ns: u64, count: f64) {
        let log = (latency_ns.max(1) as f64).ln();
        self.count += count;
        self.sum += count * log;
        self.squares += count * log * log;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// Sum of squared deviations from the mean.
    pub(super) fn deviations(&self) -> f64 {
        (self.squares - self.sum * self.mean()).max(0.0)
    }
}

/// By class.
pub(super) type ClassLogs = [Logs; CLASSES_MAX];

/// A cohort under way: first it takes requests in, then it waits for them to end.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: Cohort,
    pub(super) is_probe: bool,
    wanted: u32,
    opened_ns: u64,
    closed_ns: Option<u64>,
    /// Starts that are let pass first, so that what was in flight before has left the queue.
    skip: u32,
    starts: u32,
    starts_at_limit: u32,
    in_flight_sum: u64,
    pub(super) logs: ClassLogs,
    latency_sum_ns: u64,
    answered: u32,
    /// Requests that are still out, and the sum of when they started.
    out: u32,
    out_started_sum_ns: u128,
}

/// What is to be done with a cohort.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Goes,
    /// All that will be known is known.
    IsComplete,
    /// It comes to nothing.
    IsVoid,
}

impl Gathering {
    pub(super) fn new(
        id: Cohort,
        now_ns: u64,
        is_probe: bool,
        wanted: u32,
        skip: u32,
    ) -> Gathering {
        Gathering {
            id,
            is_probe,
            wanted,
            opened_ns: now_ns,
            closed_ns: None,
            skip,
            starts: 0,
            starts_at_limit: 0,
            in_flight_sum: 0,
            logs: ClassLogs::default(),
            latency_sum_ns: 0,
            answered: 0,
            out: 0,
            out_started_sum_ns: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed_ns.is_none()
    }

    pub(super) fn started(&mut self, now_ns: u64, in_flight: u32, limit: u32) -> Cohort {
        if !self.is_open() {
            return NO_COHORT;
        }
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 {
                self.opened_ns = now_ns;
            }
            return NO_COHORT;
        }
        self.starts += 1;
        self.starts_at_limit += u32::from(in_flight >= limit);
        self.in_flight_sum += u64::from(in_flight);
        self.out += 1;
        self.out_started_sum_ns += u128::from(now_ns);
        if self.starts >= self.wanted {
            self.closed_ns = Some(now_ns);
        }
        self.id
    }

    pub(super) fn finished(
        &mut self,
        class: usize,
        started_ns: u64,
        latency_ns: u64,
        outcome: Outcome,
    ) {
        self.out = self.out.saturating_sub(1);
        let started_ns = u128::from(started_ns);
        self.out_started_sum_ns = self.out_started_sum_ns.saturating_sub(started_ns);
        if outcome == Outcome::Answered {
            self.logs[class.min(CLASSES_MAX - 1)].add(latency_ns, 1.0);
            self.latency_sum_ns = self.latency_sum_ns.saturating_add(latency_ns);
            self.answered += 1;
        }
    }

    pub(super) fn progress(&mut self, now_ns: u64) -> Progress {
        let open_ns = now_ns.saturating_sub(self.opened_ns);
        let Some(closed_ns) = self.closed_ns else {
            if open_ns >= OPEN_NS && self.starts >= STARTS_MIN {
                self.closed_ns = Some(now_ns);
            } else if open_ns >= OPEN_NS_MAX {
                return Progress::IsVoid;
            }
            return Progress::Goes;
        };
        if self.out == 0 {
            let is_enough = self.answered >= self.starts / 2 && self.answered > 0;
            return if is_enough { Progress::IsComplete } else { Progress::IsVoid };
        }
        let waited_ns = now_ns.saturating_sub(closed_ns);
        let mean_ns = self.latency_sum_ns.checked_div(self.answered.into());
        let patience_ns = mean_ns.map_or(SETTLE_NS_MAX, |mean_ns| mean_ns * SETTLE_LATENCIES);
        if waited_ns < patience_ns.min(SETTLE_NS_MAX) {
            return Progress::Goes;
        }
        if self.answered < self.starts / 2 { Progress::IsVoid } else { Progress::IsComplete }
    }

    /// Whether the limit was what held requests back, by and large.
    pub(super) fn is_saturated(&self) -> bool {
        self.starts_at_limit >= self.starts - self.starts / 4
    }

    /// Requests in flight at a start, as a mean.
    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight_sum as f64 / f64::from(self.starts.max(1))
    }
}
