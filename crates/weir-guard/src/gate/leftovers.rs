//! Places of clients that went away while the upstream works on for them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long such a place is kept at most, however slow the upstream is.
const KEPT_NS_MAX: u64 = 10_000_000_000;

/// When the upstream will be done with what nobody waits for any more.
///
/// An upstream seldom hears that a client has gone, and then it is seldom able to stop. If his
/// place were free at once, impatient clients could have any number of requests worked on at a
/// time, whatever the limit is.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    until_ns: BinaryHeap<Reverse<u64>>,
}

impl Leftovers {
    /// Another one. `usual_ns` is how long the upstream usually takes; as nothing is known of how
    /// far it has come, as long is still to go.
    pub(super) fn add(&mut self, now_ns: u64, usual_ns: u64) {
        self.until_ns.push(Reverse(now_ns.saturating_add(usual_ns.min(KEPT_NS_MAX))));
    }

    /// How many are over by now, and forgotten with that.
    pub(super) fn take_over(&mut self, now_ns: u64) -> u32 {
        let mut over = 0;
        while self.until_ns.peek().is_some_and(|Reverse(until_ns)| *until_ns <= now_ns) {
            self.until_ns.pop();
            over += 1;
        }
        over
    }

    /// When the next one is over.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.until_ns.peek().map(|Reverse(until_ns)| *until_ns)
    }

    pub(super) fn len(&self) -> usize {
        self.until_ns.len()
    }
}
