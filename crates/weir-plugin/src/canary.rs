//! Judges a generation on trial by what it and the one in force have counted since the trial began.
//! No clock, no threads: `trial` calls this once a second.
//!
//! A trial fails early or at its end, for the first of these reasons that holds:
//!
//! 1. It is in quarantine.
//! 2. Failures per request are more than those of the one in force: a one-sided test of two
//!    proportions, pooled variance, z ≥ 3 from three failures on (one trial in 740 would fail by
//!    chance at a look; looks overlap), and z ≥ 2.33 (one in 100) from the first failure on at
//!    the end. A difference below 0.1 percentage points never counts.
//! 3. The share of 5xx responses, by the same test. Not if there is nothing in force to compare
//!    with: then they are the origin's as likely.
//! 4. The mean of its timed calls, 50 at least on both sides, is more than twice the other's, and
//!    more than 50 µs above; or their 99th percentile, from 200 on both sides, more than twice and
//!    more than 500 µs above.
//!
//! Otherwise it is promoted at the end of its time. So one that had no traffic is promoted if it has
//! not failed (its timer may run without requests), and fails if it has.

use crate::stats::Stats;

/// What is known when the judge is called.
pub(crate) struct Evidence<'a> {
    /// What the generation on trial has counted.
    pub(crate) new: &'a Stats,
    /// What the one in force has counted in the same time; `None` if there is none.
    pub(crate) old: Option<&'a Stats>,
    /// The new one is in quarantine.
    pub(crate) is_resting: bool,
    /// The time is up.
    pub(crate) is_over: bool,
}

/// What becomes of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not decided yet.
    Wait,
    /// The new generation comes into force.
    Promote,
    /// It does not, for this reason.
    RollBack(String),
}

const Z_EARLY: f64 = 3.0;
const Z_END: f64 = 2.33;
const EVENTS_EARLY_MIN: u64 = 3;
const DIFFERENCE_MIN: f64 = 0.001;

const TIMES_SLOWER: u64 = 2;
const MEAN_SAMPLES_MIN: u64 = 50;
const MEAN_FLOOR_NS: u64 = 50_000;
const P99_SAMPLES_MIN: u64 = 200;
const P99_FLOOR_NS: u64 = 500_000;

/// Decides.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let reason = quarantined(evidence)
        .or_else(|| failing(evidence))
        .or_else(|| erring(evidence))
        .or_else(|| slow(evidence));
    match (reason, evidence.is_over) {
        (Some(reason), _) => Verdict::RollBack(reason),
        (None, true) => Verdict::Promote,
        (None, false) => Verdict::Wait,
    }
}

fn quarantined(evidence: &Evidence<'_>) -> Option<String> {
    evidence.is_resting.then(|| "it failed too often and is in quarantine".to_owned())
}

fn failing(evidence: &Evidence<'_>) -> Option<String> {
    // A request may fail more than once, and a timer without a request.
    let share = |stats: &Stats| Share::new(stats.failed(), stats.streams.max(stats.failed()));
    let old = evidence.old.map(share).unwrap_or_default();
    worse("requests failed in it", share(evidence.new), old, evidence.is_over)
}

fn erring(evidence: &Evidence<'_>) -> Option<String> {
    let share = |stats: &Stats| Share::new(stats.errors, stats.responses);
    let old = share(evidence.old?);
    worse("responses were 5xx", share(evidence.new), old, evidence.is_over)
}

fn slow(evidence: &Evidence<'_>) -> Option<String> {
    let (new, old) = (evidence.new, evidence.old?);
    let samples = new.timed.min(old.timed);
    let slower = |new: Option<u64>, old: Option<u64>, floor_ns: u64| {
        let (new, old) = (new?, old?);
        let is_slower = new > old.saturating_mul(TIMES_SLOWER) && new - old > floor_ns;
        is_slower.then(|| format!("{} against {}", micros(new), micros(old)))
    };
    if samples >= MEAN_SAMPLES_MIN
        && let Some(figures) = slower(new.mean_ns(), old.mean_ns(), MEAN_FLOOR_NS)
    {
        return Some(format!("its calls take {figures} in the mean"));
    }
    if samples >= P99_SAMPLES_MIN
        && let Some(figures) = slower(new.quantile_ns(0.99), old.quantile_ns(0.99), P99_FLOOR_NS)
    {
        return Some(format!("one in a hundred of its calls takes {figures} or longer"));
    }
    None
}

fn micros(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1000.0)
}

/// So many of so many.
#[derive(Clone, Copy, Default)]
struct Share {
    events: u64,
    of: u64,
}

impl Share {
    fn new(events: u64, of: u64) -> Share {
        Share { events: events.min(of), of }
    }

    fn value(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.events as f64 / self.of as f64 }
    }
}

/// Whether the new share is higher than the old one by more than chance.
fn worse(what: &str, new: Share, old: Share, is_over: bool) -> Option<String> {
    let (z_min, events_min) = match is_over {
        true => (Z_END, 1),
        false => (Z_EARLY, EVENTS_EARLY_MIN),
    };
    let difference = new.value() - old.value();
    if new.events < events_min || difference < DIFFERENCE_MIN {
        return None;
    }
    // Without requests on the old one, it is taken as one that had as many and did well.
    let old = if old.of == 0 { Share { events: 0, of: new.of } } else { old };
    let together = Share { events: new.events + old.events, of: new.of + old.of }.value();
    let variance = together * (1.0 - together) * (1.0 / new.of as f64 + 1.0 / old.of as f64);
    // Without any variance every request of both failed, and there is no difference.
    let z = difference / variance.sqrt().max(f64::MIN_POSITIVE);
    // Too few for the test, and nothing else to go by: one that never did well has failed.
    let never_did_well = is_over && new.events == new.of && old.events == 0;
    (z >= z_min || never_did_well).then(|| {
        format!(
            "{} of {} {what}, against {} of {} in the one before",
            new.events, new.of, old.events, old.of
        )
    })
}
