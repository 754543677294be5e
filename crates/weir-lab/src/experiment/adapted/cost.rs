//! A1 and A2: what it costs requests that there are adapters, and plugins, where they have nothing
//! to do, little, or all pages to change; and where requests are held against a list of 70,000
//! rules of which none matches.

use std::fs;

use super::{Background, Demand, HITS, Rig, TEXTS, Trial};
use crate::contender::adaptation::{Adaptation, Helpers, PageRoute};
use crate::error::{Doing, Result};
use crate::experiment::reading::axis;
use crate::experiment::{Experiment, Options, in_turn};
use crate::result::Record;

// The list that the adapters' own measurements use.
#[path = "../../../../weir-adapt/src/ads/synthetic.rs"]
mod synthetic;

/// Requests of the background per second …
const RATES: [f64; 2] = [2_000.0, 6_000.0];
/// … and of one that has hits only, which shows what a hit costs.
const HITS_PER_S: f64 = 20_000.0;
/// The same for a quick look.
const QUICK: [f64; 2] = [500.0, 2_000.0];

/// A1.
pub(in crate::experiment) fn a1(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, record) = Rig::prepare(experiment, options, &TEXTS)?;
    let plugin = rig.site.plugins().join("own.wasm");
    let cases = [
        ("off", Helpers::Off, PageRoute::Plain),
        ("nothing loaded", Helpers::Idle, PageRoute::OtherTypes),
        ("empty hooks", Helpers::Idle, PageRoute::Plugin(plugin)),
        ("fields added", Helpers::Idle, PageRoute::Fields),
        ("rewritten", Helpers::Idle, PageRoute::Rewritten),
    ];
    compare(&rig, record, &cases)
}

/// A2.
pub(in crate::experiment) fn a2(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, record) = Rig::prepare(experiment, options, &TEXTS)?;
    let list = rig.site.root().join("list.txt");
    fs::write(&list, synthetic::large()).doing(|| format!("writing {}", list.display()))?;
    let ads = |hides| PageRoute::Ads { list: list.clone(), hides };
    let cases = [
        ("off", Helpers::Off, PageRoute::Plain),
        ("list", Helpers::Idle, ads(false)),
        ("list that hides", Helpers::Idle, ads(true)),
    ];
    compare(&rig, record, &cases)
}

/// All cases beside each other, at every rate.
fn compare(
    rig: &Rig,
    mut record: Record,
    cases: &[(&'static str, Helpers, PageRoute)],
) -> Result<Record> {
    let loads = loads(rig.options);
    for round in 0..rig.options.rounds {
        for background in &loads {
            for (case, helpers, pages) in in_turn(cases, round) {
                let adaptation = Adaptation { helpers: *helpers, pages: pages.clone() };
                let trial = Trial {
                    case,
                    x: background.rate_per_s,
                    adaptation,
                    background: Some(*background),
                    demand: Demand::None,
                };
                rig.run(&trial, round, &mut record)?;
            }
        }
    }
    let ticks = loads.into_iter().map(|Background { rate_per_s, hits }| {
        let kind = if hits < 1.0 { "" } else { ", hits only" };
        (rate_per_s, format!("{rate_per_s}{kind}"))
    });
    record.axis = Some(axis("requests per second", ticks));
    Ok(record)
}

/// The loads, by ascending rate; the last has hits only.
fn loads(options: &Options) -> Vec<Background> {
    let rates = match &options.rates {
        Some(rates) => rates.clone(),
        None if options.quick => QUICK.to_vec(),
        None => RATES.into_iter().chain([HITS_PER_S]).collect(),
    };
    let last = rates.len() - 1;
    let load = |(index, rate_per_s)| Background {
        rate_per_s,
        hits: if index == last { 1.0 } else { HITS },
    };
    rates.into_iter().enumerate().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_seventy_thousand_rules_about_other_sites() {
        let list = synthetic::large();
        assert_eq!(list.lines().filter(|line| !line.starts_with(['!', '['])).count(), 70_000);
        assert!(!list.contains("/page/"), "nothing that is asked for");
    }
}
