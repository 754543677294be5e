//! What clients wait for besides their sockets: the end of their patience, or of a pause.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Something that is due for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at: Instant,
    pub(super) client: usize,
    /// The client's request at the time; it is void once there is another.
    pub(super) serial: u64,
}

/// Timers by time. There is one for each request, so that as many stand here as are begun within
/// the patience of a client.
#[derive(Default)]
pub(super) struct Timers(BinaryHeap<Reverse<Timer>>);

impl Timers {
    pub(super) fn add(&mut self, timer: Timer) {
        self.0.push(Reverse(timer));
    }

    /// When the first of them is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse(timer)| timer.at)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse(timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timers_come_in_order_and_not_early() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        for ms in [30, 10, 20] {
            timers.add(Timer { at: at(ms), client: ms as usize, serial: 0 });
        }
        assert_eq!(timers.next(), Some(at(10)));
        assert!(timers.take_due(at(9)).is_none());
        let due: Vec<_> = std::iter::from_fn(|| timers.take_due(at(20))).collect();
        assert_eq!(due.iter().map(|timer| timer.client).collect::<Vec<_>>(), [10, 20]);
    }
}
