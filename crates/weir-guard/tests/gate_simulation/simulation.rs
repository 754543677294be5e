//! Clients, a gate and an origin, event by event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_guard::{
    Arrival, ClassLimits, Due, Gate, GateSettings, LimitSettings, Outcome, Place, Ticket,
};

use crate::origin::{Origin, OriginModel, Random};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// What is seen of the run in each tenth of a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenth {
    pub(crate) answered: u32,
    pub(crate) limit: u32,
    pub(crate) is_probing: bool,
    pub(crate) is_overloaded: bool,
}

/// A class's clients: random arrivals at a rate, and the latencies they saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    /// Per second.
    pub(crate) rate: f64,
    /// Work of its requests, as a multiple of the usual.
    pub(crate) work: f64,
    /// How long one waits for an answer before he leaves.
    pub(crate) patience_ns: Option<u64>,
    next_ns: f64,
    /// How long those take to ask again who do.
    pub(crate) think_ns: u64,
    /// When those come who ask again as soon as they have an answer.
    returns: BinaryHeap<Reverse<u64>>,
    pub(crate) offered: u32,
    pub(crate) answered: u32,
    pub(crate) latencies_ns: Vec<f64>,
}

impl Clients {
    fn next_ns(&self) -> f64 {
        let returns = self.returns.peek().map_or(f64::INFINITY, |Reverse(at_ns)| *at_ns as f64);
        self.next_ns.min(returns)
    }

    pub(crate) fn percentile_ms(&mut self, percent: f64) -> f64 {
        self.latencies_ns.sort_by(f64::total_cmp);
        let at = (self.latencies_ns.len() as f64 * percent / 100.0) as usize;
        self.latencies_ns.get(at).map_or(0.0, |ns| ns / 1e6)
    }
}

pub(crate) struct Simulation {
    pub(crate) gate: Gate<Request>,
    pub(crate) origin: Origin,
    pub(crate) clients: Vec<Clients>,
    pub(crate) tenths: Vec<Tenth>,
    /// Requests in the origin by number, with numbers to be used again.
    flying: Vec<Option<(Request, Place, f64)>>,
    /// Those whose clients will leave, by that time.
    leaving: BTreeMap<(u64, u64), Where>,
    requests: u64,
    free: Vec<usize>,
    due: Due<Request>,
    random: Random,
    now_ns: f64,
    /// Requests that the origin refused.
    pub(crate) refused: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    class: usize,
    arrived_ns: f64,
    /// When its client leaves.
    leaves: Option<(u64, u64)>,
    /// Whether its client asks again afterwards.
    returns: bool,
}

/// Where a request is.
#[derive(Clone, Copy, Debug)]
enum Where {
    Waits(Ticket),
    Flies(usize),
}

/// How long one who was refused waits before he asks again.
const AGAIN_NS: u64 = 10_000_000;

fn settings(limit: LimitSettings, classes: usize, wait_s: f64) -> GateSettings {
    let class = ClassLimits { entries_max: 1024, wait_ns: (wait_s * 1e9) as u64, share: 0 };
    GateSettings { classes: vec![class; classes], limit, interval_ns: SECOND / 10 }
}

impl Simulation {
    /// Classes with so many requests per second each.
    pub(crate) fn new(
        seed: u64,
        model: OriginModel,
        limit: LimitSettings,
        rates: &[f64],
    ) -> Simulation {
        Simulation::with_wait(seed, model, limit, rates, 0.5)
    }

    /// The same, where so many seconds may be waited.
    pub(crate) fn with_wait(
        seed: u64,
        model: OriginModel,
        limit: LimitSettings,
        rates: &[f64],
        wait_s: f64,
    ) -> Simulation {
        let clients = |rate: &f64| Clients { rate: *rate, work: 1.0, ..Clients::default() };
        let mut simulation = Simulation {
            gate: Gate::new(0, &settings(limit, rates.len(), wait_s)),
            origin: Origin::new(model),
            clients: rates.iter().map(clients).collect(),
            tenths: Vec::new(),
            flying: Vec::new(),
            leaving: BTreeMap::new(),
            requests: 0,
            free: Vec::new(),
            due: Due::default(),
            random: Random(seed),
            now_ns: 0.0,
            refused: 0,
        };
        simulation.set_rates(rates);
        simulation
    }

    /// Classes have so many of 100 turns for their own.
    pub(crate) fn set_shares(&mut self, shares: &[u32]) {
        let limit = self.gate.adaptive_limit().settings().clone();
        let mut settings = settings(limit, shares.len(), 0.5);
        for (class, share) in settings.classes.iter_mut().zip(shares) {
            class.share = *share;
        }
        self.gate.configure(self.now_ns as u64, &settings, &mut self.due);
    }

    pub(crate) fn set_rates(&mut self, rates: &[f64]) {
        for (clients, rate) in self.clients.iter_mut().zip(rates) {
            clients.rate = *rate;
            clients.next_ns = if *rate > 0.0 {
                self.now_ns + self.random.exponential(1e9 / rate)
            } else {
                f64::INFINITY
            };
        }
    }

    /// So many clients more of a class ask, each again as soon as it is answered.
    pub(crate) fn add_closed(&mut self, class: usize, clients: u64) {
        let now_ns = self.now_ns as u64;
        self.clients[class].returns.extend((0..clients).map(|number| Reverse(now_ns + number)));
    }

    /// Forgets what was counted, so that what follows is seen alone.
    pub(crate) fn forget(&mut self) {
        self.tenths.clear();
        for clients in &mut self.clients {
            clients.offered = 0;
            clients.answered = 0;
            clients.latencies_ns.clear();
        }
    }

    pub(crate) fn answered(&self) -> u32 {
        self.clients.iter().map(|clients| clients.answered).sum()
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, seconds: f64) {
        let end_ns = self.now_ns + seconds * 1e9;
        let mut tenth_ns = self.now_ns + 1e8;
        let mut answered = self.answered();
        loop {
            let arrival = self.next_arrival();
            let done_ns = self.origin.next_ns().unwrap_or(f64::INFINITY);
            let deadline_ns = self.gate.next_deadline().map_or(f64::INFINITY, |ns| ns as f64);
            let arrival_ns = self.clients[arrival].next_ns();
            let leave_ns = self.leaving.keys().next().map_or(f64::INFINITY, |(ns, _)| *ns as f64);
            let next_ns = arrival_ns.min(done_ns).min(deadline_ns).min(tenth_ns).min(leave_ns);
            let next_ns = next_ns.max(self.now_ns);
            if next_ns > end_ns {
                self.origin.advance(end_ns);
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = next_ns;
            self.origin.advance(next_ns);
            if next_ns >= tenth_ns {
                tenth_ns += 1e8;
                let answered_before = std::mem::replace(&mut answered, self.answered());
                self.tenths.push(Tenth {
                    answered: answered - answered_before,
                    limit: self.gate.limit(),
                    is_probing: self.gate.adaptive_limit().is_probing(),
                    is_overloaded: self.gate.is_overloaded(next_ns as u64),
                });
            } else if done_ns <= next_ns {
                self.done();
            } else if arrival_ns <= next_ns {
                self.arrive(arrival);
            } else if leave_ns <= next_ns {
                self.leave();
            } else {
                // A double cannot tell every nanosecond.
                self.gate.tick(next_ns as u64 + 1, &mut self.due);
            }
            self.serve_due();
        }
    }

    fn next_arrival(&self) -> usize {
        let next = |class: &usize| self.clients[*class].next_ns();
        let by_time = |a: &usize, b: &usize| next(a).total_cmp(&next(b));
        (0..self.clients.len()).min_by(by_time).unwrap_or(0)
    }

    fn arrive(&mut self, class: usize) {
        let now_ns = self.now_ns as u64;
        let clients = &mut self.clients[class];
        clients.offered += 1;
        let returns = clients.returns.peek().is_some_and(|Reverse(ns)| *ns as f64 <= self.now_ns);
        if returns {
            clients.returns.pop();
        } else {
            clients.next_ns += self.random.exponential(1e9 / clients.rate);
        }
        self.requests += 1;
        let leaves = clients.patience_ns.map(|patience_ns| (now_ns + patience_ns, self.requests));
        let request = Request { class, arrived_ns: self.now_ns, leaves, returns };
        match self.gate.arrive(now_ns, class, || request, &mut self.due) {
            Arrival::Run(place) => self.send(request, place),
            Arrival::Wait(ticket) => {
                self.leaving.extend(leaves.map(|leaves| (leaves, Where::Waits(ticket))));
            }
            Arrival::Shed(_) => self.is_over(request, AGAIN_NS),
        }
    }

    /// A client has waited as long as it would.
    fn leave(&mut self) {
        let now_ns = self.now_ns as u64;
        match self.leaving.pop_first() {
            Some((_, Where::Waits(ticket))) => {
                if let Some(request) = self.gate.cancel(now_ns, ticket) {
                    self.is_over(request, AGAIN_NS);
                }
            }
            Some((_, Where::Flies(id))) => {
                // The origin works on, for nobody.
                let Some((request, place, sent_ns)) = self.flying[id].take() else { return };
                let took_ns = now_ns - sent_ns as u64;
                self.gate.done(now_ns, place, took_ns, Outcome::Left, &mut self.due);
                self.is_over(request, AGAIN_NS);
            }
            None => {}
        }
    }

    fn is_over(&mut self, request: Request, again_ns: u64) {
        request.leaves.map(|leaves| self.leaving.remove(&leaves));
        if request.returns {
            self.clients[request.class].returns.push(Reverse(self.now_ns as u64 + again_ns));
        }
    }

    fn serve_due(&mut self) {
        while !self.due.is_empty() {
            let shed: Vec<_> = self.due.shed.drain(..).collect();
            for shed in shed {
                self.is_over(shed.waited.item, AGAIN_NS);
            }
            let Some((waited, place)) = self.due.start.pop() else { return };
            self.send(waited.item, place);
        }
    }

    fn send(&mut self, request: Request, place: Place) {
        assert!(self.gate.in_flight() >= 1);
        if self.origin.is_down || self.gate.in_flight() > self.origin.refuses_above {
            self.refused += 1;
            let now_ns = self.now_ns as u64;
            self.gate.done(now_ns, place, 1000, Outcome::Failed, &mut self.due);
            self.is_over(request, AGAIN_NS);
            return;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.flying.push(None);
            self.flying.len() - 1
        });
        self.flying[id] = Some((request, place, self.now_ns));
        self.leaving.extend(request.leaves.map(|leaves| (leaves, Where::Flies(id))));
        let usual = self.origin.model.work.sample(&mut self.random);
        let work = usual * self.clients[request.class].work;
        self.origin.put(work, id);
    }

    fn done(&mut self) {
        let Some(id) = self.origin.take() else { return };
        self.free.push(id);
        let Some((request, place, sent_ns)) = self.flying[id].take() else { return };
        let clients = &mut self.clients[request.class];
        clients.answered += 1;
        clients.latencies_ns.push(self.now_ns - request.arrived_ns);
        let latency_ns = (self.now_ns - sent_ns) as u64;
        self.gate.done(self.now_ns as u64, place, latency_ns, Outcome::Answered, &mut self.due);
        let think_ns = self.clients[request.class].think_ns;
        self.is_over(request, think_ns);
    }
}
