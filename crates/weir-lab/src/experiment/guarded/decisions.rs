//! G9: what a decision costs by itself: of the kernel about a packet, by test runs of the programs
//! that the server loads (`BPF_PROG_TEST_RUN`); and about a request, by Weir's rules in the lab's
//! own process, without a server.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weir_guard::{Count, Ends, Fields, Moment, Rules, Subject};

use crate::contender::policy::{Pace, Policy, pages};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Options};
use crate::result::{Record, Timing};
use crate::stats::median;

/// Test runs of each program, in each of its rounds.
const KERNEL_RUNS: u32 = 100_000;
/// Decisions that are timed together, and how often. A clock costs as much as a decision.
const DECISIONS: usize = 1_000;
const BATCHES: usize = 101;
/// Rules.
const FEW: usize = 3;
const MANY: usize = 10_000;
/// Paths that rules are about, and one that none is: in the same folder as half of the rules.
const NO_MATCH: &str = "/static/a-page-that-no-rule-is-about.html";

/// A request with the fields of a simple client.
struct Head;

impl<'a> Fields<'a> for Head {
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8])) {
        self.each(&mut |known, value| {
            if known == name.as_bytes() {
                see(value);
            }
        });
    }

    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8])) {
        see(b"host", b"www.example.org");
        see(b"user-agent", b"weir-lab");
        see(b"accept", b"*/*");
    }
}

/// G9.
pub(in crate::experiment) fn g9(experiment: &Experiment, options: &Options) -> Result<Record> {
    let mut record = experiment.record(options, 0, Vec::new());
    record.contenders.push(("weir".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    for round in 0..options.rounds {
        if let Err(error) = kernel(round, options, &mut record) {
            let reason = format!("decisions in the kernel: {error}");
            (options.progress)(&format!("skipped: {reason}"));
            if !record.skipped.contains(&reason) {
                record.skipped.push(reason);
            }
        }
        requests(round, options, &mut record)?;
    }
    Ok(record)
}

fn kernel(
    round: usize,
    options: &Options,
    record: &mut Record,
) -> std::result::Result<(), weir_kernel::KernelError> {
    for measured in weir_kernel::measure(KERNEL_RUNS)? {
        let ns = measured.decision.as_secs_f64() * 1e9;
        add(&format!("kernel: {}", measured.name), ns, round, options, record);
    }
    Ok(())
}

fn requests(round: usize, options: &Options, record: &mut Record) -> Result<()> {
    for (count, name) in [(FEW, "3"), (MANY, "10,000")] {
        // With the last of them about the page, or with a rate for it that is never reached.
        let plain = Policy { idle_rules: count, ..Policy::default() };
        let matched = Policy {
            idle_rules: count - 1,
            matched: vec![pages::LOW.to_owned()],
            ..Policy::default()
        };
        let pace = Some(Pace { rate: 10_000_000, burst: 10_000_000 });
        let limited = Policy { idle_rules: count - 1, low_page: pace, ..Policy::default() };
        let cases = [
            ("no match", plain, NO_MATCH),
            ("class", matched, pages::LOW),
            ("rate", limited, pages::LOW),
        ];
        for (what, policy, path) in cases {
            let rules = rules(&policy)?;
            let ns = time(&rules, path, what != "no match")?;
            add(&format!("URL, {name} rules: {what}"), ns, round, options, record);
        }
    }
    Ok(())
}

fn add(case: &str, ns: f64, round: usize, options: &Options, record: &mut Record) {
    (options.progress)(&format!("round {}  {case}: {ns:.1} ns", round + 1));
    let (contender, case) = ("weir".to_owned(), case.to_owned());
    record.timings.push(Timing { contender, case, size: 0, round, ns });
}

fn rules(policy: &Policy) -> Result<Rules> {
    let text = policy.weir_file();
    let config = weir_config::parse("the lab's own", &text);
    let config = config.map_err(|error| Error::Answer(error.to_string()))?;
    Ok(Rules::new(&config.guard, 1, None))
}

/// Nanoseconds of a decision: the median of batches.
fn time(rules: &Rules, path: &str, is_met: bool) -> Result<f64> {
    let client: SocketAddr = ([192, 0, 2, 7], 4_711).into();
    let server: SocketAddr = ([192, 0, 2, 1], 80).into();
    let subject = Subject {
        ends: Ends { source: Some(client), destination: Some(server) },
        site: "*",
        path,
        query: None,
        method: "GET",
        server_name: None,
        verdict: "",
        fields: &Head,
    };
    let start = Instant::now();
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..DECISIONS {
            let moment = moment(began.duration_since(start));
            black_box(rules.decide(black_box(&subject), &moment, false));
        }
        batches.push(began.elapsed().as_nanos() as f64 / DECISIONS as f64);
    }
    let count = || rules.states().map(|(_, state)| state.counted(Count::Met)).sum::<u64>();
    let before = count();
    let decision = rules.decide(&subject, &moment(start.elapsed()), false);
    let met = count() - before;
    if decision.refusal().is_some() || (met > 0) != is_met {
        let reason = format!("{path}: not decided as expected, {met} rules met: {decision:?}");
        return Err(Error::Answer(reason));
    }
    median(&batches).ok_or_else(|| Error::Answer("no time was measured".to_owned()))
}

/// A second after the start of the clock, and later.
fn moment(since: Duration) -> Moment {
    Moment {
        now_ns: (Duration::from_secs(1) + since).as_nanos() as u64,
        worker: 0,
        is_overloaded: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_what_they_are_taken_for() {
        for count in [FEW, 300] {
            let policy = Policy {
                idle_rules: count,
                matched: vec![pages::LOW.to_owned()],
                ..Policy::default()
            };
            let rules = rules(&policy).unwrap();
            assert!(time(&rules, pages::LOW, true).unwrap() > 0.0);
            assert!(time(&rules, NO_MATCH, false).unwrap() > 0.0);
            assert!(time(&rules, NO_MATCH, true).is_err(), "no rule is met");
        }
    }
}
