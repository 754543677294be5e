//! The shared cache: the index of stored responses, its memory limit, and the fills in progress.
//! What is fresh and what may be stored is decided in `policy`, what goes first in `eviction`.
//!
//! Locks, in the order in which they may be held together: a shard's flights → its index → the
//! queue. A hit takes its shard's index for reading, nothing else.

mod admin;
mod index;
mod insert;
mod lookup;
mod stats;

use std::borrow::Borrow;
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};
use weir_arena::Arena;

use crate::eviction::{Policy, Queue, Ranking, Usage};
use crate::fill::Flights;
use crate::limits::SHARDS;
use crate::object::Object;

pub use admin::PurgeMode;
use index::Index;
pub use index::Mark;
pub(crate) use insert::Refused;
pub use lookup::{Lookup, Stale};
pub use stats::Stats;
use stats::{Counters, ShardCounters};

/// Limits and policy of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of bodies, heads and overhead that may be stored.
    pub memory_bytes: u64,
    /// Largest body that is stored.
    pub object_bytes_max: u64,
    /// What to evict first.
    pub policy: Policy,
}

/// A shared cache. Cloning it copies a pointer.
#[derive(Clone)]
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) arena: Arena,
    hashing: RandomState,
    ranking: Ranking,
    shards: Box<[Shard]>,
    memory: Mutex<Memory>,
    pub(crate) counters: Counters,
}

/// Aligned so that two shards' locks never share a cache line, nor the pair of lines that the
/// processor fetches together.
#[repr(align(128))]
#[derive(Default)]
struct Shard {
    index: RwLock<Index>,
    counters: ShardCounters,
    flights: Mutex<Flights>,
}

/// What is stored and what is about to be.
#[derive(Default)]
struct Memory {
    queue: Queue<Stored>,
    /// Bytes that inserts in progress have made room for.
    reserved_bytes: u64,
}

/// An object in the queue of the eviction policy.
struct Stored(Arc<Object>);

impl Borrow<Usage> for Stored {
    fn borrow(&self) -> &Usage {
        &self.0.usage
    }
}

impl Cache {
    /// An empty cache whose larger bodies live in `arena`. The arena's limit should exceed
    /// `memory_bytes` by what fills in progress may need; a full arena costs storing, never a
    /// response.
    pub fn new(settings: Settings, arena: Arena) -> Cache {
        Cache {
            inner: Arc::new(Inner {
                settings,
                arena,
                hashing: RandomState::default(),
                ranking: Ranking::new(settings.policy),
                shards: (0..SHARDS).map(|_| Shard::default()).collect(),
                memory: Mutex::default(),
                counters: Counters::default(),
            }),
        }
    }

    /// The settings the cache was made with.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}

impl Inner {
    /// The table takes its position from the low bits of a hash and its tags from the top seven;
    /// the shard is chosen by bits between.
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    pub(crate) fn flights(&self, hash: u64) -> &Mutex<Flights> {
        &self.shard(hash).flights
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
