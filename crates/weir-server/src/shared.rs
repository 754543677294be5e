//! What the workers share: configuration behind an atomic swap, the cache, counters, limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use weir_arena::Arena;
use weir_cache::Cache;
use weir_config::Address;
use weir_net::Reaped;
use weir_plugin::Plugins;

use crate::adapt::Adaptation;
use crate::body_budget::BodyBudget;
use crate::guard::Guard;
use crate::live::Live;
use crate::metrics::Registry;

/// The one value that all workers and the admin API share.
pub(crate) struct Shared {
    pub(crate) workers: usize,
    pub(crate) live: ArcSwap<Live>,
    pub(crate) arena: Arena,
    pub(crate) cache: Cache,
    pub(crate) metrics: Arc<Registry>,
    pub(crate) plugins: Plugins,
    pub(crate) guard: Guard,
    pub(crate) adaptation: Adaptation,
    pub(crate) connections: Connections,
    pub(crate) bodies: BodyBudget,
    /// A graceful stop has begun: every response is its connection's last.
    pub(crate) draining: AtomicBool,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    pub(crate) reloads: AtomicU64,
    pub(crate) reload_failures: AtomicU64,
    /// Listening addresses by number; a number is never given to another address.
    numbers: Arc<ListenerNumbers>,
}

/// Connection counters and the limit.
#[derive(Default)]
pub(crate) struct Connections {
    pub(crate) open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) tls_failures: AtomicU64,
    /// HTTP/2 streams that were reset since the client took nothing.
    pub(crate) stalled_streams: AtomicU64,
    /// Requests that were refused for the size of their content.
    pub(crate) large_bodies: AtomicU64,
    /// Requests that were broken off since their content came too slowly.
    pub(crate) slow_bodies: AtomicU64,
    pub(crate) reaped: [AtomicU64; Reaped::ALL.len()],
}

/// Hands out a number per listening address.
#[derive(Default)]
pub(crate) struct ListenerNumbers(Mutex<Vec<Address>>);

impl ListenerNumbers {
    pub(crate) fn of(&self, address: &Address) -> usize {
        let mut known = self.0.lock();
        known.iter().position(|a| a == address).unwrap_or_else(|| {
            known.push(address.clone());
            known.len() - 1
        })
    }
}

impl Shared {
    pub(crate) fn new(
        live: Live,
        arena: Arena,
        cache: Cache,
        metrics: Arc<Registry>,
        plugins: Plugins,
        guard: Guard,
        numbers: Arc<ListenerNumbers>,
    ) -> Shared {
        Shared {
            adaptation: Adaptation::new(
                &live.config.adapt,
                &arena,
                &metrics.pages,
                &metrics.pictures,
            ),
            workers: guard.workers(),
            guard,
            live: ArcSwap::from_pointee(live),
            arena,
            cache,
            metrics,
            plugins,
            connections: Connections::default(),
            bodies: BodyBudget::default(),
            draining: AtomicBool::new(false),
            started: Instant::now(),
            started_at: SystemTime::now(),
            reloads: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
            numbers,
        }
    }

    /// The number of a listening address.
    pub(crate) fn listener_number(&self, address: &Address) -> usize {
        self.numbers.of(address)
    }

    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }
}

/// Milliseconds since the Unix epoch, the cache's unit of time.
#[inline]
pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The same, as of the kernel's last tick: at most 10 ms old, for a fifth of the price. Look-ups go
/// by this clock, so what is stored or expired must too: it would be fresh before its time.
#[inline]
pub(crate) fn coarse_unix_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
