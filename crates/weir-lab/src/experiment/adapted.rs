//! The A experiments: a background load at a fixed rate, of which 58 % are hits, and beside it a
//! client who asks for texts or pictures that are to be adapted. Helpers have the server's core:
//! what they may use is what the background leaves of it.
//!
//! What is to be adapted is stored before, so that it is adapted and not fetched while somebody
//! measures; each of it is asked for once. Every measurement has a server of its own.

pub(super) mod cost;
pub(super) mod demand;

use std::sync::Arc;
use std::time::Duration;

use super::reading::{Reading, sample};
use super::storing::fetch;
use super::{Experiment, LineUp, Options, start_with};
use crate::background::{Bodies, Each, Fresh, POPULAR, Pages, Popular, Small, TEXT_SIZE, Texts};
use crate::contender::adaptation::{Adaptation, PageRoute};
use crate::contender::policy::Policy;
use crate::contender::{Contender, Role};
use crate::error::{Error, Result};
use crate::load::{self, Arrivals, Asks, Catalogue, Edge, Group, Patience, Plan};
use crate::process::{Running, Site};
use crate::result::{ADAPTED, GroupSample, HIT, MISS, Record};

/// Requests of the background per second: an eighth of what a core can do, more or less.
const RATE_PER_S: f64 = 2_000.0;
const RATE_QUICK_PER_S: f64 = 500.0;
/// Share of them that is stored.
const HITS: f64 = 0.58;
/// How long the application thinks about a page that is not.
const THINK: Duration = Duration::from_millis(10);
/// Requests of each group of the background that may be under way.
const CLIENTS: usize = 256;
/// Clients of endless demand: enough for the helper never to wait for one.
const CLIENTS_ENDLESS: usize = 32;
/// Load before the window, besides what the options say.
const SETTLING: Duration = Duration::from_millis(700);
/// Nobody gives up before the experiment does.
const PATIENCE: Patience =
    Patience { wait: Duration::from_secs(30), pause: Duration::from_millis(200) };
/// Of the requests that should be hits, those that must be.
const HITS_MIN: f64 = 0.98;

/// Heads of hits and of pages that were rewritten have these.
const IS_HIT: &str = "weir; hit";
const IS_REWRITTEN: &str = "weir-adapt: html";

/// What is to be adapted.
#[derive(Debug)]
struct Kind {
    /// What Weir is set up to do.
    role: Role,
    /// Each of them, as it is to be stored or as it is to be adapted.
    catalogue: fn(is_adapted: bool) -> Arc<dyn Catalogue>,
    /// Heads of what was adapted have this.
    mark: &'static str,
}

/// Texts that are to be compressed.
static TEXTS: Kind = Kind {
    role: Role::Adapted,
    catalogue: |is_adapted| {
        let fields = if is_adapted { "Accept-Encoding: gzip\r\n" } else { "" };
        Arc::new(Texts { size: TEXT_SIZE, fields })
    },
    mark: "content-encoding: gzip",
};

/// Pictures that are to be made smaller. Who takes none of their formats gets what is stored.
static PICTURES: Kind = Kind {
    role: Role::Pictures,
    catalogue: |_| Arc::new(Small { fields: "" }),
    mark: "weir-adapt: jpeg",
};

/// Who takes part.
struct Rig<'a> {
    options: &'a Options,
    kind: &'static Kind,
    contender: &'static Contender,
    pages: Arc<Pages>,
    // Dropped last.
    site: Site,
}

/// A server as it is set up, and the load that it gets.
#[derive(Clone, Debug)]
struct Trial {
    case: &'static str,
    /// Value of what is varied.
    x: f64,
    adaptation: Adaptation,
    background: Option<Background>,
    demand: Demand,
}

/// Pages that are asked for at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Background {
    rate_per_s: f64,
    /// Share of the requests that are for popular pages, which are stored.
    hits: f64,
}

/// Of what is to be adapted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    None,
    /// So many per second.
    Rate(f64),
    /// As many as are adapted; no more than so many per second are provided for.
    Endless(f64),
}

impl Demand {
    fn arrivals(self) -> Option<(Arrivals, usize)> {
        match self {
            Demand::None => None,
            Demand::Rate(rate) => Some((Arrivals::Poisson(rate), CLIENTS)),
            Demand::Endless(_) => Some((Arrivals::Closed, CLIENTS_ENDLESS)),
        }
    }

    /// How many are asked for within `time`, at most.
    fn count(self, time: Duration) -> u64 {
        let per_s = match self {
            Demand::None => return 0,
            Demand::Rate(rate) | Demand::Endless(rate) => rate,
        };
        // Arrivals at random are more than expected at times.
        (per_s * time.as_secs_f64() * 1.2) as u64 + CLIENTS as u64
    }
}

impl<'a> Rig<'a> {
    fn prepare(
        experiment: &Experiment,
        options: &'a Options,
        kind: &'static Kind,
    ) -> Result<(Rig<'a>, Record)> {
        let LineUp { contenders, skipped } = experiment.line_up(kind.role, options)?;
        let [contender] = contenders[..] else {
            return Err(Error::Usage(format!("{} has one contender", experiment.id)));
        };
        let site = Site::prepare_origin(THINK, options.cores)?;
        let record = experiment.record(options, 0, skipped);
        Ok((Rig { options, kind, contender, pages: Pages::make(), site }, record))
    }

    fn background(&self) -> Background {
        let rate_per_s = if self.options.quick { RATE_QUICK_PER_S } else { RATE_PER_S };
        Background { rate_per_s, hits: HITS }
    }

    /// Measures a trial into the record. Returns what each group got.
    fn run(&self, trial: &Trial, round: usize, record: &mut Record) -> Result<Vec<GroupSample>> {
        let samples = self.measure(trial, round, record)?;
        samples.iter().for_each(|sample| self.report(sample));
        record.groups.extend(samples.iter().cloned());
        Ok(samples)
    }

    /// Measures a trial with a server of its own.
    fn measure(
        &self,
        trial: &Trial,
        round: usize,
        record: &mut Record,
    ) -> Result<Vec<GroupSample>> {
        let policy = Policy { adaptation: trial.adaptation.clone(), ..Policy::default() };
        let (role, page) = (self.kind.role, "/page/600/start.html");
        let options = self.options;
        let running = start_with(self.contender, role, &policy, &self.site, page, options, record)?;
        let running = running.ok_or_else(|| Error::Usage("Weir is left out".to_owned()))?;
        self.store(trial, &running)?;
        let groups = self.groups(trial);
        let plan = Plan {
            server: running.address,
            persistent: true,
            warm_up: options.warm_up + SETTLING,
            window: options.window,
            groups,
            refusals: Some(PATIENCE),
        };
        let (mut opened, mut closed) = (Reading::default(), Reading::default());
        let outcomes = load::run(&plan, &mut |edge| {
            let reading = Reading::take(&running.family(), options.cores);
            match edge {
                Edge::Opens => opened = reading,
                Edge::Closes => closed = reading,
            }
        })?;
        let samples = plan.groups.iter().zip(&outcomes).map(|(group, outcome)| GroupSample {
            contender: self.contender.name.to_owned(),
            case: trial.case.to_owned(),
            x: trial.x,
            round,
            ..sample(group.name, outcome, &opened, &closed)
        });
        let samples: Vec<GroupSample> = samples.collect();
        samples.iter().try_for_each(check)?;
        Ok(samples)
    }

    fn groups(&self, trial: &Trial) -> Vec<Group> {
        let group = |name, catalogue: Arc<dyn Catalogue>, mark, (arrivals, clients)| Group {
            name,
            asks: Asks::Each(catalogue),
            mark: Some(mark),
            clients,
            arrivals,
            sources: Vec::new(),
        };
        let mut groups = Vec::new();
        if let Some(Background { rate_per_s, hits }) = trial.background {
            let arrivals = |share: f64| (Arrivals::Poisson(rate_per_s * share), CLIENTS);
            let (pages, bodies) = (|| Arc::clone(&self.pages), trial.bodies());
            let popular = Arc::new(Popular { pages: pages(), bodies });
            groups.push(group(HIT, popular, IS_HIT, arrivals(hits)));
            if hits < 1.0 {
                // What is fetched may be changed as it comes, or not.
                let bodies = if bodies == Bodies::Plain { bodies } else { Bodies::Any };
                let fresh = Arc::new(Fresh { pages: pages(), bodies });
                groups.push(group(MISS, fresh, IS_HIT, arrivals(1.0 - hits)));
            }
        }
        if let Some(arrivals) = trial.demand.arrivals() {
            let wanted = (self.kind.catalogue)(true);
            groups.push(group(ADAPTED, wanted, self.kind.mark, arrivals));
        }
        groups
    }

    /// Has the popular pages stored, and what is made of them, and what is to be adapted.
    fn store(&self, trial: &Trial, running: &Running) -> Result<()> {
        let server = running.address;
        if trial.background.is_some() {
            let bodies = trial.bodies();
            let each = Each { pages: Arc::clone(&self.pages), bodies };
            fetch(server, &each, POPULAR, None)?;
            if bodies != Bodies::Plain {
                fetch(server, &each, POPULAR, Some(IS_REWRITTEN))?;
            }
        }
        let time = self.options.warm_up + SETTLING + self.options.window;
        let wanted = (self.kind.catalogue)(false);
        fetch(server, &*wanted, trial.demand.count(time), None)
    }

    fn report(&self, sample: &GroupSample) {
        (self.options.progress)(&format!(
            "{:>7.0}  round {}  {:<14} {:<8} {:>6.0}/s  {:>6.0}/s marked  p50 {:>7.3} ms  \
             p99 {:>7.3} ms{}{}  CPU {:>4.1} %  cores {:.0} %, {:.0} %",
            sample.x,
            sample.round + 1,
            sample.case,
            sample.group,
            sample.goodput_per_s(),
            sample.marked_per_s(),
            sample.latency_p50_us / 1e3,
            sample.latency_p99_us / 1e3,
            if sample.unsent > 0 { format!(", {} unsent", sample.unsent) } else { String::new() },
            sample.first_error.iter().map(|why| format!(", {why}")).collect::<String>(),
            sample.cpu_share() * 100.0,
            sample.server_core_busy * 100.0,
            sample.load_core_busy * 100.0,
        ));
    }
}

impl Trial {
    fn bodies(&self) -> Bodies {
        match self.adaptation.pages {
            PageRoute::Rewritten => Bodies::Rewritten,
            PageRoute::Ads { hides: true, .. } => Bodies::Any,
            _ => Bodies::Plain,
        }
    }
}

/// Hits are hits, misses are none, and nobody is refused; otherwise something else was measured.
fn check(sample: &GroupSample) -> Result<()> {
    let (marked, requests) = (sample.marked as f64, sample.requests as f64);
    let is_good = match &*sample.group {
        HIT => marked >= requests * HITS_MIN,
        MISS => sample.marked == 0,
        _ => true,
    };
    let refused: u64 = sample.refused.values().sum();
    if is_good && refused == 0 {
        return Ok(());
    }
    Err(Error::Answer(format!(
        "{}, {}: of {requests} responses {marked} came out of the cache, {refused} more were \
         refused",
        sample.case, sample.group
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::group_sample;

    #[test]
    fn there_is_enough_for_the_whole_time() {
        let time = Duration::from_secs(2);
        assert_eq!(Demand::None.count(time), 0);
        assert!(Demand::Rate(100.0).count(time) > 200);
        assert!(Demand::Endless(10_000.0).count(time) > 20_000);
    }

    #[test]
    fn what_is_no_hit_is_not_taken_for_one() {
        let of = |group, marked| GroupSample {
            marked,
            ..group_sample(("weir", "idle", group), 0.0, 0, 100)
        };
        assert!(check(&of(HIT, 99)).is_ok() && check(&of(HIT, 90)).is_err());
        assert!(check(&of(MISS, 0)).is_ok() && check(&of(MISS, 1)).is_err());
        assert!(check(&of(ADAPTED, 0)).is_ok());
        let refused = GroupSample { refused: [(503, 1)].into(), ..of(HIT, 100) };
        assert!(check(&refused).is_err());
    }
}
