//! When a connection that hyper serves goes back to the fast lane: after some requests in a row
//! that the lane might have taken, for setting hyper up again is paid for by then. How many it
//! takes doubles each time it was in vain, so that a client whose requests only look simple costs
//! little.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What it takes at first.
const WANTED: u8 = 2;

/// One connection's requests, as far as the choice needs them.
#[derive(Debug)]
pub(crate) struct LaneChoice {
    /// Requests in a row that the fast lane might have taken.
    simple: AtomicU8,
    /// How many of them it takes to go back.
    wanted: AtomicU8,
}

impl LaneChoice {
    pub(crate) fn new() -> LaneChoice {
        LaneChoice { simple: AtomicU8::new(0), wanted: AtomicU8::new(WANTED) }
    }

    /// A request came by hyper; the fast lane might have taken it if `simple`.
    pub(crate) fn note(&self, simple: bool) {
        let count = if simple { self.simple.load(Relaxed).saturating_add(1) } else { 0 };
        self.simple.store(count, Relaxed);
    }

    /// Whether it is time to go back.
    pub(crate) fn is_due(&self) -> bool {
        self.simple.load(Relaxed) >= self.wanted.load(Relaxed)
    }

    /// The connection left the fast lane, which was of use meanwhile if it `has_answered`.
    pub(crate) fn left(&self, has_answered: bool) {
        let wanted =
            if has_answered { WANTED } else { self.wanted.load(Relaxed).saturating_mul(2) };
        self.wanted.store(wanted, Relaxed);
        self.simple.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simple requests until it is time.
    fn until_due(choice: &LaneChoice) -> usize {
        (1..)
            .find(|_| {
                choice.note(true);
                choice.is_due()
            })
            .unwrap()
    }

    #[test]
    fn it_takes_twice_as_many_each_time_in_vain() {
        let choice = LaneChoice::new();
        assert_eq!(until_due(&choice), 2);
        choice.left(false);
        assert_eq!(until_due(&choice), 4);
        choice.left(false);
        assert_eq!(until_due(&choice), 8);
        choice.left(true);
        assert_eq!(until_due(&choice), 2);
        for _ in 0..20 {
            choice.left(false);
        }
        assert_eq!(until_due(&choice), 255, "and never comes to an end");
    }

    #[test]
    fn they_must_come_in_a_row() {
        let choice = LaneChoice::new();
        for _ in 0..10 {
            choice.note(true);
            choice.note(false);
            assert!(!choice.is_due());
        }
    }
}
