//! Which page ranges of an arena are free: best fit by size, coalescing by position. Pure
//! bookkeeping without memory, so that it can be tested against a model.

use std::collections::{BTreeMap, BTreeSet};

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

/// The free ranges of a span of pages.
pub(crate) struct FreePages {
    /// Start → count. No two ranges touch: neighbours are merged when a range is given back.
    by_start: BTreeMap<u64, u64>,
    /// (count, start) of the same ranges, for best fit.
    by_count: BTreeSet<(u64, u64)>,
}

impl FreePages {
    pub(crate) fn new(count: u64) -> FreePages {
        let mut free = FreePages { by_start: BTreeMap::new(), by_count: BTreeSet::new() };
        if count > 0 {
            free.insert(PageRange { start: 0, count });
        }
        free
    }

    /// Takes `count` pages from the smallest range that holds them.
    pub(crate) fn take(&mut self, count: u64) -> Option<PageRange> {
        let &(size, start) = self.by_count.range((count, 0)..).next()?;
        self.remove(PageRange { start, count: size });
        if size > count {
            self.insert(PageRange { start: start + count, count: size - count });
        }
        Some(PageRange { start, count })
    }

    /// Gives a range back and merges it with free neighbours.
    pub(crate) fn give_back(&mut self, range: PageRange) {
        if range.count == 0 {
            return;
        }
        let mut merged = range;
        if let Some((&start, &count)) = self.by_start.range(..range.start).next_back() {
            debug_assert!(start + count <= range.start, "range given back twice");
            if start + count == range.start {
                self.remove(PageRange { start, count });
                merged = PageRange { start, count: count + merged.count };
            }
        }
        let end = range.start + range.count;
        if let Some(&count) = self.by_start.get(&end) {
            self.remove(PageRange { start: end, count });
            merged.count += count;
        }
        self.insert(merged);
    }

    fn insert(&mut self, range: PageRange) {
        self.by_start.insert(range.start, range.count);
        self.by_count.insert((range.count, range.start));
    }

    fn remove(&mut self, range: PageRange) {
        self.by_start.remove(&range.start);
        self.by_count.remove(&(range.count, range.start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_merge_back_into_one_range() {
        let mut free = FreePages::new(10);
        let a = free.take(3).unwrap();
        let b = free.take(3).unwrap();
        let c = free.take(4).unwrap();
        assert_eq!(free.take(1), None);
        free.give_back(a);
        free.give_back(c);
        assert_eq!(free.take(5), None, "3 and 4 free pages do not touch");
        free.give_back(b);
        assert_eq!(free.take(10), Some(PageRange { start: 0, count: 10 }));
    }

    #[test]
    fn best_fit_leaves_the_large_range_whole() {
        let mut free = FreePages::new(100);
        let small = free.take(4).unwrap();
        let _wall = free.take(1).unwrap();
        free.give_back(small);
        assert_eq!(free.take(4), Some(small));
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_nothing_is_lost(
            steps in proptest::collection::vec((any::<bool>(), 1u64..40), 1..200)
        ) {
            const SPAN: u64 = 256;
            let mut free = FreePages::new(SPAN);
            let mut held: Vec<PageRange> = Vec::new();
            for (take, n) in steps {
                if take || held.is_empty() {
                    if let Some(range) = free.take(n) {
                        prop_assert_eq!(range.count, n);
                        prop_assert!(range.start + n <= SPAN);
                        for other in &held {
                            prop_assert!(range.start >= other.start + other.count
                                || other.start >= range.start + range.count);
                        }
                        held.push(range);
                    }
                } else {
                    free.give_back(held.swap_remove(n as usize % held.len()));
                }
            }
            for range in held {
                free.give_back(range);
            }
            prop_assert_eq!(free.take(SPAN), Some(PageRange { start: 0, count: SPAN }));
        }
    }
}
