//! S3: documents of a separate application, cached and not, beside static files from the same
//! server with the same configuration. The application's CPU is not the server's.

use super::grid::{Grid, Line};
use super::{Experiment, Options, start};
use crate::app;
use crate::contender::Role;
use crate::documents::{self, SIZES};
use crate::error::Result;
use crate::process::Site;
use crate::result::Record;

/// Clients, as in S1.
const CLIENTS: usize = 40;
/// The sizes that the goals name.
const SIZES_QUICK: [usize; 2] = [1 << 10, 64 << 10];

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let line_up = experiment.line_up(Role::Proxy, options)?;
    let sizes = match &options.sizes {
        Some(sizes) => sizes.clone(),
        None if options.quick => SIZES_QUICK.to_vec(),
        None => SIZES.to_vec(),
    };
    let clients = options.clients.unwrap_or(CLIENTS);
    let site = Site::prepare(&sizes, true, options.cores)?;
    let mut record = experiment.record(options, clients, line_up.skipped);
    let mut running = Vec::new();
    for contender in line_up.contenders {
        let target = app::target(false, sizes[0]);
        running.extend(start(contender, Role::Proxy, &site, &target, options, &mut record)?);
    }
    let mut lines = Vec::new();
    for running in &running {
        if running.contender.serves_files {
            lines.push(Line { running, case: "static", target: documents::target });
        }
        lines.push(Line { running, case: "cached", target: |size| app::target(true, size) });
        lines.push(Line { running, case: "uncached", target: |size| app::target(false, size) });
    }
    let helpers = site.app_pids();
    Grid {
        sizes,
        clients,
        persistent: true,
        rounds: 0..options.rounds,
        rates: Vec::new(),
        helpers,
        options,
    }
    .run(&lines, &mut record)?;
    Ok(record)
}
