//! The goals of the experiments, as data, and whether a result meets them.

use crate::result::{MemorySample, Record, Sample};
use crate::stats::{median, paired_ratio};

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
    /// What was measured: a ratio or bytes. `None`: not measured.
    pub measured: Option<f64>,
    /// Whether it is met. `None`: not measured.
    pub met: Option<bool>,
}

const SMALL_MAX: usize = 8 << 10;
const LARGE_MIN: usize = 64 << 10;

/// Goals of the experiment `id`.
#[must_use]
pub fn goals(id: &str) -> Vec<Goal> {
    let any = |subject, measure| Goal { subject, measure, size_min: 0, size_max: usize::MAX };
    let weir = ("weir", "static");
    let cpu = |peer, bound| Measure::CpuAtMost((peer, "static"), bound);
    match id {
        "s1" | "s2" => vec![
            // +60 % per CPU is 1 / 1.6 of the CPU, +20 % is 1 / 1.2, +137 % is 1 / 2.37.
            Goal { size_max: SMALL_MAX, ..any(weir, cpu("nginx", 0.62)) },
            Goal { size_min: LARGE_MIN, ..any(weir, cpu("nginx", 0.83)) },
            any(weir, cpu("apache", 0.42)),
            any(weir, cpu("floor", 1.3)),
            any(weir, cpu("h2o", 1.0)),
            any(weir, cpu("lighttpd", 1.0)),
        ],
        "s3" => vec![
            any(("weir", "cached"), Measure::ThroughputAtLeast(weir, 0.87)),
            any(("weir", "uncached"), Measure::CpuAtMost(("nginx", "uncached"), 1.0)),
        ],
        "s5" => ["static", "cached", "uncached"]
            .map(|case| any(("weir", case), Measure::MemoryAtMost(16.0 * 1024.0)))
            .to_vec(),
        "idle" => vec![any(weir, Measure::MemoryAtMost(12.0 * 1024.0))],
        _ => Vec::new(),
    }
}

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
        met: measured.map(|value| goal.measure.is_met_by(value)),
    };
    let sizes: Vec<Option<usize>> = match goal.measure {
        Measure::MemoryAtMost(_) => vec![None],
        _ => {
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
        }
    }

    fn value(&self, record: &Record, size: Option<usize>) -> Option<f64> {
        let rounds = |(contender, case): Series, metric: fn(&Sample) -> f64| {
            record.rounds(contender, case, size.unwrap_or_default(), metric)
        };
        match self.measure {
            Measure::CpuAtMost(peer, _) => {
                paired_ratio(&rounds(self.subject, Sample::cpu_us), &rounds(peer, Sample::cpu_us))
            }
            Measure::ThroughputAtLeast(peer, _) => paired_ratio(
                &rounds(self.subject, Sample::requests_per_s),
                &rounds(peer, Sample::requests_per_s),
            ),
            Measure::MemoryAtMost(_) => {
                let (contender, case) = self.subject;
                let samples = record.memory.iter();
                let bytes: Vec<f64> = samples
                    .filter(|sample| sample.contender == contender && sample.case == case)
                    .map(MemorySample::bytes_per_client)
                    .collect();
                median(&bytes)
            }
        }
    }
}

impl Measure {
    fn is_met_by(&self, value: f64) -> bool {
        match self {
            Measure::CpuAtMost(_, bound) | Measure::MemoryAtMost(bound) => value <= *bound,
            Measure::ThroughputAtLeast(_, bound) => value >= *bound,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::procfs::Memory;
    use crate::result::Settings;

    /// A record with nothing measured.
    pub(crate) fn record(id: &str) -> Record {
        Record {
            id: id.to_owned(),
            title: "a test".to_owned(),
            command: "none".to_owned(),
            machine: Machine::describe(),
            settings: Settings { rounds: 1, window_s: 1.0, clients: 40, quick: true },
            contenders: vec![("weir".to_owned(), "0".to_owned())],
            skipped: Vec::new(),
            samples: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// A round of 1,000 requests in a second, at `cpu_us` each.
    pub(crate) fn sample(contender: &str, size: usize, round: usize, cpu_us: u64) -> Sample {
        Sample {
            contender: contender.to_owned(),
            case: "static".to_owned(),
            size,
            round,
            requests: 1_000,
            body_bytes: 1_000 * size as u64,
            errors: 0,
            first_error: None,
            bodies_compared: 1,
            seconds: 1.0,
            server_cpu_ns: cpu_us * 1_000_000,
            load_cpu_ns: 0,
            latency_p50_us: 1.0,
            latency_p99_us: 1.0,
            steal: 0.0,
            foreign_cores: 0.0,
        }
    }

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
}
