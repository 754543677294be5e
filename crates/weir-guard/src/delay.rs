//! Overload of the server itself, recognised by queueing delay: how long an event was ready before
//! a worker came to it. The shape is that of CoDel (RFC 8289); what follows from it is for others.

/// Tells a burst, which a queue is there for, from a queue that stands: the *least* delay of an
/// interval is compared with a target (RFC 8289 §3.1 and §4.2). Even one event that found the
/// worker idle shows that there is no standing queue.
///
/// Overload begins when the least delay of a whole interval is over the target, and ends when that
/// of one is under half of it: between the two nothing changes, so that a delay at the target does
/// not make the answer flap. An interval without any event had no queue. Begin and end are thus
/// seen at most two intervals after the fact.
#[derive(Clone, Debug)]
pub struct DelayMeter {
    target_ns: u64,
    interval_ns: u64,
    /// Start of the current interval, which is `interval_ns` long.
    began_ns: u64,
    least_ns: Option<u64>,
    is_overloaded: bool,
}

impl DelayMeter {
    /// RFC 8289 §4.3 and §4.2 recommend 5 ms and 100 ms. An interval of 0 counts as 1 ns.
    pub fn new(now_ns: u64, target_ns: u64, interval_ns: u64) -> DelayMeter {
        let interval_ns = interval_ns.max(1);
        DelayMeter {
            target_ns,
            interval_ns,
            began_ns: now_ns,
            least_ns: None,
            is_overloaded: false,
        }
    }

    /// An event was handled that had been ready for so long.
    pub fn record(&mut self, now_ns: u64, delay_ns: u64) {
        self.advance(now_ns);
        self.least_ns = Some(self.least_ns.map_or(delay_ns, |least_ns| least_ns.min(delay_ns)));
    }

    /// Whether a queue stands.
    pub fn is_overloaded(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        self.is_overloaded
    }

    fn advance(&mut self, now_ns: u64) {
        // A clock that goes back begins the interval anew, so that it ends at all.
        self.began_ns = self.began_ns.min(now_ns);
        let passed = (now_ns - self.began_ns) / self.interval_ns;
        if passed == 0 {
            return;
        }
        let least_ns = self.least_ns.take().filter(|_| passed == 1).unwrap_or(0);
        if least_ns > self.target_ns {
            self.is_overloaded = true;
        } else if least_ns <= self.target_ns / 2 {
            self.is_overloaded = false;
        }
        self.began_ns += passed * self.interval_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Feeds one delay each millisecond and returns when the answer changed, in milliseconds.
    fn changes(delay_ms_at: impl Fn(u64) -> Option<u64>, until_ms: u64) -> Vec<(u64, bool)> {
        let mut meter = DelayMeter::new(0, 5 * MS, 100 * MS);
        let mut seen = vec![(0, false)];
        for at_ms in 0..until_ms {
            if let Some(delay_ms) = delay_ms_at(at_ms) {
                meter.record(at_ms * MS, delay_ms * MS);
            }
            let is_overloaded = meter.is_overloaded(at_ms * MS);
            if seen.last().is_some_and(|(_, before)| *before != is_overloaded) {
                seen.push((at_ms, is_overloaded));
            }
        }
        seen.split_off(1)
    }

    #[test]
    fn a_standing_delay_is_overload_and_its_end_is_seen_in_two_intervals() {
        let stands = |at_ms| Some(if (250..1230).contains(&at_ms) { 20 } else { 1 });
        assert_eq!(changes(stands, 3000), [(400, true), (1300, false)]);
    }

    #[test]
    fn bursts_are_not_overload() {
        let bursts = |at_ms| Some(if at_ms % 100 == 50 { 0 } else { 500 });
        assert_eq!(changes(bursts, 3000), []);
    }

    #[test]
    fn a_delay_about_the_target_does_not_flap() {
        let about = |at_ms: u64| Some(if (at_ms / 100).is_multiple_of(2) { 6 } else { 4 });
        assert_eq!(changes(about, 5000), [(100, true)]);
    }

    #[test]
    fn silence_is_no_delay() {
        let falls_silent = |at_ms| (at_ms < 500).then_some(50);
        assert_eq!(changes(falls_silent, 1000), [(100, true), (600, false)]);
    }

    #[test]
    fn jumps_of_the_clock_leave_a_meter_that_works() {
        let mut meter = DelayMeter::new(1000 * MS, 5 * MS, 100 * MS);
        for at_ms in [u64::MAX / MS, 0, 50, 99] {
            meter.record(at_ms * MS, 50 * MS);
        }
        assert!(meter.is_overloaded(100 * MS));
        assert!(!meter.is_overloaded(u64::MAX));
        assert!(!meter.is_overloaded(0));
    }
}
