//! Metrics that plugins define. Defining one takes a lock; changing one takes none.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::limits::{METRIC_NAME_BYTES_MAX, METRICS_MAX};

/// Upper bounds of a histogram's buckets: Envoy's, since that is what plugins were made for.
const BOUNDS: [u64; 19] = [
    1,
    5,
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    u64::MAX,
];

/// What a metric does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values by size.
    Histogram,
}

impl MetricKind {
    /// By proxy-wasm's number.
    pub(crate) fn new(number: u32) -> Option<MetricKind> {
        let all = [MetricKind::Counter, MetricKind::Gauge, MetricKind::Histogram];
        all.get(number as usize).copied()
    }
}

/// A metric's value, when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricReading {
    /// A counter's.
    Counter(u64),
    /// A gauge's.
    Gauge(i64),
    /// A histogram's.
    Histogram {
        /// Upper bounds, the last one without limit (`u64::MAX`), and how many values are not above
        /// each.
        buckets: Vec<(u64, u64)>,
        /// Sum of all values.
        sum: u64,
        /// How many there were.
        count: u64,
    },
}

/// Why a metric was not defined or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetricError {
    /// There is none with that number.
    #[error("no metric has that number")]
    Unknown,
    /// A counter cannot be decremented, a histogram not incremented.
    #[error("its kind does not do that")]
    Unfit,
    /// Too many, or too long a name.
    #[error("{what} would be more than {limit}")]
    Beyond { what: &'static str, limit: usize },
}

/// The metrics that one plugin defines.
#[derive(Default)]
pub struct PluginMetrics {
    names: Mutex<Names>,
    /// By number minus one. Made when the first is defined: most plugins define none.
    metrics: OnceLock<Box<[OnceLock<Metric>]>>,
}

#[derive(Default)]
struct Names {
    /// A name's metrics by kind: another deployment of the plugin may mean another kind by it.
    known: HashMap<Box<str>, [Option<u32>; 3]>,
    count: usize,
}

struct Metric {
    name: Box<str>,
    cell: Cell,
}

enum Cell {
    Counter(AtomicU64),
    Gauge(AtomicU64),
    Histogram(Box<Histogram>),
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    sum: AtomicU64,
}

impl PluginMetrics {
    /// Calls `show` with the name and value of each.
    pub fn each(&self, mut show: impl FnMut(&str, MetricReading)) {
        let metrics = self.metrics.get().map(|metrics| &metrics[..]).unwrap_or_default();
        // They are defined in order.
        for metric in metrics.iter().map_while(OnceLock::get) {
            show(&metric.name, metric.cell.read());
        }
    }

    /// The number of a metric, which is defined if it was not.
    pub(crate) fn define(&self, kind: MetricKind, name: &str) -> Result<u32, MetricError> {
        if name.len() > METRIC_NAME_BYTES_MAX {
            let what = "bytes of a name";
            return Err(MetricError::Beyond { what, limit: METRIC_NAME_BYTES_MAX });
        }
        let mut names = self.names.lock();
        let defined = names.known.get(name).and_then(|ids| ids[kind as usize]);
        if let Some(id) = defined {
            return Ok(id);
        }
        if names.count >= METRICS_MAX {
            return Err(MetricError::Beyond { what: "metrics", limit: METRICS_MAX });
        }
        let metrics =
            self.metrics.get_or_init(|| (0..METRICS_MAX).map(|_| OnceLock::new()).collect());
        // Only whoever has the lock sets one, and there is room by the check above.
        metrics[names.count].get_or_init(|| Metric { name: name.into(), cell: Cell::new(kind) });
        names.count += 1;
        let id = u32::try_from(names.count).unwrap_or(u32::MAX);
        names.known.entry(name.into()).or_default()[kind as usize] = Some(id);
        Ok(id)
    }

    /// Sets a counter or gauge, adds a value to a histogram.
    pub(crate) fn record(&self, id: u32, value: u64) -> Result<(), MetricError> {
        match &self.metric(id)?.cell {
            Cell::Counter(cell) | Cell::Gauge(cell) => cell.store(value, Relaxed),
            Cell::Histogram(histogram) => histogram.record(value),
        }
        Ok(())
    }

    /// Changes a counter or gauge.
    pub(crate) fn add(&self, id: u32, delta: i64) -> Result<(), MetricError> {
        match &self.metric(id)?.cell {
            Cell::Counter(cell) if delta >= 0 => {
                cell.fetch_add(delta.cast_unsigned(), Relaxed);
                Ok(())
            }
            Cell::Gauge(cell) => {
                // Two's complement: adding wraps to what subtracting gives.
                cell.fetch_add(delta.cast_unsigned(), Relaxed);
                Ok(())
            }
            Cell::Counter(_) | Cell::Histogram(_) => Err(MetricError::Unfit),
        }
    }

    /// A counter's or gauge's value.
    pub(crate) fn value(&self, id: u32) -> Result<u64, MetricError> {
        match &self.metric(id)?.cell {
            Cell::Counter(cell) | Cell::Gauge(cell) => Ok(cell.load(Relaxed)),
            Cell::Histogram(_) => Err(MetricError::Unfit),
        }
    }

    fn metric(&self, id: u32) -> Result<&Metric, MetricError> {
        let index = (id as usize).checked_sub(1).ok_or(MetricError::Unknown)?;
        let metrics = self.metrics.get().ok_or(MetricError::Unknown)?;
        metrics.get(index).and_then(OnceLock::get).ok_or(MetricError::Unknown)
    }
}

impl Cell {
    fn new(kind: MetricKind) -> Cell {
        match kind {
            MetricKind::Counter => Cell::Counter(AtomicU64::new(0)),
            MetricKind::Gauge => Cell::Gauge(AtomicU64::new(0)),
            MetricKind::Histogram => Cell::Histogram(Box::default()),
        }
    }

    fn read(&self) -> MetricReading {
        match self {
            Cell::Counter(cell) => MetricReading::Counter(cell.load(Relaxed)),
            Cell::Gauge(cell) => MetricReading::Gauge(cell.load(Relaxed).cast_signed()),
            Cell::Histogram(histogram) => histogram.read(),
        }
    }
}

impl Histogram {
    fn record(&self, value: u64) {
        // The last bound is above or at every value.
        let bucket = BOUNDS.partition_point(|&bound| bound < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    fn read(&self) -> MetricReading {
        let mut count = 0;
        let buckets = BOUNDS.iter().zip(&self.buckets).map(|(&bound, bucket)| {
            count += bucket.load(Relaxed);
            (bound, count)
        });
        let buckets = buckets.collect();
        MetricReading::Histogram { buckets, sum: self.sum.load(Relaxed), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_metric_of_one_kind() {
        let metrics = PluginMetrics::default();
        assert_eq!(metrics.record(1, 1), Err(MetricError::Unknown));
        let counter = metrics.define(MetricKind::Counter, "c").unwrap();
        assert_eq!(metrics.define(MetricKind::Counter, "c"), Ok(counter));
        let gauge = metrics.define(MetricKind::Gauge, "c").unwrap();
        assert_ne!(gauge, counter);
        metrics.record(gauge, 7).unwrap();
        assert_eq!(metrics.value(counter), Ok(0));
        for unknown in [0, 3, u32::MAX] {
            assert_eq!(metrics.value(unknown), Err(MetricError::Unknown), "{unknown}");
        }
    }

    #[test]
    fn kinds_do_what_they_are_for() {
        let metrics = PluginMetrics::default();
        let counter = metrics.define(MetricKind::Counter, "c").unwrap();
        let gauge = metrics.define(MetricKind::Gauge, "g").unwrap();
        let histogram = metrics.define(MetricKind::Histogram, "h").unwrap();
        metrics.add(counter, 5).unwrap();
        assert_eq!(metrics.add(counter, -1), Err(MetricError::Unfit));
        metrics.record(gauge, 3).unwrap();
        metrics.add(gauge, -5).unwrap();
        assert_eq!(metrics.value(gauge), Ok((-2_i64).cast_unsigned()));
        for value in [0, 1, 2, 5_000_000] {
            metrics.record(histogram, value).unwrap();
        }
        assert_eq!(metrics.add(histogram, 1), Err(MetricError::Unfit));
        assert_eq!(metrics.value(histogram), Err(MetricError::Unfit));
        let mut seen = Vec::new();
        metrics.each(|name, reading| seen.push((name.to_owned(), reading)));
        assert_eq!(seen[0], ("c".to_owned(), MetricReading::Counter(5)));
        assert_eq!(seen[1], ("g".to_owned(), MetricReading::Gauge(-2)));
        let MetricReading::Histogram { buckets, sum, count } = &seen[2].1 else { panic!() };
        assert_eq!((*sum, *count), (5_000_003, 4));
        assert_eq!(buckets[..2], [(1, 2), (5, 3)]);
        assert_eq!(buckets[17..], [(3_600_000, 3), (u64::MAX, 4)]);
    }

    #[test]
    fn there_are_no_more_than_the_limit() {
        let metrics = PluginMetrics::default();
        for n in 0..METRICS_MAX {
            metrics.define(MetricKind::Counter, &n.to_string()).unwrap();
        }
        let more = metrics.define(MetricKind::Counter, "more");
        assert!(matches!(more, Err(MetricError::Beyond { .. })));
        let long = metrics.define(MetricKind::Counter, &"n".repeat(METRIC_NAME_BYTES_MAX + 1));
        assert!(matches!(long, Err(MetricError::Beyond { .. })));
    }
}
