//! The parts of the cache that plugins have made of a route's: under keys of their own, or of what
//! they have changed. Remembered, so that a purge finds them; those not used for longest make room,
//! and what is stored in them goes with them.
//!
//! Why nothing is stored that a purge would not find: a part that leaves is marked, then what is
//! stored in it is purged, which forbids the fills on their way to store; then it is forgotten,
//! unless it was used since it was marked. A fill says that its part is in use when it has begun.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;
use weir_cache::{Cache, PurgeMode};

/// Parts that plugins may make of a route's cache.
const VARIANTS_MAX: usize = 4096;

/// Parts that leave together. Finding what is stored in them walks the cache's whole index, so it
/// is done for many at once, and in time: while it is done this many more can come.
const LEAVING_AT_ONCE: usize = VARIANTS_MAX / 8;

/// The last use of a part that is to leave.
const LEAVES: u64 = 0;

/// The parts of a route's cache.
#[derive(Default)]
pub(crate) struct Variants {
    /// When each was last used, in milliseconds since the Unix epoch, or [`LEAVES`].
    known: RwLock<HashMap<u64, AtomicU64>>,
    makes_room: AtomicBool,
}

/// Parts that leave.
#[must_use = "what is stored in them must go first"]
pub(crate) struct Leaving {
    variants: Arc<Variants>,
    parts: Vec<u64>,
}

impl Variants {
    /// Whether there is such a part, or room for it. The second value, if any, is to be purged away
    /// from the worker.
    pub(crate) fn admit(self: &Arc<Self>, variant: u64, now_ms: u64) -> (bool, Option<Leaving>) {
        if self.touch(variant, now_ms) {
            return (true, None);
        }
        let mut known = self.known.write();
        let is_crowded = known.len() >= VARIANTS_MAX - LEAVING_AT_ONCE;
        let leaving = (is_crowded && !self.makes_room.swap(true, Relaxed))
            .then(|| Leaving { variants: Arc::clone(self), parts: mark_oldest(&known) });
        let is_admitted = known.len() < VARIANTS_MAX;
        if is_admitted {
            known.insert(variant, AtomicU64::new(now_ms));
        }
        (is_admitted, leaving)
    }

    /// A part is used, if there is such a part.
    pub(crate) fn touch(&self, variant: u64, now_ms: u64) -> bool {
        if variant == 0 {
            // The ordinary part, which is always there.
            return true;
        }
        let known = self.known.read();
        let Some(last) = known.get(&variant) else { return false };
        // Hits of many workers only read, most of the time.
        if last.load(Relaxed) != now_ms {
            last.store(now_ms, Relaxed);
        }
        true
    }

    /// A part that was admitted is used by a fill, which has begun.
    pub(crate) fn hold(&self, variant: u64, now_ms: u64) {
        if !self.touch(variant, now_ms) {
            // It has left in between. As many as requests are in flight may come back so.
            self.known.write().insert(variant, AtomicU64::new(now_ms));
        }
    }

    /// All of them, and the part that no plugin has made.
    pub(crate) fn all(&self) -> Vec<u64> {
        std::iter::once(0).chain(self.known.read().keys().copied()).collect()
    }
}

/// Marks the parts that were not used for longest.
fn mark_oldest(known: &HashMap<u64, AtomicU64>) -> Vec<u64> {
    let mut all: Vec<(u64, u64)> =
        known.iter().map(|(variant, last)| (last.load(Relaxed), *variant)).collect();
    if all.len() > LEAVING_AT_ONCE {
        all.select_nth_unstable(LEAVING_AT_ONCE);
        all.truncate(LEAVING_AT_ONCE);
    }
    let parts: Vec<u64> = all.into_iter().map(|(_, variant)| variant).collect();
    for part in &parts {
        known[part].store(LEAVES, Relaxed);
    }
    parts
}

impl Leaving {
    /// Purges what is stored in the parts, each of which lies in one scope for each of `scopes`.
    pub(crate) fn purge(self, cache: &Cache, scopes: &[u64]) {
        let parts = self.parts.iter();
        let scopes: HashSet<u64> =
            parts.flat_map(|part| scopes.iter().map(move |scope| scope ^ part)).collect();
        cache.purge_scopes(&scopes, PurgeMode::Remove);
    }
}

impl Drop for Leaving {
    /// They are forgotten, but for those that are in use again.
    fn drop(&mut self) {
        let mut known = self.variants.known.write();
        for part in &self.parts {
            if known.get(part).is_some_and(|last| last.load(Relaxed) == LEAVES) {
                known.remove(part);
            }
        }
        self.variants.makes_room.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_not_used_for_longest_make_room() {
        let variants = Arc::new(Variants::default());
        let (mut now_ms, mut left) = (1, 0);
        for variant in 1..=3 * VARIANTS_MAX as u64 {
            now_ms += 1;
            // This one is always in use.
            assert!(variants.touch(1, now_ms) || variant == 1);
            let (is_admitted, leaving) = variants.admit(variant, now_ms);
            assert!(is_admitted, "{variant}");
            if let Some(leaving) = leaving {
                left += leaving.parts.len();
                assert!(!leaving.parts.contains(&1) && !leaving.parts.contains(&variant));
                let (oldest, newest) = (leaving.parts.iter().min(), leaving.parts.iter().max());
                assert_eq!(newest.unwrap() - oldest.unwrap() + 1, LEAVING_AT_ONCE as u64);
            }
            assert!(variants.known.read().len() <= VARIANTS_MAX);
        }
        assert_eq!(variants.all().len() - 1 + left, 3 * VARIANTS_MAX);
    }

    #[test]
    fn what_is_used_while_it_leaves_stays() {
        let variants = Arc::new(Variants::default());
        let mut leaving = None;
        for variant in 1..=VARIANTS_MAX as u64 {
            let (is_admitted, more) = variants.admit(variant, variant);
            assert!(is_admitted);
            leaving = leaving.or(more);
        }
        // Room is being made already.
        assert!(matches!(variants.admit(u64::MAX, 9999), (false, None)));
        assert!(matches!(variants.admit(7, 9999), (true, None)));
        variants.hold(8, 9999);
        assert!(variants.all().contains(&9), "found by purges until it has left");
        drop(leaving);
        let all = variants.all();
        assert!(all.contains(&7) && all.contains(&8) && !all.contains(&9));
        assert!(matches!(variants.admit(u64::MAX, 9999), (true, Some(_))));
        variants.hold(9, 9999);
        assert!(variants.all().contains(&9));
    }
}
