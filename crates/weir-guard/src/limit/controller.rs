//! The adaptive limit: which cohorts are measured, and what follows from them.

use super::baseline::{Baseline, Comparison};
use super::cohort::{Gathering, Progress};
use super::{Cohort, Outcome};

/// Requests of a cohort: a mean of 100 exponential latencies is off by a tenth.
const COHORT: u32 = 100;
/// While the limit grows in leaps, a cohort is two rounds of what is in flight, and at least this.
const COHORT_LEAP_MIN: u32 = 16;

/// Requests over what the upstream works on at a time, as a part of that: there growth shows.
const HEADROOM: f64 = 0.12;
/// At least so many.
const HEADROOM_MIN: f64 = 1.0;
/// How far each cohort moves the limit towards what it shows; damps what chance does.
const STEP: f64 = 0.35;
/// Growth of a limit that is far too low.
const LEAP: f64 = 1.5;
/// Cohorts without any queue after which the limit is taken to be far too low.
const LEAP_AFTER: u32 = 3;
/// Logarithm of latency over baseline that is still called no queue.
const NO_QUEUE: f64 = 0.06;

/// The limit during a probe, as a part of itself: with the headroom, 0.78 of what the upstream
/// works on, so that a tenth more or less of either does not matter.
const PROBE: f64 = 0.7;
/// Cohorts between probes. A probe costs a fifth of the throughput while it lasts, so one in 25
/// cohorts costs less than 1 %.
const PROBE_EVERY: u32 = 25;
/// A fall below this part of the limit at the last probe needs another.
const FALL_UNPROVED: f64 = 0.88;
/// Between "fewer in flight are answered proportionally faster", which is `ln(1 / PROBE)`, and "it
/// makes no difference", which is 0.
const FASTER: f64 = 0.178;
/// A baseline that falls by more than this in a probe may have further to fall.
const PROBE_AGAIN: f64 = 0.15;

/// What failures leave of the limit.
const CUT: f64 = 0.7;
/// Failures of a tenth, and more than one, are no accident.
const FAILURES_MIN: u32 = 2;
const FAILURE_SHARE: u32 = 10;
/// Outcomes after which failures are counted anew.
const OUTCOMES: u32 = 100;

/// Differences count from so many standard errors on.
const SIGNIFICANT: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Controller {
    floor: f64,
    ceiling: f64,
    /// The limit, but for probes.
    limit: f64,
    /// What probes have confirmed last.
    proved: f64,
    /// Leaps end here after failures.
    leap_to: f64,
    leaps: bool,
    no_queue_streak: u32,
    since_probe: u32,
    wants_probe: bool,
    baseline: Baseline,
    gathering: Gathering,
    /// The last saturated cohort: its latency, and how many were in flight.
    last: Option<(Comparison, f64)>,
    ids: u32,
    failures: u32,
    outcomes: u32,
    cut_ns: u64,
}

impl Controller {
    pub(super) fn new(floor: u32, initial: u32, ceiling: u32) -> Controller {
        let floor = f64::from(floor.max(1));
        let ceiling = f64::from(ceiling).max(floor);
        let limit = f64::from(initial).clamp(floor, ceiling);
        let mut controller = Controller {
            floor,
            ceiling,
            limit,
            proved: limit,
            leap_to: ceiling,
            leaps: true,
            no_queue_streak: 0,
            since_probe: 0,
            wants_probe: false,
            baseline: Baseline::new(),
            gathering: Gathering::new(Cohort(1), 0, false, COHORT, 0),
            last: None,
            ids: 1,
            failures: 0,
            outcomes: 0,
            cut_ns: 0,
        };
        controller.gather(0);
        controller
    }

    /// The limit now. At least 1.
    pub(super) fn limit(&self) -> u32 {
        let limit = if self.is_probing() { self.limit * PROBE } else { self.limit };
        (limit as u32).max(1)
    }

    pub(super) fn is_probing(&self) -> bool {
        self.gathering.is_probe && self.gathering.is_open()
    }

    pub(super) fn baseline_ns(&self) -> Option<u64> {
        self.baseline.ns()
    }

    pub(super) fn started(&mut self, now_ns: u64, in_flight: u32) -> Cohort {
        let limit = self.limit();
        let cohort = self.gathering.started(now_ns, in_flight, limit);
        self.tick(now_ns);
        cohort
    }

    pub(super) fn finished(
        &mut self,
        now_ns: u64,
        cohort: Cohort,
        class: usize,
        started_ns: u64,
        latency_ns: u64,
        outcome: Outcome,
    ) {
        if cohort == self.gathering.id {
            self.gathering.finished(class, started_ns, latency_ns, outcome);
        }
        self.count_failures(now_ns, started_ns, outcome);
        self.tick(now_ns);
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        match self.gathering.progress(now_ns) {
            Progress::Goes => return,
            Progress::IsVoid => {}
            Progress::IsComplete if self.gathering.is_probe => self.judge_probe(),
            Progress::IsComplete if self.gathering.is_saturated() => self.judge_saturated(),
            Progress::IsComplete => self.judge_idle(),
        }
        self.gather(now_ns);
    }

    /// Begins the next cohort.
    fn gather(&mut self, now_ns: u64) {
        let is_probe = std::mem::take(&mut self.wants_probe);
        // 0 is for requests that belong to none.
        self.ids = self.ids.checked_add(1).unwrap_or(1);
        let rounds = 2 * self.limit();
        let wanted =
            if self.leaps && !is_probe { rounds.max(COHORT_LEAP_MIN) } else { rounds.max(COHORT) };
        let skip = if is_probe { 0 } else { self.limit() };
        self.gathering = Gathering::new(Cohort(self.ids), now_ns, is_probe, wanted, skip);
    }

    /// The limit held requests back: was there a queue?
    fn judge_saturated(&mut self) {
        let logs = self.gathering.logs;
        let in_flight = self.gathering.in_flight();
        self.baseline.learn_spread(&logs);
        let known = self.baseline.compare(&logs);
        let mut seen = known.unwrap_or(Comparison { excess: 0.0, error: 0.0 });
        self.baseline.adopt(&logs, seen.excess);
        if seen.excess < -(SIGNIFICANT * seen.error).max(NO_QUEUE) {
            // Faster than was thought possible.
            self.baseline.shift(seen.excess, f64::from(COHORT));
            seen.excess = 0.0;
        }
        self.since_probe += 1;
        self.last = Some((seen, in_flight));
        let has_queue = seen.excess > NO_QUEUE;
        self.no_queue_streak = if has_queue { 0 } else { self.no_queue_streak + 1 };
        if self.leaps {
            let is_over = seen.excess > NO_QUEUE + SIGNIFICANT * seen.error;
            if !is_over && self.limit < self.leap_to {
                self.limit = (self.limit * LEAP).min(self.ceiling);
                self.proved = self.limit;
                return;
            }
            self.leaps = false;
            // Found in a hurry: look at it closely.
            self.wants_probe = is_over;
            return;
        }
        self.leap_to = self.ceiling;
        self.leaps = self.no_queue_streak >= LEAP_AFTER;
        let aim = aim(in_flight, seen.excess);
        let limit = self.clamp(self.limit + STEP * (aim - self.limit));
        if limit < FALL_UNPROVED * self.proved && self.since_probe > 1 {
            self.wants_probe = true;
            return;
        }
        self.limit = limit;
        self.wants_probe = self.since_probe >= PROBE_EVERY;
    }

    /// Requests were held back at a lower limit: was that faster?
    fn judge_probe(&mut self) {
        let logs = self.gathering.logs;
        self.since_probe = 0;
        let Some(probe) = self.baseline.compare(&logs) else {
            self.baseline.adopt(&logs, 0.0);
            return;
        };
        let Some((last, in_flight)) = self.last else { return };
        let mut excess = last.excess;
        let doubt = SIGNIFICANT * probe.error;
        if probe.excess < -doubt.max(NO_QUEUE) {
            self.baseline.shift(probe.excess, f64::from(COHORT));
            excess -= probe.excess;
            if probe.excess < -PROBE_AGAIN {
                self.since_probe = PROBE_EVERY;
            }
        } else if probe.excess <= doubt.max(NO_QUEUE) {
            self.baseline.merge(&logs, 0.0);
        } else if last.excess - probe.excess < FASTER {
            // As slow as with more in flight: that is how long it takes now.
            self.baseline.shift(probe.excess, f64::from(COHORT));
            excess -= probe.excess;
        }
        let aim = aim(in_flight, excess.max(0.0));
        let is_far = aim < FALL_UNPROVED * self.limit;
        let step = if is_far { 1.0 } else { STEP };
        self.limit = self.clamp(self.limit + step * (aim - self.limit));
        self.proved = self.limit;
    }

    /// Few requests came. If so few were in flight that there cannot have been a queue, their
    /// latency is worth a probe's; but that it has risen may have any reason.
    fn judge_idle(&mut self) {
        let logs = self.gathering.logs;
        self.no_queue_streak = 0;
        if self.gathering.in_flight() > PROBE * self.limit {
            return;
        }
        self.baseline.learn_spread(&logs);
        let Some(seen) = self.baseline.compare(&logs) else {
            self.baseline.adopt(&logs, 0.0);
            return;
        };
        let doubt = (SIGNIFICANT * seen.error).max(NO_QUEUE);
        if seen.excess < -doubt {
            self.baseline.shift(seen.excess, f64::from(COHORT));
        } else if seen.excess <= doubt {
            self.baseline.merge(&logs, 0.0);
        }
    }

    fn count_failures(&mut self, now_ns: u64, started_ns: u64, outcome: Outcome) {
        // What started before the cut says nothing about the limit after it.
        if started_ns < self.cut_ns || outcome == Outcome::Unknown {
            return;
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
            let is_leaping_back = self.leaps && self.limit < self.leap_to;
            self.limit = self.clamp(self.limit * CUT);
            // Later in leaps to where the failures began, and from there with care.
            if !is_leaping_back {
                self.leap_to = self.limit;
            }
            self.proved = self.limit;
            self.leaps = true;
            self.cut_ns = now_ns;
            (self.outcomes, self.failures) = (0, 0);
            self.wants_probe = false;
            self.gather(now_ns);
        }
    }

    fn clamp(&self, limit: f64) -> f64 {
        limit.clamp(self.floor, self.ceiling)
    }
}

/// What the limit should be if so many in flight have this excess of latency.
fn aim(in_flight: f64, excess: f64) -> f64 {
    let works_on = in_flight * (-excess.max(0.0)).exp();
    works_on + (HEADROOM * works_on).max(HEADROOM_MIN)
}
