//! A4: texts of 8 KB that are to be compressed: none, at the original's rates, at what is the same
//! share of today's capacity, and without end; by a helper at lowest and at normal priority, and by
//! none.

use super::{ADAPTED_MAX_PER_S, Demand, Rig, Trial};
use crate::contender::adaptation::{Adaptation, Helpers};
use crate::error::Result;
use crate::experiment::reading::axis;
use crate::experiment::{Experiment, Options, in_turn};
use crate::result::{ADAPTED, ENDLESS, GroupSample, Record};

/// The original's rates, per second …
const RATES: [f64; 2] = [75.0, 95.0];
/// … of so many that its machine could do.
const ORIGINAL_PER_S: f64 = 400.0;
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

/// A4.
pub(in crate::experiment) fn a4(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let first = Trial { background: None, ..trial(&rig, ALONE[0], ENDLESS, ADAPTED_MAX_PER_S) };
    let capacity = adapted_per_s(&rig.measure(&first, 0, &mut record)?);
    (options.progress)(&format!("capacity: {capacity:.0} texts per second"));
    let endless = capacity.max(1.0) * RESERVE;
    let demands = demands(options, capacity);
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
    record.axis = Some(axis("texts to be compressed, per second", ticks));
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
fn demands(options: &Options, capacity: f64) -> Vec<(f64, String)> {
    let mut demands = vec![(0.0, "none".to_owned())];
    if let Some(rates) = &options.rates {
        demands.extend(rates.iter().map(|rate| (*rate, rate.to_string())));
        return demands;
    }
    let count = if options.quick { QUICK } else { RATES.len() };
    demands.extend(RATES[..count].iter().map(|rate| (*rate, rate.to_string())));
    demands.extend(RATES[..count].iter().map(|rate| {
        let scaled = (rate / ORIGINAL_PER_S * capacity).round();
        (scaled, format!("{scaled} ({rate}/{ORIGINAL_PER_S} of capacity)"))
    }));
    demands.retain(|(rate, _)| *rate == 0.0 || *rate >= 1.0);
    demands
}

fn adapted_per_s(samples: &[GroupSample]) -> f64 {
    let adapted = samples.iter().find(|sample| sample.group == ADAPTED);
    adapted.map_or(0.0, GroupSample::marked_per_s)
}
