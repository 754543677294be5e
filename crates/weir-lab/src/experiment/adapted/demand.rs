//! A3 and A4: pictures and texts of 8 KB that are to be adapted: none, at the original's rates, at
//! what is the same share of today's capacity, and without end; by a helper at lowest and at normal
//! priority, and by none.

use super::{Demand, Kind, PICTURES, Rig, TEXTS, Trial};
use crate::contender::adaptation::{Adaptation, Helpers};
use crate::error::Result;
use crate::experiment::reading::axis;
use crate::experiment::{Experiment, Options, in_turn};
use crate::result::{ADAPTED, ENDLESS, GroupSample, Record};

/// What is asked for, and how much.
struct Wanted {
    kind: &'static Kind,
    /// What tables call it.
    label: &'static str,
    /// The original's rates, per second …
    rates: [f64; 2],
    /// … of so many that its machine could do.
    original_per_s: f64,
    /// So many are provided for until it is known how many there are.
    most_per_s: f64,
}

/// Beyond what was done once, this many times of it is provided for.
const RESERVE: f64 = 1.5;
/// Rates of a quick look.
const QUICK: usize = 1;

/// Cases with background, and without.
const IDLE: (&str, Helpers) = ("idle", Helpers::Idle);
const NORMAL: (&str, Helpers) = ("normal", Helpers::Normal);
const NONE: (&str, Helpers) = ("none", Helpers::Off);
const ALONE: [(&str, Helpers); 2] =
    [("idle, alone", Helpers::Idle), ("normal, alone", Helpers::Normal)];

/// A3.
pub(in crate::experiment) fn a3(experiment: &Experiment, options: &Options) -> Result<Record> {
    let wanted = Wanted {
        kind: &PICTURES,
        label: "pictures to be made smaller, per second",
        rates: [25.0, 30.0],
        original_per_s: 110.0,
        most_per_s: 3_000.0,
    };
    run(experiment, options, &wanted)
}

/// A4.
pub(in crate::experiment) fn a4(experiment: &Experiment, options: &Options) -> Result<Record> {
    let wanted = Wanted {
        kind: &TEXTS,
        label: "texts to be compressed, per second",
        rates: [75.0, 95.0],
        original_per_s: 400.0,
        most_per_s: 10_000.0,
    };
    run(experiment, options, &wanted)
}

fn run(experiment: &Experiment, options: &Options, wanted: &Wanted) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options, wanted.kind)?;
    let first = Trial { background: None, ..trial(&rig, ALONE[0], ENDLESS, wanted.most_per_s) };
    let capacity = adapted_per_s(&rig.measure(&first, 0, &mut record)?);
    (options.progress)(&format!("capacity: {capacity:.0} per second"));
    let endless = capacity.max(1.0) * RESERVE;
    let demands = demands(wanted, options, capacity);
    for round in 0..options.rounds {
        for (demand, _) in &demands {
            for case in in_turn(&[IDLE, NORMAL, NONE], round) {
                rig.run(&trial(&rig, *case, *demand, endless), round, &mut record)?;
            }
        }
        let with = rig.run(&trial(&rig, IDLE, ENDLESS, endless), round, &mut record)?;
        rig.run(&trial(&rig, NORMAL, ENDLESS, endless), round, &mut record)?;
        // As many requests as were adapted, for originals: what the requests alone do.
        let rate = adapted_per_s(&with).max(1.0);
        let same = trial(&rig, NONE, ENDLESS, endless);
        rig.run(&Trial { demand: Demand::Rate(rate), ..same }, round, &mut record)?;
        for case in ALONE {
            let alone = trial(&rig, case, ENDLESS, endless);
            rig.run(&Trial { background: None, ..alone }, round, &mut record)?;
        }
    }
    let ticks = demands.into_iter().chain([(ENDLESS, "endless".to_owned())]);
    record.axis = Some(axis(wanted.label, ticks));
    Ok(record)
}

fn trial(rig: &Rig, (case, helpers): (&'static str, Helpers), x: f64, endless: f64) -> Trial {
    let demand = if x <= 0.0 {
        Demand::None
    } else if x >= ENDLESS {
        Demand::Endless(endless)
    } else {
        Demand::Rate(x)
    };
    let adaptation = Adaptation { helpers, ..Adaptation::default() };
    Trial { case, x, adaptation, background: Some(rig.background()), demand }
}

/// What is asked for per second, and what tables call it.
fn demands(wanted: &Wanted, options: &Options, capacity: f64) -> Vec<(f64, String)> {
    let mut demands = vec![(0.0, "none".to_owned())];
    if let Some(rates) = &options.rates {
        demands.extend(rates.iter().map(|rate| (*rate, rate.to_string())));
        return demands;
    }
    let Wanted { rates, original_per_s, .. } = wanted;
    let count = if options.quick { QUICK } else { rates.len() };
    demands.extend(rates[..count].iter().map(|rate| (*rate, rate.to_string())));
    demands.extend(rates[..count].iter().map(|rate| {
        let scaled = (rate / original_per_s * capacity).round();
        (scaled, format!("{scaled} ({rate}/{original_per_s} of capacity)"))
    }));
    demands.retain(|(rate, _)| *rate == 0.0 || *rate >= 1.0);
    demands
}

fn adapted_per_s(samples: &[GroupSample]) -> f64 {
    let adapted = samples.iter().find(|sample| sample.group == ADAPTED);
    adapted.map_or(0.0, GroupSample::marked_per_s)
}
