//! Places: threads that run plugins, each with an instance of its own.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::failure::Failure;
use crate::instance::Instance;

/// The threads that run plugins: first the workers, then those for long calls.
#[derive(Clone)]
pub struct Threads {
    /// Event loops of the workers.
    pub workers: Vec<Handle>,
    /// Event loops of the low-priority threads.
    pub long: Vec<Handle>,
}

impl Threads {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.workers.len() + self.long.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The event loop of a place.
    pub(crate) fn of(&self, place: usize) -> &Handle {
        self.workers.get(place).unwrap_or_else(|| &self.long[place - self.workers.len()])
    }

    /// The worker whose connections a place uses.
    pub(crate) fn worker_of(&self, place: usize) -> usize {
        place % self.workers.len()
    }
}

/// Where an instance lives.
#[derive(Clone)]
pub(crate) struct Home {
    /// Number of the thread.
    pub(crate) place: usize,
    /// The worker whose connections to upstreams it uses: itself, if it is one.
    pub(crate) worker: usize,
    /// That worker's event loop.
    pub(crate) worker_loop: Handle,
    /// The place's own event loop.
    pub(crate) own_loop: Handle,
    /// Where the instance is to be found.
    pub(crate) slot: Weak<Slot>,
    /// Which of the instances that lived there it is.
    pub(crate) serial: u64,
}

impl Home {
    /// Calls into the instance later, on its own thread, if it is still there.
    pub(crate) fn deliver(
        &self,
        call: impl FnOnce(&mut Instance) -> Result<(), Failure> + Send + 'static,
    ) {
        let (slot, serial) = (self.slot.clone(), self.serial);
        self.own_loop.spawn(async move {
            let mut call = Some(call);
            for _ in 0..STARTING_LOOKS_MAX {
                let Some(slot) = slot.upgrade() else { return };
                // A failure is reported where it happens, and there is nobody else to tell.
                let called = slot.with(serial, |instance| match call.take() {
                    Some(call) => call(instance),
                    None => Ok(()),
                });
                if called.is_some() || slot.is_filled() {
                    return;
                }
                // What an instance asked for while it started may be there before it is.
                drop(slot);
                tokio::time::sleep(STARTING_LOOK_PERIOD).await;
            }
        });
    }
}

/// How often, and how many times, it is looked whether an instance has started.
const STARTING_LOOK_PERIOD: Duration = Duration::from_millis(10);
const STARTING_LOOKS_MAX: usize = 100;

/// What is told when an instance has failed.
pub(crate) type OnFailure = Box<dyn Fn(usize, &Failure) + Send + Sync>;

/// Holds the instance of one generation at one place, or none after a failure. The lock is only
/// ever contended by a deployment.
pub(crate) struct Slot {
    place: usize,
    instance: Mutex<Option<Box<Instance>>>,
    /// Changed under the lock only. Read without it: a call on a low-priority thread holds the lock
    /// for as long as it takes, and a worker that looks where to send the next must not wait for
    /// it.
    is_filled: AtomicBool,
    on_failure: OnFailure,
}

impl Slot {
    pub(crate) fn new(place: usize, on_failure: OnFailure) -> Arc<Slot> {
        let is_filled = AtomicBool::new(false);
        Arc::new(Slot { place, instance: Mutex::new(None), is_filled, on_failure })
    }

    /// Puts an instance there.
    pub(crate) fn fill(&self, instance: Box<Instance>) {
        let mut slot = self.instance.lock();
        let before = slot.replace(instance);
        self.is_filled.store(true, Release);
        // What was there ends outside the lock.
        drop(slot);
        drop(before);
    }

    /// Whether there is an instance.
    pub(crate) fn is_filled(&self) -> bool {
        self.is_filled.load(Acquire)
    }

    /// Calls into the instance that is there now; an error ends it.
    pub(crate) fn with_any<R>(
        &self,
        call: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Option<Result<R, Failure>> {
        self.with_one(|_| true, call)
    }

    /// Calls into the instance if it is still the one with this number; an error ends it.
    pub(crate) fn with<R>(
        &self,
        serial: u64,
        call: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Option<Result<R, Failure>> {
        self.with_one(|instance| instance.serial() == serial, call)
    }

    #[inline]
    fn with_one<R>(
        &self,
        is_it: impl FnOnce(&Instance) -> bool,
        call: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Option<Result<R, Failure>> {
        let mut slot = self.instance.lock();
        let instance = slot.as_deref_mut().filter(|instance| is_it(instance))?;
        let result = call(instance);
        if let Err(failure) = &result {
            let failed = slot.take();
            self.is_filled.store(false, Release);
            drop(slot);
            drop(failed);
            (self.on_failure)(self.place, failure);
        }
        Some(result)
    }

    /// Bytes of the instance's memory; 0 while somebody is calling it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Some(slot) = self.instance.try_lock() else { return 0 };
        slot.as_ref().map_or(0, |instance| instance.memory_bytes())
    }

    /// Ends the instance.
    pub(crate) fn clear(&self) {
        let mut slot = self.instance.lock();
        let ended = slot.take();
        self.is_filled.store(false, Release);
        drop(slot);
        drop(ended);
    }
}
