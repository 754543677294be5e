//! The server's side: a bounded queue of jobs before helper processes. Each helper has a thread
//! here, which sleeps while the helper works. All who ask for the same share one job.

mod child;
mod foreman;
mod queue;
mod strikes;
mod word;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use weir_arena::Arena;

use self::queue::Queue;
use self::strikes::Strikes;
pub use self::word::{Judged, judge_packet};
use crate::cost::DEAR;
use crate::job::{Job, Outcome};

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Helpers; 0 for a pool that refuses everything.
    pub helpers: usize,
    /// Jobs that wait at a time.
    pub queue: usize,
    /// The program that helpers run, and its arguments. Its standard input is the socket.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Priority {
    /// Somebody waits for it.
    Awaited,
    /// Nobody does: whoever comes later will have it.
    Cheap,
    /// Likewise, and it costs more than [`DEAR`].
    Dear,
}

/// Why a job is not even begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many wait as may.
    Full,
    /// Helpers have died of it.
    Deadly,
    /// The server ends.
    Closed,
}

impl Refused {
    /// A word for header field and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Refused::Full => "queue-full",
            Refused::Deadly => "quarantined",
            Refused::Closed => "closed",
        }
    }
}

/// What has become of jobs since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Variants made.
    pub made: u64,
    /// Jobs after which the original was as good.
    pub original: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were not begun.
    pub refused: u64,
    /// Jobs that somebody else had asked for.
    pub shared: u64,
    /// Helpers that were started.
    pub started: u64,
    /// Helpers that died of a job, or were killed because it took too long.
    pub died: u64,
    /// Time that helpers have worked, in microseconds.
    pub busy_us: u64,
    /// Bytes that went into jobs that made something.
    pub bytes_in: u64,
    /// Bytes that came out of them.
    pub bytes_out: u64,
    /// Jobs that wait now.
    pub waiting: u64,
}

/// A handle on the pool; clones are the same pool. Helpers end with the last one.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    _ends: Arc<Ends>,
}

struct Shared {
    settings: PoolSettings,
    arena: Arena,
    state: Mutex<State>,
    /// There is work, or nothing more comes.
    has_work: Condvar,
    counters: Counters,
}

struct State {
    queue: Queue,
    /// Jobs that wait or are being done, by their keys, with those who wait for their ends.
    waiters: HashMap<u128, Vec<oneshot::Sender<Outcome>>>,
    strikes: Strikes,
    is_closed: bool,
}

#[derive(Default)]
struct Counters {
    made: AtomicU64,
    original: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    shared: AtomicU64,
    started: AtomicU64,
    died: AtomicU64,
    busy_us: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// What is done with an outcome before anybody is told.
type Then = Box<dyn FnOnce(&Outcome) + Send>;

/// A job, and what comes after it.
struct Task {
    job: Box<Job>,
    then: Then,
}

/// Closes the pool when it is dropped.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        state.waiters.clear();
        drop(state);
        self.0.has_work.notify_all();
    }
}

impl Pool {
    /// A pool whose helpers read what is stored in `arena`. Each is started with its first job.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(settings: PoolSettings, arena: Arena) -> io::Result<Pool> {
        let state = State {
            queue: Queue::new(settings.queue),
            waiters: HashMap::new(),
            strikes: Strikes::default(),
            is_closed: false,
        };
        let helpers = settings.helpers;
        let shared = Arc::new(Shared {
            settings,
            arena,
            state: Mutex::new(state),
            has_work: Condvar::new(),
            counters: Counters::default(),
        });
        let pool = Pool { _ends: Arc::new(Ends(Arc::clone(&shared))), shared };
        for number in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("adapt-{number}"));
            thread.spawn(move || foreman::run(&shared))?;
        }
        Ok(pool)
    }

    /// Has a job done, or joins those who wait for the same, and waits for its end. `then` is
    /// called before anybody is told, on a thread of the pool; not if somebody else has asked
    /// first.
    ///
    /// # Errors
    /// Why it is not even begun.
    pub async fn adapt(
        &self,
        job: Job,
        then: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Result<Outcome, Refused> {
        let (sender, receiver) = oneshot::channel();
        self.submit(job, Box::new(then), Priority::Awaited, Some(sender))?;
        receiver.await.map_err(|_| Refused::Closed)
    }

    /// Has a job done when there is time, unless that has been asked for already; what costs much
    /// after what costs little.
    ///
    /// # Errors
    /// Why it is not even begun.
    pub fn adapt_later(
        &self,
        job: Job,
        then: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Result<(), Refused> {
        let is_dear = job.recipe.cost(job.input_bytes()) > DEAR;
        let priority = if is_dear { Priority::Dear } else { Priority::Cheap };
        self.submit(job, Box::new(then), priority, None)
    }

    /// Whether a job waits or is being done.
    pub fn is_pending(&self, key: u128) -> bool {
        self.shared.state.lock().waiters.contains_key(&key)
    }

    /// Waits for the end of a job that was begun. It goes before those that nobody waits for.
    pub async fn join(&self, key: u128) {
        if let Some(end) = self.end_of(key) {
            // Whatever becomes of it, and also if it is given up.
            let _ = end.await;
        }
    }

    fn end_of(&self, key: u128) -> Option<oneshot::Receiver<Outcome>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.shared.state.lock();
        state.waiters.get_mut(&key)?.push(sender);
        state.queue.raise(key);
        Some(receiver)
    }

    fn submit(
        &self,
        job: Job,
        then: Then,
        priority: Priority,
        waiter: Option<oneshot::Sender<Outcome>>,
    ) -> Result<(), Refused> {
        let submitted = self.try_submit(Task { job: Box::new(job), then }, priority, waiter);
        if submitted.is_err() {
            self.shared.counters.refused.fetch_add(1, Relaxed);
        }
        submitted
    }

    fn try_submit(
        &self,
        task: Task,
        priority: Priority,
        waiter: Option<oneshot::Sender<Outcome>>,
    ) -> Result<(), Refused> {
        let key = task.job.key;
        let mut state = self.shared.state.lock();
        if state.is_closed || self.shared.settings.helpers == 0 {
            return Err(Refused::Closed);
        }
        if state.strikes.is_deadly(key, Instant::now()) {
            return Err(Refused::Deadly);
        }
        if let Some(waiters) = state.waiters.get_mut(&key) {
            waiters.extend(waiter);
            if priority == Priority::Awaited {
                state.queue.raise(key);
            }
            self.shared.counters.shared.fetch_add(1, Relaxed);
            return Ok(());
        }
        // One of a lower priority may make room.
        let out = state.queue.push(task, priority).map_err(|_| Refused::Full)?;
        if let Some(out) = &out {
            state.waiters.remove(&out.job.key);
        }
        state.waiters.insert(key, waiter.into_iter().collect());
        drop(state);
        self.shared.has_work.notify_one();
        Ok(())
    }

    /// What has become of jobs.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            made: of(&counters.made),
            original: of(&counters.original),
            failed: of(&counters.failed),
            refused: of(&counters.refused),
            shared: of(&counters.shared),
            started: of(&counters.started),
            died: of(&counters.died),
            busy_us: of(&counters.busy_us),
            bytes_in: of(&counters.bytes_in),
            bytes_out: of(&counters.bytes_out),
            waiting: self.shared.state.lock().queue.len() as u64,
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish()
    }
}
