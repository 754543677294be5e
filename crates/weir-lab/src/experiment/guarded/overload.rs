//! G7: more and more requests for an expensive page, in an open loop. A fifth of the capacity is
//! asked for by the top class, the rest of what is offered by everyone else.

use std::time::Duration;

use super::{CAPACITY, Entrant, GOLD, OTHER, OTHERS, PREFERRED, Rig, axis, group};
use crate::contender::policy::{Classes, Pace, Policy, pages};
use crate::error::Result;
use crate::experiment::{Experiment, Options};
use crate::load::{Arrivals, Patience};
use crate::result::Record;

/// What is offered, in capacities. The original ended at 2.5.
const OFFERED: [f64; 8] = [0.5, 0.8, 1.0, 1.25, 1.5, 2.5, 5.0, 10.0];
const OFFERED_QUICK: [f64; 3] = [0.5, 2.5, 10.0];
/// What the top class asks for.
const GOLD_SHARE: f64 = 0.2;
/// What those who are told a limit are told: the original's 60 of 63.
const LIMIT_SHARE: f64 = 0.95;
/// Nobody waits longer for a page.
const WAIT: Duration = Duration::from_secs(2);
/// Requests under way at most.
const GOLD_CLIENTS: usize = 1_000;
const CLIENTS: usize = 6_000;

/// G7.
pub(in crate::experiment) fn g7(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let offered = match &options.rates {
        Some(rates) => rates.iter().map(|rate| rate / rig.capacity_per_s).collect(),
        None if options.quick => OFFERED_QUICK.to_vec(),
        None => OFFERED.to_vec(),
    };
    let mut ticks = Vec::new();
    for offered in offered {
        let load = || {
            let gold = Arrivals::Poisson(rig.share(GOLD_SHARE));
            let others = Arrivals::Poisson(rig.share((offered - GOLD_SHARE).max(0.05)));
            vec![
                group(PREFERRED, pages::HIGH, GOLD, GOLD_CLIENTS, gold),
                group(OTHER, pages::LOW, OTHERS, CLIENTS, others),
            ]
        };
        let classes = Policy { classes: Classes::ByAddress, ..Policy::default() };
        // Of everybody: the top class has a fifth of its own.
        let pace = Pace::per_second(rig.share(LIMIT_SHARE - GOLD_SHARE));
        let limit = Policy { low_page: Some(pace), ..Policy::default() };
        let told = Policy { servers: Some(CAPACITY.servers), ..classes.clone() };
        let adapts = Policy { adapts: true, ..Policy::default() };
        let entrants = [
            ("weir", "classes", classes),
            ("weir", "no rules", Policy::default()),
            ("nginx", "no limit", Policy::default()),
            ("nginx", "limit_req", limit),
            ("haproxy", "maxconn", told),
            ("envoy", "adaptive", adapts),
        ];
        let entrants = entrants.map(|(contender, case, policy)| {
            let patience = Patience { wait: WAIT, ..super::PATIENCE };
            Entrant { patience, ..Entrant::new(contender, case, policy, load()) }
        });
        ticks.push((offered, format!("{}", (offered * 1e2).round() / 1e2)));
        rig.point(offered, &entrants, &mut record)?;
    }
    record.axis = Some(axis("offered, in capacities of the application", ticks));
    Ok(record)
}
