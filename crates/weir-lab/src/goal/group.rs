//! Goals about groups of clients under overload.

use super::{Series, Unit};
use crate::result::{ENDLESS, GroupSample, Record};
use crate::stats::{median, paired_interval, paired_ratio};

/// A goal about what a group gets; at every value of what was varied, so that the worst counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupGoal {
    /// Whom it is about; all together if `None`.
    pub group: Option<&'static str>,
    /// What is measured.
    pub metric: GroupMetric,
    /// What it is compared with.
    pub against: Against,
    /// The least, or the most, that it may be.
    pub bound: Bound,
    /// From this value of what was varied on.
    pub x_min: f64,
    /// Only where there was a limit.
    pub limited: bool,
}

/// What of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMetric {
    /// Correct responses per second.
    Goodput,
    /// Median of their latency.
    P50,
    /// 99th percentile of it.
    P99,
    /// Those of the responses that were what they were asked to be, per second.
    Marked,
    /// CPU of the contender per request, of all groups.
    Cpu,
    /// Adaptations per second, to what the CPU allows that the background leaves; what the core can
    /// do alone is what it is compared with.
    OfIdle,
    /// How much more or less was let in than the limit, as a share of it.
    LimitError,
    /// The group's part of all correct responses.
    Share,
    /// Share of time that the contender's core was busy.
    CoreBusy,
}

/// With what it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Nothing: it is a ratio by itself.
    Nothing,
    /// Another series, of the same value of what was varied.
    Other(Series),
    /// Itself at the least value of what was varied.
    First,
    /// Its own greatest value.
    Peak,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
}

impl GroupGoal {
    pub(super) fn words(&self, (contender, case): Series) -> String {
        let group = self.group.unwrap_or("all");
        let what = match self.metric {
            GroupMetric::Goodput => "goodput",
            GroupMetric::P50 => "median latency",
            GroupMetric::P99 => "99th percentile",
            GroupMetric::Marked => "per second",
            GroupMetric::Cpu => "CPU per request",
            GroupMetric::OfIdle => "adapted per second, of what idle CPU allows by the rate",
            GroupMetric::LimitError => "distance from the limit",
            GroupMetric::Share => "share of all",
            GroupMetric::CoreBusy => "use of the core",
        };
        let bound = match self.bound {
            Bound::AtLeast(bound) => format!("≥ {bound}"),
            Bound::AtMost(bound) => format!("≤ {bound}"),
        };
        let against = match self.against {
            Against::Nothing => String::new(),
            Against::Other((contender, case)) => format!(" of {contender} {case}"),
            Against::First => " of the first".to_owned(),
            Against::Peak => " of its peak".to_owned(),
        };
        let from = match self.x_min {
            ENDLESS => ", under endless demand".to_owned(),
            x if x > 0.0 => format!(", from {x} on"),
            _ => String::new(),
        };
        format!("{contender} {case}, {group}: {what} {bound}{against}{from}")
    }

    pub(super) fn is_met_by(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    pub(super) fn unit(&self) -> Unit {
        match (self.metric, self.against) {
            (GroupMetric::Marked, Against::Nothing) => Unit::PerSecond,
            _ => Unit::Ratio,
        }
    }

    /// The worst over what was varied. `None` if nothing was measured.
    pub(super) fn value(&self, record: &Record, subject: Series) -> Option<f64> {
        self.worst(record, subject).map(|(_, value)| value)
    }

    /// What the worst may be said to lie within, if it is a ratio that each round has one of.
    pub(super) fn interval(&self, record: &Record, subject: Series) -> Option<(f64, f64)> {
        let (x, _) = self.worst(record, subject)?;
        let (own, other) = self.pairs_at(record, subject, x)?;
        paired_interval(&own, &other)
    }

    /// Where it is worst, and how bad.
    fn worst(&self, record: &Record, subject: Series) -> Option<(f64, f64)> {
        let xs = record.group_xs().into_iter();
        let xs =
            xs.filter(|x| *x >= self.x_min && (!self.limited || has_limit(record, subject, *x)));
        let values = xs.filter_map(|x| Some((x, self.value_at(record, subject, x)?)));
        values.reduce(|worst, other| {
            let is_worse = match self.bound {
                Bound::AtLeast(_) => other.1 < worst.1,
                Bound::AtMost(_) => other.1 > worst.1,
            };
            if is_worse { other } else { worst }
        })
    }

    fn value_at(&self, record: &Record, subject: Series, x: f64) -> Option<f64> {
        if let Some((own, other)) = self.pairs_at(record, subject, x) {
            return paired_ratio(&own, &other);
        }
        let own = self.rounds(record, subject, x);
        match self.against {
            Against::Peak => {
                let all = record.group_xs().into_iter();
                let all = all.filter_map(|x| median(&self.rounds(record, subject, x)));
                Some(median(&own)? / all.reduce(f64::max).filter(|peak| *peak > 0.0)?)
            }
            _ => median(&own),
        }
    }

    /// What is compared, round by round.
    fn pairs_at(&self, record: &Record, subject: Series, x: f64) -> Option<(Vec<f64>, Vec<f64>)> {
        let own = || self.rounds(record, subject, x);
        match (self.metric, self.against) {
            (GroupMetric::OfIdle, Against::Other(alone)) => {
                let shares = record.of_idle(subject, alone, x);
                let all = vec![1.0; shares.len()];
                Some((shares, all))
            }
            (_, Against::Other(other)) => Some((own(), self.rounds(record, other, x))),
            (_, Against::First) => {
                let first = record.group_xs().into_iter();
                let mut first = first.map(|x| self.rounds(record, subject, x));
                Some((own(), first.find(|rounds| !rounds.is_empty())?))
            }
            (_, Against::Nothing | Against::Peak) => None,
        }
    }

    /// The metric round by round.
    fn rounds(&self, record: &Record, series: Series, x: f64) -> Vec<f64> {
        let of =
            |group, metric: fn(&GroupSample) -> f64| record.group_rounds(series, group, x, metric);
        match self.metric {
            GroupMetric::Goodput => of(self.group, GroupSample::goodput_per_s),
            GroupMetric::P50 => of(self.group, |sample| latency(sample, sample.latency_p50_us)),
            GroupMetric::P99 => of(self.group, |sample| latency(sample, sample.latency_p99_us)),
            GroupMetric::Marked | GroupMetric::OfIdle => of(self.group, GroupSample::marked_per_s),
            GroupMetric::Cpu => record.cpu_per_request_us(series, x),
            GroupMetric::LimitError => of(self.group, GroupSample::limit_error),
            GroupMetric::CoreBusy => of(self.group, |sample| sample.server_core_busy),
            GroupMetric::Share => {
                let (own, all) = (
                    of(self.group, GroupSample::goodput_per_s),
                    of(None, GroupSample::goodput_per_s),
                );
                own.iter().zip(&all).map(|(own, all)| own / all.max(f64::MIN_POSITIVE)).collect()
            }
        }
    }
}

/// Where nothing was served there is no latency, and the bound is missed.
fn latency(sample: &GroupSample, us: f64) -> f64 {
    if sample.requests == 0 { f64::MAX } else { us }
}

fn has_limit(record: &Record, (contender, case): Series, x: f64) -> bool {
    record.groups.iter().any(|sample| {
        sample.contender == contender
            && sample.case == case
            && sample.x == x
            && sample.limit_per_s.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{group_sample, record};
    use crate::goal::{Goal, Measure, evaluate};

    const WEIR: Series = ("weir", "kernel");

    fn goal(against: Against, bound: Bound) -> GroupGoal {
        let (group, metric) = (Some("preferred"), GroupMetric::Goodput);
        GroupGoal { group, metric, against, bound, x_min: 0.0, limited: false }
    }

    #[test]
    fn the_worst_value_counts() {
        let mut record = record("g1");
        for (x, requests) in [(25.0, 99), (50.0, 96), (300.0, 90)] {
            record.groups.push(group_sample(("weir", "alone", "preferred"), x, 0, 100));
            record.groups.push(group_sample(("weir", "kernel", "preferred"), x, 0, requests));
        }
        let goal = goal(Against::Other(("weir", "alone")), Bound::AtLeast(0.95));
        assert_eq!(goal.value(&record, WEIR), Some(0.9));
        assert!(!goal.is_met_by(0.9) && goal.is_met_by(0.95));
        let late = GroupGoal { x_min: 1_000.0, ..goal };
        assert_eq!(late.value(&record, WEIR), None);
        let verdicts = evaluate(&record);
        let kernel = verdicts.iter().find(|v| v.goal.starts_with("weir kernel,")).unwrap();
        assert_eq!((kernel.measured, kernel.met), (Some(0.9), Some(false)));
    }

    #[test]
    fn the_worst_value_has_an_interval() {
        let mut record = record("g1");
        for round in 0..6 {
            for (x, requests) in [(25.0, 99), (50.0, 90 + round as u64)] {
                let alone = group_sample(("weir", "alone", "preferred"), x, round, 100);
                let kernel = group_sample(("weir", "kernel", "preferred"), x, round, requests);
                record.groups.extend([alone, kernel]);
            }
        }
        let goal = goal(Against::Other(("weir", "alone")), Bound::AtLeast(0.95));
        assert_eq!(goal.interval(&record, WEIR), Some((0.9, 0.95)));
    }

    #[test]
    fn peaks_firsts_shares_and_limits() {
        let mut record = record("g7");
        for (x, requests) in [(0.5, 50), (1.0, 200), (10.0, 100)] {
            record.groups.push(group_sample(("weir", "kernel", "preferred"), x, 0, requests));
            let others = group_sample(("weir", "kernel", "others"), x, 0, 100);
            record.groups.push(GroupSample { limit_per_s: Some(80.0), ..others });
        }
        let value = |goal: GroupGoal| goal.value(&record, WEIR);
        assert_eq!(value(goal(Against::Peak, Bound::AtLeast(0.95))), Some(0.25));
        assert_eq!(value(goal(Against::First, Bound::AtMost(1.5))), Some(4.0));
        let share =
            GroupGoal { metric: GroupMetric::Share, ..goal(Against::Nothing, Bound::AtLeast(0.5)) };
        assert_eq!(value(share), Some(1.0 / 3.0));
        let limit = GroupGoal {
            group: Some("others"),
            metric: GroupMetric::LimitError,
            ..goal(Against::Nothing, Bound::AtMost(0.02))
        };
        assert_eq!(value(limit), Some(0.25));
    }

    #[test]
    fn who_is_not_served_has_no_good_latency() {
        let mut record = record("g3");
        record.groups.push(group_sample(("weir", "kernel", "preferred"), 1.0, 0, 100));
        record.groups.push(group_sample(("weir", "kernel", "preferred"), 2.0, 0, 0));
        let goal =
            GroupGoal { metric: GroupMetric::P99, ..goal(Against::First, Bound::AtMost(1.5)) };
        assert!(goal.value(&record, WEIR).unwrap() > 1.5);
        let goal = Goal { subject: WEIR, measure: Measure::Group(goal), size_min: 0, size_max: 0 };
        assert!(goal.words().contains("99th percentile ≤ 1.5 of the first"), "{}", goal.words());
    }
}
