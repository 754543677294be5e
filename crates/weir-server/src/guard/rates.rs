//! How many requests of each class come in a second, as a mean over the last ones.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use weir_guard::{CLASSES_MAX, ClassId};

use super::counters::{ClassCounters, Offer};

/// How often counters are to be noted.
pub(crate) const NOTE_PERIOD: Duration = Duration::from_secs(1);

/// Notes that are kept: the mean is over so many seconds.
const NOTES_MAX: usize = 10;

/// Less than this is no measurement.
const SPAN_NS_MIN: u64 = 100_000_000;

/// Counts by class and by what became of the requests.
type Counts = [[u64; Offer::ALL.len()]; CLASSES_MAX];

/// Requests a second, likewise.
pub(crate) type PerSecond = [[f64; Offer::ALL.len()]; CLASSES_MAX];

/// What the counters were, and when.
#[derive(Default)]
pub(crate) struct Rates(Mutex<VecDeque<(u64, Counts)>>);

impl Rates {
    /// Notes what the counters are.
    pub(crate) fn note(&self, now_ns: u64, counters: &ClassCounters) {
        let mut notes = self.0.lock();
        notes.truncate(NOTES_MAX - 1);
        notes.push_front((now_ns, counts(counters)));
    }

    /// Classes are others from now on.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    /// The mean since the oldest note; zeros before there is one that is old enough.
    pub(crate) fn per_second(&self, now_ns: u64, counters: &ClassCounters) -> PerSecond {
        let oldest = self.0.lock().back().copied();
        let mut rates = PerSecond::default();
        let Some((at_ns, before)) = oldest else { return rates };
        let span_ns = now_ns.saturating_sub(at_ns);
        if span_ns < SPAN_NS_MIN {
            return rates;
        }
        let now = counts(counters);
        for (class, rates) in rates.iter_mut().enumerate() {
            for (offer, rate) in rates.iter_mut().enumerate() {
                let grown = now[class][offer].wrapping_sub(before[class][offer]);
                *rate = grown as f64 * 1e9 / span_ns as f64;
            }
        }
        rates
    }
}

fn counts(counters: &ClassCounters) -> Counts {
    // There are at most eight classes.
    std::array::from_fn(|class| Offer::ALL.map(|it| counters.counted(ClassId(class as u8), it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_seconds() {
        let (rates, counters) = (Rates::default(), ClassCounters::new(1));
        let of = |at_s: u64| {
            let per_second = rates.per_second(at_s * 1_000_000_000, &counters);
            (per_second[1][Offer::Admitted as usize], per_second[0][Offer::Shed as usize])
        };
        assert_eq!(of(5), (0.0, 0.0), "nothing is noted yet");
        for second in 0..30 {
            rates.note(second * 1_000_000_000, &counters);
            assert!(second == 0 || of(second) != (0.0, 0.0));
            // Three a second at first, then five.
            for _ in 0..if second < 15 { 3 } else { 5 } {
                counters.count(0, ClassId(1), Offer::Admitted);
            }
            counters.count(0, ClassId(0), Offer::Shed);
        }
        assert_eq!(of(30), (5.0, 1.0));
        // Seconds in which nothing was noted count as well.
        assert_eq!(of(40), (2.5, 0.5));
    }
}
