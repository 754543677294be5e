//! A plugin: a name, the generation in force, perhaps another one on trial, and what is remembered
//! of those before.
//!
//! Requests hold generations, and so do the two swaps here; nothing else does for longer than a
//! moment. So the last request on a generation that was replaced takes it with it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::generation::Generation;
use crate::record::{Page, Record};
use crate::shared::PluginMetrics;
use crate::stats::Stats;
use crate::tally;

/// Shares are counted in this.
pub(crate) const SHARE_WHOLE: u32 = 10_000;

/// A plugin of the process.
pub struct Plugin {
    name: String,
    active: ArcSwapOption<Generation>,
    canary: ArcSwapOption<Canary>,
    metrics: Arc<PluginMetrics>,
    pub(crate) book: Mutex<Book>,
}

/// A generation that gets some of the requests.
struct Canary {
    generation: Arc<Generation>,
    /// Of 10,000 requests.
    share: u32,
}

/// What changes about a plugin. Only the thread that deploys writes it.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) page: Page,
    pub(crate) trial: Option<Trial>,
    /// Counts what came into force, so that what was made for another state of things is noticed.
    pub(crate) turn: u64,
    /// The same of what was taken back by hand, or by the configuration.
    pub(crate) withdrawals: u64,
    /// How the last trial ended, for people.
    pub(crate) last_trial: Option<String>,
    /// Generations that were replaced, with requests on them perhaps.
    draining: Vec<Draining>,
    /// What generations that are gone have counted.
    gone: Totals,
}

/// A canary on its way.
pub(crate) struct Trial {
    pub(crate) record: Record,
    pub(crate) began: Instant,
    pub(crate) duration: Duration,
    /// What the other had counted by then.
    pub(crate) baseline: Stats,
}

/// Counters of a plugin over all of its generations.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Calls, failures, responses, latencies.
    pub stats: Stats,
    /// Quarantines that began.
    pub rests: u64,
}

struct Draining {
    generation: Weak<Generation>,
    /// As of the last look: the generation takes what came after that with it.
    last: Totals,
}

impl Plugin {
    pub(crate) fn new(name: &str) -> Arc<Plugin> {
        Arc::new(Plugin {
            name: name.to_owned(),
            active: ArcSwapOption::empty(),
            canary: ArcSwapOption::empty(),
            metrics: Arc::default(),
            book: Mutex::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The generation in force. There is none once the plugin was removed, and while the first one
    /// is on trial.
    pub fn active(&self) -> Option<Arc<Generation>> {
        self.active.load_full()
    }

    /// The generation on trial, and how many of 10,000 requests it gets.
    pub fn canary(&self) -> Option<(Arc<Generation>, u32)> {
        self.canary.load().as_ref().map(|canary| (Arc::clone(&canary.generation), canary.share))
    }

    /// The generation for one request: the one on trial by its share, else the one in force.
    #[inline]
    pub fn pick(&self) -> Option<Arc<Generation>> {
        let canary = self.canary.load();
        match &*canary {
            Some(canary) if fastrand::u32(..SHARE_WHOLE) < canary.share => {
                Some(Arc::clone(&canary.generation))
            }
            _ => self.active(),
        }
    }

    /// The metrics that the plugin defines; they outlive its generations.
    pub fn metrics(&self) -> &Arc<PluginMetrics> {
        &self.metrics
    }

    /// What all of its generations have counted. What one counted after the last look at it, while
    /// its last requests finished, goes with it.
    pub fn totals(&self) -> Totals {
        // Under the lock, so that no generation is missed on its way from one place to the other.
        let mut book = self.book.lock();
        let canary = self.canary().map(|(generation, _)| generation);
        let mut sum = book.sum();
        for generation in self.active().into_iter().chain(canary) {
            sum = sum.plus(&Totals::of(&generation));
        }
        sum
    }

    /// A generation comes into force, between two requests.
    pub(crate) fn put(&self, generation: Arc<Generation>, page: Page) {
        let mut book = self.book.lock();
        let before = self.active.swap(Some(generation));
        book.page = page;
        book.turn += 1;
        book.retire(before);
    }

    /// A generation goes on trial.
    pub(crate) fn try_out(&self, generation: Arc<Generation>, share: u32, trial: Trial) {
        let mut book = self.book.lock();
        self.canary.store(Some(Arc::new(Canary { generation, share })));
        book.trial = Some(trial);
    }

    /// The trial, if there is one, has ended in favour of the generation in force.
    pub(crate) fn end_trial(&self, how: impl Into<String>) {
        let mut book = self.book.lock();
        let canary = self.canary.swap(None);
        if book.trial.take().is_some() {
            book.last_trial = Some(how.into());
        }
        book.retire(canary.map(|canary| Arc::clone(&canary.generation)));
    }

    /// The trial has ended in favour of the new generation.
    pub(crate) fn promote(&self, page: Page, how: String) {
        let mut book = self.book.lock();
        let Some(canary) = self.canary.swap(None) else { return };
        let before = self.active.swap(Some(Arc::clone(&canary.generation)));
        book.trial = None;
        book.last_trial = Some(how);
        book.page = page;
        book.turn += 1;
        book.retire(before);
    }

    /// What is being made for it is not to come into force.
    pub(crate) fn withdraw(&self) {
        self.book.lock().withdrawals += 1;
    }

    /// Nothing is in force any more.
    pub(crate) fn clear(&self) {
        self.end_trial("removed");
        let mut book = self.book.lock();
        let before = self.active.swap(None);
        book.page = Page::default();
        book.turn += 1;
        book.retire(before);
    }
}

impl Book {
    fn retire(&mut self, generation: Option<Arc<Generation>>) {
        self.forget_the_gone();
        if let Some(generation) = generation {
            let last = Totals::of(&generation);
            self.draining.push(Draining { generation: Arc::downgrade(&generation), last });
        }
    }

    fn forget_the_gone(&mut self) {
        let gone = &mut self.gone;
        self.draining.retain_mut(|draining| match draining.generation.upgrade() {
            Some(generation) => {
                draining.last = Totals::of(&generation);
                true
            }
            None => {
                *gone = gone.plus(&draining.last);
                false
            }
        });
    }

    fn sum(&mut self) -> Totals {
        self.forget_the_gone();
        self.draining.iter().fold(self.gone.clone(), |sum, draining| sum.plus(&draining.last))
    }

    /// Generations that were replaced and still have requests.
    pub(crate) fn draining(&mut self) -> usize {
        self.forget_the_gone();
        self.draining.len()
    }
}

impl Totals {
    fn of(generation: &Generation) -> Totals {
        Totals { stats: generation.stats(), rests: generation.rests_total() }
    }

    fn plus(&self, other: &Totals) -> Totals {
        Totals { stats: tally::plus(&self.stats, &other.stats), rests: self.rests + other.rests }
    }
}
