//! Throughput and CPU of several series over several sizes, in interleaved rounds: for each size
//! A B C, B C A, …, so that whatever the machine does in the meantime meets all of them.

use std::ops::Range;
use std::sync::Arc;

use super::{Options, in_turn};
use crate::documents::document;
use crate::error::Result;
use crate::goal::keeps_up;
use crate::load::{self, Arrivals, Asks, Edge, Group, Outcome, Plan};
use crate::process::Running;
use crate::procfs::{self, MachineTicks, Pid, TICKS_PER_SECOND};
use crate::result::{Record, Sample};

/// One line of the result: a contender and what is asked of it.
#[derive(Clone)]
pub(super) struct Line<'a> {
    pub(super) running: &'a Running,
    pub(super) case: &'static str,
    /// Path of the document of a size.
    pub(super) target: fn(usize) -> String,
}

/// What is the same for all lines.
pub(super) struct Grid<'a> {
    pub(super) sizes: Vec<usize>,
    pub(super) clients: usize,
    pub(super) persistent: bool,
    /// Which to measure.
    pub(super) rounds: Range<usize>,
    /// Requests due per second, one rate after the other; none for a closed loop.
    pub(super) rates: Vec<f64>,
    /// Processes that belong to the experiment but are nobody's cost, such as the application.
    pub(super) helpers: Vec<Pid>,
    pub(super) options: &'a Options,
}

/// What a plan asks for besides the line.
pub(super) struct Point {
    pub(super) size: usize,
    pub(super) rate_per_s: Option<f64>,
    pub(super) round: usize,
}

impl Grid<'_> {
    /// Measures everything into `record`.
    pub(super) fn run(&self, lines: &[Line], record: &mut Record) -> Result<()> {
        for &size in &self.sizes {
            let expect: Arc<[u8]> = document(size).into();
            if self.rates.is_empty() {
                self.rounds(lines, size, None, &expect, record)?;
            }
            let mut lines = lines.to_vec();
            for &rate in &self.rates {
                self.rounds(&lines, size, Some(rate), &expect, record)?;
                // Asked for still more, a server that does not keep up would only be seen to queue.
                lines.retain(|line| {
                    keeps_up(record, (line.running.contender.name, line.case), rate)
                });
            }
        }
        Ok(())
    }

    fn rounds(
        &self,
        lines: &[Line],
        size: usize,
        rate_per_s: Option<f64>,
        expect: &Arc<[u8]>,
        record: &mut Record,
    ) -> Result<()> {
        for round in self.rounds.clone() {
            let point = Point { size, rate_per_s, round };
            for line in in_turn(lines, round) {
                let plan = self.plan(line, &point, expect.clone());
                let mut samples = vec![self.measure(line, &plan, &point)?];
                if self.options.cross_check && rate_per_s.is_none() {
                    samples.push(self.cross_check(line, &plan, &point)?);
                }
                for sample in samples {
                    self.report(&sample);
                    record.samples.push(sample);
                }
            }
        }
        Ok(())
    }

    fn report(&self, sample: &Sample) {
        (self.options.progress)(&format!(
            "{:>7} B  {}round {}  {:<9} {:<10} {:>8.0}/s  {:>7.2} µs CPU  {:>3.0} % busy{}",
            sample.size,
            sample.rate_per_s.map_or_else(String::new, |rate| format!("{rate:>6.0}/s  ")),
            sample.round + 1,
            sample.contender,
            sample.case,
            sample.requests_per_s(),
            sample.cpu_us(),
            sample.server_busy() * 100.0,
            failures(sample),
        ));
    }

    fn plan(&self, line: &Line, point: &Point, expect: Arc<[u8]>) -> Plan {
        let group = Group {
            name: line.case,
            asks: Asks::same((line.target)(point.size), expect),
            mark: None,
            clients: self.clients,
            arrivals: point.rate_per_s.map_or(Arrivals::Closed, Arrivals::Even),
            sources: Vec::new(),
        };
        Plan {
            server: line.running.address,
            persistent: self.persistent,
            warm_up: self.options.warm_up,
            window: self.options.window,
            groups: vec![group],
            refusals: None,
        }
    }

    fn measure(&self, line: &Line, plan: &Plan, point: &Point) -> Result<Sample> {
        let (mut opened, mut closed) = (Reading::default(), Reading::default());
        let outcome = load::run_one(plan, &mut |edge| match edge {
            Edge::Opens => opened = self.read(line),
            Edge::Closes => closed = self.read(line),
        })?;
        Ok(sample(line, point, &outcome, &opened, &closed))
    }

    /// The same load by wrk. Its own CPU is not known here, so it counts as nobody's.
    fn cross_check(&self, line: &Line, plan: &Plan, point: &Point) -> Result<Sample> {
        let opened = self.read(line);
        let outcome = load::wrk::run(plan)?;
        let closed = self.read(line);
        let own = sample(line, point, &outcome, &opened, &closed);
        Ok(Sample { case: format!("{} by wrk", line.case), foreign_cores: 0.0, ..own })
    }

    fn read(&self, line: &Line) -> Reading {
        Reading::take(&line.running.pids, &self.helpers)
    }
}

/// All clocks at one edge of the window.
#[derive(Default)]
pub(super) struct Reading {
    server_ns: u64,
    load_ns: u64,
    helpers_ns: u64,
    machine: MachineTicks,
}

impl Reading {
    /// Now: of the contender, and of others that belong to the experiment.
    pub(super) fn take(server: &[Pid], helpers: &[Pid]) -> Reading {
        Reading {
            server_ns: procfs::cpu_ns(server),
            load_ns: procfs::cpu_ns(&[std::process::id()]),
            helpers_ns: procfs::cpu_ns(helpers),
            machine: procfs::read_machine_ticks(),
        }
    }
}

/// What was measured between two readings.
pub(super) fn sample(
    line: &Line,
    point: &Point,
    outcome: &Outcome,
    opened: &Reading,
    closed: &Reading,
) -> Sample {
    let seconds = outcome.elapsed.as_secs_f64();
    let server_cpu_ns = closed.server_ns.saturating_sub(opened.server_ns);
    let load_cpu_ns = closed.load_ns.saturating_sub(opened.load_ns);
    let helpers_ns = closed.helpers_ns.saturating_sub(opened.helpers_ns);
    let ours = (server_cpu_ns + load_cpu_ns + helpers_ns) as f64 / 1e9;
    let ticks = |pick: fn(&MachineTicks) -> u64| {
        pick(&closed.machine).saturating_sub(pick(&opened.machine)) as f64
    };
    let busy_s = ticks(|machine| machine.busy) / TICKS_PER_SECOND as f64;
    Sample {
        contender: line.running.contender.name.to_owned(),
        case: line.case.to_owned(),
        size: point.size,
        round: point.round,
        rate_per_s: point.rate_per_s,
        requests: outcome.requests,
        body_bytes: outcome.body_bytes,
        errors: outcome.errors,
        first_error: outcome.first_error.clone(),
        bodies_compared: outcome.bodies_compared,
        seconds,
        server_cpu_ns,
        load_cpu_ns,
        latency_p50_us: outcome.latency_ns.quantile(0.5) as f64 / 1e3,
        latency_p99_us: outcome.latency_ns.quantile(0.99) as f64 / 1e3,
        steal: ticks(|machine| machine.steal) / ticks(|machine| machine.total).max(1.0),
        foreign_cores: ((busy_s - ours) / seconds).max(0.0),
    }
}

fn failures(sample: &Sample) -> String {
    match &sample.first_error {
        Some(reason) => format!("  {} failed: {reason}", sample.errors),
        None => String::new(),
    }
}
