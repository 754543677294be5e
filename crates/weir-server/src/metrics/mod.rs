//! Counters of the server: sharded by worker, so that counting never contends, and named by site
//! and route, so that they survive a reload. Rendering is in [`render`].

mod adapt;
mod forward;
mod guard;
mod histogram;
mod icap;
#[cfg(test)]
mod manual_tests;
mod plugins;
mod registry;
pub(crate) mod render;
mod status;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub(crate) use forward::{ForwardCounts, Refused, Tunnel};
pub(crate) use histogram::Histogram;
pub(crate) use registry::Registry;
use status::{STATUS_SLOTS, slot, slot_status};

/// What the cache had to do with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CacheResult {
    /// The route does not cache, or the request was refused before the cache was asked.
    None = 0,
    /// Answered from a fresh stored response.
    Hit = 1,
    /// Answered from a stale stored response, as was allowed.
    Stale = 2,
    /// The origin confirmed a stored response.
    Revalidated = 3,
    /// The origin was asked, and the response is being stored or not.
    Miss = 4,
    /// Answered from a fill that another request began.
    Collapsed = 5,
    /// The request or the route's recent responses say that storing is no use.
    Pass = 6,
}

impl CacheResult {
    pub(crate) const ALL: [CacheResult; 7] = [
        CacheResult::None,
        CacheResult::Hit,
        CacheResult::Stale,
        CacheResult::Revalidated,
        CacheResult::Miss,
        CacheResult::Collapsed,
        CacheResult::Pass,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CacheResult::None => "none",
            CacheResult::Hit => "hit",
            CacheResult::Stale => "stale",
            CacheResult::Revalidated => "revalidated",
            CacheResult::Miss => "miss",
            CacheResult::Collapsed => "collapsed",
            CacheResult::Pass => "pass",
        }
    }
}

/// Counters of one route (or of requests that reached no route).
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    pub(crate) site: String,
    pub(crate) route: String,
    /// Tunnels that are open by a forward route.
    tunnels: AtomicUsize,
    shards: Box<[Shard]>,
}

/// One worker's counters, on cache lines of their own.
#[derive(Debug)]
#[repr(align(64))]
struct Shard {
    requests: [[AtomicU64; CacheResult::ALL.len()]; STATUS_SLOTS],
    /// Of the requests, those served without hyper.
    fast: AtomicU64,
    body_bytes: AtomicU64,
    duration: Histogram,
}

impl RouteMetrics {
    fn new(site: &str, route: &str, workers: usize) -> RouteMetrics {
        let shard = || Shard {
            requests: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            fast: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            duration: Histogram::new(),
        };
        RouteMetrics {
            site: site.to_owned(),
            route: route.to_owned(),
            tunnels: AtomicUsize::new(0),
            shards: (0..workers.max(1)).map(|_| shard()).collect(),
        }
    }

    /// Counts one finished response.
    #[inline]
    pub(crate) fn count(
        &self,
        worker: usize,
        status: u16,
        cache: CacheResult,
        body_bytes: u64,
        took: Duration,
    ) {
        let shard = &self.shards[worker % self.shards.len()];
        shard.requests[slot(status)][cache as usize].fetch_add(1, Relaxed);
        shard.body_bytes.fetch_add(body_bytes, Relaxed);
        shard.duration.record(took);
    }

    /// Counts a request that the fast lane takes; that it was answered is counted by itself.
    #[inline]
    pub(crate) fn count_fast(&self, worker: usize) {
        self.shards[worker % self.shards.len()].fast.fetch_add(1, Relaxed);
    }

    pub(crate) fn fast(&self) -> u64 {
        self.shards.iter().map(|shard| shard.fast.load(Relaxed)).sum()
    }

    /// Requests by (status label, cache result), without the zeros.
    pub(crate) fn requests(&self) -> Vec<(&'static str, CacheResult, u64)> {
        let mut rows = Vec::new();
        for status in 0..STATUS_SLOTS {
            for cache in CacheResult::ALL {
                let of = |s: &Shard| s.requests[status][cache as usize].load(Relaxed);
                let count: u64 = self.shards.iter().map(of).sum();
                if count > 0 {
                    rows.push((slot_status(status), cache, count));
                }
            }
        }
        rows
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.body_bytes.load(Relaxed)).sum()
    }

    pub(crate) fn duration(&self) -> histogram::Snapshot {
        self.shards.iter().map(|shard| shard.duration.snapshot()).sum()
    }
}
