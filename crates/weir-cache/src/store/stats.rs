//! Counters. Those of the hit path are kept per shard, so that workers do not share a cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Cache;

#[derive(Default)]
pub(super) struct ShardCounters {
    pub(super) hits: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) passes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) inserts: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) evicted_bytes: AtomicU64,
    pub(crate) purged: AtomicU64,
    pub(crate) too_large: AtomicU64,
    pub(crate) arena_full: AtomicU64,
    pub(crate) fills: AtomicU64,
    pub(crate) fills_failed: AtomicU64,
    pub(crate) fills_streamed: AtomicU64,
    pub(crate) collapsed: AtomicU64,
}

/// The cache's state and what has happened since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Objects stored now.
    pub objects: u64,
    /// Bytes charged to them.
    pub bytes: u64,
    /// The limit of `bytes`.
    pub limit_bytes: u64,
    /// Arena bytes in use, fills in progress and bodies still being sent included.
    pub arena_bytes: u64,
    /// Keys with a fill or a validation in progress.
    pub flights: u64,
    /// Lookups that found a response to send.
    pub hits: u64,
    /// Lookups that found a response in need of validation.
    pub stale: u64,
    /// Lookups that found nothing.
    pub misses: u64,
    /// Lookups for keys whose last response could not be stored.
    pub passes: u64,
    /// Objects stored, refreshed ones included.
    pub inserts: u64,
    /// Objects evicted to make room.
    pub evictions: u64,
    /// Bytes charged to them.
    pub evicted_bytes: u64,
    /// Objects removed by purges.
    pub purged: u64,
    /// Complete objects too large to be stored.
    pub too_large: u64,
    /// Reservations that failed although everything that helped was evicted.
    pub arena_full: u64,
    /// Fills begun.
    pub fills: u64,
    /// Fills that failed: torn, abandoned, of another length than declared.
    pub fills_failed: u64,
    /// Fills that turned into streams because their body did not fit.
    pub fills_streamed: u64,
    /// Requests that joined another's fill or validation.
    pub collapsed: u64,
}

impl Cache {
    /// The cache's state and counters. Takes every shard's lock for a moment.
    pub fn stats(&self) -> Stats {
        let inner = &self.inner;
        let counters = &inner.counters;
        let sum = |counter: fn(&ShardCounters) -> &AtomicU64| {
            inner.shards.iter().map(|shard| counter(&shard.counters).load(Relaxed)).sum()
        };
        let (objects, bytes) = {
            let memory = inner.memory.lock();
            (memory.queue.len() as u64, memory.queue.bytes())
        };
        Stats {
            objects,
            bytes,
            limit_bytes: inner.settings.memory_bytes,
            arena_bytes: inner.arena.used(),
            flights: inner.shards.iter().map(|shard| shard.flights.lock().len() as u64).sum(),
            hits: sum(|c| &c.hits),
            stale: sum(|c| &c.stale),
            misses: sum(|c| &c.misses),
            passes: sum(|c| &c.passes),
            inserts: counters.inserts.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            evicted_bytes: counters.evicted_bytes.load(Relaxed),
            purged: counters.purged.load(Relaxed),
            too_large: counters.too_large.load(Relaxed),
            arena_full: counters.arena_full.load(Relaxed),
            fills: counters.fills.load(Relaxed),
            fills_failed: counters.fills_failed.load(Relaxed),
            fills_streamed: counters.fills_streamed.load(Relaxed),
            collapsed: counters.collapsed.load(Relaxed),
        }
    }
}
