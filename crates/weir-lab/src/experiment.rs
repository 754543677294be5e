//! The experiments: which there are, and what they share.

mod adapted;
mod extended;
mod grid;
mod guarded;
mod images;
mod list;
mod memory;
mod p1;
mod p2;
mod p3;
mod p4;
mod reading;
mod s1;
mod s3;
mod storing;
mod throughput;

use std::path::PathBuf;
use std::time::Duration;

use crate::contender::policy::Policy;
use crate::contender::{Contender, Origin, Role};
use crate::error::{Error, Result};
use crate::install;
use crate::machine::{Cores, Machine};
use crate::process::{Running, Site};
use crate::result::{Record, Settings};

pub use list::ALL;

/// An experiment that the lab can run.
pub struct Experiment {
    /// Its id on the command line.
    pub id: &'static str,
    /// What it measures, in a line.
    pub title: &'static str,
    /// Contenders if none are named.
    pub contenders: &'static [&'static str],
    run: fn(&Experiment, &Options) -> Result<Record>,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interleaved rounds.
    pub rounds: usize,
    /// Length of a measured window.
    pub window: Duration,
    /// Load before each window.
    pub warm_up: Duration,
    /// Contenders, if not the experiment's own.
    pub contenders: Option<Vec<String>>,
    /// Fewer sizes.
    pub quick: bool,
    /// Sizes, if not the experiment's own.
    pub sizes: Option<Vec<usize>>,
    /// Requests per second, one rate after the other, if not the experiment's own.
    pub rates: Option<Vec<f64>>,
    /// Connections held in the memory experiments, if not the experiment's own.
    pub clients: Option<usize>,
    /// Weir's binary.
    pub weir: PathBuf,
    /// Measure each series with wrk too, as a check on the lab's own generator.
    pub cross_check: bool,
    /// Install packages that are missing.
    pub install: bool,
    /// Who runs where.
    pub cores: Cores,
    /// The command line, for the record.
    pub command: String,
    /// Told what is going on, a line at a time.
    pub progress: fn(&str),
}

impl Experiment {
    /// The experiment of that id.
    ///
    /// # Errors
    /// Names the ones there are.
    pub fn with_id(id: &str) -> Result<&'static Experiment> {
        ALL.iter().find(|experiment| experiment.id == id).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|experiment| experiment.id).collect();
            Error::Usage(format!("no experiment {id:?}; known are {}", known.join(", ")))
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// When no contender can be started, or the load generator fails.
    pub fn run(&self, options: &Options) -> Result<Record> {
        (self.run)(self, options)
    }

    /// The contenders that can play `role`, and for the others why not.
    fn line_up(&self, role: Role, options: &Options) -> Result<LineUp> {
        let names: Vec<&str> = match &options.contenders {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => self.contenders.to_vec(),
        };
        let mut line_up = LineUp::default();
        for name in names {
            let contender = Contender::named(name)?;
            if !contender.plays(role) {
                line_up.skipped.push(format!("{name}: takes no part in {}", self.id));
                continue;
            }
            let missing = contender.program(&options.weir).is_err();
            if missing && options.install {
                install(contender, options)?;
            }
            match contender.program(&options.weir) {
                Ok(_) => line_up.contenders.push(contender),
                Err(error) => line_up.skipped.push(error.to_string()),
            }
        }
        line_up.skipped.iter().for_each(|reason| (options.progress)(&format!("skipped: {reason}")));
        if line_up.contenders.is_empty() {
            return Err(Error::Usage(format!("{}: no contender is left", self.id)));
        }
        Ok(line_up)
    }

    /// A record with everything but measurements.
    fn record(&self, options: &Options, clients: usize, skipped: Vec<String>) -> Record {
        Record {
            id: self.id.to_owned(),
            title: self.title.to_owned(),
            command: options.command.clone(),
            machine: Machine::describe(),
            settings: Settings {
                rounds: options.rounds,
                window_s: options.window.as_secs_f64(),
                clients,
                quick: options.quick,
            },
            contenders: Vec::new(),
            skipped,
            samples: Vec::new(),
            memory: Vec::new(),
            timings: Vec::new(),
            peaks: Vec::new(),
            groups: Vec::new(),
            axis: None,
            capacity_per_s: None,
        }
    }
}

/// Installs a contender that somebody else makes.
fn install(contender: &Contender, options: &Options) -> Result<()> {
    match contender.origin {
        Origin::Debian { package, .. } => {
            (options.progress)(&format!("installing {package}"));
            install::package(package)
        }
        Origin::Python { package, .. } => {
            (options.progress)(&format!("installing {package}"));
            install::python_package(package)
        }
        Origin::Weir | Origin::Lab => Ok(()),
    }
}

#[derive(Default)]
struct LineUp {
    contenders: Vec<&'static Contender>,
    skipped: Vec<String>,
}

/// Who comes first changes from round to round: a place in the order may be a good one.
fn in_turn<T>(all: &[T], round: usize) -> impl Iterator<Item = &T> {
    all.iter().cycle().skip(round % all.len().max(1)).take(all.len())
}

/// Starts a contender that serves `target`, or notes in the record why it is left out. Weir itself
/// and the floor are not left out: an experiment without them should fail loudly.
fn start(
    contender: &'static Contender,
    role: Role,
    site: &Site,
    target: &str,
    options: &Options,
    record: &mut Record,
) -> Result<Option<Running>> {
    start_with(contender, role, &Policy::default(), site, target, options, record)
}

/// The same with a policy.
fn start_with(
    contender: &'static Contender,
    role: Role,
    policy: &Policy,
    site: &Site,
    target: &str,
    options: &Options,
    record: &mut Record,
) -> Result<Option<Running>> {
    match Running::start(contender, role, policy, site, &options.weir, options.cores, target) {
        Ok(running) => {
            let entry = (contender.name.to_owned(), running.version.clone());
            if !record.contenders.contains(&entry) {
                record.contenders.push(entry);
            }
            Ok(Some(running))
        }
        Err(error) if !matches!(contender.origin, Origin::Weir | Origin::Lab) => {
            (options.progress)(&format!("skipped: {error}"));
            let reason = error.to_string();
            if !record.skipped.contains(&reason) {
                record.skipped.push(reason);
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
