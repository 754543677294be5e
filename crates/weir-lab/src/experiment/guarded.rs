//! The G experiments: contenders shield an application that can be overloaded, in a network
//! namespace of their own, against clients in another one. The rig starts, loads and measures them;
//! the modules below say who asks for what.
//!
//! What is overloaded is the application: a generator on one core cannot overload a server on
//! another one with documents that cost next to nothing. Rates are shares of the application's
//! capacity as it is measured at the start, where the original had its server's.

pub(super) mod classes;
pub(super) mod decisions;
pub(super) mod overload;
pub(super) mod paths;
pub(super) mod policing;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::reading::{Reading, axis, sample};
use super::{Experiment, LineUp, Options, in_turn, start_with};
use crate::contender::Role;
use crate::contender::policy::Policy;
use crate::costly::{self, Capacity, PAGE_SIZE};
use crate::documents::document;
use crate::error::{Doing, Error, Result};
use crate::load::{self, Arrivals, Asks, Edge, Group, Patience, Plan};
use crate::machine::raise_descriptor_limit;
use crate::network::{End, Network, SERVER, client_address};
use crate::process::{Running, Site};
use crate::result::{GroupSample, Record};

/// The application: 16 servers that take 20 ms for a page, 800 pages a second.
const CAPACITY: Capacity = Capacity { servers: 16, work: Duration::from_millis(20) };
/// Sockets of the generator and of a contender, each in its own process.
const DESCRIPTORS: u64 = 16_384;
/// Load before the window, besides what the options say: clients begin one after the other within a
/// second, and then what adapts needs time.
const SETTLING: Duration = Duration::from_millis(1_500);
/// How long clients in a closed loop wait, and how long they pause when refused: as long as the
/// kernel does before it sends a SYN again.
const PATIENCE: Patience =
    Patience { wait: Duration::from_secs(30), pause: Duration::from_secs(1) };
/// How long the application may take to finish what it was left with.
const CLEARING: Duration = Duration::from_secs(60);

/// Blocks of client addresses, by the third number.
const GOLD: u8 = 1;
const SILVER: u8 = 2;
const BRONZE: u8 = 3;
const OTHERS: u8 = 16;
/// Addresses that the clients of a block share: no more than rules count among it.
const ADDRESSES: usize = 250;
const ADDRESSES_OF_OTHERS: usize = 4_000;

/// Names of groups.
const PREFERRED: &str = "preferred";
const OTHER: &str = "others";

/// The network, the application and who is there.
struct Rig<'a> {
    options: &'a Options,
    names: Vec<&'static str>,
    /// Pages per second, at best.
    capacity_per_s: f64,
    // Dropped in this order.
    site: Site,
    network: Network,
}

/// A contender as it is set up, and the load that it gets.
struct Entrant {
    contender: &'static str,
    case: &'static str,
    policy: Policy,
    groups: Vec<Group>,
    patience: Patience,
    /// What is let in per second, of which group.
    limit: Option<(&'static str, f64)>,
}

impl Entrant {
    fn new(
        contender: &'static str,
        case: &'static str,
        policy: Policy,
        groups: Vec<Group>,
    ) -> Entrant {
        Entrant { contender, case, policy, groups, patience: PATIENCE, limit: None }
    }

    fn limited(self, group: &'static str, rate: u32) -> Entrant {
        Entrant { limit: Some((group, f64::from(rate))), ..self }
    }
}

/// Clients of one block that ask for one page.
fn group(name: &'static str, page: &str, block: u8, clients: usize, arrivals: Arrivals) -> Group {
    let addresses = if block == OTHERS { ADDRESSES_OF_OTHERS } else { ADDRESSES };
    Group {
        name,
        asks: Asks::same(page, document(PAGE_SIZE)),
        mark: None,
        clients,
        arrivals,
        sources: (0..clients.min(addresses)).map(|index| client_address(block, index)).collect(),
    }
}

impl<'a> Rig<'a> {
    /// Makes everything, and measures what the application can do.
    fn prepare(experiment: &Experiment, options: &'a Options) -> Result<(Rig<'a>, Record)> {
        let LineUp { contenders, skipped } = experiment.line_up(Role::Guarded, options)?;
        raise_descriptor_limit(DESCRIPTORS)?;
        let network = Network::make(options.cores)?;
        let site = Site::prepare_costly(CAPACITY, SERVER, options.cores)?;
        let names: Vec<&'static str> = contenders.iter().map(|contender| contender.name).collect();
        let mut record = experiment.record(options, 0, skipped);
        let first = names[0];
        let mut rig = Rig { options, names, capacity_per_s: 0.0, site, network };
        rig.capacity_per_s = rig.measure_capacity(first, &mut record)?;
        record.capacity_per_s = Some(rig.capacity_per_s);
        (options.progress)(&format!("capacity: {:.0} pages per second", rig.capacity_per_s));
        Ok((rig, record))
    }

    /// A closed loop with as many clients as the application has servers.
    fn measure_capacity(&self, contender: &'static str, record: &mut Record) -> Result<f64> {
        let page = costly::target("any");
        let all = group("all", &page, GOLD, CAPACITY.servers, Arrivals::Closed);
        let entrant = Entrant::new(contender, "capacity", Policy::default(), vec![all]);
        let Some(running) = self.start(&entrant, record)? else {
            return Err(Error::Answer(format!("{contender} does not serve the application")));
        };
        let samples = self.measure(&entrant, &running, 0.0, 0)?;
        let capacity = samples.first().map_or(0.0, GroupSample::goodput_per_s);
        if capacity < CAPACITY.pages_per_s() / 2.0 {
            return Err(Error::Answer(format!(
                "the application makes {capacity:.0} pages per second, expected nearly {:.0}",
                CAPACITY.pages_per_s()
            )));
        }
        Ok(capacity)
    }

    /// So many times the capacity.
    fn share(&self, of_capacity: f64) -> f64 {
        self.capacity_per_s * of_capacity
    }

    /// One value of what is varied: starts everybody, measures them in interleaved rounds.
    fn point(&self, x: f64, entrants: &[Entrant], record: &mut Record) -> Result<()> {
        let mut running: Vec<(&Entrant, Running)> = Vec::new();
        for entrant in entrants.iter().filter(|entrant| self.names.contains(&entrant.contender)) {
            if let Some(started) = self.start(entrant, record)? {
                running.push((entrant, started));
            }
        }
        for round in 0..self.options.rounds {
            for (entrant, running) in in_turn(&running, round) {
                let samples = self.measure(entrant, running, x, round)?;
                samples.iter().for_each(|sample| self.report(sample));
                record.groups.extend(samples);
            }
        }
        Ok(())
    }

    fn start(&self, entrant: &Entrant, record: &mut Record) -> Result<Option<Running>> {
        let contender = crate::contender::Contender::named(entrant.contender)?;
        let (policy, page) = (&entrant.policy, costly::target("start"));
        self.network.within(End::Server, || {
            start_with(contender, Role::Guarded, policy, &self.site, &page, self.options, record)
        })
    }

    fn measure(
        &self,
        entrant: &Entrant,
        running: &Running,
        x: f64,
        round: usize,
    ) -> Result<Vec<GroupSample>> {
        self.await_idle_application()?;
        let plan = Plan {
            server: running.address,
            persistent: false,
            warm_up: self.options.warm_up + SETTLING,
            window: self.options.window,
            groups: entrant.groups.clone(),
            refusals: Some(entrant.patience),
        };
        let (mut opened, mut closed) = (Reading::default(), Reading::default());
        let outcomes = self.network.within(End::Clients, || {
            load::run(&plan, &mut |edge| match edge {
                Edge::Opens => opened = Reading::take(&running.pids, self.options.cores),
                Edge::Closes => closed = Reading::take(&running.pids, self.options.cores),
            })
        })?;
        let samples = plan.groups.iter().zip(&outcomes).map(|(group, outcome)| {
            let limit = entrant.limit.filter(|(name, _)| *name == group.name);
            GroupSample {
                contender: entrant.contender.to_owned(),
                case: entrant.case.to_owned(),
                x,
                round,
                limit_per_s: limit.map(|(_, rate)| rate),
                ..sample(group.name, outcome, &opened, &closed)
            }
        });
        Ok(samples.collect())
    }

    /// Waits until the application has made the pages for all who have gone away.
    fn await_idle_application(&self) -> Result<()> {
        let deadline = Instant::now() + CLEARING;
        loop {
            let asked = Instant::now();
            fetch_page(&self.site.app_socket())?;
            if asked.elapsed() < CAPACITY.work * 3 / 2 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Answer(format!("the application is busy after {CLEARING:?}")));
            }
            sleep(CAPACITY.work);
        }
    }

    fn report(&self, sample: &GroupSample) {
        (self.options.progress)(&format!(
            "{:>7.1}  round {}  {:<8} {:<12} {:<10} {:>6.0}/s  p50 {:>6.1} ms  p99 {:>6.1} ms  \
             {:>6.0}/s turned away{}{}  cores {:.0} %, {:.0} %",
            sample.x,
            sample.round + 1,
            sample.contender,
            sample.case,
            sample.group,
            sample.goodput_per_s(),
            sample.latency_p50_us / 1e3,
            sample.latency_p99_us / 1e3,
            sample.turned_away_per_s(),
            if sample.unsent > 0 { format!(", {} unsent", sample.unsent) } else { String::new() },
            sample.first_error.iter().map(|why| format!(", {why}")).collect::<String>(),
            sample.server_core_busy * 100.0,
            sample.load_core_busy * 100.0,
        ));
    }
}

/// A page straight from the application.
fn fetch_page(path: &std::path::Path) -> Result<()> {
    let attempt = || -> std::io::Result<()> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(CLEARING))?;
        stream.write_all(b"GET /page/idle HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::with_capacity(2 * PAGE_SIZE))?;
        Ok(())
    };
    attempt().doing(|| "asking the application".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::policy::blocks;

    #[test]
    fn clients_are_whom_rules_take_them_for() {
        let pairs = [
            (GOLD, blocks::GOLD),
            (SILVER, blocks::SILVER),
            (BRONZE, blocks::BRONZE),
            (OTHERS, blocks::OTHERS),
        ];
        for (block, prefix) in pairs {
            let (network, bits) = prefix.split_once('/').unwrap();
            let network = network.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
            let mask = u32::MAX << (32 - bits.parse::<u32>().unwrap());
            let group = group("any", "/", block, 100_000, Arrivals::Closed);
            assert!(group.sources.iter().all(|source| source.to_bits() & mask == network));
        }
    }
}
