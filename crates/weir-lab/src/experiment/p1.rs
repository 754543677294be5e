//! P1: what it costs to enter and leave an empty plugin: by itself, in the lab's own process, and
//! in servers, where it is the CPU that a request takes more than without.

use std::hint::black_box;
use std::time::Instant;

use weir_plugin::{AtOnce, Generation, Glance, RequestHead};

use super::extended::{Pair, prepare};
use super::grid::Grid;
use super::{Experiment, Options};
use crate::contender::Origin;
use crate::documents::SMALL;
use crate::error::{Error, Result};
use crate::local::{self, Local, WORKER};
use crate::modules;
use crate::result::{Record, Timing};
use crate::stats::median;

/// Clients, as in S1.
const CLIENTS: usize = 40;
/// Calls that are timed together, and how often. A clock costs as much as a call.
const CALLS: usize = 1_000;
const BATCHES: usize = 101;

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let clients = options.clients.unwrap_or(CLIENTS);
    let (line_up, site, mut record) = prepare(experiment, options, clients)?;
    if line_up.contenders.iter().any(|contender| contender.origin == Origin::Weir) {
        calls(options, &mut record)?;
    }
    let mut pairs = Vec::new();
    for contender in line_up.contenders {
        pairs.extend(Pair::start(contender, &site, options, &mut record)?);
    }
    let lines: Vec<_> = pairs.iter().flat_map(Pair::lines).collect();
    let (sizes, helpers) = (vec![SMALL], site.app_pids());
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

/// Times calls without a server around them.
fn calls(options: &Options, record: &mut Record) -> Result<()> {
    let local = Local::start()?;
    for (name, text) in
        [("own", modules::OWN), ("all", modules::OWN_ALL), ("pw", modules::PROXY_WASM)]
    {
        local.deploy(name, modules::assemble(text)?)?;
    }
    let (own, all) = (local.generation("own")?, local.generation("all")?);
    let proxy_wasm = local.generation("pw")?;
    let facts = local::facts();
    let request = local::request_head();
    let response = local::response_head("text/html");
    let glance = |generation: &std::sync::Arc<Generation>| {
        let glance = Glance::at(generation, WORKER, &facts, || std::sync::Arc::clone(&request));
        matches!(glance, Glance::Passed)
    };
    let whole = || {
        let glance = Glance::at(&proxy_wasm, WORKER, &facts, || request.clone());
        let Glance::More(stream, AtOnce::Unchanged) = glance else { return false };
        matches!(stream.response_at_once(response.clone()), AtOnce::Unchanged)
    };
    // What a plugin that is compiled into the server would be.
    let native: Box<dyn Fn(&RequestHead) -> bool> = Box::new(|head| black_box(head).secure);
    let _context = local.runtime.enter();
    for round in 0..options.rounds {
        let cases: [(&str, &dyn Fn() -> bool); 4] = [
            ("native: a call", &|| !black_box(&native)(request.lend())),
            ("own: a call", &|| glance(&own)),
            ("own: a call, 8 fields shown", &|| glance(&all)),
            ("proxy-wasm: a request", &whole),
        ];
        for (case, call) in cases {
            let ns = time(call).ok_or_else(|| {
                let glances = [&own, &all].map(|generation| {
                    let glance = Glance::at(generation, WORKER, &facts, || request.clone());
                    local::objection(&glance)
                });
                Error::Answer(format!("{case}: a request did not pass; {}", glances.join("; ")))
            })?;
            (options.progress)(&format!("round {}  {case}: {ns:.1} ns", round + 1));
            let (contender, case) = ("weir".to_owned(), case.to_owned());
            record.timings.push(Timing { contender, case, size: 0, round, ns });
        }
    }
    Ok(())
}

/// Nanoseconds of a call: the median of batches. `None` if one did not do what it should.
fn time(call: &dyn Fn() -> bool) -> Option<f64> {
    let mut batches = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let began = Instant::now();
        let done = (0..CALLS).filter(|_| black_box(call())).count();
        batches.push(began.elapsed().as_nanos() as f64 / CALLS as f64);
        if done != CALLS {
            return None;
        }
    }
    median(&batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_fail_have_no_time() {
        assert!(time(&|| true).is_some_and(|ns| ns > 0.0));
        assert_eq!(time(&|| false), None);
    }
}
