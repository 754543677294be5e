//! A gate in front of simulated origins: what it gets out of them under too much load, and how it
//! follows when they change. Chance is seeded, and each scenario runs with several seeds; the
//! numbers are printed and held to bounds.

#![allow(clippy::print_stdout, reason = "the numbers are what one runs it for")]

mod changes;
mod leaving;
mod origin;
mod simulation;
mod steady;

use weir_guard::LimitSettings;

use crate::origin::{Discipline, OriginModel, Work};

pub(crate) const MS: f64 = 1e6;

/// What each server's worth of requests too many costs a thrashing origin: with ten times as many
/// it does 36 % of its best.
pub(crate) const THRASH: f64 = 0.2;

/// What the top class asks for, as a part of the origin's capacity.
pub(crate) const TOP: f64 = 0.3;

const SEEDS: u64 = 8;

pub(crate) fn fifo(servers: usize, work: Work) -> OriginModel {
    OriginModel { servers, work, discipline: Discipline::Fifo }
}

pub(crate) fn shared(servers: usize, work: Work, thrash: f64) -> OriginModel {
    OriginModel { servers, work, discipline: Discipline::Shared { thrash } }
}

pub(crate) fn exponential() -> OriginModel {
    fifo(16, Work::Exponential(20.0 * MS))
}

/// Origins whose requests are alike, and others.
pub(crate) fn usual_origins() -> [(&'static str, OriginModel); 3] {
    [
        ("nearly constant", fifo(16, Work::Even(20.0 * MS))),
        ("exponential", exponential()),
        ("mixed 10x", fifo(16, Work::Mixed(20.0 * MS))),
    ]
}

/// As in the server: a limit that begins far above what the origins work on at a time.
pub(crate) fn as_served() -> LimitSettings {
    LimitSettings::Adaptive { floor: 2, initial: 64, ceiling: 10_000 }
}

/// What is measured, and the least that its median and its worst may be over all seeds.
pub(crate) type Bound = (&'static str, f64, f64);

/// Runs a scenario with each seed, and holds what it returns to bounds.
#[track_caller]
pub(crate) fn check<const N: usize>(
    scenario: &str,
    bounds: [Bound; N],
    run: impl Fn(u64) -> [f64; N],
) {
    let runs: Vec<_> = (1..=SEEDS).map(run).collect();
    for (at, (what, median_min, worst_min)) in bounds.into_iter().enumerate() {
        let mut scores: Vec<_> = runs.iter().map(|scores| scores[at]).collect();
        scores.sort_by(f64::total_cmp);
        let (median, worst) = (scores[scores.len() / 2], scores[0]);
        println!("{scenario}: {what} {median:.3}, worst {worst:.3}");
        let bounds = format!("{median_min}, worst {worst_min}");
        assert!(
            median >= median_min && worst >= worst_min,
            "{scenario}: {what} {scores:.2?}: less than {bounds}"
        );
    }
}
