//! The goals of the experiments, as data, and whether a result meets them.

mod adapted;
mod group;
mod list;
#[cfg(test)]
mod samples;

use crate::result::{MemorySample, Record, Sample};
use crate::stats::{differences, median, paired_interval, paired_ratio};

pub use group::{Against, Bound, GroupGoal, GroupMetric};
pub use list::goals;

/// A line of an experiment: a contender and the kind of document it serves.
pub type Series = (&'static str, &'static str);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// Server CPU per request, relative to another series; at most the bound.
    CpuAtMost(Series, f64),
    /// Requests per second, relative to another series; at least the bound.
    ThroughputAtLeast(Series, f64),
    /// The server's memory per connection in bytes; at most the bound.
    MemoryAtMost(f64),
    /// What is timed by itself, in nanoseconds; at most the bound.
    TimeAtMost(f64),
    /// The same, relative to another one; at most the bound.
    TimeRatioAtMost(Series, f64),
    /// Server CPU per request beyond what it is without an extension.
    ExtraCpuAtMost {
        /// The same server without the extension.
        plain: Series,
        /// Whose extra CPU it is compared with …
        peer: Series,
        /// … beyond this.
        peer_plain: Series,
        /// Ratio of the two; at most this.
        bound: f64,
    },
    /// Median latency, relative to another series, over all rates that both keep up with; at most
    /// the bound.
    LatencyAtMost(Series, f64),
    /// Highest rate of replies at any rate of requests, relative to another series; at least the
    /// bound.
    PeakAtLeast(Series, f64),
    /// What a group of clients gets under overload.
    Group(GroupGoal),
}

/// A goal of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Whose.
    pub subject: Series,
    /// What.
    pub measure: Measure,
    /// For documents of at least this size in bytes …
    pub size_min: usize,
    /// … and at most this.
    pub size_max: usize,
}

/// What became of a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The goal in words.
    pub goal: String,
    /// Size of document, where it matters.
    pub size: Option<usize>,
    /// What was measured, in `unit`. `None`: not measured.
    pub measured: Option<f64>,
    /// Where it may be said to lie, as far as the rounds tell: of ratios that each round has one
    /// of.
    pub interval: Option<(f64, f64)>,
    /// Its unit.
    pub unit: Unit,
    /// Whether it is met. `None`: not measured.
    pub met: Option<bool>,
}

/// Units of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One to another.
    Ratio,
    /// Memory.
    Bytes,
    /// Time.
    Nanoseconds,
    /// A rate.
    PerSecond,
}

/// Requests answered within a window, of those that were due, for a server to have kept up.
pub const KEPT_UP: f64 = 0.98;

/// Evaluates all goals of a record's experiment, size by size.
#[must_use]
pub fn evaluate(record: &Record) -> Vec<Verdict> {
    goals(&record.id).iter().flat_map(|goal| evaluate_one(goal, record)).collect()
}

fn evaluate_one(goal: &Goal, record: &Record) -> Vec<Verdict> {
    let verdict = |size, measured: Option<f64>| Verdict {
        goal: goal.words(),
        size,
        measured,
        interval: goal.interval(record, size),
        unit: goal.measure.unit(),
        met: measured.map(|value| goal.measure.is_met_by(value)),
    };
    let sizes: Vec<Option<usize>> = match goal.measure.is_by_size() {
        false => vec![None],
        true => {
            let within = |size: &usize| (goal.size_min..=goal.size_max).contains(size);
            record.sizes().into_iter().filter(within).map(Some).collect()
        }
    };
    sizes.into_iter().map(|size| verdict(size, goal.value(record, size))).collect()
}

impl Goal {
    /// The goal in words.
    #[must_use]
    pub fn words(&self) -> String {
        let (contender, case) = self.subject;
        match self.measure {
            Measure::CpuAtMost((peer, of), bound) => {
                format!("{contender} {case}: CPU per request ≤ {bound} of {peer} {of}")
            }
            Measure::ThroughputAtLeast((peer, of), bound) => {
                format!("{contender} {case}: requests per second ≥ {bound} of {peer} {of}")
            }
            Measure::MemoryAtMost(bytes) => {
                format!("{contender} {case}: ≤ {} KB per connection", bytes / 1024.0)
            }
            Measure::TimeAtMost(ns) => format!("{contender} {case}: ≤ {}", duration(ns)),
            Measure::TimeRatioAtMost((peer, of), bound) => {
                format!("{contender} {case}: ≤ {bound} of {peer} {of}")
            }
            Measure::ExtraCpuAtMost { plain: (_, plain), peer: (peer, of), bound, .. } => format!(
                "{contender} {case}: CPU per request beyond {plain} ≤ {bound} of what {peer} {of} \
                 adds"
            ),
            Measure::LatencyAtMost((peer, of), bound) => {
                format!("{contender} {case}: median latency ≤ {bound} of {peer} {of}")
            }
            Measure::PeakAtLeast((peer, of), bound) => {
                format!("{contender} {case}: greatest rate of replies ≥ {bound} of {peer} {of}")
            }
            Measure::Group(goal) => goal.words(self.subject),
        }
    }

    fn value(&self, record: &Record, size: Option<usize>) -> Option<f64> {
        let rounds = |(contender, case): Series, metric: fn(&Sample) -> f64| {
            record.rounds(contender, case, size.unwrap_or_default(), metric)
        };
        if let Some((subject, peer)) = self.pairs(record, size) {
            return paired_ratio(&subject, &peer);
        }
        match self.measure {
            Measure::MemoryAtMost(_) => {
                let (contender, case) = self.subject;
                let samples = record.memory.iter();
                let bytes: Vec<f64> = samples
                    .filter(|sample| sample.contender == contender && sample.case == case)
                    .map(MemorySample::bytes_per_client)
                    .collect();
                median(&bytes)
            }
            Measure::TimeAtMost(_) => {
                let (contender, case) = self.subject;
                median(&record.times(contender, case, size.unwrap_or_default()))
            }
            Measure::ExtraCpuAtMost { plain, peer, peer_plain, .. } => {
                let extra = |with, without| {
                    let cpu = |series| rounds(series, Sample::cpu_us);
                    median(&differences(&cpu(with), &cpu(without)))
                };
                let peers = extra(peer, peer_plain).filter(|extra| *extra > 0.0)?;
                Some(extra(self.subject, plain)? / peers)
            }
            Measure::LatencyAtMost(peer, _) => latency_ratio(record, self.subject, peer),
            Measure::PeakAtLeast(peer, _) => {
                Some(peak(record, self.subject)? / peak(record, peer)?)
            }
            Measure::Group(goal) => goal.value(record, self.subject),
            // These are pairs.
            Measure::CpuAtMost(..)
            | Measure::ThroughputAtLeast(..)
            | Measure::TimeRatioAtMost(..) => None,
        }
    }

    fn interval(&self, record: &Record, size: Option<usize>) -> Option<(f64, f64)> {
        if let Measure::Group(goal) = self.measure {
            return goal.interval(record, self.subject);
        }
        let (subject, peer) = self.pairs(record, size)?;
        paired_interval(&subject, &peer)
    }

    /// Of ratios: what both sides measured, a value for each round.
    fn pairs(&self, record: &Record, size: Option<usize>) -> Option<(Vec<f64>, Vec<f64>)> {
        let size = size.unwrap_or_default();
        let both = |of: &dyn Fn(Series) -> Vec<f64>, peer| (of(self.subject), of(peer));
        let rounds = |metric: fn(&Sample) -> f64| {
            move |(contender, case): Series| record.rounds(contender, case, size, metric)
        };
        Some(match self.measure {
            Measure::CpuAtMost(peer, _) => both(&rounds(Sample::cpu_us), peer),
            Measure::ThroughputAtLeast(peer, _) => both(&rounds(Sample::requests_per_s), peer),
            Measure::TimeRatioAtMost(peer, _) => {
                both(&|(contender, case)| record.times(contender, case, size), peer)
            }
            _ => return None,
        })
    }
}

/// Ratio of median latencies, over the rates that both keep up with.
fn latency_ratio(record: &Record, subject: Series, peer: Series) -> Option<f64> {
    let rates = record.rates().into_iter();
    let kept = rates.filter(|rate| [subject, peer].iter().all(|one| keeps_up(record, *one, *rate)));
    let ratios: Vec<f64> = kept
        .filter_map(|rate| {
            let of = |(contender, case): Series| {
                record.rounds_at(contender, case, rate, |sample| sample.latency_p50_us)
            };
            paired_ratio(&of(subject), &of(peer))
        })
        .collect();
    median(&ratios)
}

/// Whether a series answers as fast as it is asked.
#[must_use]
pub fn keeps_up(record: &Record, (contender, case): (&str, &str), rate_per_s: f64) -> bool {
    let replies = record.rounds_at(contender, case, rate_per_s, Sample::requests_per_s);
    median(&replies).is_some_and(|replies| replies >= rate_per_s * KEPT_UP)
}

/// The greatest rate of replies.
fn peak(record: &Record, (contender, case): Series) -> Option<f64> {
    let rates = record.rates().into_iter();
    let replies = rates.filter_map(|rate| {
        median(&record.rounds_at(contender, case, rate, Sample::requests_per_s))
    });
    replies.max_by(f64::total_cmp)
}

/// A time as people say it.
#[must_use]
pub fn duration(ns: f64) -> String {
    match ns.abs() {
        small if small < 1e3 => format!("{ns:.0} ns"),
        small if small < 1e6 => format!("{:.2} µs", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

impl Measure {
    fn is_met_by(&self, value: f64) -> bool {
        match self {
            Measure::CpuAtMost(_, bound)
            | Measure::MemoryAtMost(bound)
            | Measure::TimeAtMost(bound)
            | Measure::TimeRatioAtMost(_, bound)
            | Measure::ExtraCpuAtMost { bound, .. }
            | Measure::LatencyAtMost(_, bound) => value <= *bound,
            Measure::ThroughputAtLeast(_, bound) | Measure::PeakAtLeast(_, bound) => {
                value >= *bound
            }
            Measure::Group(goal) => goal.is_met_by(value),
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Measure::MemoryAtMost(_) => Unit::Bytes,
            Measure::TimeAtMost(_) => Unit::Nanoseconds,
            Measure::Group(goal) => goal.unit(),
            _ => Unit::Ratio,
        }
    }

    /// Whether it is evaluated size by size.
    fn is_by_size(&self) -> bool {
        match self {
            Measure::MemoryAtMost(_)
            | Measure::TimeAtMost(_)
            | Measure::LatencyAtMost(..)
            | Measure::PeakAtLeast(..)
            | Measure::Group(_) => false,
            Measure::CpuAtMost(..)
            | Measure::ThroughputAtLeast(..)
            | Measure::TimeRatioAtMost(..)
            | Measure::ExtraCpuAtMost { .. } => true,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::procfs::Memory;
    use crate::result::Timing;

    pub(crate) use super::samples::{group_sample, record, sample};

    fn verdict<'a>(verdicts: &'a [Verdict], peer: &str, size: usize) -> &'a Verdict {
        let peer = format!("of {peer} ");
        verdicts.iter().find(|v| v.size == Some(size) && v.goal.contains(&peer)).unwrap()
    }

    #[test]
    fn bounds_depend_on_the_size_and_are_inclusive() {
        let mut record = record("s1");
        for size in [8_192, 20_480, 65_536] {
            record.samples.push(sample("weir", size, 0, 62));
            record.samples.push(sample("nginx", size, 0, 100));
        }
        let verdicts = evaluate(&record);
        assert_eq!(verdict(&verdicts, "nginx", 8_192).met, Some(true), "0.62 is at most 0.62");
        assert_eq!(verdict(&verdicts, "nginx", 65_536).met, Some(true));
        let between = verdicts.iter().any(|v| v.size == Some(20_480) && v.goal.contains("nginx"));
        assert!(!between, "no goal between 8 and 64 KB");
        assert_eq!(verdict(&verdicts, "apache", 8_192).met, None, "Apache was not measured");
    }

    #[test]
    fn a_missed_goal_is_missed() {
        let mut record = record("s2");
        for round in 0..3 {
            record.samples.push(sample("weir", 1_024, round, 63 + round as u64));
            record.samples.push(sample("nginx", 1_024, round, 100));
        }
        let verdicts = evaluate(&record);
        let nginx = verdict(&verdicts, "nginx", 1_024);
        assert_eq!((nginx.measured, nginx.met), (Some(0.64), Some(false)));
    }

    #[test]
    fn throughput_must_be_kept() {
        let check = |cached, met| {
            let mut record = record("s3");
            record.samples.push(sample("weir", 1_024, 0, 1));
            let one =
                Sample { case: "cached".into(), requests: cached, ..sample("weir", 1_024, 0, 1) };
            record.samples.push(one);
            let verdicts = evaluate(&record);
            assert_eq!(verdict(&verdicts, "weir", 1_024).met, Some(met), "{cached} of 1000");
        };
        check(870, true);
        check(869, false);
    }

    #[test]
    fn memory_counts_private_and_shared_growth() {
        let held = |anonymous, shared| {
            let mut record = record("s5");
            record.memory.push(MemorySample {
                contender: "weir".to_owned(),
                case: "static".to_owned(),
                round: 0,
                clients: 10,
                before: Memory::default(),
                held: Memory { anonymous, shared, ..Memory::default() },
                tcp_before: 0,
                tcp_held: 1 << 30,
                verified: 0,
            });
            evaluate(&record).remove(0)
        };
        assert_eq!(held(163_840, 0).met, Some(true));
        assert_eq!(held(163_840, 10).met, Some(false), "hidden in a memfd is not saved");
        assert_eq!(evaluate(&record("s5")).remove(0).met, None);
    }

    #[test]
    fn what_an_extension_adds_is_compared_with_what_another_adds() {
        let check = |extra_us: u64, expect: Option<f64>, met: Option<bool>| {
            let mut record = record("p1");
            let mut add = |contender: &str, case: &str, cpu_us| {
                let one = Sample { case: case.into(), ..sample(contender, 500, 0, cpu_us) };
                record.samples.push(one);
            };
            add("weir", "none", 10);
            add("weir", "proxy-wasm", 10 + extra_us);
            add("envoy", "plain", 40);
            add("envoy", "proxy-wasm", 60);
            let verdicts = evaluate(&record);
            let extra = verdicts.iter().find(|verdict| verdict.goal.contains("adds")).unwrap();
            assert_eq!((extra.measured, extra.met), (expect, met), "{extra_us}");
        };
        check(2, Some(0.1), Some(true));
        check(3, Some(0.15), Some(false));
    }

    #[test]
    fn times_are_judged_alone_and_by_size() {
        let timing = |case: &str, size, ns| Timing {
            contender: "weir".to_owned(),
            case: case.to_owned(),
            size,
            round: 0,
            ns,
        };
        let mut swap = record("p2");
        swap.timings.push(timing("swap on a worker", 0, 1_000.0));
        let verdicts = evaluate(&swap);
        assert_eq!(verdicts[0].met, None, "nothing was deployed");
        assert_eq!((verdicts[1].met, verdicts[1].unit), (Some(true), Unit::Nanoseconds));
        let mut pictures = record("p4");
        for size in [9_229, 3_458_320] {
            pictures.timings.push(timing("native", size, 100.0));
            pictures.timings.push(timing("isolated", size, 120.0));
        }
        let verdicts = evaluate(&pictures);
        assert_eq!(verdicts.len(), 1, "only the large picture has a goal: {verdicts:?}");
        assert_eq!((verdicts[0].measured, verdicts[0].met), (Some(1.2), Some(false)));
    }

    #[test]
    fn latencies_count_where_both_keep_up_and_peaks_everywhere() {
        let mut record = record("p3");
        let mut add = |case: &str, rate: f64, requests, latency_p50_us| {
            record.samples.push(Sample {
                case: case.into(),
                rate_per_s: Some(rate),
                requests,
                latency_p50_us,
                ..sample("weir", 500, 0, 1)
            });
        };
        add("plain", 1_000.0, 1_000, 100.0);
        add("own", 1_000.0, 1_000, 104.0);
        add("plain", 2_000.0, 2_000, 100.0);
        // Cannot keep up: its latency says nothing but how long it was asked.
        add("own", 2_000.0, 1_900, 9_000.0);
        let verdicts = evaluate(&record);
        assert_eq!((verdicts[0].measured, verdicts[0].met), (Some(1.04), Some(true)));
        assert_eq!((verdicts[1].measured, verdicts[1].met), (Some(0.95), Some(false)));
    }

    #[test]
    fn times_are_readable() {
        for (ns, expect) in [(60.0, "60 ns"), (1_500.0, "1.50 µs"), (20e6, "20.00 ms")] {
            assert_eq!(duration(ns), expect);
        }
    }
}
