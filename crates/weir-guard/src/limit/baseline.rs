//! Latencies of several classes as one number: how far they are from what each class usually has.

use super::cohort::{ClassLogs, Logs};
use crate::queue::CLASSES_MAX;

/// Requests that a class's usual latency rests on at most, so that it follows.
const MEMORY: f64 = 1600.0;

/// How much of the old estimate of the spread a larger one, and a smaller one, leaves. In a queue
/// latencies are alike, because they share the waiting; their mean varies no less for that. So what
/// was seen without one is kept for long.
const SPREAD_KEPT_UP: f64 = 0.8;
const SPREAD_KEPT_DOWN: f64 = 0.97;

/// The spread of logarithms before anything is known: that of an exponential distribution.
const SPREAD_INITIAL: f64 = 1.6;

/// The usual latency of each class relative to the others, as a mean of logarithms. That all of
/// them are slower is not learnt here: it is what is measured.
#[derive(Debug)]
pub(super) struct Baseline {
    classes: [Known; CLASSES_MAX],
    /// Variance of logarithms within a class.
    spread: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    count: f64,
    mean: f64,
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
        let classes = [Known::default(); CLASSES_MAX];
        Baseline { classes, spread: SPREAD_INITIAL }
    }

    /// Takes in a measurement. `None` if it is empty.
    pub(super) fn measure(&mut self, logs: &ClassLogs) -> Option<Measured> {
        self.learn_spread(logs);
        let (mut sum, mut count) = (0.0, 0.0);
        for (known, logs) in self.classes.iter().zip(logs) {
            if known.count > 0.0 {
                sum += logs.count * (logs.mean() - known.mean);
                count += logs.count;
            }
        }
        let all: f64 = logs.iter().map(|logs| logs.count).sum();
        if all == 0.0 {
            return None;
        }
        let latency = if count > 0.0 { sum / count } else { 0.0 };
        for (known, logs) in self.classes.iter_mut().zip(logs) {
            if logs.count > 0.0 {
                // What is left has a weighted mean of nothing, so that the whole does not move.
                let usual = logs.mean() - latency;
                let total = known.count + logs.count;
                known.mean += (usual - known.mean) * logs.count / total;
                known.count = total.min(MEMORY);
            }
        }
        let error = if count > 0.0 { (self.spread / count).sqrt() } else { 1.0 };
        Some(Measured { latency, error })
    }

    /// The variance of logarithms of latencies within a class.
    pub(super) fn spread(&self) -> f64 {
        self.spread
    }

    /// The geometric mean over classes.
    pub(super) fn ns(&self) -> Option<f64> {
        let count: f64 = self.classes.iter().map(|known| known.count).sum();
        let sum: f64 = self.classes.iter().map(|known| known.count * known.mean).sum();
        (count > 0.0).then(|| (sum / count).exp())
    }

    fn learn_spread(&mut self, logs: &ClassLogs) {
        let degrees: f64 = logs.iter().map(|logs| (logs.count - 1.0).max(0.0)).sum();
        if degrees >= 8.0 {
            let spread = logs.iter().map(Logs::deviations).sum::<f64>() / degrees;
            let is_up = spread > self.spread;
            let kept = if is_up { SPREAD_KEPT_UP } else { SPREAD_KEPT_DOWN };
            self.spread = kept * self.spread + (1.0 - kept) * spread;
        }
    }
}
