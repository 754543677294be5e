//! Origins that tests put behind a gate: so many servers, so much work a request.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// SplitMix64: the same numbers in every run.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In (0, 1].
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }
}

/// How much work requests are, as a distribution with a mean in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Work {
    Constant(f64),
    /// A fifth more or less.
    Even(f64),
    Exponential(f64),
    /// One in ten takes ten times as long as the others.
    Mixed(f64),
}

impl Work {
    pub(crate) fn mean(self) -> f64 {
        match self {
            Work::Constant(mean) | Work::Even(mean) => mean,
            Work::Exponential(mean) | Work::Mixed(mean) => mean,
        }
    }

    pub(crate) fn sample(self, random: &mut Random) -> f64 {
        match self {
            Work::Constant(mean) => mean,
            Work::Even(mean) => mean * (0.8 + 0.4 * random.unit()),
            Work::Exponential(mean) => random.exponential(mean),
            Work::Mixed(mean) if random.unit() <= 0.1 => mean / 1.9 * 10.0,
            Work::Mixed(mean) => mean / 1.9,
        }
    }
}

/// What an origin does with more requests than it has servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Discipline {
    /// They wait in order.
    Fifo,
    /// All share the servers, and each server's worth of requests too many costs this part of the
    /// throughput (0: none).
    Shared { thrash: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OriginModel {
    pub(crate) servers: usize,
    pub(crate) work: Work,
    pub(crate) discipline: Discipline,
}

impl OriginModel {
    /// Requests per second with all servers busy and nobody too many.
    pub(crate) fn capacity(&self) -> f64 {
        self.servers as f64 * 1e9 / self.work.mean()
    }
}

/// An origin at work.
pub(crate) struct Origin {
    pub(crate) model: OriginModel,
    /// 4.0: everything takes four times as long.
    pub(crate) slowness: f64,
    /// Answers nothing and refuses everything.
    pub(crate) is_down: bool,
    /// Refuses what would be more than so many in flight.
    pub(crate) refuses_above: u32,
    now_ns: f64,
    /// Work that every running request has got so far, had it run since the beginning.
    progress: f64,
    /// Running requests by the progress at which they are done.
    running: BinaryHeap<Reverse<(Progress, usize)>>,
    waiting: VecDeque<(f64, usize)>,
}

#[derive(Clone, Copy, PartialEq)]
struct Progress(f64);

impl Eq for Progress {}

impl PartialOrd for Progress {
    fn partial_cmp(&self, other: &Progress) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Progress {
    fn cmp(&self, other: &Progress) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Origin {
    pub(crate) fn new(model: OriginModel) -> Origin {
        Origin {
            model,
            slowness: 1.0,
            is_down: false,
            refuses_above: u32::MAX,
            now_ns: 0.0,
            progress: 0.0,
            running: BinaryHeap::new(),
            waiting: VecDeque::new(),
        }
    }

    fn speed(&self) -> f64 {
        let (running, servers) = (self.running.len() as f64, self.model.servers as f64);
        let share = (servers / running.max(1.0)).min(1.0);
        let excess = (running / servers - 1.0).max(0.0);
        match self.model.discipline {
            Discipline::Fifo => 1.0 / self.slowness,
            Discipline::Shared { thrash } => share / (1.0 + thrash * excess) / self.slowness,
        }
    }

    /// To be called before anything changes, its slowness too.
    pub(crate) fn advance(&mut self, now_ns: f64) {
        self.progress += (now_ns - self.now_ns) * self.speed();
        self.now_ns = now_ns;
    }

    pub(crate) fn put(&mut self, work: f64, id: usize) {
        self.waiting.push_back((work, id));
        self.fill();
    }

    fn fill(&mut self) {
        let is_fifo = self.model.discipline == Discipline::Fifo;
        while !is_fifo || self.running.len() < self.model.servers {
            let Some((work, id)) = self.waiting.pop_front() else { return };
            self.running.push(Reverse((Progress(self.progress + work), id)));
        }
    }

    /// When the next one is done, if nothing changes.
    pub(crate) fn next_ns(&self) -> Option<f64> {
        let Reverse((at, _)) = self.running.peek()?;
        Some(self.now_ns + ((at.0 - self.progress) / self.speed()).max(0.0))
    }

    /// Who is done, after [`Origin::advance`] to that time.
    pub(crate) fn take(&mut self) -> Option<usize> {
        let Reverse((at, id)) = self.running.pop()?;
        self.progress = self.progress.max(at.0);
        self.fill();
        Some(id)
    }
}
