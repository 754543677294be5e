//! Latencies of several classes as one number: how far they are from what each class usually has.

use super::cohort::{ClassLatencies, Latencies};
use crate::class::Heir;
use crate::queue::CLASSES_MAX;

/// Requests that a class's usual latency rests on at most, so that it follows.
const MEMORY: f64 = 1600.0;

/// How much of the old estimate of the spread a larger one, and a smaller one, leaves. In a queue
/// latencies are alike, because they share the waiting; their mean varies no less for that. So what
/// was seen without one is kept for long.
const SPREAD_KEPT_UP: f64 = 0.8;
const SPREAD_KEPT_DOWN: f64 = 0.97;

/// The spread before anything is known: that of an exponential distribution.
const SPREAD_INITIAL: f64 = 1.0;

/// A single latency counts with so many times the mean at most: more is a request that hangs.
const OUTLIER: f64 = 16.0;

/// The usual latency of each class relative to the others, as logarithms. That all of them are
/// slower is not learnt here: it is what is measured.
#[derive(Debug)]
pub(super) struct Baseline {
    classes: [Known; CLASSES_MAX],
    /// Variance of latencies within a class, in units of their mean squared.
    spread: f64,
    /// What single latencies count with at most.
    most_ns: [f64; CLASSES_MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    count: f64,
    log: f64,
}

/// A measurement of all classes together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Logarithm of latency relative to what is usual.
    pub(super) latency: f64,
    /// The standard error of that.
    pub(super) error: f64,
}

impl Baseline {
    pub(super) fn new() -> Baseline {
        Baseline {
            classes: [Known::default(); CLASSES_MAX],
            spread: SPREAD_INITIAL,
            most_ns: [f64::INFINITY; CLASSES_MAX],
        }
    }

    /// Takes in a measurement. `None` if it is empty.
    pub(super) fn measure(&mut self, latencies: &ClassLatencies) -> Option<Measured> {
        self.learn_spread(latencies);
        let (mut sum, mut count, mut all) = (0.0, 0.0, 0.0);
        for (known, latencies) in self.classes.iter().zip(latencies) {
            all += latencies.count;
            if known.count > 0.0 && latencies.count > 0.0 {
                sum += latencies.count * (latencies.log() - known.log);
                count += latencies.count;
            }
        }
        if all == 0.0 {
            return None;
        }
        let latency = if count > 0.0 { sum / count } else { 0.0 };
        for (class, latencies) in latencies.iter().enumerate() {
            if latencies.count > 0.0 {
                // What is left has a weighted mean of nothing, so that the whole does not move.
                let usual = latencies.log() - latency;
                let known = &mut self.classes[class];
                let total = known.count + latencies.count;
                known.log += (usual - known.log) * latencies.count / total;
                known.count = total.min(MEMORY);
                self.most_ns[class] = OUTLIER * latencies.mean_ns();
            }
        }
        // The first one is the measure of the others, and as good as they are.
        let counted = if count > 0.0 { count } else { all };
        let error = (self.spread / counted).sqrt();
        Some(Measured { latency, error })
    }

    /// The variance of latencies within a class, in units of their mean squared.
    pub(super) fn spread(&self) -> f64 {
        self.spread
    }

    /// What single latencies count with at most.
    pub(super) fn most_ns(&self) -> [f64; CLASSES_MAX] {
        self.most_ns
    }

    /// Other classes: each is known by its name, and one that is gone is forgotten.
    pub(super) fn reclass(&mut self, heirs: &[Heir]) {
        let spread = self.spread;
        let before = std::mem::replace(self, Baseline { spread, ..Baseline::new() });
        for (rank, heir) in heirs.iter().enumerate().take(CLASSES_MAX) {
            if let Heir::Is(to) = *heir
                && to < CLASSES_MAX
            {
                self.classes[to] = before.classes[rank];
                self.most_ns[to] = before.most_ns[rank];
            }
        }
    }

    /// The geometric mean over classes.
    pub(super) fn ns(&self) -> Option<f64> {
        let count: f64 = self.classes.iter().map(|known| known.count).sum();
        let sum: f64 = self.classes.iter().map(|known| known.count * known.log).sum();
        (count > 0.0).then(|| (sum / count).exp())
    }

    fn learn_spread(&mut self, latencies: &ClassLatencies) {
        let degrees: f64 = latencies.iter().map(|class| (class.count - 1.0).max(0.0)).sum();
        if degrees >= 8.0 {
            let spread = latencies.iter().map(Latencies::deviations).sum::<f64>() / degrees;
            let is_up = spread > self.spread;
            let kept = if is_up { SPREAD_KEPT_UP } else { SPREAD_KEPT_DOWN };
            self.spread = kept * self.spread + (1.0 - kept) * spread;
        }
    }
}
