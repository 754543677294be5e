//! The loop around the clients: who sends when, what counts, when it is over.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;

use super::arrivals::Clock;
use super::client::{Client, Failure, Shared, Step};
use super::timers::{Timer, Timers};
use super::{Asks, Edge, Group, Outcome, Patience, Plan};
use crate::error::{Doing, Error, Result};

/// Bytes one read may take; larger than any document of S1.
const BUFFER_SIZE: usize = 256 << 10;
/// Events handled per call of epoll.
const EVENTS_MAX: usize = 64;
/// After so many failures the contender is considered unfit and the run is given up.
const ERRORS_MAX: u64 = 200;
/// No response at all for this long ends the run, unless refusals are expected.
const STALL: Duration = Duration::from_secs(10);
/// Longest wait in epoll: how late an edge of the window can be noticed on a silent server.
const WAIT: Duration = Duration::from_millis(10);
/// An arrival due sooner than this is awaited by polling where microseconds count.
const POLL_BELOW: Duration = Duration::from_millis(2);
/// By how much the system may prolong waits where it is not polled, in nanoseconds.
const SLACK_NS: u64 = 1_000;

/// Runs `plan` on the calling thread; what happened, group by group. `on_edge` is called when the
/// window opens and closes.
///
/// # Errors
/// When the contender stops answering or keeps answering wrongly; single failures are counted in
/// the outcome.
pub fn run(plan: &Plan, on_edge: &mut dyn FnMut(Edge)) -> Result<Vec<Outcome>> {
    if plan.refusals.is_some() {
        // Best effort: later arrivals are counted from their due time all the same.
        let _ = set_current_timer_slack(NonZeroU64::new(SLACK_NS));
    }
    let started = Instant::now();
    let mut engine = Engine::new(plan, started)?;
    engine.run_until(started + plan.warm_up)?;
    on_edge(Edge::Opens);
    engine.open_window();
    let opened = Instant::now();
    engine.run_until(opened + plan.window)?;
    let elapsed = opened.elapsed();
    on_edge(Edge::Closes);
    let outcomes = engine.close_window(elapsed);
    if plan.refusals.is_none() && outcomes.iter().all(|outcome| outcome.requests == 0) {
        let reason = outcomes.into_iter().find_map(|outcome| outcome.first_error);
        let reason = reason.unwrap_or_else(|| "no response at all".to_owned());
        return Err(Error::Answer(format!(
            "nothing was served within {:?}: {reason}",
            plan.window
        )));
    }
    Ok(outcomes)
}

/// The same for a plan with one group.
///
/// # Errors
/// As [`run`]; and when there is not exactly one group.
pub fn run_one(plan: &Plan, on_edge: &mut dyn FnMut(Edge)) -> Result<Outcome> {
    let outcome = run(plan, on_edge)?.pop().filter(|_| plan.groups.len() == 1);
    outcome.ok_or_else(|| Error::Usage("a plan with one group was expected".to_owned()))
}

struct Engine<'a> {
    shared: Shared<'a>,
    clients: Vec<Client>,
    groups: Vec<State>,
    timers: Timers,
    errors_total: u64,
    last_progress: Instant,
    measuring: bool,
}

/// A group of clients.
struct State {
    idle: Vec<usize>,
    clock: Option<Clock>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan, started: Instant) -> Result<Engine<'a>> {
        let shared = Shared {
            plan,
            requests: plan.groups.iter().map(|group| request(plan, group)).collect(),
            asked: vec![0; plan.groups.len()],
            epoll: epoll::create(CreateFlags::CLOEXEC).doing(|| "epoll_create".to_owned())?,
            buffer: vec![0; BUFFER_SIZE],
        };
        let mut engine = Engine {
            shared,
            clients: Vec::new(),
            groups: Vec::new(),
            timers: Timers::default(),
            errors_total: 0,
            last_progress: started,
            measuring: false,
        };
        for group in &plan.groups {
            engine.add(group, started);
        }
        Ok(engine)
    }

    fn add(&mut self, group: &Group, started: Instant) {
        let number = self.groups.len();
        let first = self.clients.len();
        let clock = Clock::new(started, group.arrivals, number);
        for index in 0..group.clients {
            let source = group.sources.get(index % group.sources.len().max(1));
            let source = source.copied().map(IpAddr::V4);
            self.clients.push(Client::new(first + index, number, source));
        }
        let mut idle: Vec<usize> = (first..self.clients.len()).collect();
        if let (Some(patience), None) = (self.shared.plan.refusals, &clock) {
            // Clients in a closed loop begin one after the other. All at once, those that are not
            // let in would come back all at once, again and again.
            for (index, client) in idle.drain(..).enumerate() {
                let at = started + patience.pause.mul_f64(index as f64 / group.clients as f64);
                self.timers.add(Timer { at, client, serial: 0 });
            }
        }
        self.groups.push(State { idle, clock, outcome: Outcome::default() });
    }

    fn run_until(&mut self, end: Instant) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            if now.duration_since(self.last_progress) > STALL && self.shared.plan.refusals.is_none()
            {
                let reasons = self.groups.iter().find_map(|one| one.outcome.first_error.clone());
                let reason = reasons.unwrap_or_default();
                return Err(Error::Answer(format!("no response for {STALL:?}; {reason}")));
            }
            self.expire(now)?;
            for group in 0..self.groups.len() {
                self.dispatch(group, now)?;
            }
            let wait = self.wait();
            match epoll::wait(&self.shared.epoll, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).doing(|| "epoll_wait".to_owned()),
            }
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let was_idle = self.clients[index].is_idle();
                let step = self.clients[index].advance(&mut self.shared);
                match step {
                    // It has work to come, or pauses, already.
                    Err(failure) if was_idle => self.fail(index, failure.reason())?,
                    _ if was_idle => {}
                    step => self.settle(index, step)?,
                }
            }
        }
    }

    /// Gives waiting work to idle clients of a group.
    fn dispatch(&mut self, group: usize, now: Instant) -> Result<()> {
        // Each client at most once: one that fails at once must not hold up the loop.
        for _ in 0..self.groups[group].idle.len() {
            let state = &mut self.groups[group];
            let since = match &mut state.clock {
                None => now,
                Some(clock) => match clock.take_due(now) {
                    Some(due) => due,
                    None => return Ok(()),
                },
            };
            let Some(index) = state.idle.pop() else { return Ok(()) };
            self.begin(index, since)?;
        }
        let State { idle, clock: Some(clock), outcome } = &mut self.groups[group] else {
            return Ok(());
        };
        while idle.is_empty() && self.shared.plan.refusals.is_some() {
            if clock.take_due(now).is_none() {
                break;
            }
            outcome.unsent += u64::from(self.measuring);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, since: Instant) -> Result<()> {
        let step = self.clients[index].begin(since, &mut self.shared);
        let client = &self.clients[index];
        self.groups[client.group].outcome.begun += u64::from(self.measuring);
        if let (Some(patience), Ok(Step::Blocked)) = (self.shared.plan.refusals, &step) {
            let at = Instant::now() + patience.wait;
            self.timers.add(Timer { at, client: index, serial: client.serial });
        }
        self.settle(index, step)
    }

    /// Ends the patience of clients, and their pauses.
    fn expire(&mut self, now: Instant) -> Result<()> {
        while let Some(timer) = self.timers.take_due(now) {
            let client = &mut self.clients[timer.client];
            if client.serial != timer.serial {
                continue;
            }
            let state = &mut self.groups[client.group];
            if client.is_idle() {
                // In an open loop clients that are idle wait for work, and pause never.
                if state.clock.is_none() {
                    self.begin(timer.client, now)?;
                }
                continue;
            }
            let connected = client.give_up();
            let outcome = &mut state.outcome;
            outcome.timeouts += u64::from(self.measuring && connected);
            outcome.connect_timeouts += u64::from(self.measuring && !connected);
            self.rest(timer.client)?;
        }
        Ok(())
    }

    fn settle(&mut self, index: usize, step: Result<Step, Failure>) -> Result<()> {
        let measuring = u64::from(self.measuring);
        match (step, self.shared.plan.refusals) {
            (Ok(Step::Blocked), _) => return Ok(()),
            (Ok(Step::Complete), _) => {
                self.count(index);
                return self.rest(index);
            }
            (Ok(Step::Refused(status)), Some(patience)) => {
                let counts = &mut self.outcome(index).refused;
                *counts.entry(status).or_default() += measuring;
                self.pause(index, patience);
            }
            (Err(Failure::Reset(_)), Some(patience)) => {
                self.outcome(index).resets += measuring;
                self.pause(index, patience);
            }
            (Err(Failure::TimedOut(_)), Some(patience)) => {
                self.outcome(index).connect_timeouts += measuring;
                self.pause(index, patience);
            }
            (Err(failure), Some(patience)) => {
                self.fail(index, failure.reason())?;
                self.pause(index, patience);
            }
            (Ok(Step::Refused(status)), None) => {
                self.fail(index, format!("status {status}"))?;
                return self.rest(index);
            }
            (Err(failure), None) => {
                self.fail(index, failure.reason())?;
                return self.rest(index);
            }
        }
        Ok(())
    }

    /// What a client does after a request.
    fn rest(&mut self, index: usize) -> Result<()> {
        let client = &mut self.clients[index];
        let state = &mut self.groups[client.group];
        if state.clock.is_some() {
            state.idle.push(index);
            return Ok(());
        }
        // Closed loop: the next request follows at once. A new request cannot complete at once, but
        // fail: then the client waits for the loop's next turn.
        let since = Instant::now();
        match client.begin(since, &mut self.shared) {
            Ok(_) => {
                state.outcome.begun += u64::from(self.measuring);
                if let Some(patience) = self.shared.plan.refusals {
                    let (at, serial) = (since + patience.wait, client.serial);
                    self.timers.add(Timer { at, client: index, serial });
                }
                Ok(())
            }
            Err(failure) if self.shared.plan.refusals.is_some() => self.settle(index, Err(failure)),
            Err(failure) => {
                state.idle.push(index);
                self.fail(index, failure.reason())
            }
        }
    }

    /// What a client does after a refusal.
    fn pause(&mut self, index: usize, patience: Patience) {
        let client = &mut self.clients[index];
        // The end of the request's patience means nothing any more.
        client.serial += 1;
        let state = &mut self.groups[client.group];
        if state.clock.is_some() {
            state.idle.push(index);
            return;
        }
        let at = Instant::now() + patience.pause;
        self.timers.add(Timer { at, client: index, serial: client.serial });
    }

    fn outcome(&mut self, index: usize) -> &mut Outcome {
        &mut self.groups[self.clients[index].group].outcome
    }

    fn count(&mut self, index: usize) {
        let now = Instant::now();
        self.last_progress = now;
        if self.measuring {
            let client = &self.clients[index];
            let (size, marked) = (client.content_size(), client.is_marked);
            let latency = now.saturating_duration_since(client.since);
            let outcome = self.outcome(index);
            outcome.requests += 1;
            outcome.marked += u64::from(marked);
            outcome.body_bytes += size as u64;
            outcome.latency_ns.record(latency.as_nanos() as u64);
        }
    }

    fn fail(&mut self, index: usize, reason: String) -> Result<()> {
        self.errors_total += 1;
        if self.errors_total > ERRORS_MAX {
            return Err(Error::Answer(format!("{ERRORS_MAX} failures, the last: {reason}")));
        }
        let measuring = u64::from(self.measuring);
        let outcome = self.outcome(index);
        outcome.errors += measuring;
        outcome.first_error.get_or_insert(reason);
        Ok(())
    }

    /// How long to wait for sockets.
    fn wait(&self) -> Timespec {
        let clocks = self.groups.iter().filter(|group| !group.idle.is_empty());
        let arrivals = clocks.filter_map(|group| group.clock.as_ref().map(Clock::next)).min();
        let now = Instant::now();
        if self.shared.plan.refusals.is_none() {
            let poll = arrivals.is_some_and(|next| next < now + POLL_BELOW);
            return timespec(if poll { Duration::ZERO } else { WAIT });
        }
        // The application shares the generator's core: polling would take it away.
        let next = arrivals.into_iter().chain(self.timers.next()).min();
        timespec(next.map_or(WAIT, |next| next.saturating_duration_since(now).min(WAIT)))
    }

    fn open_window(&mut self) {
        self.measuring = true;
        for client in &mut self.clients {
            client.connections = 0;
            client.bodies_compared = 0;
        }
    }

    fn close_window(self, elapsed: Duration) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> =
            self.groups.into_iter().map(|group| Outcome { elapsed, ..group.outcome }).collect();
        for client in self.clients {
            outcomes[client.group].connections += client.connections;
            outcomes[client.group].bodies_compared += client.bodies_compared;
        }
        outcomes
    }
}

/// The request of a group that always asks for the same.
fn request(plan: &Plan, group: &Group) -> Vec<u8> {
    match &group.asks {
        Asks::Same(ask) => ask.render(plan.server, plan.persistent),
        Asks::Each(_) => Vec::new(),
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) }
}
