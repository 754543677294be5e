//! P2: from a module to the first request that it serves, in a running server by its admin API; and
//! what replacing one generation by the next costs a worker, in the lab's own process.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use weir_plugin::Glance;

use super::{Experiment, LineUp, Options, start};
use crate::contender::{Contender, Role};
use crate::error::{Error, Result};
use crate::load::blocking;
use crate::local::{self, Local, WORKER};
use crate::modules;
use crate::pictures::{self, Picture};
use crate::process::Site;
use crate::result::{Record, Timing};
use crate::stats::median;

/// Generations that a round replaces.
const SWAPS: usize = 41;
/// Requests on a generation before it is replaced.
const USES: usize = 200;
/// Where the plugin is deployed.
const TARGET: &str = "/plugins/gray?route=/grey/*";

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let LineUp { contenders, skipped } = experiment.line_up(Role::Transcoder, options)?;
    let site = Site::prepare(&[], false, options.cores)?;
    pictures::write_all(&site.root())?;
    let module = modules::transcoder()?;
    let mut record = experiment.record(options, 0, skipped);
    for round in 0..options.rounds {
        for &contender in &contenders {
            let mut times = Vec::new();
            deployments(contender, &site, options, &mut record, &module, &mut times)?;
            times.extend(swaps()?);
            for (case, ns) in times {
                (options.progress)(&format!("round {}  {case}: {:.2} µs", round + 1, ns / 1e3));
                let (contender, case) = (contender.name.to_owned(), case.to_owned());
                record.timings.push(Timing { contender, case, size: 0, round, ns });
            }
        }
    }
    Ok(record)
}

type Times = Vec<(&'static str, f64)>;

/// Deploys into a server that has no plugin, and then another module over the first.
fn deployments(
    contender: &'static Contender,
    site: &Site,
    options: &Options,
    record: &mut Record,
    module: &[u8],
    times: &mut Times,
) -> Result<()> {
    let picture = pictures::ALL[0];
    let target = picture.target("grey");
    let Some(running) = start(contender, Role::Transcoder, site, &target, options, record)? else {
        return Ok(());
    };
    let mut client = open(running.address)?;
    // Never compiled before, whatever a store may remember: each module is another one.
    let (first, second) = (modules::remarked(module, 1), modules::remarked(module, 2));
    let answer = deploy(running.admin, &mut client, picture, &first)?;
    times.push(("deploy to first request", answer.took_ns));
    times.push(("of that, compiling", answer.compile_ns));
    times.push(("of that, starting instances", answer.start_ns));
    let answer = deploy(running.admin, &mut client, picture, &second)?;
    times.push(("deploy over another one to first request", answer.took_ns));
    let answer = deploy(running.admin, &mut client, picture, &first)?;
    times.push(("deploy what was compiled before", answer.took_ns));
    Ok(())
}

struct Answer {
    took_ns: f64,
    compile_ns: f64,
    start_ns: f64,
}

/// Deploys a module and fetches a picture, on a connection that was open before; it must be grey.
fn deploy(
    admin: SocketAddr,
    client: &mut TcpStream,
    picture: Picture,
    module: &[u8],
) -> Result<Answer> {
    let answer = |reason: String| Error::Answer(format!("deploying the transcoder: {reason}"));
    let began = Instant::now();
    let text = blocking::post(admin, TARGET, "application/wasm", module).map_err(answer)?;
    blocking::send_request(client, &picture.target("grey")).map_err(answer)?;
    let body = blocking::read_response(client).map_err(answer)?;
    let took = began.elapsed();
    if body != picture.grey() {
        return Err(answer("the first picture after it was not the grey one".to_owned()));
    }
    let said: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| answer(error.to_string()))?;
    let said_ns = |name: &str| said[name].as_f64().map(|ms| ms * 1e6);
    let (Some(compile_ns), Some(start_ns)) = (said_ns("compile_ms"), said_ns("start_ms")) else {
        return Err(answer(format!("no times in {said}")));
    };
    Ok(Answer { took_ns: took.as_nanos() as f64, compile_ns, start_ns })
}

fn open(address: SocketAddr) -> Result<TcpStream> {
    blocking::open(address, blocking::Options::default()).map_err(Error::Answer)
}

/// What a worker notices of a new generation: it finds another one, whose memory it has not touched
/// yet; and if it is the last to let go of the one before, that goes.
fn swaps() -> Result<Times> {
    let local = Local::start()?;
    let _context = local.runtime.enter();
    let module = modules::assemble(modules::OWN)?;
    local.deploy("empty", module.clone())?;
    let plugin = local.plugin("empty")?;
    let gone = || Error::Answer("the empty plugin is not in force".to_owned());
    let (facts, head) = (local::facts(), local::request_head());
    let pass = || {
        let began = Instant::now();
        let generation = plugin.pick().ok_or_else(gone)?;
        let found = began.elapsed();
        match Glance::at(&generation, WORKER, &facts, || head.clone()) {
            Glance::Passed => Ok((found.as_nanos() as f64, began.elapsed().as_nanos() as f64)),
            other => Err(Error::Answer(local::objection(&other))),
        }
    };
    let mut kinds: [(&str, Vec<f64>); 4] = [
        ("swap on a worker", Vec::new()),
        ("first call after a swap", Vec::new()),
        ("any other call, timed as that", Vec::new()),
        ("last request on the old generation ends", Vec::new()),
    ];
    for _ in 0..SWAPS {
        for _ in 0..USES {
            kinds[2].1.push(pass()?.1);
        }
        local.deploy("empty", module.clone())?;
        let (found, called) = pass()?;
        kinds[0].1.push(found);
        kinds[1].1.push(called);
        // Once more, with a request still on the generation that is replaced.
        let request = plugin.pick().ok_or_else(gone)?;
        local.deploy("empty", module.clone())?;
        pass()?;
        let began = Instant::now();
        drop(request);
        kinds[3].1.push(began.elapsed().as_nanos() as f64);
    }
    Ok(kinds.iter().filter_map(|(case, times)| Some((*case, median(times)?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_a_swap_is_timed() {
        let times = swaps().unwrap();
        assert_eq!(times.len(), 4);
        assert!(times.iter().all(|(_, ns)| *ns > 0.0), "{times:?}");
    }
}
