//! A worker's own load: how long what is ready waits for it, and what it lets in meanwhile.
//!
//! Two places are looked at: the event loop, by a probe that says how long a task waits for its
//! turn, and the accept queues, which say since when they have not been empty. While a worker has
//! nothing to do nothing is measured, and nothing wakes it up; except that under overload somebody
//! has to see its end.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_config as config;
use weir_guard::{AdmissionLevel, ClassId, DelayMeter, SHARES};

use crate::worker::Worker;

/// How often a busy worker's queue is probed.
const PROBE_PERIOD: Duration = Duration::from_millis(10);

/// The precision of the event loop's timers.
const TIMER_PRECISION: Duration = Duration::from_millis(1);

/// How long a client belongs to the same share of its class: so that it is not always the same who
/// are refused, and not a little of everything that a page needs.
const SHARE_PERIOD_S: u64 = 300;

/// A worker's load.
pub(crate) struct Load {
    is_overloaded: AtomicBool,
    /// There are classes that go before others. Where all are alike nobody is refused for being
    /// late: being served late is what most prefer.
    tells_apart: AtomicBool,
    /// Something was served since the last probe.
    is_active: AtomicBool,
    wake: Notify,
    /// Overloads so far.
    pub(crate) begun: AtomicU64,
    state: Mutex<State>,
}

struct State {
    event_loop: DelayMeter,
    accept_queues: DelayMeter,
    level: AdmissionLevel,
    interval_ns: u64,
    /// When the level is thought over next.
    turns_ns: u64,
    target_ns: u64,
}

impl Load {
    pub(super) fn new(guard: &config::Guard) -> Load {
        Load {
            is_overloaded: AtomicBool::new(false),
            tells_apart: AtomicBool::new(guard.classes.len() > 1),
            is_active: AtomicBool::new(false),
            wake: Notify::new(),
            begun: AtomicU64::new(0),
            state: Mutex::new(State::new(guard, 0)),
        }
    }

    pub(super) fn configure(&self, guard: &config::Guard) {
        let tells_apart = guard.classes.len() > 1;
        self.tells_apart.store(tells_apart, Relaxed);
        let mut state = self.state.lock();
        if !tells_apart {
            // It holds for nobody any more, and so is not raised again, either.
            state.level = AdmissionLevel::new();
        }
        let (target_ns, interval_ns) = times(guard);
        if (state.target_ns, state.interval_ns) != (target_ns, interval_ns) {
            let now_ns = state.turns_ns;
            *state = State::new(guard, now_ns);
        }
    }

    /// Whether what is ready has been waiting for too long.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded.load(Relaxed)
    }

    /// The worker has something to do.
    #[inline]
    pub(crate) fn touch(&self) {
        if !self.is_active.load(Relaxed) {
            self.is_active.store(true, Relaxed);
            self.wake.notify_one();
        }
    }

    /// Whether a request of this class and client is let in.
    #[inline]
    pub(super) fn admits(&self, class: ClassId, client: Option<SocketAddr>) -> bool {
        // Whoever goes before all others is not refused for their sake.
        if class.0 == 0 || !self.is_overloaded() || !self.tells_apart.load(Relaxed) {
            return true;
        }
        self.state.lock().level.admits(usize::from(class.0), share(client))
    }

    /// A task that was ready has waited for so long.
    fn waited(&self, now_ns: u64, delay_ns: u64) {
        self.state.lock().event_loop.record(now_ns, delay_ns);
    }

    /// An accept queue has not been empty for so long.
    pub(crate) fn queues_stand(&self, now_ns: u64, since: Duration) {
        self.state.lock().accept_queues.record(now_ns, since.as_nanos() as u64);
    }

    /// Thinks the level over; to be called at least once an interval while there is something to
    /// do.
    fn turn(&self, now_ns: u64) {
        let mut state = self.state.lock();
        let event_loop = state.event_loop.is_overloaded(now_ns);
        let is_standing = state.accept_queues.is_overloaded(now_ns) || event_loop;
        if now_ns < state.turns_ns {
            return;
        }
        state.turns_ns = now_ns.saturating_add(state.interval_ns);
        // In the first interval it only finds out who comes.
        let was_overloaded = self.is_overloaded();
        if was_overloaded && self.tells_apart.load(Relaxed) {
            state.level.turn(is_standing);
        }
        let is_overloaded = is_standing || (was_overloaded && !state.level.is_open());
        self.is_overloaded.store(is_overloaded, Relaxed);
        if is_overloaded && !was_overloaded {
            self.begun.fetch_add(1, Relaxed);
        }
    }
}

impl State {
    fn new(guard: &config::Guard, now_ns: u64) -> State {
        let (target_ns, interval_ns) = times(guard);
        State {
            event_loop: DelayMeter::new(now_ns, target_ns, interval_ns),
            accept_queues: DelayMeter::new(now_ns, target_ns, interval_ns),
            level: AdmissionLevel::new(),
            interval_ns,
            turns_ns: now_ns,
            target_ns,
        }
    }
}

fn times(guard: &config::Guard) -> (u64, u64) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    (ns(guard.target), ns(guard.interval))
}

/// A client's share: the same for some minutes.
fn share(client: Option<SocketAddr>) -> u8 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let period = BEGAN.elapsed().as_secs() / SHARE_PERIOD_S;
    let ip = client.map(|client| client.ip().to_canonical());
    // Below SHARES, and so within a byte.
    (HASHER.hash_one((period, ip)) % u64::from(SHARES)) as u8
}

/// Measures how long a task waits for its turn at this worker, for as long as the worker has
/// something to do, or has told the kernel of overload and not of its end: that of an upstream ends
/// long after the last request, and with it may end the refusal of all others. Runs as long as the
/// worker.
pub(crate) async fn probe(worker: std::sync::Arc<Worker>) {
    let guard = &worker.shared.guard;
    let load = guard.load(worker.index);
    loop {
        load.wake.notified().await;
        loop {
            load.is_active.store(false, Relaxed);
            let due = Instant::now() + PROBE_PERIOD;
            tokio::time::sleep_until(due.into()).await;
            let now = Instant::now();
            let late = now.saturating_duration_since(due + TIMER_PRECISION);
            let now_ns = guard.ns_at(now);
            load.waited(now_ns, late.as_nanos() as u64);
            load.turn(now_ns);
            let is_overloaded = guard.tell_overload();
            if !load.is_active.load(Relaxed) && !is_overloaded {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn guard(classes: usize) -> config::Guard {
        let class = |n: usize| config::Class { name: n.to_string(), ..config::Class::default() };
        config::Guard { classes: (0..classes).map(class).collect(), ..config::Guard::default() }
    }

    /// For a second each task waits for so long.
    fn pass(load: &Load, began_ms: u64, delay_ms: u64) {
        for now_ns in (began_ms..began_ms + 1000).step_by(10).map(|ms| ms * MS) {
            load.waited(now_ns, delay_ms * MS);
            load.turn(now_ns);
        }
    }

    #[test]
    fn overload_ends_whatever_classes_there_are_by_then() {
        for (before, after) in [(1, 1), (1, 3), (3, 3), (3, 2), (3, 1)] {
            let load = Load::new(&guard(before));
            pass(&load, 0, 50);
            assert!(load.is_overloaded(), "{before} to {after}");
            assert_eq!(load.state.lock().level.is_open(), before == 1);
            load.configure(&guard(after));
            pass(&load, 1000, 50);
            assert!(load.is_overloaded(), "{before} to {after}");
            pass(&load, 2000, 0);
            assert!(!load.is_overloaded(), "{before} to {after}");
        }
    }
}
