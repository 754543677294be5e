//! The demo's expensive page: a few are made at a time, and each takes longer the more others
//! wait, as where requests fight for a database, for locks and for memory. It only sleeps; what
//! matters is the shape: beyond its capacity it gets slower, not just full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;

/// Pages that are made at a time.
pub const PLACES: u32 = 8;

/// How long one takes while nobody waits: 160 pages a second.
pub(super) const WORK: Duration = Duration::from_millis(50);

/// So many that wait make a page take twice as long, twice as many three times, …
const STRAIN: u32 = 32;

/// At most so many times as long.
const STRAIN_MAX: u32 = 8;

/// Requests inside at a time; more are turned away, as the queue of any application ends somewhere.
pub(super) const INSIDE_MAX: u32 = 900;

/// One application that makes the page.
pub(super) struct Sale {
    places: Arc<Semaphore>,
    load: Arc<Load>,
}

/// How many requests are with it.
#[derive(Default)]
struct Load {
    inside: AtomicU32,
    most: AtomicU32,
}

/// A request, from its arrival to the end of the work for it.
struct Inside(Arc<Load>);

impl Sale {
    pub(super) fn new() -> Sale {
        Sale { places: Arc::new(Semaphore::new(PLACES as usize)), load: Arc::default() }
    }

    /// Makes the page; `None` if there are too many already. Work that has begun is done to its
    /// end, whether somebody still waits for it or not.
    pub(super) async fn make(&self) -> Option<Duration> {
        let inside = Inside::enter(&self.load)?;
        // Never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        let waiting = self.load.inside.load(Relaxed).saturating_sub(PLACES);
        let work = (WORK + WORK * waiting / STRAIN).min(WORK * STRAIN_MAX);
        let made = tokio::spawn(async move {
            tokio::time::sleep(work).await;
            drop((place, inside));
        });
        made.await.ok().map(|()| work)
    }

    /// The most requests that were with it at a time since this was last asked.
    pub(super) fn take_most(&self) -> u32 {
        self.load.most.swap(self.load.inside.load(Relaxed), Relaxed)
    }
}

impl Inside {
    fn enter(load: &Arc<Load>) -> Option<Inside> {
        let inside = load.inside.fetch_add(1, Relaxed) + 1;
        let entered = Inside(Arc::clone(load));
        if inside > INSIDE_MAX {
            return None;
        }
        load.most.fetch_max(inside, Relaxed);
        Some(entered)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Relaxed);
    }
}
