//! Purging. A purge also ends the joining of fills in progress: what was asked of the source before
//! the purge answers those who asked before, and is not stored.
//!
//! Why no fill slips through: a purge first marks the fills (under the flights' lock), then clears
//! the index (under its lock). A fill that ends checks its mark and links under the index's lock.
//! If it checks before it is marked, it has linked before the index is cleared.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Cache, Inner};
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
        inner.flights(hash).lock().purge(hash, key);
        match mode {
            PurgeMode::Remove => {
                let gone = inner.shard(hash).index.write().remove(hash, key);
                inner.forget(&gone)
            }
            PurgeMode::Expire { now_ms } => {
                let index = inner.shard(hash).index.read();
                index.find(hash, key).map_or(0, |resource| expire(resource.variants(), now_ms))
            }
        }
    }

    /// Purges everything in a scope; returns the number of objects. Walks the whole index, a shard
    /// at a time.
    pub fn purge_scope(&self, scope: u64, mode: PurgeMode) -> usize {
        self.inner.purge_if(|key| key.scope() == scope, mode)
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
            shard.flights.lock().purge_if(&matches);
            count += match mode {
                PurgeMode::Remove => {
                    let gone = shard.index.write().remove_if(&matches);
                    self.forget(&gone)
                }
                PurgeMode::Expire { now_ms } => {
                    let index = shard.index.read();
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

    pub(crate) fn mark_pass(&self, hash: u64, confined: bool, now_ms: u64) {
        self.shard(hash).index.write().mark_pass(hash, confined, now_ms);
    }
}

fn expire<'a>(objects: impl Iterator<Item = &'a Arc<Object>>, now_ms: u64) -> usize {
    objects.map(|object| object.expire(now_ms)).count()
}
