//! What compressing and rewriting cost, beside servers that do it anew for every request. Weir does
//! it once: texts by a helper, which has the server's core, each of them stored before and asked
//! for once by somebody who waits; pages as they come from the application, beside the same pages
//! as they are. What was made before is asked for again. What an application answers anew each
//! time, and nobody may store, all of them adapt as it passes.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::grid::{Line, Point, Reading, sample};
use super::storing::fetch;
use super::{Experiment, LineUp, Options, in_turn, start_with};
use crate::background::{Sized, Texts, live, page, page_target, text_target};
use crate::contender::adaptation::{Adaptation, PageRoute};
use crate::contender::policy::Policy;
use crate::contender::{Contender, Role};
use crate::error::{Doing, Error, Result};
use crate::load::{self, Arrivals, Ask, Asks, Catalogue, Edge, Expect, Group, Plan};
use crate::process::Site;
use crate::result::{Record, Sample};
use crate::texts::Writer;

/// Clients: enough for nobody to wait for one.
const CLIENTS: usize = 16;
/// Sizes in bytes: the original's texts, a large page, and a large document.
const SIZES: [usize; 3] = [8 << 10, 100 << 10, 1 << 20];
const SIZES_QUICK: [usize; 2] = [8 << 10, 100 << 10];
/// The application has nothing to think about.
const THINK: Duration = Duration::from_millis(1);
/// However small things are, a core adapts no more of them per second.
const ADAPTED_MAX_PER_S: f64 = 15_000.0;
/// Of the responses that are to be adapted, those that must be.
const MARKED_MIN: f64 = 0.99;

/// What is done to what, and how it is seen that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Gzip,
    Zstd,
    Rewrite,
    /// Pages are stored and sent as they are.
    Nothing,
}

/// One line of the result.
#[derive(Clone, Copy, Debug)]
struct Task {
    contender: &'static str,
    case: &'static str,
    work: Work,
    what: What,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Another one each time, stored before.
    Stored,
    /// Another one each time, which the application answers and all may store.
    New,
    /// The same each time.
    Same,
    /// The same each time, which the application answers and nobody stores.
    Live,
}

/// Compression.
pub(super) fn compression(experiment: &Experiment, options: &Options) -> Result<Record> {
    let task = |contender, case, work, what| Task { contender, case, work, what };
    let tasks = [
        task("weir", "gzip", Work::Gzip, What::Stored),
        task("nginx", "gzip", Work::Gzip, What::Same),
        task("caddy", "gzip", Work::Gzip, What::Same),
        task("weir", "zstd", Work::Zstd, What::Stored),
        task("caddy", "zstd", Work::Zstd, What::Same),
        task("weir", "gzip, again", Work::Gzip, What::Same),
        task("weir", "gzip, uncached", Work::Gzip, What::Live),
        task("nginx", "gzip, uncached", Work::Gzip, What::Live),
        task("caddy", "gzip, uncached", Work::Gzip, What::Live),
        task("weir", "zstd, uncached", Work::Zstd, What::Live),
        task("caddy", "zstd, uncached", Work::Zstd, What::Live),
    ];
    run(experiment, options, &tasks)
}

/// Rewriting.
pub(super) fn rewriting(experiment: &Experiment, options: &Options) -> Result<Record> {
    let task = |contender, case, what| Task { contender, case, work: Work::Rewrite, what };
    let tasks = [
        Task { work: Work::Nothing, ..task("weir", "fetched", What::New) },
        task("weir", "fetched, rewritten", What::New),
        task("nginx", "rewritten", What::Same),
        task("weir", "rewritten, again", What::Same),
        task("weir", "rewritten, uncached", What::Live),
        task("nginx", "rewritten, uncached", What::Live),
    ];
    run(experiment, options, &tasks)
}

fn run(experiment: &Experiment, options: &Options, tasks: &[Task]) -> Result<Record> {
    let LineUp { contenders, skipped } = experiment.line_up(Role::Adapted, options)?;
    let sizes = match &options.sizes {
        Some(sizes) => sizes.clone(),
        None if options.quick => SIZES_QUICK.to_vec(),
        None => SIZES.to_vec(),
    };
    let site = Site::prepare_origin(THINK, options.cores)?;
    write_all(&site, &sizes)?;
    let clients = options.clients.unwrap_or(CLIENTS);
    let mut record = experiment.record(options, clients, skipped);
    for &size in &sizes {
        for round in 0..options.rounds {
            for task in in_turn(tasks, round) {
                let Some(contender) = contenders.iter().find(|one| one.name == task.contender)
                else {
                    continue;
                };
                let bench = Bench { options, contender, site: &site, clients };
                if let Some(sample) = bench.measure(task, size, round, &mut record)? {
                    report(options, &sample);
                    record.samples.push(sample);
                }
            }
        }
    }
    Ok(record)
}

/// The files of those who serve files: the very bytes that the application has by the same paths.
fn write_all(site: &Site, sizes: &[usize]) -> Result<()> {
    for &size in sizes {
        let text = (text_target(size, 0), Writer::new(size).text(0));
        for (target, bytes) in [text, (page_target(size, 'n', 0), page(size))] {
            let path = site.root().join(&target[1..]);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).doing(|| format!("creating {}", folder.display()))?;
            }
            fs::write(&path, bytes).doing(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

impl Work {
    /// Bytes per second that are provided for: more than one core can do.
    fn most_per_s(self) -> f64 {
        match self {
            Work::Gzip => 150e6,
            Work::Zstd | Work::Rewrite | Work::Nothing => 400e6,
        }
    }

    fn catalogue(self, size: usize, plain: bool) -> Arc<dyn Catalogue> {
        let fields = match self {
            Work::Gzip if !plain => "Accept-Encoding: gzip\r\n",
            Work::Zstd if !plain => "Accept-Encoding: zstd\r\n",
            _ => "",
        };
        match self {
            Work::Rewrite | Work::Nothing => Arc::new(Sized { size }),
            _ => Arc::new(Texts { size, fields }),
        }
    }
}

impl Task {
    /// By what a head tells that it was done. Names of fields are small letters with some only.
    fn mark(&self) -> Option<&'static str> {
        match (self.work, self.contender) {
            (Work::Gzip, _) => Some("ncoding: gzip"),
            (Work::Zstd, _) => Some("ncoding: zstd"),
            (Work::Rewrite, "weir") => Some("weir-adapt: html"),
            (Work::Rewrite | Work::Nothing, _) => None,
        }
    }
}

struct Bench<'a> {
    options: &'a Options,
    contender: &'static Contender,
    site: &'a Site,
    clients: usize,
}

impl Bench<'_> {
    /// Measures one task with a server of its own.
    fn measure(
        &self,
        task: &Task,
        size: usize,
        round: usize,
        record: &mut Record,
    ) -> Result<Option<Sample>> {
        let options = self.options;
        let pages = match task.work {
            Work::Nothing => PageRoute::Plain,
            _ => PageRoute::Rewritten,
        };
        let adaptation = Adaptation { pages, ..Adaptation::default() };
        let policy = Policy { adaptation, ..Policy::default() };
        let (role, page) = (Role::Adapted, text_target(size, 0));
        let running = start_with(self.contender, role, &policy, self.site, &page, options, record)?;
        let Some(running) = running else { return Ok(None) };
        let asks = self.prepare(task, size, running.address)?;
        let group = Group {
            name: task.case,
            asks,
            mark: task.mark(),
            clients: self.clients,
            arrivals: Arrivals::Closed,
            sources: Vec::new(),
        };
        let plan = Plan {
            server: running.address,
            persistent: true,
            warm_up: options.warm_up,
            window: options.window,
            groups: vec![group],
            refusals: None,
        };
        let (mut opened, mut closed) = (Reading::default(), Reading::default());
        let helpers = self.site.app_pids();
        let outcome = load::run_one(&plan, &mut |edge| {
            let reading = Reading::take(&running.family(), &helpers);
            match edge {
                Edge::Opens => opened = reading,
                Edge::Closes => closed = reading,
            }
        })?;
        let (marked, requests) = (outcome.marked as f64, outcome.requests as f64);
        if task.mark().is_some() && marked < requests * MARKED_MIN {
            return Err(Error::Answer(format!(
                "{} {}: of {requests} responses {marked} were adapted",
                task.contender, task.case
            )));
        }
        let line = Line { running: &running, case: task.case, target: |_| String::new() };
        let point = Point { size, rate_per_s: None, round };
        Ok(Some(sample(&line, &point, &outcome, &opened, &closed)))
    }

    /// Has everything stored that is to be, and says what is asked for then.
    fn prepare(&self, task: &Task, size: usize, server: SocketAddr) -> Result<Asks> {
        let catalogue = task.work.catalogue(size, false);
        let same = Ask { expect: Expect::Any, ..catalogue.ask(0) };
        match task.what {
            What::New => Ok(Asks::Each(catalogue)),
            What::Stored => {
                let time = self.options.warm_up + self.options.window;
                let per_s = (task.work.most_per_s() / size as f64).min(ADAPTED_MAX_PER_S);
                let count = (per_s * time.as_secs_f64()) as u64 + 2 * self.clients as u64;
                let plain = task.work.catalogue(size, true);
                fetch(server, &*plain, count, None)?;
                Ok(Asks::Each(catalogue))
            }
            What::Same => {
                fetch(server, &*catalogue, 1, task.mark())?;
                Ok(Asks::Same(same))
            }
            What::Live => Ok(Asks::Same(Ask { target: live(&same.target), ..same })),
        }
    }
}

fn report(options: &Options, sample: &Sample) {
    (options.progress)(&format!(
        "{:>7} B  round {}  {:<7} {:<16} {:>7.0}/s  {:>6.1} MB/s  {:>8.2} µs CPU  {:>3.0} % busy  \
         to {:.1} %",
        sample.size,
        sample.round + 1,
        sample.contender,
        sample.case,
        sample.requests_per_s(),
        sample.original_megabytes_per_s(),
        sample.cpu_us(),
        sample.server_busy() * 100.0,
        sample.size_share() * 100.0,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_asked_for() {
        for work in [Work::Gzip, Work::Zstd, Work::Rewrite] {
            let (plain, coded) = (work.catalogue(8_192, true), work.catalogue(8_192, false));
            assert_eq!(plain.ask(7).target, coded.ask(7).target);
            assert!(plain.ask(7).fields.is_empty());
            assert_eq!(coded.ask(7).fields.is_empty(), work == Work::Rewrite);
        }
    }
}
