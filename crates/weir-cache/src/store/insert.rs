//! Storing: making room first, so that the limit holds at every moment, then linking the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use weir_arena::{ArenaError, Extent};

use super::{Cache, Inner, Stored};
use crate::body::{Body, Destination};
use crate::error::CacheError;
use crate::key::KeyRef;
use crate::limits::{ARENA_VICTIMS_MAX, HEAP_BODY_BYTES_MAX};
use crate::object::{Head, Object};

/// Why an object was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its key was purged after its making had begun.
    Purged,
    /// It does not fit.
    TooLarge,
}

impl Cache {
    /// Memory for a body of `len` bytes that a source reads in one go.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`] beyond the largest object, [`CacheError::Full`] if no room can be
    /// made now. The response is then sent without being stored.
    pub fn destination(&self, len: u64) -> Result<Destination, CacheError> {
        let max = self.inner.settings.object_bytes_max;
        if len > max {
            return Err(CacheError::TooLarge { len_bytes: len, max_bytes: max });
        }
        if len <= HEAP_BODY_BYTES_MAX as u64 {
            return Ok(Destination::Heap(Vec::with_capacity(len as usize)));
        }
        self.inner.reserve_extent(len as usize).map(Destination::Arena)
    }

    /// Stores a complete response under `key`, in place of the variants it supersedes. Returns the
    /// object, and whether it was stored; if not (too large), it can be sent all the same.
    pub fn insert(
        &self,
        key: &KeyRef<'_>,
        head: Head,
        body: Body,
        trailers: Option<HeaderMap>,
    ) -> (Arc<Object>, bool) {
        let object = Object::new(key.to_key(), self.inner.hash(key), head, body, trailers);
        let object = Arc::new(object);
        let stored = self.inner.insert(&object, None).is_ok();
        (object, stored)
    }

    /// Stores what was made from `original`, as [`Cache::insert`] does, unless that is stored no
    /// more: nobody could find it then, and a purge finds what is there, not what is being made.
    /// Returns whether it is stored.
    pub fn insert_derived(
        &self,
        key: &KeyRef<'_>,
        head: Head,
        body: Body,
        original: &Object,
    ) -> bool {
        let (object, stored) = self.insert(key, head, body, None);
        // In this order: a purge that comes in between takes it.
        let holds = stored && self.inner.holds(original);
        if stored && !holds {
            self.inner.discard(&object);
        }
        holds
    }

    /// Whether this object is stored, or another that has its body since it was validated.
    #[must_use]
    pub fn holds(&self, object: &Object) -> bool {
        self.inner.holds(object)
    }
}

impl Inner {
    /// Links `object` into the index unless `purged` says, under the index's lock, that it must not
    /// be: see `admin` for the other half.
    pub(crate) fn insert(
        &self,
        object: &Arc<Object>,
        purged: Option<&AtomicBool>,
    ) -> Result<(), Refused> {
        let settings = &self.settings;
        let size = object.size();
        if object.body().len() > settings.object_bytes_max || size > settings.memory_bytes {
            self.counters.too_large.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::TooLarge);
        }
        self.make_room(size)?;

        let mut index = self.shard(object.hash).index.write();
        if purged.is_some_and(|purged| purged.load(Ordering::SeqCst)) {
            drop(index);
            self.memory.lock().reserved_bytes -= size;
            return Err(Refused::Purged);
        }
        // What is displaced lives until the end of this scope, after the locks: freeing it may
        // mean system calls.
        let displaced = index.insert(Arc::clone(object));
        let mut memory = self.memory.lock();
        memory.reserved_bytes -= size;
        for old in &displaced {
            object.usage.inherit(&old.usage);
            memory.queue.remove(&old.usage);
        }
        let tick = object.freshness().response_time_ms;
        memory.queue.admit(&self.ranking, Stored(Arc::clone(object)), tick);
        drop(memory);
        drop(index);
        self.counters.inserts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// See [`Cache::holds`].
    fn holds(&self, object: &Object) -> bool {
        let index = self.shard(object.hash).index.read();
        let resource = index.find(object.hash, &object.key.borrow());
        let mut variants = resource.into_iter().flat_map(|resource| resource.variants());
        variants.any(|stored| stored.body().id() == object.body().id())
    }

    /// Reserves `size` bytes of the cache's memory, evicting until they are there.
    fn make_room(&self, size: u64) -> Result<(), Refused> {
        let mut victims = Vec::new();
        let mut memory = self.memory.lock();
        let limit = self.settings.memory_bytes;
        let fits = loop {
            if memory.queue.bytes() + memory.reserved_bytes + size <= limit {
                memory.reserved_bytes += size;
                break true;
            }
            match memory.queue.victim(&self.ranking) {
                Some(victim) => victims.push(victim.0),
                // Other inserts in progress hold the rest of the memory.
                None => break false,
            }
        };
        drop(memory);
        self.unlink(victims);
        if fits { Ok(()) } else { Err(Refused::TooLarge) }
    }

    /// Takes evicted objects out of the index.
    fn unlink(&self, victims: Vec<Arc<Object>>) {
        for victim in victims {
            self.shard(victim.hash).index.write().unlink(&victim);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            self.counters.evicted_bytes.fetch_add(victim.size(), Ordering::Relaxed);
        }
    }

    /// Reserves arena pages, evicting while the arena is full. Pages of evicted objects that are
    /// still being sent stay used, so the effort is bounded: it ends when twice the bytes wanted
    /// have been evicted without success.
    pub(crate) fn reserve_extent(&self, len: usize) -> Result<Extent, CacheError> {
        let mut evicted_bytes = 0;
        for _ in 0..ARENA_VICTIMS_MAX {
            match self.arena.reserve(len) {
                Ok(extent) => return Ok(extent),
                Err(ArenaError::Full { .. }) if evicted_bytes <= 2 * len as u64 => {}
                Err(_) => break,
            }
            // Objects on the heap stay: their going would not help.
            let in_arena = |s: &Stored| s.0.body().len() > HEAP_BODY_BYTES_MAX as u64;
            let victim = self.memory.lock().queue.victim_where(&self.ranking, in_arena);
            let Some(victim) = victim else { break };
            evicted_bytes += victim.0.body().charge();
            self.unlink(vec![victim.0]);
        }
        self.counters.arena_full.fetch_add(1, Ordering::Relaxed);
        Err(CacheError::Full { wanted_bytes: len as u64 })
    }
}
