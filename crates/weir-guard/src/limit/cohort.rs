//! Requests that started one after the other, and the latencies they had.

use super::{Cohort, Outcome};
use crate::queue::CLASSES_MAX;

/// What requests belong to that are not measured.
pub(super) const NO_COHORT: Cohort = Cohort(0);

/// A cohort of a second with fewer requests says nothing yet.
const STARTS_MIN: u32 = 20;
/// When a cohort of too few is given up.
const OPEN_NS_MAX: u64 = 10_000_000_000;
/// When one of enough is closed at the latest.
const OPEN_NS: u64 = 2_000_000_000;
/// Requests that are still out after so many times the mean latency count with their age.
const SETTLE_LATENCIES: u64 = 8;
/// So do those that are out after this.
const SETTLE_NS_MAX: u64 = 10_000_000_000;

/// A part of a cohort that may still be out when it is as good as over.
const OUT_SHARE: u32 = 8;

/// Number, mean and variance of latencies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latencies {
    pub(super) count: f64,
    sum_ns: f64,
    squares: f64,
}

impl Latencies {
    fn add(&mut self, latency_ns: f64, count: f64) {
        let latency_ns = latency_ns.max(1.0);
        self.count += count;
        self.sum_ns += count * latency_ns;
        self.squares += count * latency_ns * latency_ns;
    }

    /// One that ended without an answer after so long. As if latencies were distributed
    /// exponentially, the time counts and the end does not: the best guess of the mean is all the
    /// time over the number of answers (B. Epstein, M. Sobel, Life Testing, Journal of the American
    /// Statistical Association 48(263), 1953).
    fn add_left(&mut self, age_ns: f64) {
        self.sum_ns += age_ns;
    }

    pub(super) fn mean_ns(&self) -> f64 {
        self.sum_ns / self.count.max(1.0)
    }

    /// Logarithm of the mean.
    pub(super) fn log(&self) -> f64 {
        self.mean_ns().max(1.0).ln()
    }

    /// Sum of squared deviations from the mean, in units of it.
    pub(super) fn deviations(&self) -> f64 {
        let mean_ns = self.mean_ns().max(1.0);
        (self.squares / (mean_ns * mean_ns) - self.count).max(0.0)
    }
}

/// By class.
pub(super) type ClassLatencies = [Latencies; CLASSES_MAX];

/// Requests of a class that are still out.
#[derive(Clone, Copy, Debug, Default)]
struct Out {
    count: u32,
    started_sum_ns: u128,
}

/// A cohort under way: first it takes requests in, then it waits for them to end.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) id: Cohort,
    pub(super) is_probe: bool,
    wanted: u32,
    opened_ns: u64,
    closed_ns: Option<u64>,
    is_cut_short: bool,
    /// Starts that are let pass first, so that what was in flight before has left the queue.
    skip: u32,
    starts: u32,
    starts_at_limit: u32,
    in_flight_sum: u64,
    pub(super) latencies: ClassLatencies,
    answered: u32,
    left: u32,
    out: [Out; CLASSES_MAX],
    out_count: u32,
    /// What latencies of each class count with at most.
    most_ns: [f64; CLASSES_MAX],
}

/// What is to be done with a cohort.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Goes,
    /// All that will be known is known.
    IsComplete,
    /// It comes to nothing.
    IsVoid,
}

impl Gathering {
    pub(super) fn new(
        id: Cohort,
        now_ns: u64,
        is_probe: bool,
        wanted: u32,
        skip: u32,
        most_ns: [f64; CLASSES_MAX],
    ) -> Gathering {
        Gathering {
            id,
            is_probe,
            wanted,
            opened_ns: now_ns,
            closed_ns: None,
            is_cut_short: false,
            skip,
            starts: 0,
            starts_at_limit: 0,
            in_flight_sum: 0,
            latencies: ClassLatencies::default(),
            answered: 0,
            left: 0,
            out: [Out::default(); CLASSES_MAX],
            out_count: 0,
            most_ns,
        }
    }

    fn is_open(&self) -> bool {
        self.closed_ns.is_none()
    }

    /// Whether most of its requests have not ended yet: those that start now still have an effect
    /// on what is measured.
    pub(super) fn is_under_way(&self) -> bool {
        !self.is_cut_short && (self.is_open() || self.out_count > self.starts / OUT_SHARE)
    }

    /// When it began to take requests in.
    pub(super) fn opened_ns(&self) -> u64 {
        self.opened_ns
    }

    /// Takes no more in, and holds nobody back any longer.
    pub(super) fn cut_short(&mut self, now_ns: u64) {
        self.closed_ns.get_or_insert(now_ns);
        self.is_cut_short = true;
    }

    pub(super) fn started(
        &mut self,
        now_ns: u64,
        class: usize,
        in_flight: u32,
        limit: u32,
    ) -> Cohort {
        if !self.is_open() {
            return NO_COHORT;
        }
        if self.skip > 0 {
            self.skip -= 1;
            if self.skip == 0 {
                self.opened_ns = now_ns;
            }
            return NO_COHORT;
        }
        self.starts += 1;
        self.starts_at_limit += u32::from(in_flight >= limit);
        self.in_flight_sum += u64::from(in_flight);
        self.out_count += 1;
        let out = &mut self.out[class.min(CLASSES_MAX - 1)];
        out.count += 1;
        out.started_sum_ns += u128::from(now_ns);
        if self.starts >= self.wanted {
            self.closed_ns = Some(now_ns);
        }
        self.id
    }

    pub(super) fn finished(
        &mut self,
        class: usize,
        started_ns: u64,
        latency_ns: u64,
        outcome: Outcome,
    ) {
        let class = class.min(CLASSES_MAX - 1);
        self.out_count = self.out_count.saturating_sub(1);
        let out = &mut self.out[class];
        out.count = out.count.saturating_sub(1);
        out.started_sum_ns = out.started_sum_ns.saturating_sub(started_ns.into());
        let latency_ns = (latency_ns as f64).min(self.most_ns[class]);
        match outcome {
            Outcome::Answered => {
                self.latencies[class].add(latency_ns, 1.0);
                self.answered += 1;
            }
            Outcome::Left => {
                self.latencies[class].add_left(latency_ns);
                self.left += 1;
            }
            Outcome::Failed | Outcome::Unknown => {}
        }
    }

    pub(super) fn progress(&mut self, now_ns: u64) -> Progress {
        let open_ns = now_ns.saturating_sub(self.opened_ns);
        let Some(closed_ns) = self.closed_ns else {
            if open_ns >= OPEN_NS && self.starts >= STARTS_MIN {
                self.closed_ns = Some(now_ns);
            } else if open_ns >= OPEN_NS_MAX {
                return Progress::IsVoid;
            }
            return Progress::Goes;
        };
        if self.out_count > 0 {
            let waited_ns = now_ns.saturating_sub(closed_ns);
            let patience_ns = match self.answered {
                0 => u64::MAX,
                _ => self.mean_ns().saturating_mul(SETTLE_LATENCIES),
            };
            if waited_ns < patience_ns.min(SETTLE_NS_MAX) {
                return Progress::Goes;
            }
        }
        let is_small = self.starts < STARTS_MIN.min(self.wanted);
        if is_small || self.answered == 0 || self.answered + self.left < self.starts / 2 {
            return Progress::IsVoid;
        }
        self.count_those_out(now_ns);
        Progress::IsComplete
    }

    /// Who is not back yet has taken as long as it is out, if not longer.
    fn count_those_out(&mut self, now_ns: u64) {
        for (class, out) in self.out.iter_mut().enumerate().filter(|(_, out)| out.count > 0) {
            let count = f64::from(out.count);
            let age_ns = now_ns as f64 - out.started_sum_ns as f64 / count;
            self.latencies[class].add(age_ns.min(self.most_ns[class]), count);
            *out = Out::default();
        }
        self.out_count = 0;
    }

    /// Mean latency over all classes; what those who are out have waited does not count.
    pub(super) fn mean_ns(&self) -> u64 {
        let sum_ns: f64 = self.latencies.iter().map(|class| class.sum_ns).sum();
        (sum_ns / f64::from(self.answered.max(1))) as u64
    }

    /// Whether the limit was what held requests back, by and large.
    pub(super) fn is_saturated(&self) -> bool {
        self.starts_at_limit >= self.starts - self.starts / 4
    }

    /// Requests that took the last place.
    pub(super) fn starts_at_limit(&self) -> u32 {
        self.starts_at_limit
    }

    /// Requests in flight at a start, as a mean.
    pub(super) fn in_flight(&self) -> f64 {
        self.in_flight_sum as f64 / f64::from(self.starts.max(1))
    }
}
