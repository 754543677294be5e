//! Waiting for an upstream: its [`Gate`] behind a mutex, with tasks that wait and a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};
use weir_cache::Lead;
use weir_guard::{
    Arrival, ClassRef, Classes, Due, Gate, GateSettings, Outcome, Place, ShedReason, Ticket,
};

/// How often waiting requests are looked after: the precision of the event loop's timers, and a
/// quarter of the usual target.
const LOOK_PERIOD: Duration = Duration::from_millis(2);

/// An upstream's gate.
#[derive(Debug)]
pub(crate) struct UpstreamGate {
    gate: Mutex<Inner>,
    /// Nanoseconds are counted from here.
    origin: Instant,
    /// A task looks after those who wait.
    is_watched: AtomicBool,
    is_overloaded: AtomicBool,
    /// Overloads so far, one that lasts included.
    pub(crate) begun: AtomicU64,
    /// How many upstreams are.
    overloaded: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Inner {
    gate: Gate<Sender>,
    /// The gate's.
    classes: Arc<Classes>,
    /// Kept, so that nothing is allocated for it.
    due: Due<Sender>,
}

type Sender = oneshot::Sender<Result<Place, ShedReason>>;

/// A request that has been let through, until it is over.
pub(crate) struct Passing {
    gate: Arc<UpstreamGate>,
    place: Option<Place>,
    began: Instant,
}

/// A request that waits.
struct Waiting {
    gate: Arc<UpstreamGate>,
    ticket: Ticket,
    answer: oneshot::Receiver<Result<Place, ShedReason>>,
    is_over: bool,
}

impl UpstreamGate {
    /// A gate for these classes, whose limits are in `settings`. It keeps count of `overloaded`
    /// upstreams.
    pub(crate) fn new(
        settings: &GateSettings,
        classes: &Arc<Classes>,
        overloaded: &Arc<AtomicUsize>,
    ) -> Arc<UpstreamGate> {
        let (gate, classes) = (Gate::new(0, settings), Arc::clone(classes));
        Arc::new(UpstreamGate {
            gate: Mutex::new(Inner { gate, classes, due: Due::default() }),
            origin: Instant::now(),
            is_watched: AtomicBool::new(false),
            is_overloaded: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            overloaded: Arc::clone(overloaded),
        })
    }

    /// New settings, and perhaps other classes. What was measured stays, and so do those who are
    /// in flight or wait.
    pub(crate) fn configure(self: &Arc<Self>, settings: &GateSettings, classes: &Arc<Classes>) {
        self.change(|Inner { gate, classes: before, due }, now_ns| {
            match before.ranks_as(classes) {
                true => gate.configure(now_ns, settings, due),
                false => gate.reclass(now_ns, settings, &before.heirs(classes), due),
            }
            *before = Arc::clone(classes);
        });
    }

    /// Looks at the gate.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Gate<Sender>, u64) -> R) -> R {
        let now_ns = self.now_ns();
        look(&mut self.gate.lock().gate, now_ns)
    }

    /// Whether requests cannot but wait.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        self.is_overloaded.load(Relaxed)
    }

    /// Waits for a place; in a higher class from when somebody of that one follows `lead`.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        class: ClassRef,
        lead: Option<&Lead>,
    ) -> Result<Passing, ShedReason> {
        let mut answer = None;
        let arrival = self.change(|Inner { gate, classes, due }, now_ns| {
            let make = || {
                let (sender, receiver) = oneshot::channel();
                answer = Some(receiver);
                sender
            };
            gate.arrive(now_ns, classes.rank(class), make, due)
        });
        match (arrival, answer) {
            (Arrival::Run(place), _) => Ok(self.passing(place)),
            (Arrival::Wait(ticket), Some(answer)) => {
                self.watch();
                let gate = Arc::clone(self);
                let waiting = Waiting { gate, ticket, answer, is_over: false };
                match lead {
                    None => waiting.wait().await,
                    Some(lead) => waiting.wait_for_all(lead, class).await,
                }
            }
            (Arrival::Shed(reason), _) => Err(reason),
            // A ticket without an entry: the gate never makes one.
            (Arrival::Wait(_), None) => Err(ShedReason::Full),
        }
    }

    fn passing(self: &Arc<Self>, place: Place) -> Passing {
        Passing { gate: Arc::clone(self), place: Some(place), began: Instant::now() }
    }

    /// Does something with the gate, and tells those about whom it has decided.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut Inner, u64) -> R) -> R {
        let now_ns = self.now_ns();
        let mut inner = self.gate.lock();
        let result = change(&mut inner, now_ns);
        let Inner { gate, due, .. } = &mut *inner;
        while let Some((waited, place)) = due.start.pop() {
            if let Err(unsent) = waited.item.send(Ok(place)) {
                // Its client has just gone; the place goes to the next.
                let Ok(place) = unsent else { continue };
                gate.done(now_ns, place, 0, Outcome::Unknown, due);
            }
        }
        for shed in due.shed.drain(..) {
            // Whose client has gone needs no answer.
            let _ = shed.waited.item.send(Err(shed.reason));
        }
        let has_begun = self.note_overload(gate.is_overloaded(now_ns));
        drop(inner);
        if has_begun {
            // Where nobody may wait nobody is looked after otherwise.
            self.watch();
        }
        result
    }

    /// Under the gate's lock. Whether overload has begun.
    fn note_overload(&self, is_overloaded: bool) -> bool {
        let was_overloaded = self.is_overloaded.swap(is_overloaded, Relaxed);
        match (was_overloaded, is_overloaded) {
            (false, true) => {
                self.begun.fetch_add(1, Relaxed);
                self.overloaded.fetch_add(1, Relaxed)
            }
            (true, false) => self.overloaded.fetch_sub(1, Relaxed),
            _ => 0,
        };
        is_overloaded && !was_overloaded
    }

    /// Whether there is nobody to look after, and no overload whose end is to be seen.
    fn is_quiet(&self) -> bool {
        // Under the lock: overload that begins is seen, or sees that no task looks.
        self.look(|gate, _| gate.waiting() == 0 && !self.is_overloaded())
    }

    /// Has a task look after those who wait, for as long as there are some, and after overload.
    fn watch(self: &Arc<Self>) {
        // A worker that has ended runs nothing any more.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_watched.swap(true, Relaxed) {
            return;
        }
        let gate = Arc::clone(self);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_PERIOD).await;
                gate.change(|inner, now_ns| inner.gate.tick(now_ns, &mut inner.due));
                if gate.is_quiet() {
                    gate.is_watched.store(false, Relaxed);
                    // Somebody may have come who has seen that there was a watch.
                    if gate.is_quiet() || gate.is_watched.swap(true, Relaxed) {
                        return;
                    }
                }
            }
        });
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

impl Drop for UpstreamGate {
    fn drop(&mut self) {
        self.note_overload(false);
    }
}

impl Waiting {
    async fn wait(mut self) -> Result<Passing, ShedReason> {
        let answer = (&mut self.answer).await;
        self.end(answer)
    }

    /// The same for all that follow one of a class, who go with the highest of them.
    async fn wait_for_all(mut self, lead: &Lead, class: ClassRef) -> Result<Passing, ShedReason> {
        let mut urgency = class.urgency();
        loop {
            let more = tokio::select! {
                biased;
                answer = &mut self.answer => return self.end(answer),
                more = lead.more_urgent(urgency) => more,
            };
            urgency = more;
            let ticket = self.ticket;
            self.gate.change(|Inner { gate, classes, due }, now_ns| {
                gate.raise(now_ns, ticket, classes.rank(ClassRef::of_urgency(more)), due);
            });
        }
    }

    fn end(
        &mut self,
        answer: Result<Result<Place, ShedReason>, RecvError>,
    ) -> Result<Passing, ShedReason> {
        self.is_over = true;
        match answer {
            Ok(Ok(place)) => Ok(self.gate.passing(place)),
            Ok(Err(reason)) => Err(reason),
            // The gate drops nobody without a word.
            Err(_) => Err(ShedReason::Full),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let ticket = self.ticket;
        let cancelled = self.gate.look(|gate, now_ns| gate.cancel(now_ns, ticket));
        if cancelled.is_none()
            && let Ok(Ok(place)) = self.answer.try_recv()
        {
            self.gate.passing(place).end(Outcome::Unknown);
        }
    }
}

impl Passing {
    /// The upstream has begun its answer, or failed.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.give_back(outcome);
    }

    fn give_back(&mut self, outcome: Outcome) {
        let Some(place) = self.place.take() else { return };
        let latency_ns = self.began.elapsed().as_nanos() as u64;
        self.gate.change(|Inner { gate, due, .. }, now_ns| {
            gate.done(now_ns, place, latency_ns, outcome, due);
        });
    }
}

impl Drop for Passing {
    /// Its client has gone.
    fn drop(&mut self) {
        self.give_back(Outcome::Left);
    }
}
