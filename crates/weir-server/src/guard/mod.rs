//! Overload control as the server runs it: the rules in force, the clock they go by, each worker's
//! view of its own load, and who waits for an upstream. What is decided is in `weir-guard`.

mod counters;
mod enforced;
mod gate;
mod in_force;
mod kernel;
mod load;
mod rates;
mod subject;

use std::borrow::Cow;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};
use parking_lot::Mutex;
use weir_config::Config;
use weir_guard::{Ban, ClassId, ClassRef, Classes, Decision, Ends, Moment, Rules, Settled};
use weir_kernel::{Kernel, Policy};

pub(crate) use counters::{ClassCounters, Offer};
pub(crate) use enforced::Enforced;
pub(crate) use gate::UpstreamGate;
pub(crate) use in_force::InForce;
pub(crate) use kernel::{Watch, Wish, queues, shows_clients};
pub(crate) use load::{Load, probe};
pub(crate) use rates::{NOTE_PERIOD, Rates};
pub(crate) use subject::{Asked, HeadFields, MapFields, one_slash};

use crate::connection::Connection;

/// Rules as a thread remembers them.
type KnownRules = Cache<Arc<ArcSwap<Rules>>, Arc<Rules>>;

/// No class's urgency, which is less than 2^40.
const SOME_RULES: u64 = u64::MAX;

/// Everything that overload control shares among workers.
pub(crate) struct Guard {
    rules: Arc<ArcSwap<Rules>>,
    /// The class of all requests where there is no rule, by its urgency; [`SOME_RULES`] where there
    /// are.
    without_rules: AtomicU64,
    /// Those in force, by their number.
    rules_id: AtomicU64,
    /// Some peers may be proxies that are trusted.
    has_proxies: AtomicBool,
    /// What they were made of.
    in_force: ArcSwap<InForce>,
    /// Nanoseconds are counted from here.
    origin: Instant,
    loads: Box<[Load]>,
    pub(crate) classes: ClassCounters,
    /// How fast those counters have grown of late.
    pub(crate) rates: Rates,
    /// Started with the first rule that it has something to do for.
    kernel: OnceLock<Kernel>,
    /// Rules for connections, from the first, that the kernel enforces.
    policed: AtomicUsize,
    /// By listener number: the kernel judges its connections.
    watched: ArcSwap<Vec<bool>>,
    /// How many upstreams are overloaded.
    pub(crate) overloaded_upstreams: Arc<AtomicUsize>,
    /// What was said of the kernel last.
    said: Mutex<String>,
    /// Connections that were accepted, and reset as rules want it.
    pub(crate) turned_away: AtomicU64,
}

impl Guard {
    pub(crate) fn new(config: &Config, workers: usize) -> Guard {
        let (guard, workers) = (&config.guard, workers.max(1));
        let rules = Rules::new(guard, workers, None);
        Guard {
            without_rules: AtomicU64::new(without_rules(&rules)),
            rules_id: AtomicU64::new(rules.id()),
            rules: Arc::new(ArcSwap::from_pointee(rules)),
            has_proxies: AtomicBool::new(has_proxies(config)),
            in_force: ArcSwap::from_pointee(InForce::of_configuration(guard)),
            origin: Instant::now(),
            loads: (0..workers).map(|_| Load::new(guard)).collect(),
            classes: ClassCounters::new(workers),
            rates: Rates::default(),
            kernel: OnceLock::new(),
            policed: AtomicUsize::new(0),
            watched: ArcSwap::default(),
            overloaded_upstreams: Arc::default(),
            said: Mutex::default(),
            turned_away: AtomicU64::new(0),
        }
    }

    /// The rules of a configuration, from now on. What is known of those that stay is kept.
    pub(crate) fn replace(&self, config: &Config) {
        self.in_force.load().give_way(&config.guard);
        self.in_force.store(Arc::new(InForce::of_configuration(&config.guard)));
        self.swap(config);
    }

    fn swap(&self, config: &Config) {
        let before = self.rules.load_full();
        let after = Rules::new(&config.guard, self.loads.len(), Some(&before));
        let (known, wanted) = (before.classes().all(), after.classes().all());
        if !known.iter().map(|class| &class.name).eq(wanted.iter().map(|class| &class.name)) {
            self.classes.reorder(known, wanted);
            self.rates.forget();
        }
        self.without_rules.store(without_rules(&after), Relaxed);
        self.has_proxies.store(has_proxies(config), Relaxed);
        let id = after.id();
        self.rules.store(Arc::new(after));
        self.rules_id.store(id, Relaxed);
        for load in &self.loads {
            load.configure(&config.guard);
        }
        self.tell_kernel(config);
        self.look_at_kernel();
    }

    /// Has the kernel enforce what it can of a configuration's rules.
    pub(crate) fn tell_kernel(&self, config: &Config) {
        match (kernel::policy(config, self.loads.len()), self.kernel.get()) {
            (None, None) => {}
            (Some(policy), Some(kernel)) => kernel.replace(&policy),
            (None, Some(kernel)) => kernel.replace(&Policy::new(&config.guard, self.loads.len())),
            (Some(policy), None) => {
                self.kernel.get_or_init(|| Kernel::start(&policy));
            }
        }
    }

    /// Notes what the kernel enforces, and says so if that has changed.
    pub(crate) fn look_at_kernel(&self) {
        let Some(kernel) = self.kernel.get() else { return };
        let enforcement = kernel.enforcement();
        self.policed.store(enforcement.policed, Relaxed);
        let facts = enforcement.to_string();
        let mut said = self.said.lock();
        if *said != facts {
            tracing::info!("rules for connections: {facts}");
            *said = facts;
        }
    }

    /// The kernel's part, if it has one.
    pub(crate) fn kernel(&self) -> Option<&Kernel> {
        self.kernel.get()
    }

    /// Whether the kernel judges the connections of a listener.
    pub(crate) fn set_watched(&self, listener: usize, is_watched: bool) {
        self.watched.rcu(|watched| {
            let mut watched = Vec::clone(watched);
            watched.resize(watched.len().max(listener + 1), false);
            watched[listener] = is_watched;
            watched
        });
    }

    /// A connection that stays is spared the listener's program, which it inherited: 40 ns for each
    /// packet, where taking it off costs as much as twenty of them.
    pub(crate) fn spare(&self, connection: &Connection) {
        if self.watched.load().get(connection.listener) == Some(&true)
            && let Err(cause) = weir_kernel::detach_accepted(connection.socket.as_fd())
        {
            tracing::debug!(%cause, "a connection keeps its listener's program");
        }
    }

    /// Whether a connection is let in. What the kernel has decided is not decided again.
    pub(crate) fn lets_in(&self, connection: &Connection) -> bool {
        let rules = self.rules.load();
        if !rules.judge_connections() || is_proxy(connection) {
            return true;
        }
        let ends = Ends { source: connection.client, destination: connection.destination };
        let worker = connection.worker.index;
        // As in the kernel: nobody knows yet where the connection's requests go.
        let is_overloaded = self.is_overloaded();
        let moment = Moment { is_overloaded, ..self.moment(worker, Instant::now()) };
        if rules.is_banned(&ends, moment.now_ns) {
            self.turned_away.fetch_add(1, Relaxed);
            return false;
        }
        let is_watched = self.watched.load().get(connection.listener) == Some(&true);
        let decided = if is_watched { self.policed.load(Relaxed) } else { 0 };
        let decision = rules.decide_connection(&ends, &moment, decided);
        let Some(refused) = decision.refusal() else { return true };
        self.punish(&ends, refused.banned);
        self.turned_away.fetch_add(1, Relaxed);
        false
    }

    fn meet_rules<'a>(
        &self,
        connection: &'a Connection,
        asked: &Asked<'a>,
        now: Instant,
    ) -> Decision {
        let (subject, as_connection) = asked.subject(connection);
        let worker = connection.worker.index;
        let moment = || asked.at(self.moment(worker, now));
        let decide = |rules: &Rules| rules.decide_at(&subject, worker, moment, as_connection);
        let decision = self.with_rules(decide);
        if let Some(refused) = decision.refusal() {
            self.punish(&subject.ends, refused.banned);
        }
        decision
    }

    /// The classes of a configuration, as [`Guard::replace`] makes them of those in force.
    pub(crate) fn classes_of(&self, config: &Config) -> Arc<Classes> {
        Arc::new(Classes::new(&config.guard.classes, Some(self.rules.load().classes())))
    }

    /// Does something with the rules in force, which a thread remembers: to see that they are still
    /// the same takes no more than a look at where they are.
    #[inline]
    fn with_rules<R>(&self, act: impl FnOnce(&Rules) -> R) -> R {
        thread_local! {
            static KNOWN: RefCell<Option<KnownRules>> = const { RefCell::new(None) };
        }
        KNOWN.with_borrow_mut(|known| {
            let known = match known {
                Some(known) if std::ptr::eq(known.arc_swap(), &*self.rules) => known,
                _ => known.insert(Cache::new(Arc::clone(&self.rules))),
            };
            act(known.load())
        })
    }

    /// Goes on with what plugins have made of a request. It has been counted as one that went on.
    pub(crate) fn judge<'a>(
        &self,
        connection: &'a Connection,
        asked: &Asked<'a>,
        decided: &mut Decided,
    ) {
        let rules = self.rules.load();
        if !rules.ask_for_verdicts() {
            return;
        }
        let (subject, _) = asked.subject(connection);
        let worker = connection.worker.index;
        let moment = asked.at(self.moment(worker, Instant::now()));
        rules.decide_verdict(&subject, &moment, &mut decided.0);
        if let Some(refused) = decided.0.refusal() {
            self.classes.count(worker, decided.class(), Offer::Refused);
            self.punish(&subject.ends, refused.banned);
        }
    }

    /// Has the kernel drop the connections of a source's prefix for a while. Until it does, they
    /// are turned away after they were accepted.
    fn punish(&self, ends: &Ends, ban: Option<Ban>) {
        if let (Some(kernel), Some(source), Some(ban)) = (self.kernel.get(), ends.source, ban) {
            kernel.penalise(source.ip(), ban.by, ban.lasts);
        }
    }

    /// Tells the kernel whether there is overload, and the caller what it was told. Who has told it
    /// that there is tells it again before long: it may have begun to listen only now, and what
    /// others told it at the same time may be older.
    fn tell_overload(&self) -> bool {
        let is_overloaded = self.is_overloaded();
        if let Some(kernel) = self.kernel.get() {
            kernel.set_overload(is_overloaded);
        }
        is_overloaded
    }

    /// Workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.loads.len()
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> arc_swap::Guard<Arc<Rules>> {
        self.rules.load()
    }

    /// Nanoseconds since the server began, by the monotonic clock.
    #[inline]
    pub(crate) fn ns_at(&self, at: Instant) -> u64 {
        // 584 years.
        at.saturating_duration_since(self.origin).as_nanos() as u64
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.ns_at(Instant::now())
    }

    /// A worker's load.
    pub(crate) fn load(&self, worker: usize) -> &Load {
        self.loads.get(worker).unwrap_or(&self.loads[0])
    }

    /// Every worker's load, by its number.
    pub(crate) fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Whether any worker is overloaded, or an upstream.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.overloaded_upstreams.load(Relaxed) > 0 || self.loads.iter().any(Load::is_overloaded)
    }

    /// What `now` is to rules at a worker.
    #[inline]
    pub(crate) fn moment(&self, worker: usize, now: Instant) -> Moment {
        let is_overloaded = self.load(worker).is_overloaded();
        Moment { now_ns: self.ns_at(now), is_overloaded, worker }
    }

    /// A path as rules see it, if there are some.
    #[inline]
    pub(crate) fn seen<'p>(&self, path: &'p str) -> Cow<'p, str> {
        match self.without_rules.load(Relaxed) {
            SOME_RULES => one_slash(path),
            _ => Cow::Borrowed(path),
        }
    }

    /// Decides about a request, and counts what becomes of it.
    #[inline]
    pub(crate) fn decide<'a>(
        &self,
        connection: &'a Connection,
        asked: &Asked<'a>,
        now: Instant,
    ) -> Decided {
        let worker = connection.worker.index;
        let decision = match self.without_rules.load(Relaxed) {
            SOME_RULES => self.meet_rules(connection, asked, now),
            class => Decision::of_no_rule(ClassRef::of_urgency(class)),
        };
        self.count(worker, decision)
    }

    fn count(&self, worker: usize, decision: Decision) -> Decided {
        self.load(worker).touch();
        let offer = match decision.refusal() {
            Some(_) => Offer::Refused,
            None => Offer::Admitted,
        };
        self.classes.count(worker, decision.class, offer);
        Decided(decision)
    }

    /// What rules make of a path as it was asked for, to be kept with what is stored under it.
    pub(crate) fn settle(&self, path: &str) -> Settled {
        self.with_rules(|rules| rules.settle(&one_slash(path)))
    }

    /// Whether something was settled by the rules in force.
    #[inline]
    pub(crate) fn is_current(&self, settled: &Settled) -> bool {
        settled.is_of(self.rules_id.load(Relaxed))
    }

    /// [`Guard::decide`] for a path about which all was settled, if that was by the rules in force.
    #[inline]
    pub(crate) fn decide_settled(
        &self,
        connection: &Connection,
        settled: &Settled,
    ) -> Option<Decided> {
        // What comes from a proxy may be counted as a connection.
        if !self.is_current(settled) || is_proxy(connection) {
            return None;
        }
        let worker = connection.worker.index;
        Some(self.count(worker, settled.decide(worker)?))
    }

    /// Whether a request may ask an upstream, as far as the worker's own load goes: that costs many
    /// times what a refusal does. What is stored costs no more than one, and is never refused so.
    pub(crate) fn has_time(&self, connection: &Connection, class: ClassId) -> bool {
        let worker = connection.worker.index;
        let has_time = self.load(worker).admits(class, connection.client);
        if !has_time {
            self.classes.count(worker, class, Offer::Shed);
        }
        has_time
    }
}

/// What was decided about a request.
#[derive(Debug)]
pub(crate) struct Decided(pub(crate) Decision);

impl Decided {
    /// Whether the request goes on.
    pub(crate) fn is_admitted(&self) -> bool {
        self.0.refusal().is_none()
    }

    pub(crate) fn class(&self) -> ClassId {
        self.0.class
    }

    pub(crate) fn class_ref(&self) -> ClassRef {
        self.0.class_ref()
    }
}

fn without_rules(rules: &Rules) -> u64 {
    let classes = rules.classes();
    let default = classes.refer(classes.default());
    if rules.is_empty() { default.urgency() } else { SOME_RULES }
}

fn has_proxies(config: &Config) -> bool {
    !config.server.trusted_proxies.is_empty()
}

/// Whether the connection's peer speaks for others.
#[inline]
fn is_proxy(connection: &Connection) -> bool {
    let shared = &connection.worker.shared;
    shared.guard.has_proxies.load(Relaxed) && is_trusted(connection)
}

fn is_trusted(connection: &Connection) -> bool {
    let Some(peer) = connection.client else { return false };
    let live = connection.worker.shared.live.load();
    let trusted = &live.config.server.trusted_proxies;
    trusted.iter().any(|prefix| prefix.contains(peer.ip()))
}
