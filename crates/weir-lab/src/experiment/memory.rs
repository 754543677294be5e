//! S5 and idle: what a connection costs in memory while it does nothing.
//!
//! Each contender is started afresh, serves a first client (so that caches are filled and code is
//! paged in), is measured, then measured again with all connections held. Kernel socket buffers
//! are in no process; they are reported beside.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Experiment, Options, start};
use crate::contender::{Contender, Role};
use crate::documents::{self, document};
use crate::error::{Error, Result};
use crate::load::blocking::{self, Options as Connect};
use crate::machine::raise_descriptor_limit;
use crate::process::{Running, Site};
use crate::procfs::{self, Memory};
use crate::result::{MemorySample, Record};

/// Slow clients of S5 and the size of what each holds.
const SLOW_CLIENTS: usize = 500;
const SLOW_SIZE: usize = 1 << 20;
/// As small as the kernel makes it, so that the response stays with the server.
const SLOW_RECEIVE_BUFFER: usize = 2 << 10;
/// The largest segment, as on an Ethernet. With loopback's 64 KB segments the kernel would take a
/// whole response into one socket buffer, and no server would have anything left to hold.
const SLOW_SEGMENT_SIZE: u32 = 1_460;
/// Slow clients whose response is read to its end afterwards.
const SLOW_VERIFIED: usize = 20;
/// Idle connections and the size of the document each got.
const IDLE_CLIENTS: usize = 10_000;
const IDLE_SIZE: usize = 1 << 10;
/// Connections from one source address, well below the number of its ports.
const PER_SOURCE: usize = 5_000;
/// Descriptors wanted beyond one per connection.
const DESCRIPTORS_SPARE: u64 = 1_000;
/// Memory is taken as settled when it has not changed by more than this share in [`SETTLE_STEP`].
const SETTLED_WITHIN: f64 = 0.005;
const SETTLE_STEP: Duration = Duration::from_millis(250);
/// Longest wait for that; below the servers' time-outs for clients that do not read.
const SETTLE_MAX: Duration = Duration::from_secs(5);

struct Holding {
    role: Role,
    case: &'static str,
    target: String,
    size: usize,
    clients: usize,
    slow: bool,
}

pub(super) fn run_slow(experiment: &Experiment, options: &Options) -> Result<Record> {
    let clients = options.clients.unwrap_or(SLOW_CLIENTS);
    let target = documents::target(SLOW_SIZE);
    let files =
        Holding { role: Role::Files, case: "static", target, size: SLOW_SIZE, clients, slow: true };
    let proxied = |case, cached| Holding {
        role: Role::Proxy,
        case,
        target: crate::app::target(cached, SLOW_SIZE),
        size: SLOW_SIZE,
        clients,
        slow: true,
    };
    run(experiment, options, &[files, proxied("cached", true), proxied("uncached", false)])
}

pub(super) fn run_idle(experiment: &Experiment, options: &Options) -> Result<Record> {
    let holding = Holding {
        role: Role::Files,
        case: "static",
        target: documents::target(IDLE_SIZE),
        size: IDLE_SIZE,
        clients: options.clients.unwrap_or(IDLE_CLIENTS),
        slow: false,
    };
    run(experiment, options, &[holding])
}

fn run(experiment: &Experiment, options: &Options, holdings: &[Holding]) -> Result<Record> {
    let line_up = experiment.line_up(Role::Files, options)?;
    let clients = holdings.iter().map(|holding| holding.clients).max().unwrap_or(0);
    let descriptors = holdings.iter().map(Holding::descriptors).max().unwrap_or(0);
    raise_descriptor_limit(descriptors + DESCRIPTORS_SPARE)?;
    let site = Site::prepare(&[SLOW_SIZE, IDLE_SIZE], true, options.cores)?;
    let mut record = experiment.record(options, clients, line_up.skipped);
    for round in 0..options.rounds {
        for holding in holdings {
            for contender in &line_up.contenders {
                if contender.plays(holding.role) {
                    measure(contender, holding, round, &site, options, &mut record)?;
                }
            }
        }
    }
    Ok(record)
}

fn measure(
    contender: &'static Contender,
    holding: &Holding,
    round: usize,
    site: &Site,
    options: &Options,
    record: &mut Record,
) -> Result<()> {
    let target = &holding.target;
    let Some(mut running) = start(contender, holding.role, site, target, options, record)? else {
        return Ok(());
    };
    let failed = |reason| Error::Answer(format!("{}: {reason}", contender.name));
    let before = settled_memory(&running);
    let tcp_before = procfs::tcp_bytes();
    let mut held = Vec::with_capacity(holding.clients);
    for index in 0..holding.clients {
        held.push(holding.open(&running, index).map_err(failed)?);
    }
    let held_memory = settled_memory(&running);
    let tcp_held = procfs::tcp_bytes();
    let verified = holding.verify(&mut held).map_err(failed)?;
    if running.has_ended() {
        return Err(failed("it died under the load".to_owned()));
    }
    let sample = MemorySample {
        contender: contender.name.to_owned(),
        case: holding.case.to_owned(),
        round,
        clients: holding.clients,
        before,
        held: held_memory,
        tcp_before,
        tcp_held,
        verified,
    };
    (options.progress)(&format!(
        "{} clients  round {}  {:<9} {:<9} {:>8.1} KB each, and {:>7.1} KB in the kernel's buffers",
        holding.clients,
        round + 1,
        sample.contender,
        sample.case,
        sample.bytes_per_client() / 1024.0,
        sample.tcp_bytes_per_client() / 1024.0,
    ));
    record.memory.push(sample);
    Ok(())
}

impl Holding {
    /// Descriptors of a server that holds the clients; a proxy has a connection to the application
    /// for each of them too.
    fn descriptors(&self) -> u64 {
        let per_client = if self.role == Role::Proxy { 2 } else { 1 };
        per_client * self.clients as u64
    }

    fn open(&self, running: &Running, index: usize) -> Result<TcpStream, String> {
        let source = Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(index / PER_SOURCE).unwrap_or(250));
        let connect = Connect {
            source: (!self.slow).then_some(IpAddr::V4(source)),
            receive_buffer: self.slow.then_some(SLOW_RECEIVE_BUFFER),
            segment_size: self.slow.then_some(SLOW_SEGMENT_SIZE),
        };
        let mut stream = blocking::open(running.address, connect)?;
        blocking::send_request(&mut stream, &self.target)?;
        if !self.slow {
            blocking::read_response(&mut stream)?;
        }
        Ok(stream)
    }

    /// Whether the connections still work: slow ones deliver the rest, idle ones answer again.
    fn verify(&self, held: &mut [TcpStream]) -> Result<usize, String> {
        let expect = document(self.size);
        let step = (held.len() / SLOW_VERIFIED).max(1);
        let mut verified = 0;
        for stream in held.iter_mut().step_by(step) {
            if !self.slow {
                blocking::send_request(stream, &self.target)?;
            }
            if blocking::read_response(stream)? != expect {
                return Err("a held response was not what was asked for".to_owned());
            }
            verified += 1;
        }
        Ok(verified)
    }
}

/// Memory of a contender once it has stopped changing.
fn settled_memory(running: &Running) -> Memory {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut last = procfs::memory(&running.pids);
    loop {
        sleep(SETTLE_STEP);
        let now = procfs::memory(&running.pids);
        let change = (now.rss as f64 - last.rss as f64).abs();
        if change <= last.rss as f64 * SETTLED_WITHIN || Instant::now() > deadline {
            return now;
        }
        last = now;
    }
}
