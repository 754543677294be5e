//! One deployment of a plugin: a compiled module with its configuration, and an instance of it at
//! each place.
//!
//! | state | what it means | leads to |
//! |---|---|---|
//! | provisioned | every place has an instance; nobody uses it yet | active, or dropped |
//! | active | requests open streams on it | draining |
//! | draining | replaced; requests that began on it finish on it | cleaned up |
//! | cleaned up | the last request let go: instances and their memory are gone | |
//!
//! An active generation rests while it is in quarantine: it has no instances, and its policy
//! decides what becomes of requests meanwhile. One that is broken, as it could not be brought back
//! after a restart, never has any, and its requests are treated alike.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_config::OnFailure;

use crate::cost::Cost;
use crate::engine::Engine;
use crate::exchange::Phase;
use crate::failure::{Failure, FailureKind};
use crate::hooks::Hooks;
use crate::host::Environment;
use crate::instance::Instance;
use crate::keeper::Keeper;
use crate::limits::REPLACEMENT_WAIT;
use crate::log::LogBudget;
use crate::module::{Abi, Compiled};
use crate::place::{Home, Slot, Threads};
use crate::quarantine::{Quarantine, Verdict};
use crate::stats::{PlaceStats, Stats};

/// A deployment of a plugin, ready to serve.
pub struct Generation {
    compiled: Arc<Compiled>,
    hooks: Hooks,
    environment: Arc<Environment>,
    fingerprint: u64,
    engine: Engine,
    threads: Threads,
    keeper: Keeper,
    slots: Box<[Arc<Slot>]>,
    stats: Box<[PlaceStats]>,
    /// By phase.
    costs: [Cost; PHASES],
    /// One of them says so of every call.
    has_long_calls: AtomicBool,
    next_long: AtomicUsize,
    next_serial: AtomicU64,
    is_resting: AtomicBool,
    /// Why it never had an instance, and never will.
    broken: Option<String>,
    rests_total: AtomicU64,
    quarantine: Mutex<Quarantine>,
    /// How often it is said that a request failed in it.
    lost_requests: LogBudget,
    filled: Notify,
    began: Instant,
    deployed: SystemTime,
}

const PHASES: usize = Phase::Log as usize + 1;

impl Generation {
    /// Starts an instance at every place. May take long: not for a worker's thread.
    ///
    /// # Errors
    /// If an instance fails to start.
    pub(crate) fn provision(
        engine: &Engine,
        threads: &Threads,
        keeper: &Keeper,
        compiled: Arc<Compiled>,
        environment: Arc<Environment>,
    ) -> Result<Arc<Generation>, Failure> {
        let generation = Generation::new(engine, threads, keeper, compiled, environment, None);
        for place in 0..threads.len() {
            generation.start_at(place)?;
        }
        Ok(generation)
    }

    /// Stands in for one that cannot be had: its policy decides about every request. `compiled`
    /// only says which hooks they would meet.
    pub(crate) fn broken(
        engine: &Engine,
        threads: &Threads,
        keeper: &Keeper,
        compiled: Arc<Compiled>,
        environment: Arc<Environment>,
        why: String,
    ) -> Arc<Generation> {
        Generation::new(engine, threads, keeper, compiled, environment, Some(why))
    }

    fn new(
        engine: &Engine,
        threads: &Threads,
        keeper: &Keeper,
        compiled: Arc<Compiled>,
        environment: Arc<Environment>,
        broken: Option<String>,
    ) -> Arc<Generation> {
        let began = Instant::now();
        let long = environment.policy.long;
        Arc::new_cyclic(|weak: &Weak<Generation>| Generation {
            slots: (0..threads.len()).map(|place| new_slot(place, weak.clone(), long)).collect(),
            stats: (0..threads.len()).map(|_| PlaceStats::default()).collect(),
            costs: Default::default(),
            has_long_calls: AtomicBool::new(false),
            next_long: AtomicUsize::new(0),
            next_serial: AtomicU64::new(1),
            is_resting: AtomicBool::new(broken.is_some()),
            broken,
            rests_total: AtomicU64::new(0),
            quarantine: Mutex::default(),
            lost_requests: LogBudget::new(1),
            filled: Notify::new(),
            deployed: SystemTime::now(),
            engine: engine.clone(),
            threads: threads.clone(),
            keeper: keeper.clone(),
            hooks: allowed_hooks(&compiled, &environment),
            fingerprint: fingerprint(&compiled, &environment),
            compiled,
            environment,
            began,
        })
    }

    /// Starts an instance at a place.
    ///
    /// # Errors
    /// If it fails to start.
    pub(crate) fn start_at(&self, place: usize) -> Result<(), Failure> {
        let worker = self.threads.worker_of(place);
        let home = Home {
            place,
            worker,
            worker_loop: self.threads.workers[worker].clone(),
            own_loop: self.threads.of(place).clone(),
            long_loop: self.threads.long_of(place).cloned(),
            slot: Arc::downgrade(&self.slots[place]),
            serial: self.next_serial.fetch_add(1, Relaxed),
        };
        let environment = Arc::clone(&self.environment);
        let instance = Instance::start(&self.engine, &self.compiled, environment, home)?;
        self.slots[place].fill(Box::new(instance));
        self.filled.notify_waiters();
        Ok(())
    }

    /// The plugin's name.
    pub fn name(&self) -> &str {
        &self.environment.name
    }

    /// Its number, which counts the deployments of the process.
    pub fn number(&self) -> u64 {
        self.environment.generation
    }

    /// The module.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// What a failure means for the request.
    pub fn on_failure(&self) -> OnFailure {
        self.environment.policy.on_failure
    }

    /// The hooks to call: those of the module that its policy allows.
    pub fn hooks(&self) -> Hooks {
        self.hooks
    }

    /// Tells apart what different modules and configurations make of the same response.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// A line in the plugin's log, within its budget: what it asked for cannot be done as it said.
    pub fn warn(&self, text: &str) {
        crate::log::say(&self.environment, crate::log::Level::Warn, text.as_bytes());
    }

    /// When it was deployed.
    pub fn deployed(&self) -> SystemTime {
        self.deployed
    }

    /// Whether it is in quarantine, or broken: it has no instances.
    pub fn is_resting(&self) -> bool {
        self.is_resting.load(Relaxed)
    }

    /// Why it has no instance, if it could not be brought back after a restart.
    pub fn why_broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Rests in a row.
    pub fn rests(&self) -> u32 {
        self.quarantine.lock().rests()
    }

    /// Rests since it was deployed.
    pub fn rests_total(&self) -> u64 {
        self.rests_total.load(Relaxed)
    }

    /// Bytes of memory of all its instances that nobody is calling right now.
    pub fn memory_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.memory_bytes()).sum()
    }

    /// Its counters.
    pub fn stats(&self) -> Stats {
        Stats::sum(self.stats.iter())
    }

    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.compiled.abi(), Abi::ProxyWasm(_))
    }

    pub(crate) fn slot(&self, place: usize) -> &Arc<Slot> {
        &self.slots[place]
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(crate) fn place_stats(&self, place: usize) -> &PlaceStats {
        &self.stats[place]
    }

    /// A call of this phase over so many bytes took so long.
    pub(crate) fn learn(&self, phase: Phase, bytes: usize, took: Duration) {
        self.costs[phase as usize].learn(bytes, took);
        let threshold = self.environment.policy.long;
        let has_long = self.costs.iter().any(|cost| cost.is_long(0, threshold));
        self.has_long_calls.store(has_long && !self.threads.long.is_empty(), Relaxed);
    }

    /// Whether a call of this phase over so many bytes should leave the worker.
    pub(crate) fn is_long(&self, phase: Phase, bytes: usize) -> bool {
        !self.threads.long.is_empty()
            && self.costs[phase as usize].is_long(bytes, self.environment.policy.long)
    }

    /// Whether any of its calls is known to be long, for requests that must stay at one place.
    pub(crate) fn is_long_in_all(&self) -> bool {
        self.has_long_calls.load(Relaxed)
    }

    /// A low-priority place, in turn.
    pub(crate) fn long_place(&self) -> usize {
        let next = self.next_long.fetch_add(1, Relaxed);
        self.threads.workers.len() + next % self.threads.long.len()
    }

    /// Waits for the instance of a place, if it is just being replaced.
    ///
    /// # Errors
    /// [`FailureKind::Unavailable`] in quarantine, or if it takes too long.
    pub(crate) async fn ready(&self, place: usize) -> Result<(), Failure> {
        let filled = async {
            loop {
                let notified = self.filled.notified();
                if self.slots[place].is_filled() {
                    return;
                }
                if self.is_resting() {
                    return;
                }
                notified.await;
            }
        };
        let in_time = tokio::time::timeout(REPLACEMENT_WAIT, filled).await.is_ok();
        match in_time && !self.is_resting() {
            true => Ok(()),
            false => Err(self.unavailable()),
        }
    }

    pub(crate) fn unavailable(&self) -> Failure {
        if let Some(why) = &self.broken {
            return Failure::new(FailureKind::Start, why.clone());
        }
        let why = match self.is_resting() {
            true => "the plugin is in quarantine",
            false => "its instance is being replaced",
        };
        Failure::new(FailureKind::Unavailable, why)
    }

    /// Counts a failure that did not cost an instance, and says so now and then: clients may bring
    /// it about as often as they like.
    pub(crate) fn count_failure(&self, place: usize, failure: &Failure) {
        self.stats[place].count_failure(failure.kind);
        if let Some(unsaid) = self.lost_requests.take() {
            let (plugin, generation) = (self.name(), self.number());
            let (kind, cause) = (failure.kind.as_str(), &failure.message);
            tracing::warn!(plugin, generation, kind, cause, unsaid, "plugin failed for a request");
        }
    }

    /// The rest begins: its instances go, and whoever waits for one is told.
    pub(crate) fn begin_rest(&self) {
        self.slots.iter().for_each(|slot| slot.clear());
        self.filled.notify_waiters();
    }

    /// The rest is over: instances are there again.
    pub(crate) fn end_rest(self: &Arc<Self>) {
        for place in 0..self.slots.len() {
            if let Err(failure) = self.start_at(place) {
                return self.failed_at(place, &failure);
            }
        }
        self.is_resting.store(false, Relaxed);
        tracing::info!(plugin = self.name(), generation = self.number(), "plugin is back");
    }

    /// An instance failed and is gone.
    pub(crate) fn failed_at(self: &Arc<Self>, place: usize, failure: &Failure) {
        self.stats[place].count_failure(failure.kind);
        let rules = &self.environment.policy.quarantine;
        let (plugin, generation) = (self.name(), self.number());
        let kind = failure.kind.as_str();
        let verdict = self.quarantine.lock().failed(rules, self.began.elapsed());
        match verdict {
            Verdict::Restart => {
                tracing::warn!(plugin, generation, kind, cause = failure.message, "plugin failed");
                self.keeper.restart(Arc::downgrade(self), place);
            }
            Verdict::Rest(until) => {
                let was_resting = self.is_resting.swap(true, Relaxed);
                let at = self.began + until;
                let rest_s = at.saturating_duration_since(Instant::now()).as_secs_f32();
                if !was_resting || failure.kind == FailureKind::Start {
                    self.rests_total.fetch_add(1, Relaxed);
                    tracing::error!(
                        plugin,
                        generation,
                        kind,
                        cause = failure.message,
                        rest_s,
                        "plugin failed too often: quarantine"
                    );
                    self.keeper.rest(Arc::downgrade(self), at);
                }
            }
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        tracing::debug!(plugin = self.name(), generation = self.number(), "generation cleaned up");
    }
}

fn fingerprint(compiled: &Compiled, environment: &Environment) -> u64 {
    let Environment { config, vm_config, root_id, .. } = environment;
    let what = (compiled.digest(), config, vm_config, root_id);
    foldhash::fast::FixedState::default().hash_one(what)
}

/// The hooks of a module, less those that its policy does not allow.
fn allowed_hooks(compiled: &Compiled, environment: &Environment) -> Hooks {
    let mut hooks = compiled.hooks();
    let allow = &environment.policy.allow;
    if !allow.request_body {
        hooks.remove(&[Phase::RequestBody, Phase::RequestTrailers]);
    }
    if !allow.response_body {
        hooks.remove(&[Phase::ResponseBody, Phase::ResponseTrailers]);
    }
    hooks
}

fn new_slot(place: usize, generation: Weak<Generation>, long: Duration) -> Arc<Slot> {
    let on_failure = move |place: usize, failure: &Failure| {
        if let Some(generation) = generation.upgrade() {
            generation.failed_at(place, failure);
        }
    };
    Slot::new(place, Box::new(on_failure), long)
}
