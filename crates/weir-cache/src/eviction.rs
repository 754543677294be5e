//! What to evict first: the policies, apart from what they evict. A hit only stores two relaxed
//! atomics; the search for a victim corrects priorities that have risen since. The cache drives it
//! with objects, the lab with bare [`Usage`]s.
//!
//! A policy is a priority that never falls while an item is used. One that is not of this form
//! (S3-FIFO's three queues) would be a second kind of [`Queue`] behind the same four methods.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::limits::{PROMOTIONS_PER_VICTIM_MAX, VICTIM_SCAN_MAX};

/// Eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Greedy-Dual-Size-Frequency: priority = L + frequency × cost / size, where L rises to the
    /// priority of each victim (L. Cherkasova, "Improving WWW Proxies Performance with
    /// Greedy-Dual-Size-Frequency Caching Policy", HP Labs 1998).
    #[default]
    Gdsf,
    /// Least recently used: priority = tick of the last use.
    Lru,
}

/// An item's use, kept inside the item. Counters are relaxed and may lose an update when two
/// threads hit at once: they steer eviction, nothing else.
#[derive(Debug)]
pub struct Usage {
    size: u64,
    cost: u32,
    frequency: AtomicU32,
    /// L (Gdsf) or the tick (Lru) at the last use.
    touched: AtomicU64,
    /// Priority under which the queue holds the item. Written under the queue's lock only.
    filed: AtomicU64,
    /// Place among equals, oldest first, or one of the two marks below.
    ticket: AtomicU64,
}

const TICKET_NEW: u64 = 0;
const TICKET_GONE: u64 = u64::MAX;

impl Usage {
    /// An item of `size` bytes (counted as 1 at least) whose loss costs `cost`: 1 for every item
    /// maximises the hit ratio, a cost that grows with the size the byte hit ratio.
    pub fn new(size: u64, cost: u32) -> Usage {
        Usage {
            size: size.max(1),
            cost: cost.max(1),
            frequency: AtomicU32::new(1),
            touched: AtomicU64::new(0),
            filed: AtomicU64::new(0),
            ticket: AtomicU64::new(TICKET_NEW),
        }
    }

    /// Bytes the item is charged.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Uses so far, the first included.
    pub fn frequency(&self) -> u32 {
        self.frequency.load(Relaxed)
    }

    /// Adds the uses of an item that this one replaces.
    pub(crate) fn inherit(&self, old: &Usage) {
        let frequency = self.frequency().saturating_add(old.frequency());
        self.frequency.store(frequency, Relaxed);
    }
}

/// The part of a policy that hits need: shared by all threads, without a lock.
#[derive(Debug)]
pub struct Ranking {
    policy: Policy,
    /// L, as the bits of a non-negative `f64`; such bits are ordered as their values are. L grows
    /// by the worth of some item with each turnover of the cache, so that even after 10^9 of them
    /// an object of 32 MiB (3 · 10^-8) is above the resolution of an `f64`.
    inflation: AtomicU64,
}

impl Ranking {
    /// A ranking in which nothing was evicted yet.
    pub fn new(policy: Policy) -> Ranking {
        Ranking { policy, inflation: AtomicU64::new(0f64.to_bits()) }
    }

    /// Notes a use. `tick` is any clock that does not run backwards: milliseconds, or the number of
    /// the request in a trace.
    #[inline]
    pub fn touch(&self, usage: &Usage, tick: u64) {
        // Load and store instead of an atomic add: no locked instruction on the hit path.
        let frequency = usage.frequency.load(Relaxed).saturating_add(1);
        usage.frequency.store(frequency, Relaxed);
        self.stamp(usage, tick);
    }

    fn stamp(&self, usage: &Usage, tick: u64) {
        let touched = match self.policy {
            Policy::Gdsf => self.inflation.load(Relaxed),
            Policy::Lru => tick,
        };
        usage.touched.store(touched, Relaxed);
    }

    /// The item's priority now; ordered as `u64`.
    fn priority(&self, usage: &Usage) -> u64 {
        let touched = usage.touched.load(Relaxed);
        match self.policy {
            Policy::Lru => touched,
            Policy::Gdsf => {
                let worth =
                    f64::from(usage.frequency()) * f64::from(usage.cost) / usage.size as f64;
                (f64::from_bits(touched) + worth).to_bits()
            }
        }
    }
}

/// The items in the order in which they would go. Used under a lock.
#[derive(Debug)]
pub struct Queue<T> {
    items: BTreeMap<(u64, u64), T>,
    last_ticket: u64,
    bytes: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue { items: BTreeMap::new(), last_ticket: TICKET_NEW, bytes: 0 }
    }
}

impl<T: Borrow<Usage>> Queue<T> {
    /// Files a new item. Returns `false`, and does nothing, if it was removed before or is filed
    /// already.
    pub fn admit(&mut self, ranking: &Ranking, item: T, tick: u64) -> bool {
        let usage = item.borrow();
        if usage.ticket.load(Relaxed) != TICKET_NEW {
            return false;
        }
        self.last_ticket += 1;
        usage.ticket.store(self.last_ticket, Relaxed);
        ranking.stamp(usage, tick);
        self.bytes += usage.size;
        self.file(ranking, item);
        true
    }

    fn file(&mut self, ranking: &Ranking, item: T) {
        let usage = item.borrow();
        let priority = ranking.priority(usage);
        usage.filed.store(priority, Relaxed);
        let ticket = usage.ticket.load(Relaxed);
        self.items.insert((priority, ticket), item);
    }

    /// Takes an item out that left the cache by another way than eviction. Returns whether it was
    /// in the queue.
    pub fn remove(&mut self, usage: &Usage) -> bool {
        let ticket = usage.ticket.swap(TICKET_GONE, Relaxed);
        if ticket == TICKET_NEW || ticket == TICKET_GONE {
            return false;
        }
        let removed = self.items.remove(&(usage.filed.load(Relaxed), ticket)).is_some();
        if removed {
            self.bytes -= usage.size;
        }
        removed
    }

    /// Takes out the item of least priority. `None` if there is none.
    pub fn victim(&mut self, ranking: &Ranking) -> Option<T> {
        for _ in 0..PROMOTIONS_PER_VICTIM_MAX {
            let ((filed, _), item) = self.items.pop_first()?;
            if ranking.priority(item.borrow()) <= filed {
                return Some(self.evict(ranking, filed, item));
            }
            self.file(ranking, item);
        }
        let ((filed, _), item) = self.items.pop_first()?;
        Some(self.evict(ranking, filed, item))
    }

    /// Takes out the item of least priority among those `wanted`, out of turn: L does not rise.
    /// Looks at the first [`VICTIM_SCAN_MAX`] items only.
    pub fn victim_where(&mut self, ranking: &Ranking, wanted: impl Fn(&T) -> bool) -> Option<T> {
        for _ in 0..PROMOTIONS_PER_VICTIM_MAX {
            let mut nearest = self.items.iter().take(VICTIM_SCAN_MAX);
            let (&place, _) = nearest.find(|(_, item)| wanted(item))?;
            let item = self.items.remove(&place)?;
            if ranking.priority(item.borrow()) <= place.0 {
                self.close(item.borrow());
                return Some(item);
            }
            self.file(ranking, item);
        }
        None
    }

    fn evict(&mut self, ranking: &Ranking, priority: u64, item: T) -> T {
        self.close(item.borrow());
        if ranking.policy == Policy::Gdsf {
            ranking.inflation.fetch_max(priority, Relaxed);
        }
        item
    }

    fn close(&mut self, usage: &Usage) {
        usage.ticket.store(TICKET_GONE, Relaxed);
        self.bytes -= usage.size;
    }

    /// Items in the queue.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no item is in the queue.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes charged to the items in the queue.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
