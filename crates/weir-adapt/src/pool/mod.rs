//! The server's side: a bounded line of jobs before helper processes. Each helper has a thread
//! here, which sleeps while the helper works. All who ask for the same share one job.

mod child;
mod foreman;
mod strikes;
mod word;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tokio::sync::oneshot;
use weir_arena::Arena;
use weir_work::{Line, Rank};

use self::strikes::Strikes;
pub use self::word::{Judged, judge_packet};
use crate::cgroup::Cgroup;
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
    /// The control group that they are put in, if there is one.
    pub cgroup: Option<Arc<Cgroup>>,
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

impl<T> From<weir_work::Refused<T>> for Refused {
    fn from(refused: weir_work::Refused<T>) -> Refused {
        match refused {
            weir_work::Refused::Full(_) => Refused::Full,
            weir_work::Refused::Closed(_) => Refused::Closed,
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
    /// Orders to helpers: of one job, or of several quick ones.
    pub orders: u64,
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
    line: Line<Task, Beside>,
    counters: Counters,
}

/// What is kept beside the jobs that wait.
#[derive(Default)]
struct Beside {
    /// Jobs that wait or are being done, by their keys, with those who wait for their ends.
    waiters: HashMap<u128, Vec<oneshot::Sender<Outcome>>>,
    strikes: Strikes,
}

#[derive(Default)]
struct Counters {
    made: AtomicU64,
    original: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    shared: AtomicU64,
    orders: AtomicU64,
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
        let mut line = self.0.line.lock();
        let waited = line.close();
        let told = std::mem::take(&mut line.beside.waiters);
        drop(line);
        drop((waited, told));
    }
}

impl Pool {
    /// A pool whose helpers read what is stored in `arena`. Each is started with its first job.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(settings: PoolSettings, arena: Arena) -> io::Result<Pool> {
        let helpers = settings.helpers;
        let shared = Arc::new(Shared {
            line: Line::new(settings.queue, Beside::default()),
            settings,
            arena,
            counters: Counters::default(),
        });
        let pool = Pool { _ends: Arc::new(Ends(Arc::clone(&shared))), shared };
        for number in 0..helpers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("adapt-{number}"));
            thread.spawn(move || {
                weir_work::begin();
                foreman::run(&shared);
            })?;
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
        self.submit(job, Box::new(then), Rank::Awaited, Some(sender))?;
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
        let rank = if is_dear { Rank::Dear } else { Rank::Cheap };
        self.submit(job, Box::new(then), rank, None)
    }

    /// Likewise, but for somebody who is about to [join](Pool::join) it: it goes before those that
    /// nobody waits for, and takes the place of one where as many wait as may.
    ///
    /// # Errors
    /// Why it is not even begun.
    pub fn adapt_soon(
        &self,
        job: Job,
        then: impl FnOnce(&Outcome) + Send + 'static,
    ) -> Result<(), Refused> {
        self.submit(job, Box::new(then), Rank::Awaited, None)
    }

    /// Whether a job waits or is being done.
    pub fn is_pending(&self, key: u128) -> bool {
        self.shared.line.lock().beside.waiters.contains_key(&key)
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
        let mut line = self.shared.line.lock();
        line.beside.waiters.get_mut(&key)?.push(sender);
        line.raise(|task| task.job.key == key);
        Some(receiver)
    }

    fn submit(
        &self,
        job: Job,
        then: Then,
        rank: Rank,
        waiter: Option<oneshot::Sender<Outcome>>,
    ) -> Result<(), Refused> {
        let submitted = self.try_submit(Task { job: Box::new(job), then }, rank, waiter);
        if submitted.is_err() {
            self.shared.counters.refused.fetch_add(1, Relaxed);
        }
        submitted
    }

    fn try_submit(
        &self,
        task: Task,
        rank: Rank,
        waiter: Option<oneshot::Sender<Outcome>>,
    ) -> Result<(), Refused> {
        let key = task.job.key;
        let mut line = self.shared.line.lock();
        if line.is_closed() || self.shared.settings.helpers == 0 {
            return Err(Refused::Closed);
        }
        if line.beside.strikes.is_deadly(key, Instant::now()) {
            return Err(Refused::Deadly);
        }
        if let Some(waiters) = line.beside.waiters.get_mut(&key) {
            waiters.extend(waiter);
            if rank == Rank::Awaited {
                line.raise(|task| task.job.key == key);
            }
            self.shared.counters.shared.fetch_add(1, Relaxed);
            return Ok(());
        }
        // One of a lower rank may make room.
        let out = line.push(task, rank)?;
        if let Some(out) = &out {
            line.beside.waiters.remove(&out.job.key);
        }
        line.beside.waiters.insert(key, waiter.into_iter().collect());
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
            orders: of(&counters.orders),
            started: of(&counters.started),
            died: of(&counters.died),
            busy_us: of(&counters.busy_us),
            bytes_in: of(&counters.bytes_in),
            bytes_out: of(&counters.bytes_out),
            waiting: self.shared.line.lock().waiting() as u64,
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("stats", &self.stats()).finish()
    }
}
