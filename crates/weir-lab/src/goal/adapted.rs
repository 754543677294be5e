//! The goals of the A experiments.

use super::list::{goodput, group};
use super::{Against, Bound, Goal, GroupGoal, GroupMetric, Series};
use crate::result::{ADAPTED, ENDLESS, HIT, MISS};

/// Helpers at lowest priority.
const IDLE: Series = ("weir", "idle");
/// The same without a background.
const ALONE: Series = ("weir", "idle, alone");
/// How much hits may be slower.
const SLOWER_MAX: f64 = 1.05;
/// How much more requests may take where there is nothing to do …
const QUIET_MAX: f64 = 1.01;
/// … and where every page is changed.
const REWRITTEN_MAX: f64 = 1.05;
/// What of the rate that idle CPU allows must be kept.
const KEPT_MIN: f64 = 0.95;
/// Twenty times the original's 400 texts per second.
const TEXTS_PER_S: f64 = 8_000.0;

/// What adapters and plugins cost hits and misses; the original's: nothing, 5 %, little and 11.5 %.
pub(super) fn interface() -> Vec<Goal> {
    let quiet = ["nothing loaded", "empty hooks", "fields added"];
    let quiet = quiet.into_iter().flat_map(|case| beside_off(case, QUIET_MAX));
    quiet.chain(beside_off("rewritten", REWRITTEN_MAX)).collect()
}

/// What a list costs that matches nothing.
pub(super) fn lists() -> Vec<Goal> {
    beside_off("list", QUIET_MAX)
}

/// Times and CPU, to those without.
fn beside_off(case: &'static str, bound: f64) -> Vec<Goal> {
    let metrics = [(HIT, GroupMetric::P50), (MISS, GroupMetric::P50), (HIT, GroupMetric::Cpu)];
    let goal = |(whom, metric)| {
        let against = Against::Other(("weir", "off"));
        group(("weir", case), of(whom, metric, against, Bound::AtMost(bound)))
    };
    metrics.map(goal).to_vec()
}

/// Hits take as long as without demand, and what is adapted is what idle CPU allows.
pub(super) fn endless_demand() -> Vec<Goal> {
    let mut goals = hits_unhurt();
    let rate = of(ADAPTED, GroupMetric::Marked, Against::Nothing, Bound::AtLeast(TEXTS_PER_S));
    goals.push(group(ALONE, rate));
    goals
}

/// The goals of A3, and of A4 too.
pub(super) fn hits_unhurt() -> Vec<Goal> {
    let mut goals = Vec::new();
    // Beside as many requests for originals, only what is adapted makes the difference.
    for against in [Against::First, Against::Other(("weir", "none"))] {
        for metric in [GroupMetric::P50, GroupMetric::P99] {
            let goal = of(HIT, metric, against, Bound::AtMost(SLOWER_MAX));
            goals.push(group(IDLE, GroupGoal { x_min: ENDLESS, ..goal }));
        }
    }
    let against = Against::Other(ALONE);
    let kept = of(ADAPTED, GroupMetric::OfIdle, against, Bound::AtLeast(KEPT_MIN));
    goals.push(group(IDLE, GroupGoal { x_min: ENDLESS, ..kept }));
    goals
}

fn of(whom: &'static str, metric: GroupMetric, against: Against, bound: Bound) -> GroupGoal {
    GroupGoal { metric, against, ..goodput(Some(whom), bound) }
}

#[cfg(test)]
mod tests {
    use crate::goal::tests::{group_sample, record};
    use crate::goal::{Unit, evaluate};
    use crate::result::{ADAPTED, ENDLESS, GroupSample, HIT, MISS};

    #[test]
    fn endless_demand_is_judged_by_hits_and_by_what_was_adapted() {
        let mut record = record("a4");
        let mut add = |case: &str, group: &str, x: f64, marked, cpu_share: f64, p50_us| {
            record.groups.push(GroupSample {
                marked,
                server_cpu_ns: (cpu_share * 1e9) as u64,
                latency_p50_us: p50_us,
                ..group_sample(("weir", case, group), x, 0, marked)
            });
        };
        add("idle", HIT, 0.0, 1_160, 0.1, 100.0);
        add("idle", HIT, 75.0, 1_160, 0.1, 500.0);
        add("idle", HIT, ENDLESS, 1_160, 1.0, 104.0);
        add("idle", ADAPTED, ENDLESS, 7_300, 1.0, 4_000.0);
        add("none", HIT, ENDLESS, 1_160, 0.2, 98.0);
        add("idle, alone", ADAPTED, ENDLESS, 8_000, 1.0, 4_000.0);
        let verdicts = evaluate(&record);
        let measured: Vec<_> = verdicts.iter().map(|v| (v.measured, v.met)).collect();
        assert_eq!(measured[0], (Some(1.04), Some(true)), "75/s is not endless");
        assert_eq!(measured[2], (Some(104.0 / 98.0), Some(false)));
        assert_eq!(measured[4], (Some(7_300.0 / 7_200.0), Some(true)));
        let last = &verdicts[5];
        assert_eq!((last.measured, last.unit), (Some(8_000.0), Unit::PerSecond));
        assert!(last.goal.contains("per second ≥ 8000"), "{}", last.goal);
    }

    #[test]
    fn a_list_is_judged_by_the_worst_load() {
        let mut record = record("a2");
        for (x, cpu_ns) in [(2_000.0, 50_500_000), (6_000.0, 51_000_000)] {
            let mut add = |case: &str, group: &str, server_cpu_ns| {
                let sample = group_sample(("weir", case, group), x, 0, 1_000);
                record.groups.push(GroupSample { server_cpu_ns, ..sample });
            };
            for group in [HIT, MISS] {
                add("off", group, 50_000_000);
                add("list", group, cpu_ns);
            }
        }
        let verdicts = evaluate(&record);
        let measured: Vec<_> = verdicts.iter().map(|v| (v.measured, v.met)).collect();
        assert_eq!(measured[..2], [(Some(1.0), Some(true)), (Some(1.0), Some(true))]);
        assert_eq!(measured[2], (Some(1.02), Some(false)));
    }
}
