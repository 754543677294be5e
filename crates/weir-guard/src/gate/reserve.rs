//! Places beyond the limit for the class that goes first, so that it does not have to wait for
//! somebody else's request to end.

use crate::class::Heir;
use crate::queue::CLASSES_MAX;

/// A class of which nobody came for so long is not there.
const RECENT_NS: u64 = 1_000_000_000;

/// When classes were last asked for.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    came_ns: [Option<u64>; CLASSES_MAX],
}

impl Reserve {
    /// Somebody of a class comes.
    pub(super) fn came(&mut self, now_ns: u64, class: usize) {
        self.came_ns[class.min(CLASSES_MAX - 1)] = Some(now_ns);
    }

    /// Other classes.
    pub(super) fn reclass(&mut self, heirs: &[Heir]) {
        let before = std::mem::take(self);
        for (came_ns, heir) in before.came_ns.iter().zip(heirs) {
            let last_ns = &mut self.came_ns[heir.rank().min(CLASSES_MAX - 1)];
            *last_ns = (*last_ns).max(*came_ns);
        }
    }

    /// Whether a class is the highest of several that are there.
    pub(super) fn is_for(&self, now_ns: u64, class: usize) -> bool {
        let is_there = |came_ns: &Option<u64>| {
            came_ns.is_some_and(|came_ns| now_ns.saturating_sub(came_ns) < RECENT_NS)
        };
        let class = class.min(CLASSES_MAX - 1);
        let (above, below) = (&self.came_ns[..class], &self.came_ns[class + 1..]);
        !above.iter().any(is_there) && below.iter().any(is_there)
    }
}
