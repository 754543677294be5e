//! The adaptive limit: which cohorts are measured, and what follows from them.

use super::baseline::{Baseline, Measured};
use super::cohort::{Gathering, Progress};
use super::curve::{Curve, POSSIBLE, POSSIBLE_IN_LEAPS};
use super::doubt::Doubt;
use super::failures::Failures;
use super::{Cohort, Outcome, Sent};
use crate::class::Heir;
use crate::queue::CLASSES_MAX;

/// Requests of a cohort for each unit of spread (the variance of latencies in units of their mean
/// squared): so many measure the mean to 6 %. The least and most.
const COHORT_PER_SPREAD: f64 = 240.0;
const COHORT_MIN: f64 = 40.0;
const COHORT_MAX: f64 = 480.0;
/// While the limit grows in leaps, cohorts are a quarter of that; on the way back to a limit that
/// is known, they only give failures time to show.
const COHORT_LEAP: f64 = 0.25;
const COHORT_BACK: f64 = 8.0;
/// A cohort is also at least so many rounds of what is in flight, so that it sees the limit at
/// work.
const ROUNDS: u32 = 2;

/// Requests over the knee, as a part of it: there growth shows.
const HEADROOM: f64 = 0.1;
/// At least so many.
const HEADROOM_MIN: f64 = 1.0;
/// Growth of a limit that is far too low, and growth at most.
const LEAP: f64 = 1.5;
/// Cohorts without any queue after which the limit is taken to be far too low.
const LEAP_AFTER: u32 = 3;

/// The limit during a probe, as a part of itself. After a surprise: with the headroom, 0.77 of the
/// knee, so that a tenth more or less of either does not matter.
const PROBE: f64 = 0.7;
/// Where the limit is known: if the knee is where it is thought to be, latency rises by a fifth for
/// one cohort in nine; if it is thought to be far too low, or more servers have come, nothing
/// else shows it.
const PROBE_UP: f64 = 1.2;
/// Where too little is known of latency without a queue. Half as many tell five times as much as
/// 0.7 of them, for half the throughput while half a cohort lasts.
const PROBE_DEEP: f64 = 0.5;
/// There was a queue even with the least that was measured, if the knee lies below this multiple of
/// it.
const BRACKET: f64 = 1.1;
/// Cohorts between probes.
const PROBE_EVERY: u32 = 8;
/// As long as the latency without a queue is not known well.
const PROBE_EVERY_AT_FIRST: u32 = 2;
/// It is when its standard error is 10 %: half as many in flight have half the latency, or not.
const WEIGHT_ENOUGH: f64 = 100.0;

/// How long people may wait for a limit that is lowered though it held nobody back, and two
/// latencies, so that something is seen.
const ASK_NS: u64 = 250_000_000;
/// How much a limit that is met now and then rises with each cohort, and how far over the knee.
const DRIFT: f64 = 1.03;
const DRIFT_MAX: f64 = 2.0;
/// Weight of a new number of requests in flight in the mean.
const USUALLY_SHARE: f64 = 1.0 / 16.0;

/// What failures leave of the limit.
const CUT: f64 = 0.7;

#[derive(Debug)]
pub(super) struct Controller {
    floor: f64,
    ceiling: f64,
    /// The limit, but for probes.
    limit: f64,
    /// The limit during a probe.
    probe: f64,
    /// Where leaps end after failures; infinite when there were none.
    leap_to: f64,
    /// Whether the limit has grown since failures lowered it.
    grew: bool,
    leaps: bool,
    /// What the upstream works on at a time. Without it the limit is a guess.
    knee: Option<f64>,
    doubt: Doubt,
    /// Mean of the last cohort.
    latency_ns: u64,
    /// Requests in flight, as a mean over those below the knee.
    usually_below: f64,
    /// The limit was lowered by failures, and latencies measured before say that it may be higher.
    is_on_way_back: bool,
    /// Cohorts in a row, up to the last, after which no queue was known of.
    unbounded: u32,
    since_probe: u32,
    wants_probe: bool,
    may_probe: bool,
    baseline: Baseline,
    gathering: Gathering,
    curve: Curve,
    ids: u32,
    failures: Failures,
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
            probe: limit,
            leap_to: f64::INFINITY,
            grew: false,
            leaps: true,
            knee: None,
            doubt: Doubt::default(),
            latency_ns: 0,
            usually_below: 1.0,
            is_on_way_back: false,
            unbounded: 0,
            since_probe: 0,
            wants_probe: false,
            may_probe: true,
            baseline: Baseline::new(),
            gathering: Gathering::new(Cohort(1), 0, false, 1, 0, [0.0; CLASSES_MAX]),
            curve: Curve::new(),
            ids: 1,
            failures: Failures::default(),
        };
        controller.gather(0);
        controller
    }

    /// The limit now. At least 1.
    pub(super) fn limit(&self) -> u32 {
        let limit = match self.doubt.most() {
            _ if self.is_probing() => self.probe,
            Some(most) => self.limit.min(most),
            None => self.limit,
        };
        // To the nearest: cut off, a limit below the next whole number would find itself confirmed.
        (limit.round() as u32).max(1)
    }

    /// How far the limit is over the knee; not during a probe, which sees least if some exceed it.
    pub(super) fn headroom(&self) -> u32 {
        let knee = self.knee.filter(|_| !self.is_probing());
        knee.map_or(0, |knee| headroom(knee).round() as u32)
    }

    pub(super) fn set(&mut self, limit: u32) {
        let least = if self.doubt.give_up() { self.limit } else { self.floor };
        self.limit = self.clamp(f64::from(limit).max(least));
    }

    pub(super) fn let_probe(&mut self, may_probe: bool) {
        self.may_probe = may_probe;
    }

    pub(super) fn is_probing(&self) -> bool {
        self.gathering.is_probe && self.gathering.is_under_way()
    }

    pub(super) fn has_knee(&self) -> bool {
        self.knee.is_some()
    }

    /// Until when the limit may be lowered, if it held nobody back before, whoever waits for that.
    pub(super) fn asks_until_ns(&self) -> Option<u64> {
        let is_asking = self.is_probing() && self.doubt.is_asking();
        let takes_ns = ASK_NS.saturating_add(2 * self.latency_ns);
        is_asking.then(|| self.gathering.opened_ns().saturating_add(takes_ns))
    }

    /// Ends that.
    pub(super) fn stop_asking(&mut self, now_ns: u64) {
        self.gathering.cut_short(now_ns);
        self.tick(now_ns);
    }

    pub(super) fn baseline_ns(&self) -> Option<u64> {
        let unloaded = self.curve.fit()?.unloaded.exp();
        Some((self.baseline.ns()? * unloaded) as u64)
    }

    pub(super) fn started(&mut self, now_ns: u64, class: usize, in_flight: u32) -> Cohort {
        let limit = self.limit();
        let cohort = self.gathering.started(now_ns, class, in_flight, limit);
        self.tick(now_ns);
        cohort
    }

    pub(super) fn finished(&mut self, now_ns: u64, sent: &Sent, latency_ns: u64, outcome: Outcome) {
        if sent.is_among_few && outcome == Outcome::Answered {
            self.doubt.quiet(latency_ns);
        }
        if sent.cohort == self.gathering.id {
            self.gathering.finished(sent.class, sent.at_ns, latency_ns, outcome);
        }
        if self.failures.add(now_ns, sent.at_ns, outcome) {
            self.cut(now_ns);
        }
        self.tick(now_ns);
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        match self.gathering.progress(now_ns) {
            Progress::Goes => return,
            // What it was to be compared with, or the answer, never comes.
            Progress::IsVoid => _ = self.doubt.give_up(),
            Progress::IsComplete => self.judge(),
        }
        self.gather(now_ns);
    }

    /// Other classes. Those in flight are known by the ranks they had: what is measured now is
    /// measured anew.
    pub(super) fn reclass(&mut self, now_ns: u64, heirs: &[Heir]) {
        self.baseline.reclass(heirs);
        self.doubt.give_up();
        self.gather(now_ns);
    }

    /// Begins the next cohort.
    fn gather(&mut self, now_ns: u64) {
        let is_probe = std::mem::take(&mut self.wants_probe);
        // 0 is for requests that belong to none.
        self.ids = self.ids.checked_add(1).unwrap_or(1);
        let cohort = (COHORT_PER_SPREAD * self.baseline.spread()).clamp(COHORT_MIN, COHORT_MAX);
        let cohort = match self.curve.fit() {
            Some(_) if self.is_on_way_back => COHORT_BACK,
            Some(_) if self.leaps && self.unbounded > 0 => cohort * COHORT_LEAP,
            _ => cohort,
        };
        let limit = if is_probe { self.probe.round() as u32 } else { self.limit() };
        let cohort =
            if is_probe && self.probe < PROBE * self.limit { cohort / 2.0 } else { cohort };
        let wanted = (cohort as u32).max(ROUNDS * limit);
        let skip = if is_probe { 0 } else { limit };
        let most_ns = self.baseline.most_ns();
        self.gathering = Gathering::new(Cohort(self.ids), now_ns, is_probe, wanted, skip, most_ns);
    }

    fn judge(&mut self) {
        let in_flight = self.gathering.in_flight();
        let is_lower = self.gathering.is_probe && self.probe < self.limit;
        let is_held = is_lower || self.gathering.is_saturated();
        let Some(measured) = self.baseline.measure(&self.gathering.latencies) else { return };
        self.latency_ns = self.gathering.mean_ns();
        self.since_probe = if self.gathering.is_probe { 0 } else { self.since_probe + 1 };
        if !self.gathering.is_probe && self.doubt.compares(measured) {
            self.compare(in_flight, measured);
        } else if is_held {
            self.judge_held(in_flight, measured);
        } else {
            self.unbounded = 0;
            match self.knee {
                Some(knee) => self.judge_below(in_flight, measured, knee),
                None => self.judge_free(in_flight, measured),
            }
        }
    }

    /// Requests were as many as the limit lets.
    fn judge_held(&mut self, in_flight: f64, measured: Measured) {
        let is_first = self.curve.fit().is_none();
        self.curve.set_possible(if self.leaps { POSSIBLE_IN_LEAPS } else { POSSIBLE });
        let is_surprise = self.curve.add(in_flight, measured.latency, measured.error);
        if self.gathering.is_probe && self.doubt.is_answered() {
            return;
        }
        if is_first {
            // Too high already? Otherwise the first thing to be seen is a limit higher still.
            self.ask(PROBE_DEEP * in_flight);
        } else if is_surprise {
            // Slower by itself, or a queue? Only fewer requests can tell.
            self.leaps = false;
            self.unbounded = 0;
            self.ask(PROBE * in_flight.min(self.limit));
        } else {
            self.follow_curve();
        }
    }

    /// They were not, and the limit is known.
    fn judge_below(&mut self, in_flight: f64, measured: Measured, knee: f64) {
        if in_flight <= PROBE * knee {
            // They cannot have met a queue. How many there were comes of how long they took, so
            // that counts with its mean.
            self.usually_below += (in_flight - self.usually_below) * USUALLY_SHARE;
            let in_flight = self.usually_below.min(PROBE * knee);
            if self.curve.add(in_flight, measured.latency, measured.error) {
                self.knee = None;
            }
        }
        if self.gathering.starts_at_limit() > 0 {
            // A limit that is found too low shows itself only under load. So it is not clung to.
            let aim = (self.limit * DRIFT).min(knee * DRIFT_MAX);
            self.limit = self.clamp(aim.max(self.limit));
        }
    }

    /// They were not, and the limit is a guess.
    fn judge_free(&mut self, in_flight: f64, measured: Measured) {
        if self.doubt.asks(in_flight, measured, self.latency_ns) {
            self.ask(PROBE_DEEP * in_flight);
        }
    }

    /// What is seen after a question, beside its answer.
    fn compare(&mut self, in_flight: f64, measured: Measured) {
        self.curve.set_possible(POSSIBLE_IN_LEAPS);
        self.curve.add(in_flight, measured.latency, measured.error);
        if self.curve.fit().is_some_and(|fit| fit.knee.is_some()) {
            self.follow_curve();
        }
    }

    fn follow_curve(&mut self) {
        let Some(fit) = self.curve.fit() else { return };
        let Some(knee) = fit.knee.map(f64::exp) else {
            self.grow(fit.most.exp());
            return;
        };
        self.leaps = false;
        self.unbounded = 0;
        self.knee = Some(knee);
        self.go_to(knee + headroom(knee));
        if self.is_on_way_back {
            return;
        }
        if knee < fit.least.exp() * BRACKET {
            self.ask(PROBE_DEEP * fit.least.exp());
            return;
        }
        let is_known = fit.weight_below >= WEIGHT_ENOUGH;
        let every = if is_known { PROBE_EVERY } else { PROBE_EVERY_AT_FIRST };
        if self.since_probe >= every {
            let part = if is_known { PROBE_UP } else { PROBE_DEEP };
            self.ask(part * self.limit);
        }
    }

    /// No queue was seen with so many in flight.
    fn grow(&mut self, most: f64) {
        self.knee = None;
        self.unbounded += 1;
        self.leaps |= self.unbounded >= LEAP_AFTER;
        let aim = if self.leaps { most * LEAP } else { most + headroom(most) };
        self.go_to(aim.max(self.limit));
        if !self.leaps && !self.is_on_way_back && self.since_probe >= PROBE_EVERY_AT_FIRST {
            self.ask(PROBE * self.limit);
        }
    }

    /// Moves the limit, upwards no faster than failures before allow.
    fn go_to(&mut self, aim: f64) {
        if self.limit * CUT > self.leap_to {
            // Beyond where they began.
            self.leap_to = f64::INFINITY;
        }
        let leap = self.limit * LEAP;
        let with_care = self.limit + headroom(self.limit);
        let most = leap.min(self.leap_to.max(with_care));
        self.is_on_way_back = self.limit < self.leap_to.min(aim) && self.leap_to.is_finite();
        let before = self.limit;
        self.limit = self.clamp(aim.min(most));
        self.grew |= self.limit > before;
    }

    /// Has the next cohort be a probe, with so many in flight.
    fn ask(&mut self, in_flight: f64) {
        if in_flight.round() >= 1.0 && (self.may_probe || in_flight > self.limit) {
            self.wants_probe = true;
            self.probe = in_flight.min(self.ceiling);
        }
    }

    /// The upstream fails: fewer, at once.
    fn cut(&mut self, now_ns: u64) {
        // Without growth since the last cut, these failures go on from those.
        let is_new = self.leap_to.is_infinite() || self.grew;
        self.grew = false;
        self.limit = self.clamp(self.limit * CUT);
        // Later in leaps to where the failures began, and from there with care.
        if is_new {
            self.leap_to = self.limit;
        }
        self.is_on_way_back = true;
        self.wants_probe = false;
        self.gather(now_ns);
    }

    fn clamp(&self, limit: f64) -> f64 {
        limit.clamp(self.floor, self.ceiling)
    }
}

fn headroom(knee: f64) -> f64 {
    (HEADROOM * knee).max(HEADROOM_MIN)
}
