//! S1 and S2: one document of each size, served from files; S1 with a connection per request, S2
//! with persistent connections.

use super::grid::{Grid, Line};
use super::{Experiment, Options, start};
use crate::contender::Role;
use crate::documents::{self, SIZES, SIZES_QUICK};
use crate::error::Result;
use crate::process::Site;
use crate::result::Record;

/// Clients of the original experiment.
const CLIENTS: usize = 40;

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let line_up = experiment.line_up(Role::Files, options)?;
    let sizes = match &options.sizes {
        Some(sizes) => sizes.clone(),
        None if options.quick => SIZES_QUICK.to_vec(),
        None => SIZES.to_vec(),
    };
    let clients = options.clients.unwrap_or(CLIENTS);
    let site = Site::prepare(&sizes, false, options.cores)?;
    let mut record = experiment.record(options, clients, line_up.skipped);
    let mut running = Vec::new();
    for contender in line_up.contenders {
        let target = documents::target(sizes[0]);
        running.extend(start(contender, Role::Files, &site, &target, options, &mut record)?);
    }
    let lines: Vec<Line> = running
        .iter()
        .map(|running| Line { running, case: "static", target: documents::target })
        .collect();
    let persistent = experiment.id == "s2";
    Grid {
        sizes,
        clients,
        persistent,
        rounds: 0..options.rounds,
        rates: Vec::new(),
        helpers: Vec::new(),
        options,
    }
    .run(&lines, &mut record)?;
    Ok(record)
}
