//! Free places that are kept for a moment, for clients of the highest class who come back at once.
//!
//! Who asks for one thing after the other has his next request there right after an answer. If the
//! place that his last one left is given away by then, he waits for the whole of somebody else's.
//! Disk schedulers wait a moment for the next request of a process likewise (S. Iyer, P. Druschel:
//! Anticipatory scheduling: a disk scheduling framework to overcome deceptive idleness, SOSP 2001).

use std::collections::VecDeque;

/// How long somebody is waited for, as a part of how long the upstream usually takes, and at most:
/// the place stands idle meanwhile.
const SHARE_OF_LATENCY: u64 = 16;
const NS_MAX: u64 = 5_000_000;
/// Who comes back is remembered of so many at a time.
const EXPECTED_MAX: usize = 1024;

/// How many of those who were expected came, in parts of this: an exponentially weighted mean over
/// about sixteen.
const WHOLE: u32 = 1 << 16;
/// So many must come, or the idle places cost more than they give.
const ENOUGH: u32 = WHOLE / 8 * 7;

/// Who is expected back. Knows of one class, the highest that there is.
#[derive(Debug, Default)]
pub(super) struct Anticipation {
    class: usize,
    /// Who comes first in front.
    expected: VecDeque<Expected>,
    kept: u32,
    came: u32,
}

#[derive(Debug)]
struct Expected {
    until_ns: u64,
    is_kept: bool,
}

impl Anticipation {
    /// A request of the highest class has been answered, and nobody of it waits. `usual_ns` is how
    /// long the upstream takes for an answer.
    pub(super) fn answered(&mut self, now_ns: u64, class: usize, usual_ns: u64) {
        if class != self.class {
            *self = Anticipation { class, ..Anticipation::default() };
        }
        if self.expected.len() >= EXPECTED_MAX {
            self.pop(false);
        }
        let is_kept = self.came >= ENOUGH;
        self.kept += u32::from(is_kept);
        let until_ns = now_ns.saturating_add((usual_ns / SHARE_OF_LATENCY).min(NS_MAX));
        self.expected.push_back(Expected { until_ns, is_kept });
    }

    /// Somebody of a class comes.
    pub(super) fn came(&mut self, now_ns: u64, class: usize) {
        self.give_up(now_ns);
        if class == self.class {
            self.pop(true);
        }
    }

    /// Expects those no longer who have not come in time.
    pub(super) fn give_up(&mut self, now_ns: u64) {
        while self.expected.front().is_some_and(|next| next.until_ns <= now_ns) {
            self.pop(false);
        }
    }

    /// Places that are kept from a class.
    pub(super) fn kept_from(&self, class: usize) -> u32 {
        if class > self.class { self.kept } else { 0 }
    }

    /// All that are kept.
    pub(super) fn kept(&self) -> u32 {
        self.kept
    }

    /// When the next one is kept no longer.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.expected.iter().find(|next| next.is_kept).map(|next| next.until_ns)
    }

    fn pop(&mut self, came: bool) {
        let Some(first) = self.expected.pop_front() else { return };
        self.kept -= u32::from(first.is_kept);
        self.came -= self.came / 16;
        self.came += if came { WHOLE / 16 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// `count` answers, 10 ms apart, after each of which somebody comes, or not. When that is over.
    fn answers(anticipation: &mut Anticipation, from_ns: u64, count: u64, come: bool) -> u64 {
        let end_ns = from_ns + count * 10 * MS;
        for now_ns in (from_ns..end_ns).step_by(10 * MS as usize) {
            anticipation.give_up(now_ns);
            anticipation.answered(now_ns, 0, 32 * MS);
            if come {
                anticipation.came(now_ns + MS, 0);
            }
        }
        anticipation.give_up(end_ns);
        end_ns
    }

    #[test]
    fn places_are_kept_for_those_who_come_back() {
        let mut anticipation = Anticipation::default();
        let now_ns = answers(&mut anticipation, 0, 64, true);
        anticipation.answered(now_ns, 0, 32 * MS);
        assert_eq!((anticipation.kept_from(0), anticipation.kept_from(1)), (0, 1));
        assert_eq!(anticipation.next_ns(), Some(now_ns + 2 * MS));
        anticipation.came(now_ns + MS, 1);
        assert_eq!(anticipation.kept(), 1);
        anticipation.came(now_ns + MS, 0);
        assert_eq!((anticipation.kept(), anticipation.next_ns()), (0, None));
    }

    #[test]
    fn no_place_is_kept_longer_than_it_pays() {
        let mut anticipation = Anticipation::default();
        let now_ns = answers(&mut anticipation, 0, 64, true);
        anticipation.answered(now_ns, 0, 1000 * MS);
        assert_eq!(anticipation.next_ns(), Some(now_ns + 5 * MS));
        anticipation.give_up(now_ns + 5 * MS);
        assert_eq!(anticipation.kept(), 0);
    }

    #[test]
    fn none_is_kept_for_those_who_do_not() {
        let mut anticipation = Anticipation::default();
        let now_ns = answers(&mut anticipation, 0, 64, true);
        let now_ns = answers(&mut anticipation, now_ns, 3, false);
        anticipation.answered(now_ns, 0, 32 * MS);
        assert_eq!(anticipation.kept(), 0);
        let mut new = Anticipation::default();
        new.answered(0, 0, 32 * MS);
        assert_eq!(new.kept(), 0);
    }
}
