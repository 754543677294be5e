//! Purging. A purge also ends the joining of fills in progress: what was asked of the source before
//! the purge answers those who asked before, and is not stored.
//!
//! Why no fill slips through: a purge first forbids the fills to store, then clears the index, both
//! under the flights' lock. A fill that ends asks whether it may and links under the index's lock.
//! If it asks before it is forbidden, it has linked before the index is cleared. A request that
//! passes under a mark is no flight yet; clearing the index takes the mark, and without it the
//! request cannot become one (which it does under the flights' lock).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cache, Inner, Mark};
use crate::key::{Key, KeyRef};
use crate::object::Object;

/// What a purge does to the objects it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeMode {
    /// Removes them.
    Remove,
    /// Makes them stale as of now: they are validated, or served in their stale windows. (Not for
    /// RFC 9111 §4.4 invalidation, which must not be followed by an unvalidated answer.)
    Expire {
        /// Now, in milliseconds since the Unix epoch.
        now_ms: u64,
    },
}

impl Cache {
    /// Purges all variants of one key; returns how many there were.
    pub fn purge(&self, key: &KeyRef<'_>, mode: PurgeMode) -> usize {
        let inner = &self.inner;
        let hash = inner.hash(key);
        let mut flights = inner.flights(hash).lock();
        flights.purge(hash, key);
        let mut index = inner.shard(hash).index.write();
        index.forget_pass(hash);
        match mode {
            PurgeMode::Remove => {
                let gone = index.remove(hash, key);
                drop(index);
                drop(flights);
                inner.forget(&gone)
            }
            PurgeMode::Expire { now_ms } => {
                index.find(hash, key).map_or(0, |resource| expire(resource.variants(), now_ms))
            }
        }
    }

    /// Purges everything in a scope; returns the number of objects. Walks the whole index, a shard
    /// at a time. Marks go in all scopes: they do not know theirs, and are hints.
    pub fn purge_scope(&self, scope: u64, mode: PurgeMode) -> usize {
        self.inner.purge_if(|key| key.scope() == scope, mode)
    }

    /// Purges everything in any of these scopes, in one walk; otherwise as [`Cache::purge_scope`].
    pub fn purge_scopes(&self, scopes: &HashSet<u64>, mode: PurgeMode) -> usize {
        self.inner.purge_if(|key| scopes.contains(&key.scope()), mode)
    }

    /// Purges everything; returns the number of objects.
    pub fn purge_all(&self, mode: PurgeMode) -> usize {
        self.inner.purge_if(|_| true, mode)
    }
}

impl Inner {
    fn purge_if(&self, matches: impl Fn(&Key) -> bool, mode: PurgeMode) -> usize {
        let mut count = 0;
        for shard in &self.shards {
            let mut flights = shard.flights.lock();
            flights.purge_if(&matches);
            let mut index = shard.index.write();
            index.forget_passes();
            count += match mode {
                PurgeMode::Remove => {
                    let gone = index.remove_if(&matches);
                    drop(index);
                    drop(flights);
                    self.forget(&gone)
                }
                PurgeMode::Expire { now_ms } => {
                    let matching = index.resources().filter(|(key, _)| matches(key));
                    matching.map(|(_, resource)| expire(resource.variants(), now_ms)).sum()
                }
            };
        }
        count
    }

    /// Gives back the memory of objects that were taken out of the index.
    fn forget(&self, gone: &[Arc<Object>]) -> usize {
        if !gone.is_empty() {
            let mut memory = self.memory.lock();
            for object in gone {
                memory.queue.remove(&object.usage);
            }
        }
        self.counters.purged.fetch_add(gone.len() as u64, Relaxed);
        gone.len()
    }

    /// Takes out exactly this object, if it is still stored.
    pub(crate) fn discard(&self, object: &Arc<Object>) {
        if self.shard(object.hash).index.write().unlink(object) {
            self.forget(std::slice::from_ref(object));
        }
    }

    pub(crate) fn mark_pass(&self, hash: u64, confined: bool, now_ms: u64) -> Mark {
        self.shard(hash).index.write().mark_pass(hash, confined, now_ms)
    }

    /// Takes exactly this mark away; `false` if it is gone.
    pub(crate) fn take_mark(&self, mark: Mark) -> bool {
        self.shard(mark.hash).index.write().take_mark(mark)
    }
}

fn expire<'a>(objects: impl Iterator<Item = &'a Arc<Object>>, now_ms: u64) -> usize {
    objects.map(|object| object.expire(now_ms)).count()
}
