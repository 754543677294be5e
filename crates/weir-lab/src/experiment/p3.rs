//! P3: latency and the rate of replies over the rate of requests, in an open loop: servers as they
//! are, with an empty extension in the process, and with one outside of it.

use super::extended::{NONE, Pair, prepare};
use super::grid::Grid;
use super::{Experiment, Options};
use crate::documents::SMALL;
use crate::error::Result;
use crate::result::Record;

/// Connections: enough that a request finds an idle one as long as the server keeps up.
const CLIENTS: usize = 100;
/// Requests per second: from next to nothing to beyond what a core can serve over loopback.
const RATES: [f64; 10] = [2e3, 5e3, 10e3, 20e3, 30e3, 45e3, 60e3, 80e3, 100e3, 120e3];
const RATES_QUICK: [f64; 3] = [5e3, 20e3, 60e3];

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let clients = options.clients.unwrap_or(CLIENTS);
    let (line_up, site, mut record) = prepare(experiment, options, clients)?;
    let mut pairs = Vec::new();
    for contender in line_up.contenders {
        pairs.extend(Pair::start(contender, &site, options, &mut record)?);
    }
    // What a route without a plugin costs beside those with one is P1's question.
    let lines = pairs.iter().flat_map(Pair::lines).filter(|line| line.case != NONE);
    let lines: Vec<_> = lines.collect();
    let mut rates = match &options.rates {
        Some(rates) => rates.clone(),
        None if options.quick => RATES_QUICK.to_vec(),
        None => RATES.to_vec(),
    };
    rates.sort_by(f64::total_cmp);
    let (sizes, helpers) = (vec![SMALL], site.app_pids());
    Grid { sizes, clients, persistent: true, rounds: 0..options.rounds, rates, helpers, options }
        .run(&lines, &mut record)?;
    Ok(record)
}
