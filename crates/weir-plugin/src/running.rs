//! Which threads run guest code at this moment: what the watch over long calls looks at.
//!
//! Each thread counts for itself. A count for each worker would not do: a long call of one plugin
//! runs on another thread while its worker runs the others.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The counts of all threads that ever ran a guest and are not gone.
static THREADS: Mutex<Vec<Weak<Count>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Arc<Count> = registered();
}

/// Calls that run on one thread. Only that thread writes it.
#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicU32);

impl Count {
    fn add(&self, difference: u32) {
        self.0.store(self.0.load(Relaxed).wrapping_add(difference), Relaxed);
    }
}

/// Does `call`, seen by the watch.
#[inline]
pub(crate) fn seen<R>(call: impl FnOnce() -> R) -> R {
    OWN.with(|count| {
        count.add(1);
        let _end = OnDrop(count);
        call()
    })
}

/// Whether any thread runs a guest.
pub(crate) fn is_any() -> bool {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut is_any = false;
    threads.retain(|count| {
        count.upgrade().inspect(|count| is_any |= count.0.load(Relaxed) > 0).is_some()
    });
    is_any
}

fn registered() -> Arc<Count> {
    let count = Arc::default();
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    threads.push(Arc::downgrade(&count));
    count
}

struct OnDrop<'a>(&'a Count);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.add(u32::MAX);
    }
}
