//! P4: pictures made grey, three ways: not at all, by the transcoder's code compiled into the lab
//! (native), and by its module in the sandbox (isolated). Once at the level of the body hook, in
//! the lab's own process, where all three can be had; and once as the client of a server sees it.

use std::net::TcpStream;
use std::time::Instant;

use super::{Experiment, Options, start};
use crate::contender::{Contender, Role};
use crate::error::{Error, Result};
use crate::load::blocking;
use crate::modules;
use crate::pictures::{self, FOLDERS, Picture};
use crate::process::{Running, Site};
use crate::procfs;
use crate::result::{Record, Timing};
use crate::stats::median;
use crate::transcode::{Bench, Build};

/// Requests of a measurement, of which the first is dropped, as in the original.
const REQUESTS: usize = 2_001;
const REQUESTS_QUICK: usize = 101;

pub(super) fn run(experiment: &Experiment, options: &Options) -> Result<Record> {
    let line_up = experiment.line_up(Role::Transcoder, options)?;
    let site = Site::prepare(&[], false, options.cores)?;
    pictures::write_all(&site.root())?;
    let module = modules::transcoder()?;
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    let is_wanted = |picture: &Picture| {
        options.sizes.as_ref().is_none_or(|sizes| sizes.contains(&picture.size()))
    };
    let wanted: Vec<Picture> = pictures::ALL.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let sizes = pictures::ALL.map(|picture| picture.size().to_string());
        return Err(Error::Usage(format!("p4 has pictures of {} bytes", sizes.join(", "))));
    }
    let mut record = experiment.record(options, 0, line_up.skipped);
    let bench = Bench::start(module.clone())?;
    let mut clients = Vec::new();
    for contender in line_up.contenders {
        clients.extend(Client::start(contender, &site, options, &mut record, &module)?);
    }
    for picture in wanted {
        for round in 0..options.rounds {
            let mut note = |case: String, ns: f64| {
                (options.progress)(&format!(
                    "{:>7} B  round {}  {case}: {:.2} µs",
                    picture.size(),
                    round + 1,
                    ns / 1e3
                ));
                let (contender, size) = ("weir".to_owned(), picture.size());
                record.timings.push(Timing { contender, case, size, round, ns });
            };
            for build in Build::ALL {
                note(build.name().to_owned(), bench.measure(build, picture, requests)?);
            }
            for client in &mut clients {
                for (folder, name) in FOLDERS.into_iter().zip(["none", "isolated"]) {
                    let (latency, cpu) = client.measure(folder, picture, requests)?;
                    note(format!("client, {name}"), latency);
                    note(format!("server CPU, {name}"), cpu);
                }
            }
        }
    }
    Ok(record)
}

/// A server with the transcoder on one of its routes, and a connection to it.
struct Client {
    running: Running,
    stream: TcpStream,
}

impl Client {
    fn start(
        contender: &'static Contender,
        site: &Site,
        options: &Options,
        record: &mut Record,
        module: &[u8],
    ) -> Result<Option<Client>> {
        let target = pictures::ALL[0].target(FOLDERS[0]);
        let started = start(contender, Role::Transcoder, site, &target, options, record)?;
        let Some(running) = started else { return Ok(None) };
        let route = format!("/plugins/gray?route=/{}/*", FOLDERS[1]);
        blocking::post(running.admin, &route, "application/wasm", module).map_err(Error::Answer)?;
        let stream = blocking::open(running.address, blocking::Options::default());
        Ok(Some(Client { running, stream: stream.map_err(Error::Answer)? }))
    }

    /// Nanoseconds until a picture was there (median), and of the server's CPU (mean).
    fn measure(&mut self, folder: &str, picture: Picture, requests: usize) -> Result<(f64, f64)> {
        let target = picture.target(folder);
        let expect = if folder == FOLDERS[1] { picture.grey() } else { picture.colour() };
        let mut fetch = || {
            blocking::send_request(&mut self.stream, &target)?;
            blocking::read_response(&mut self.stream)
        };
        if fetch().map_err(Error::Answer)? != expect {
            return Err(Error::Answer(format!("{target}: not the picture it should be")));
        }
        let mut latencies = Vec::with_capacity(requests);
        let opened = procfs::cpu_ns(&self.running.pids);
        for _ in 1..requests {
            let began = Instant::now();
            let body = fetch().map_err(Error::Answer)?;
            latencies.push(began.elapsed().as_nanos() as f64);
            if body.len() != expect.len() {
                return Err(Error::Answer(format!("{target}: {} bytes", body.len())));
            }
        }
        let cpu = procfs::cpu_ns(&self.running.pids).saturating_sub(opened);
        let cpu = cpu as f64 / latencies.len().max(1) as f64;
        Ok((median(&latencies).unwrap_or(f64::NAN), cpu))
    }
}
