//! What the experiments with groups of clients read at both edges of a window, and make of it.

use crate::load::Outcome;
use crate::machine::Cores;
use crate::procfs::{self, MachineTicks, Pid};
use crate::result::{Axis, GroupSample};

/// All clocks at one edge of the window.
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    server_ns: u64,
    server_core: MachineTicks,
    load_core: MachineTicks,
    machine: MachineTicks,
}

impl Reading {
    /// Now, with the processes of the contender.
    pub(super) fn take(pids: &[Pid], cores: Cores) -> Reading {
        Reading {
            server_ns: procfs::cpu_ns(pids),
            server_core: procfs::read_core_ticks(cores.server),
            load_core: procfs::read_core_ticks(cores.load),
            machine: procfs::read_machine_ticks(),
        }
    }
}

/// What a group got between two readings; whose it is, is for the caller to say.
pub(super) fn sample(
    group: &str,
    outcome: &Outcome,
    opened: &Reading,
    closed: &Reading,
) -> GroupSample {
    let busy = |pick: fn(&Reading) -> &MachineTicks| {
        let (from, to) = (pick(opened), pick(closed));
        (to.busy - from.busy) as f64 / to.total.saturating_sub(from.total).max(1) as f64
    };
    let (from, to) = (&opened.machine, &closed.machine);
    let quantile_us = |quantile| outcome.latency_ns.quantile(quantile) as f64 / 1e3;
    GroupSample {
        contender: String::new(),
        case: String::new(),
        group: group.to_owned(),
        x: 0.0,
        round: 0,
        seconds: outcome.elapsed.as_secs_f64(),
        begun: outcome.begun,
        requests: outcome.requests,
        marked: outcome.marked,
        body_bytes: outcome.body_bytes,
        refused: outcome.refused.clone(),
        resets: outcome.resets,
        connect_timeouts: outcome.connect_timeouts,
        timeouts: outcome.timeouts,
        unsent: outcome.unsent,
        errors: outcome.errors,
        first_error: outcome.first_error.clone(),
        latency_p50_us: quantile_us(0.5),
        latency_p99_us: quantile_us(0.99),
        limit_per_s: None,
        server_cpu_ns: closed.server_ns.saturating_sub(opened.server_ns),
        server_core_busy: busy(|reading| &reading.server_core),
        load_core_busy: busy(|reading| &reading.load_core),
        steal: (to.steal - from.steal) as f64 / to.total.saturating_sub(from.total).max(1) as f64,
    }
}

/// What is varied, and what its values are called.
pub(super) fn axis(label: &str, ticks: impl IntoIterator<Item = (f64, String)>) -> Axis {
    let mut ticks: Vec<(f64, String)> = ticks.into_iter().collect();
    ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
    Axis { label: label.to_owned(), ticks }
}
