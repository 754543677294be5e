//! G1, G2, G5 and G10: a preferred client beside many others whose rate is limited, by address or
//! by page.

use std::time::Duration;

use super::{Entrant, GOLD, OTHER, OTHERS, PREFERRED, Rig, axis, group};
use crate::contender::policy::{Classes, Pace, Place, Policy, pages};
use crate::error::Result;
use crate::experiment::{Experiment, Options};
use crate::load::{Arrivals, Group, Patience};
use crate::result::Record;

/// The others of G1 and G5.
const CLIENTS: usize = 250;
/// Their limits: the original's 300 to 25 of the 375 connections per second that its server took …
const SHARES: [f64; 5] = [0.8, 0.533, 0.267, 0.133, 0.067];
/// … and its 40 to 2 of 63 expensive pages.
const PAGE_SHARES: [f64; 5] = [0.63, 0.32, 0.16, 0.08, 0.032];
const QUICK: [usize; 2] = [0, 3];
/// Where figures have what is not limited.
const UNLIMITED: f64 = 2.0;
/// Bursts of G2, and the greedy client's rate: 50 of 375.
const BURSTS: [u32; 4] = [5, 10, 20, 50];
const GREEDY_SHARE: f64 = 0.133;
/// Requests that the greedy client has under way at most.
const GREEDY: usize = 50;
/// Share of the capacity that a greedy client asks for who does not wait.
const FLOOD_SHARE: f64 = 1.0;
/// What floods G10, in capacities, and the limit.
const FLOODS: [f64; 6] = [0.0, 1.0, 2.0, 5.0, 10.0, 16.0];
const FLOOD_LIMIT: f64 = 0.267;
/// A flood has no patience: a SYN is sent once. So many may be under way.
const FLOOD_PATIENCE: Duration = Duration::from_millis(500);
const FLOOD_CLIENTS: usize = 8_000;

/// Which shares to go through.
fn shares(all: &[f64; 5], options: &Options) -> Vec<f64> {
    if options.quick { QUICK.map(|index| all[index]).to_vec() } else { all.to_vec() }
}

fn preferred() -> Group {
    group(PREFERRED, pages::HIGH, GOLD, 1, Arrivals::Closed)
}

/// Who is preferred goes first, too, where there are classes.
fn by_address(others: Option<Pace>, place: Place) -> Policy {
    Policy { others, place, classes: Classes::ByAddress, ..Policy::default() }
}

/// G1: the limit of 250 clients falls.
pub(in crate::experiment) fn g1(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let clients = options.clients.unwrap_or(CLIENTS);
    let load = || {
        let others = group(OTHER, pages::LOW, OTHERS, clients, Arrivals::Closed);
        vec![preferred(), others]
    };
    let mut ticks = vec![(rig.share(UNLIMITED).round(), "none".to_owned())];
    let free = |contender, policy| Entrant::new(contender, "no limit", policy, load());
    let unlimited = [
        free("weir", Policy::default()),
        free("nginx", Policy::default()),
        free("haproxy", Policy::default()),
    ];
    rig.point(rig.share(UNLIMITED).round(), &unlimited, &mut record)?;
    for share in shares(&SHARES, options) {
        let pace = Pace::per_second(rig.share(share));
        let limited = |contender, case, policy| {
            Entrant::new(contender, case, policy, load()).limited(OTHER, pace.rate)
        };
        let only_rate = Policy { others: Some(pace), ..Policy::default() };
        let entrants = [
            Entrant::new("weir", "alone", only_rate.clone(), vec![preferred()]),
            limited("weir", "kernel", only_rate.clone()),
            limited("weir", "kernel+class", by_address(Some(pace), Place::Kernel)),
            limited("weir", "accept", Policy { place: Place::Accept, ..only_rate.clone() }),
            limited("nginx", "limit_req", only_rate.clone()),
            limited("haproxy", "stick table", only_rate),
        ];
        let x = f64::from(pace.rate);
        ticks.push((x, pace.rate.to_string()));
        rig.point(x, &entrants, &mut record)?;
    }
    record.axis = Some(axis("limit of the others, connections per second", ticks));
    Ok(record)
}

/// G2: the burst of a greedy client grows. In a closed loop it pauses when it is not let in, and
/// the bucket fills meanwhile; in an open loop (`flood`) the bucket is always empty, and exactly
/// the rate must be let in.
pub(in crate::experiment) fn g2(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let mut ticks = Vec::new();
    for burst in BURSTS {
        let rate = Pace::per_second(rig.share(GREEDY_SHARE)).rate;
        let policy = Policy { others: Some(Pace { rate, burst }), ..Policy::default() };
        let greedy = |clients, arrivals| group(OTHER, pages::LOW, OTHERS, clients, arrivals);
        let flood = Arrivals::Poisson(rig.share(FLOOD_SHARE));
        let entrants = ["weir", "nginx"].into_iter().flat_map(|contender| {
            let patience = Patience { wait: FLOOD_PATIENCE, ..super::PATIENCE };
            let with = |case, greedy| {
                Entrant::new(contender, case, policy.clone(), vec![preferred(), greedy])
                    .limited(OTHER, rate)
            };
            let flooding = with("flood", greedy(FLOOD_CLIENTS, flood));
            [
                with("closed loop", greedy(GREEDY, Arrivals::Closed)),
                Entrant { patience, ..flooding },
            ]
        });
        let entrants: Vec<Entrant> = entrants.collect();
        ticks.push((f64::from(burst), burst.to_string()));
        rig.point(f64::from(burst), &entrants, &mut record)?;
    }
    record.axis = Some(axis("burst of the greedy client", ticks));
    Ok(record)
}

/// G5: the limit of the others' page falls.
pub(in crate::experiment) fn g5(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let clients = options.clients.unwrap_or(CLIENTS);
    let load = || {
        let others = group(OTHER, pages::LOW, OTHERS, clients, Arrivals::Closed);
        vec![preferred(), others]
    };
    let mut ticks = vec![(rig.share(UNLIMITED).round(), "none".to_owned())];
    let free = |contender| Entrant::new(contender, "no limit", Policy::default(), load());
    let unlimited = ["weir", "nginx", "haproxy", "envoy"].map(free);
    rig.point(rig.share(UNLIMITED).round(), &unlimited, &mut record)?;
    for share in shares(&PAGE_SHARES, options) {
        let pace = Pace::per_second(rig.share(share));
        let policy = Policy { low_page: Some(pace), ..Policy::default() };
        let classes = Policy { classes: Classes::ByPage, ..policy.clone() };
        let limited = |contender, case, policy: &Policy| {
            Entrant::new(contender, case, policy.clone(), load()).limited(OTHER, pace.rate)
        };
        let entrants = [
            Entrant::new("weir", "alone", policy.clone(), vec![preferred()]),
            limited("weir", "rule", &policy),
            limited("weir", "rule+class", &classes),
            limited("nginx", "limit_req", &policy),
            limited("haproxy", "stick table", &policy),
            limited("envoy", "local limit", &policy),
        ];
        let x = f64::from(pace.rate);
        ticks.push((x, pace.rate.to_string()));
        rig.point(x, &entrants, &mut record)?;
    }
    record.axis = Some(axis("limit of the others' page, requests per second", ticks));
    Ok(record)
}

/// G10: the same limit in the kernel, after accept and at the request, and the peers', while others
/// flood.
pub(in crate::experiment) fn g10(experiment: &Experiment, options: &Options) -> Result<Record> {
    let (rig, mut record) = Rig::prepare(experiment, options)?;
    let pace = Pace::per_second(rig.share(FLOOD_LIMIT));
    let mut ticks = Vec::new();
    let floods = if options.quick { vec![0.0, 2.0, 10.0] } else { FLOODS.to_vec() };
    for flood in floods {
        let load = || {
            let mut groups = vec![preferred()];
            if flood > 0.0 {
                let arrivals = Arrivals::Poisson(rig.share(flood));
                groups.push(group(OTHER, pages::LOW, OTHERS, FLOOD_CLIENTS, arrivals));
            }
            groups
        };
        let entrant = |contender, case, place| {
            let policy = Policy { others: Some(pace), place, ..Policy::default() };
            let patience = Patience { wait: FLOOD_PATIENCE, ..super::PATIENCE };
            let entrant = Entrant::new(contender, case, policy, load());
            Entrant { patience, ..entrant.limited(OTHER, pace.rate) }
        };
        let entrants = [
            entrant("weir", "kernel", Place::Kernel),
            entrant("weir", "accept", Place::Accept),
            entrant("weir", "admit", Place::Admit),
            entrant("nginx", "limit_req", Place::Kernel),
            entrant("haproxy", "stick table", Place::Kernel),
        ];
        ticks.push((flood, format!("{flood}")));
        rig.point(flood, &entrants, &mut record)?;
    }
    record.axis = Some(axis("flood, in capacities of the application", ticks));
    Ok(record)
}
