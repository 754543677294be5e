//! Overload control as the server runs it: the rules in force, the clock they go by, each worker's
//! view of its own load, and who waits for an upstream. What is decided is in `weir-guard`.

mod counters;
mod gate;
mod load;
mod subject;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use http::HeaderMap;
use weir_config as config;
use weir_guard::{ClassId, Decision, Ends, Moment, Rules};

pub(crate) use counters::{ClassCounters, Offer};
pub(crate) use gate::UpstreamGate;
pub(crate) use load::{Load, probe};
pub(crate) use subject::{Asked, HeadFields, MapFields};

use crate::connection::Connection;

/// Everything that overload control shares among workers.
pub(crate) struct Guard {
    rules: ArcSwap<Rules>,
    /// Nanoseconds are counted from here.
    origin: Instant,
    loads: Box<[Load]>,
    pub(crate) classes: ClassCounters,
}

impl Guard {
    pub(crate) fn new(guard: &config::Guard, workers: usize) -> Guard {
        let workers = workers.max(1);
        Guard {
            rules: ArcSwap::from_pointee(Rules::new(guard, workers, None)),
            origin: Instant::now(),
            loads: (0..workers).map(|_| Load::new(guard)).collect(),
            classes: ClassCounters::new(workers),
        }
    }

    /// Other rules, from now on. What is known of those that stay is kept.
    pub(crate) fn replace(&self, guard: &config::Guard) {
        let before = self.rules.load_full();
        self.rules.store(Arc::new(Rules::new(guard, self.loads.len(), Some(&before))));
        for load in &self.loads {
            load.configure(guard);
        }
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
        &self.loads[worker % self.loads.len()]
    }

    /// Whether any worker is overloaded.
    pub(crate) fn is_overloaded(&self) -> bool {
        self.loads.iter().any(Load::is_overloaded)
    }

    /// What `now` is to rules at a worker.
    #[inline]
    pub(crate) fn moment(&self, worker: usize, now: Instant) -> Moment {
        let is_overloaded = self.load(worker).is_overloaded();
        Moment { now_ns: self.ns_at(now), is_overloaded, worker }
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
        let rules = self.rules.load();
        let decision = match rules.is_empty() {
            true => Decision::of_no_rule(rules.classes()),
            false => {
                let (subject, as_connection) = asked.subject(connection);
                rules.decide(&subject, &self.moment(worker, now), as_connection)
            }
        };
        let offer = match decision.refusal {
            Some(_) => Offer::Refused,
            None if !self.load(worker).admits(decision.class, connection.client) => Offer::Shed,
            None => Offer::Admitted,
        };
        self.classes.count(worker, decision.class, offer);
        Decided { decision, is_shed: offer == Offer::Shed }
    }

    /// The ends of a connection, as rules see them.
    pub(crate) fn ends(connection: &Connection) -> Ends {
        Ends { source: connection.client, destination: connection.destination }
    }
}

/// What was decided about a request.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    /// The worker is overloaded, and others go first.
    pub(crate) is_shed: bool,
}

impl Decided {
    /// Whether the request goes on.
    pub(crate) fn is_admitted(&self) -> bool {
        self.decision.refusal.is_none() && !self.is_shed
    }

    pub(crate) fn class(&self) -> ClassId {
        self.decision.class
    }
}

/// Whether the connection's peer speaks for others.
fn is_proxy(connection: &Connection, headers: Option<&HeaderMap>) -> bool {
    let Some(peer) = connection.client else { return false };
    let live = connection.worker.shared.live.load();
    let trusted = &live.config.server.trusted_proxies;
    headers.is_some() && trusted.iter().any(|prefix| prefix.contains(peer.ip()))
}
