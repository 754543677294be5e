//! The loop around the clients: who sends when, what counts, when it is over.

use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event};
use rustix::io::Errno;

use super::client::{Client, Shared, Step};
use super::{Edge, Outcome, Plan};
use crate::error::{Doing, Error, Result};

/// Bytes one read may take; larger than any document of S1.
const BUFFER_SIZE: usize = 256 << 10;
/// Events handled per call of epoll.
const EVENTS_MAX: usize = 64;
/// After so many failures the contender is considered unfit and the run is given up.
const ERRORS_MAX: u64 = 200;
/// No response at all for this long ends the run.
const STALL: Duration = Duration::from_secs(10);
/// Longest wait in epoll: how late an edge of the window can be noticed on a silent server.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// An arrival due sooner than this is awaited by polling, as epoll's clock is too coarse.
const POLL_BELOW: Duration = Duration::from_millis(2);

/// Runs `plan` on the calling thread. `on_edge` is called when the window opens and closes.
///
/// # Errors
/// When the contender stops answering or keeps answering wrongly; single failures are counted in
/// the outcome.
pub fn run(plan: &Plan, on_edge: &mut dyn FnMut(Edge)) -> Result<Outcome> {
    let shared = Shared {
        plan,
        request: plan.request(),
        epoll: epoll::create(CreateFlags::CLOEXEC).doing(|| "epoll_create".to_owned())?,
        buffer: vec![0; BUFFER_SIZE],
    };
    let started = Instant::now();
    let mut engine = Engine {
        shared,
        clients: (0..plan.clients).map(Client::new).collect(),
        idle: (0..plan.clients).collect(),
        arrivals: plan.rate_per_second.map(|rate| Arrivals::new(started, rate)),
        outcome: Outcome::default(),
        errors_total: 0,
        last_progress: started,
        measuring: false,
    };
    engine.run_until(started + plan.warm_up)?;
    on_edge(Edge::Opens);
    engine.open_window();
    let opened = Instant::now();
    engine.run_until(opened + plan.window)?;
    engine.outcome.elapsed = opened.elapsed();
    on_edge(Edge::Closes);
    let outcome = engine.close_window();
    if outcome.requests == 0 {
        let reason = outcome.first_error.unwrap_or_else(|| "no response at all".to_owned());
        return Err(Error::Answer(format!(
            "nothing was served within {:?}: {reason}",
            plan.window
        )));
    }
    Ok(outcome)
}

struct Engine<'a> {
    shared: Shared<'a>,
    clients: Vec<Client>,
    idle: Vec<usize>,
    arrivals: Option<Arrivals>,
    outcome: Outcome,
    errors_total: u64,
    last_progress: Instant,
    measuring: bool,
}

impl Engine<'_> {
    fn run_until(&mut self, end: Instant) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            if now.duration_since(self.last_progress) > STALL {
                let reason = self.outcome.first_error.clone().unwrap_or_default();
                return Err(Error::Answer(format!("no response for {STALL:?}; {reason}")));
            }
            self.dispatch(now)?;
            match epoll::wait(&self.shared.epoll, spare_capacity(&mut events), Some(&self.wait())) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).doing(|| "epoll_wait".to_owned()),
            }
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let step = self.clients[index].advance(&mut self.shared);
                self.settle(index, step)?;
            }
        }
    }

    /// Gives waiting work to idle clients.
    fn dispatch(&mut self, now: Instant) -> Result<()> {
        // Each client at most once: one that fails at once must not hold up the loop.
        for _ in 0..self.idle.len() {
            let since = match &mut self.arrivals {
                None => now,
                Some(arrivals) => match arrivals.take_due(now) {
                    Some(due) => due,
                    None => return Ok(()),
                },
            };
            let Some(index) = self.idle.pop() else { return Ok(()) };
            let step = self.clients[index].begin(since, &mut self.shared);
            self.settle(index, step)?;
        }
        Ok(())
    }

    fn settle(&mut self, index: usize, step: Result<Step, String>) -> Result<()> {
        match step {
            Ok(Step::Blocked) => return Ok(()),
            Ok(Step::Complete) => self.count(index),
            Err(reason) => self.fail(reason)?,
        }
        if self.arrivals.is_some() {
            self.idle.push(index);
            return Ok(());
        }
        // Closed loop: the next request follows at once. A new request cannot complete at once.
        match self.clients[index].begin(Instant::now(), &mut self.shared) {
            Ok(_) => Ok(()),
            Err(reason) => {
                self.idle.push(index);
                self.fail(reason)
            }
        }
    }

    fn count(&mut self, index: usize) {
        let now = Instant::now();
        self.last_progress = now;
        if self.measuring {
            self.outcome.requests += 1;
            self.outcome.body_bytes += self.shared.plan.expect.len() as u64;
            let latency = now.saturating_duration_since(self.clients[index].since);
            self.outcome.latency_ns.record(latency.as_nanos() as u64);
        }
    }

    fn fail(&mut self, reason: String) -> Result<()> {
        self.errors_total += 1;
        self.outcome.errors += u64::from(self.measuring);
        if self.errors_total > ERRORS_MAX {
            return Err(Error::Answer(format!("{ERRORS_MAX} failures, the last: {reason}")));
        }
        self.outcome.first_error.get_or_insert(reason);
        Ok(())
    }

    fn wait(&self) -> Timespec {
        let poll = self.arrivals.as_ref().is_some_and(|arrivals| {
            !self.idle.is_empty() && arrivals.next < Instant::now() + POLL_BELOW
        });
        if poll { Timespec::default() } else { WAIT }
    }

    fn open_window(&mut self) {
        self.measuring = true;
        for client in &mut self.clients {
            client.connections = 0;
            client.bodies_compared = 0;
        }
    }

    fn close_window(self) -> Outcome {
        let mut outcome = self.outcome;
        outcome.connections = self.clients.iter().map(|client| client.connections).sum();
        outcome.bodies_compared = self.clients.iter().map(|client| client.bodies_compared).sum();
        outcome
    }
}

/// When requests are due in an open loop.
struct Arrivals {
    next: Instant,
    interval: Duration,
}

impl Arrivals {
    fn new(start: Instant, rate_per_second: f64) -> Arrivals {
        Arrivals { next: start, interval: Duration::from_secs_f64(1.0 / rate_per_second) }
    }

    /// The due time of the next request, if it is due.
    fn take_due(&mut self, now: Instant) -> Option<Instant> {
        (self.next <= now).then(|| {
            let due = self.next;
            self.next += self.interval;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_when_served_late() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(start, 1_000.0);
        let late = start + Duration::from_millis(3);
        let due: Vec<_> = std::iter::from_fn(|| arrivals.take_due(late)).collect();
        assert_eq!(due.len(), 4, "0, 1, 2 and 3 ms");
        assert_eq!(due[1] - due[0], Duration::from_millis(1));
        assert_eq!(arrivals.take_due(start + Duration::from_micros(3_999)), None);
    }
}
