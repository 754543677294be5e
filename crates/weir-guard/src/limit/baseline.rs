//! What latencies would be without a queue, by class, and how measurements compare with that.

use super::cohort::{ClassLogs, Logs};
use crate::queue::CLASSES_MAX;

/// Measurements that the baseline remembers: some four probes, so that it is steadier than each of
/// them and still follows.
const MEMORY: f64 = 400.0;

/// How much of the old estimate of the spread a new one leaves.
const SPREAD_KEPT: f64 = 0.8;

/// The spread of logarithms before anything is known: that of an exponential distribution.
const SPREAD_INITIAL: f64 = 1.6;

/// A mean logarithm of latency for each class that was seen, and how many requests it rests on.
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

/// A measurement against the baseline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    /// Logarithm of latency over baseline.
    pub(super) excess: f64,
    /// The standard error of that.
    pub(super) error: f64,
}

impl Baseline {
    pub(super) fn new() -> Baseline {
        let classes = [Known::default(); CLASSES_MAX];
        Baseline { classes, spread: SPREAD_INITIAL }
    }

    /// Compares class by class, each weighted by how exactly both sides are known. `None` if no
    /// class is known.
    pub(super) fn compare(&self, logs: &ClassLogs) -> Option<Comparison> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (known, logs) in self.classes.iter().zip(logs) {
            if known.count > 0.0 && logs.count > 0.0 {
                let weight = known.count * logs.count / (known.count + logs.count);
                sum += weight * (logs.mean() - known.mean);
                weights += weight;
            }
        }
        (weights > 0.0)
            .then(|| Comparison { excess: sum / weights, error: (self.spread / weights).sqrt() })
    }

    /// Takes the spread from a measurement.
    pub(super) fn learn_spread(&mut self, logs: &ClassLogs) {
        let degrees: f64 = logs.iter().map(|logs| (logs.count - 1.0).max(0.0)).sum();
        if degrees >= 8.0 {
            let spread = logs.iter().map(Logs::deviations).sum::<f64>() / degrees;
            self.spread = SPREAD_KEPT * self.spread + (1.0 - SPREAD_KEPT) * spread;
        }
    }

    /// Adds a measurement without a queue, or one that had `excess` over it.
    pub(super) fn merge(&mut self, logs: &ClassLogs, excess: f64) {
        for (known, logs) in self.classes.iter_mut().zip(logs) {
            if logs.count > 0.0 {
                let mean = logs.mean() - excess;
                known.mean += (mean - known.mean) * logs.count / (known.count + logs.count);
                known.count = (known.count + logs.count).min(MEMORY);
            }
        }
    }

    /// Gives classes that were not known yet what was measured, less the `excess` of the others.
    pub(super) fn adopt(&mut self, logs: &ClassLogs, excess: f64) {
        for (known, logs) in self.classes.iter_mut().zip(logs) {
            if known.count == 0.0 && logs.count > 0.0 {
                *known = Known { count: logs.count.min(MEMORY), mean: logs.mean() - excess };
            }
        }
    }

    /// All classes have become slower, or faster, by this; what is known rests on `count` requests
    /// from now on.
    pub(super) fn shift(&mut self, excess: f64, count: f64) {
        for known in &mut self.classes {
            known.mean += excess;
            known.count = known.count.min(count.max(1.0));
        }
    }

    /// The geometric mean over classes.
    pub(super) fn ns(&self) -> Option<u64> {
        let count: f64 = self.classes.iter().map(|known| known.count).sum();
        let sum: f64 = self.classes.iter().map(|known| known.count * known.mean).sum();
        (count > 0.0).then(|| (sum / count).exp() as u64)
    }
}
