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
//! 4. The share of requests that did not get a whole response: of those that have ended, and at the
//!    end of those, too, that it still has. By the same test, against the one in force.
//! 5. The mean of its timed calls, 50 at least on both sides, is more than twice the other's, and
//!    more than 50 µs above; or their 99th percentile, from 200 on both sides, more than twice and
//!    more than 500 µs above.
//! 6. Requests take longer from beginning to end: by the same rule, with 20 ms and 100 ms.
//!
//! Otherwise it is promoted at the end of its time. So one that had no traffic is promoted if it
//! has not failed (its timer may run without requests), and fails if it has.

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
const P99_SAMPLES_MIN: u64 = 200;

/// Decides.
pub(crate) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let reason = quarantined(evidence)
        .or_else(|| failing(evidence))
        .or_else(|| erring(evidence))
        .or_else(|| losing(evidence))
        .or_else(|| slow(evidence))
        .or_else(|| slowing(evidence));
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

fn losing(evidence: &Evidence<'_>) -> Option<String> {
    let share = |stats: &Stats| {
        let open = stats.followed.saturating_sub(stats.responses + stats.broken);
        let lost = if evidence.is_over { stats.broken + open } else { stats.broken };
        Share::new(lost, stats.responses + lost)
    };
    let (new, old) = (share(evidence.new), share(evidence.old?));
    worse("requests got no whole response", new, old, evidence.is_over)
}

fn slow(evidence: &Evidence<'_>) -> Option<String> {
    let (new, old) = (evidence.new, evidence.old?);
    let floors = Floors { mean_ns: 50_000, p99_ns: 500_000 };
    Pace::of_calls(new).slower_than(&Pace::of_calls(old), &floors, "calls")
}

fn slowing(evidence: &Evidence<'_>) -> Option<String> {
    let (new, old) = (evidence.new, evidence.old?);
    let floors = Floors { mean_ns: 20_000_000, p99_ns: 100_000_000 };
    Pace::of_requests(new).slower_than(&Pace::of_requests(old), &floors, "requests")
}

/// How long something takes.
struct Pace {
    samples: u64,
    mean_ns: Option<u64>,
    p99_ns: Option<u64>,
}

/// Differences below these do not count.
struct Floors {
    mean_ns: u64,
    p99_ns: u64,
}

impl Pace {
    fn of_calls(stats: &Stats) -> Pace {
        let p99_ns = stats.quantile_ns(0.99);
        Pace { samples: stats.timed, mean_ns: stats.mean_ns(), p99_ns }
    }

    fn of_requests(stats: &Stats) -> Pace {
        let p99_ns = stats.request_quantile_ns(0.99);
        Pace { samples: stats.responses, mean_ns: stats.request_mean_ns(), p99_ns }
    }

    fn slower_than(&self, old: &Pace, floors: &Floors, what: &str) -> Option<String> {
        let samples = self.samples.min(old.samples);
        let slower = |new: Option<u64>, old: Option<u64>, floor_ns: u64| {
            let (new, old) = (new?, old?);
            let is_slower = new > old.saturating_mul(TIMES_SLOWER) && new - old > floor_ns;
            is_slower.then(|| format!("{} against {}", micros(new), micros(old)))
        };
        if samples >= MEAN_SAMPLES_MIN
            && let Some(figures) = slower(self.mean_ns, old.mean_ns, floors.mean_ns)
        {
            return Some(format!("its {what} take {figures} in the mean"));
        }
        if samples >= P99_SAMPLES_MIN
            && let Some(figures) = slower(self.p99_ns, old.p99_ns, floors.p99_ns)
        {
            return Some(format!("one in a hundred of its {what} takes {figures} or longer"));
        }
        None
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    /// (requests, failures, responses, 5xx, timed calls, mean in µs)
    type Row = (u64, u64, u64, u64, u64, u64);

    const NOTHING: Row = (0, 0, 0, 0, 0, 0);

    fn stats((streams, failures, responses, errors, timed, mean_us): Row) -> Stats {
        let p99_ns = mean_us * 1000;
        Stats {
            streams,
            responses,
            errors,
            timed,
            timed_ns: timed * mean_us * 1000,
            buckets: vec![(Some(p99_ns), timed)],
            failures: vec![(FailureKind::Trap, failures)],
            ..Stats::default()
        }
    }

    /// What is decided on the way and at the end: a word of the reason, or nothing.
    fn check(new: Row, old: Row, early: Option<&str>, at_end: Option<&str>) {
        let (new_stats, old_stats) = (stats(new), stats(old));
        for (is_over, expected) in [(false, early), (true, at_end)] {
            let (new, old) = (&new_stats, Some(&old_stats));
            let verdict = judge(&Evidence { new, old, is_resting: false, is_over });
            match (expected, &verdict) {
                (Some(word), Verdict::RollBack(reason)) if reason.contains(word) => {}
                (None, Verdict::Wait) if !is_over => {}
                (None, Verdict::Promote) if is_over => {}
                _ => panic!("{new_stats:?}\n{old_stats:?}\nover: {is_over}, {verdict:?}"),
            }
        }
    }

    #[test]
    fn failures_are_compared_as_shares() {
        let failed = Some("requests failed in it");
        // As good as the one before.
        check((100, 0, 0, 0, 0, 0), (1900, 0, 0, 0, 0, 0), None, None);
        check((100, 1, 0, 0, 0, 0), (1900, 19, 0, 0, 0, 0), None, None);
        check((100, 2, 0, 0, 0, 0), (1900, 19, 0, 0, 0, 0), None, None);
        // Every request fails: decided at the third.
        check((2, 2, 0, 0, 0, 0), (40, 0, 0, 0, 0, 0), None, failed);
        check((3, 3, 0, 0, 0, 0), (60, 0, 0, 0, 0, 0), failed, failed);
        // The first failure counts at the end.
        check((10, 1, 0, 0, 0, 0), (190, 0, 0, 0, 0, 0), None, failed);
        // A clear difference between two that both fail.
        check((1000, 30, 0, 0, 0, 0), (1000, 5, 0, 0, 0, 0), failed, failed);
        // Certain, and of no weight.
        check((10_000_000, 5_000, 0, 0, 0, 0), (10_000_000, 0, 0, 0, 0, 0), None, None);
        // Better than the one before.
        check((100, 1, 0, 0, 0, 0), (1900, 1900, 0, 0, 0, 0), None, None);
        // Both always fail: no worse.
        check((50, 50, 0, 0, 0, 0), (950, 950, 0, 0, 0, 0), None, None);
        // More failures than requests: a timer's.
        check((1, 9, 0, 0, 0, 0), (100, 0, 0, 0, 0, 0), failed, failed);
    }

    #[test]
    fn responses_with_5xx_are_compared_as_shares() {
        let erred = Some("responses were 5xx");
        check((0, 0, 100, 0, 0, 0), (0, 0, 1900, 0, 0, 0), None, None);
        check((0, 0, 100, 50, 0, 0), (0, 0, 1900, 950, 0, 0), None, None);
        check((0, 0, 100, 80, 0, 0), (0, 0, 1900, 950, 0, 0), erred, erred);
        check((0, 0, 4, 4, 0, 0), (0, 0, 80, 0, 0, 0), erred, erred);
    }

    #[test]
    fn calls_must_not_become_much_slower() {
        let mean = Some("in the mean");
        // Twice as slow and no more; far slower, but nothing in absolute terms; too few samples.
        check((0, 0, 0, 0, 500, 200), (0, 0, 0, 0, 500, 100), None, None);
        check((0, 0, 0, 0, 500, 40), (0, 0, 0, 0, 500, 1), None, None);
        check((0, 0, 0, 0, 49, 900), (0, 0, 0, 0, 500, 100), None, None);
        check((0, 0, 0, 0, 50, 900), (0, 0, 0, 0, 500, 100), mean, mean);
        check((0, 0, 0, 0, 50, 900), (0, 0, 0, 0, 49, 100), None, None);
        // The mean is as it was, and one in fifty takes ten milliseconds.
        let with_tail = |tail: u64| Stats {
            timed: 1000,
            timed_ns: 1000 * 300_000,
            buckets: vec![(Some(100_000), 1000 - tail), (Some(10_000_000), tail)],
            ..Stats::default()
        };
        for (tail, expected) in [(5, None), (20, Some("one in a hundred"))] {
            let (new, old) = (&with_tail(tail), Some(&with_tail(0)));
            match judge(&Evidence { new, old, is_resting: false, is_over: false }) {
                Verdict::RollBack(reason) => assert!(expected.is_some_and(|w| reason.contains(w))),
                verdict => assert_eq!((verdict, expected), (Verdict::Wait, None)),
            }
        }
    }

    #[test]
    fn requests_that_get_no_response_are_compared_as_shares() {
        // (followed, whole responses, broken) of both; a word of the reason, early and at the end.
        let lost = Some("got no whole response");
        for (new, old, early, at_end) in [
            ((100, 100, 0), (1900, 1900, 0), None, None),
            // Clients that leave do so with both.
            ((100, 95, 5), (1900, 1805, 95), None, None),
            // It closes connections, or holds until clients leave.
            ((26, 0, 26), (500, 500, 0), lost, lost),
            ((300, 84, 216), (300, 300, 0), lost, lost),
            // It holds them still: what is open on the way may end well.
            ((26, 0, 0), (500, 500, 0), None, lost),
            // Long ones are open with both.
            ((100, 50, 0), (1000, 500, 0), None, None),
        ] {
            let stats = |(followed, responses, broken)| Stats {
                followed,
                responses,
                broken,
                ..Stats::default()
            };
            let (new, old) = (stats(new), stats(old));
            for (is_over, expected) in [(false, early), (true, at_end)] {
                let evidence = Evidence { new: &new, old: Some(&old), is_resting: false, is_over };
                match (expected, judge(&evidence)) {
                    (Some(word), Verdict::RollBack(reason)) if reason.contains(word) => {}
                    (None, Verdict::Wait) if !is_over => {}
                    (None, Verdict::Promote) if is_over => {}
                    (_, verdict) => panic!("{new:?}\n{old:?}\nover: {is_over}, {verdict:?}"),
                }
            }
        }
    }

    #[test]
    fn requests_must_not_become_much_slower() {
        let requests = |count: u64, each_ms: u64| Stats {
            followed: count,
            responses: count,
            requests_ns: count * each_ms * 1_000_000,
            ..Stats::default()
        };
        for (new, old, expected) in [
            (requests(100, 30), requests(1000, 15), None),
            (requests(100, 2000), requests(1000, 15), Some("its requests take")),
            (requests(49, 2000), requests(1000, 15), None),
        ] {
            let evidence =
                Evidence { new: &new, old: Some(&old), is_resting: false, is_over: false };
            match judge(&evidence) {
                Verdict::RollBack(reason) => assert!(expected.is_some_and(|w| reason.contains(w))),
                verdict => assert_eq!((verdict, expected), (Verdict::Wait, None)),
            }
        }
    }

    #[test]
    fn without_traffic_only_a_failure_counts() {
        let failed = Some("requests failed in it");
        check(NOTHING, NOTHING, None, None);
        check(NOTHING, (1000, 0, 1000, 0, 100, 10), None, None);
        check((0, 1, 0, 0, 0, 0), NOTHING, None, failed);
        check((0, 3, 0, 0, 0, 0), (1000, 0, 1000, 0, 100, 10), failed, failed);
    }

    #[test]
    fn quarantine_ends_a_trial_at_once_and_a_first_generation_has_nothing_to_be_compared_with() {
        let (good, bad) = (stats((10, 0, 10, 0, 0, 0)), stats((10, 5, 10, 0, 0, 0)));
        let erring = stats((10, 0, 10, 9, 100, 90_000));
        let judge = |new: &Stats, is_resting: bool, is_over: bool| {
            judge(&Evidence { new, old: None, is_resting, is_over })
        };
        assert!(
            matches!(judge(&good, true, false), Verdict::RollBack(why) if why.contains("quar"))
        );
        assert_eq!(judge(&good, false, false), Verdict::Wait);
        assert_eq!(judge(&good, false, true), Verdict::Promote);
        assert_eq!(judge(&erring, false, true), Verdict::Promote, "the origin's, as likely");
        assert!(matches!(judge(&bad, false, true), Verdict::RollBack(_)));
    }
}
