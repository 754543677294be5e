//! Places: threads that run plugins, each with an instance of its own.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;

use crate::cost::Cost;
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

    /// The low-priority event loop that a worker's place turns to.
    pub(crate) fn long_of(&self, place: usize) -> Option<&Handle> {
        (place < self.workers.len() && !self.long.is_empty())
            .then(|| &self.long[place % self.long.len()])
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
    /// Where what takes long runs instead, if it is a worker's.
    pub(crate) long_loop: Option<Handle>,
    /// Where the instance is to be found.
    pub(crate) slot: Weak<Slot>,
    /// Which of the instances that lived there it is.
    pub(crate) serial: u64,
}

impl Home {
    /// Where the next event runs: on the place's own thread, unless events take long.
    fn event_loop(&self) -> &Handle {
        let has_long = || self.slot.upgrade().is_some_and(|slot| slot.has_long_events());
        self.long_loop.as_ref().filter(|_| has_long()).unwrap_or(&self.own_loop)
    }

    /// The timer has run out. `None` if the instance is not there.
    pub(crate) async fn tick(&self) -> Option<Result<(), Failure>> {
        let (slot, serial) = (self.slot.upgrade()?, self.serial);
        let tick = async move { slot.event(serial, |instance| instance.tick()).await };
        // It is there already.
        let elsewhere = self.event_loop();
        match std::ptr::eq(elsewhere, &self.own_loop) {
            true => tick.await,
            false => elsewhere.spawn(tick).await.ok().flatten(),
        }
    }

    /// Calls into the instance later, if it is still there: on its own thread, unless such calls
    /// take long.
    pub(crate) fn deliver(
        &self,
        call: impl FnOnce(&mut Instance) -> Result<(), Failure> + Send + 'static,
    ) {
        let (slot, serial) = (self.slot.clone(), self.serial);
        self.event_loop().spawn(async move {
            let mut call = Some(call);
            for _ in 0..STARTING_LOOKS_MAX {
                let Some(slot) = slot.upgrade() else { return };
                // A failure is reported where it happens, and there is nobody else to tell.
                let event = |instance: &mut Instance| match call.take() {
                    Some(call) => call(instance),
                    None => Ok(()),
                };
                if slot.event(serial, event).await.is_some() || slot.is_filled() {
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

/// How often it is looked whether a long call into an instance is over.
const BUSY_LOOK_PERIOD: Duration = Duration::from_millis(1);

/// What a call into an instance returned; nothing if the instance is not there.
pub(crate) type Called<R> = Option<Result<R, Failure>>;

/// What is told when an instance has failed.
pub(crate) type OnFailure = Box<dyn Fn(usize, &Failure) + Send + Sync>;

/// Holds the instance of one generation at one place, or none after a failure. The lock is only
/// ever contended by a deployment, and by events that take long.
pub(crate) struct Slot {
    place: usize,
    instance: Mutex<Option<Box<Instance>>>,
    /// Changed under the lock only. Read without it: a call on a low-priority thread holds the lock
    /// for as long as it takes, and a worker that looks where to send the next must not wait for
    /// it.
    is_filled: AtomicBool,
    on_failure: OnFailure,
    /// What calls cost that no request waits for.
    events: Cost,
    /// From what time on they are long.
    long: Duration,
}

impl Slot {
    pub(crate) fn new(place: usize, on_failure: OnFailure, long: Duration) -> Arc<Slot> {
        let (is_filled, events) = (AtomicBool::new(false), Cost::default());
        Arc::new(Slot { place, instance: Mutex::new(None), is_filled, on_failure, events, long })
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

    /// Calls into the instance that is there now, if it is the one with this number, should that be
    /// given; an error ends it. Nothing if there is none.
    ///
    /// # Errors
    /// The call, unmade, while somebody else is calling: an event that takes long, on another
    /// thread. A worker must not wait for that.
    #[inline]
    pub(crate) fn call<R, C>(&self, serial: Option<u64>, call: C) -> Result<Called<R>, C>
    where
        C: FnOnce(&mut Instance) -> Result<R, Failure>,
    {
        match self.instance.try_lock() {
            Some(slot) => Ok(self.call_within(slot, serial, call)),
            None => Err(call),
        }
    }

    /// The same, where nobody else can be calling.
    #[cfg(test)]
    pub(crate) fn call_now<R>(
        &self,
        call: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Called<R> {
        self.call_within(self.instance.lock(), None, call)
    }

    /// The same, once nobody else is calling.
    pub(crate) async fn call_when_free<R, C>(&self, serial: Option<u64>, mut call: C) -> Called<R>
    where
        C: FnOnce(&mut Instance) -> Result<R, Failure>,
    {
        loop {
            match self.call(serial, call) {
                Ok(called) => return called,
                Err(unmade) => call = unmade,
            }
            tokio::time::sleep(BUSY_LOOK_PERIOD).await;
        }
    }

    /// A call that no request waits for, and whose price is kept in mind.
    async fn event<R>(
        &self,
        serial: u64,
        event: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Called<R> {
        let timed = |instance: &mut Instance| {
            let began = Instant::now();
            let result = event(instance);
            self.events.learn(0, began.elapsed());
            result
        };
        self.call_when_free(Some(serial), timed).await
    }

    fn has_long_events(&self) -> bool {
        self.events.is_long(0, self.long)
    }

    #[inline]
    fn call_within<R>(
        &self,
        mut slot: MutexGuard<'_, Option<Box<Instance>>>,
        serial: Option<u64>,
        call: impl FnOnce(&mut Instance) -> Result<R, Failure>,
    ) -> Called<R> {
        let is_it = |instance: &&mut Instance| serial.is_none_or(|it| instance.serial() == it);
        let instance = slot.as_deref_mut().filter(is_it)?;
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
