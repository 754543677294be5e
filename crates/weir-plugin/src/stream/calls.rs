//! Calls into the instance of a place: at once where this is its thread, timed as far as that says
//! something.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use super::Turn;
use crate::exchange::Phase;
use crate::failure::{Failure, FailureKind};
use crate::generation::Generation;
use crate::instance::Instance;

thread_local! {
    /// The place whose thread this is.
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Tells which place the current thread is. Every thread that runs plugins does so once.
pub fn enter_place(place: usize) {
    HERE.set(Some(place));
}

/// Whether this is the thread of a place.
pub(super) fn is_here(place: usize) -> bool {
    HERE.get() == Some(place)
}

/// Calls into the instance of a place, on its thread.
pub(super) fn at_place<R: Send + 'static>(
    generation: &Arc<Generation>,
    place: usize,
    serial: Option<u64>,
    call: impl FnOnce(&mut Instance) -> Result<R, Failure> + Send + 'static,
) -> Turn<Result<R, Failure>> {
    let slot = Arc::clone(generation.slot(place));
    if is_here(place) {
        return match slot.call(serial, call) {
            Ok(called) => Turn::Now(called.unwrap_or_else(|| Err(lost()))),
            Err(call) => Turn::Later(Box::pin(async move {
                slot.call_when_free(serial, call).await.unwrap_or_else(|| Err(lost()))
            })),
        };
    }
    let task = generation.threads().of(place).spawn(async move {
        slot.call_when_free(serial, call).await.unwrap_or_else(|| Err(lost()))
    });
    Turn::Later(Box::pin(async move { task.await.unwrap_or_else(|_| Err(lost())) }))
}

pub(super) fn lost() -> Failure {
    Failure::new(FailureKind::Unavailable, "the instance that had the request is gone")
}

/// Times a call, if it is one of those that are timed.
pub(super) struct Timer<'a> {
    generation: &'a Generation,
    place: usize,
    phase: Phase,
    began: Option<Instant>,
}

impl<'a> Timer<'a> {
    pub(super) fn start(
        generation: &'a Generation,
        place: usize,
        phase: Phase,
        bytes: usize,
    ) -> Timer<'a> {
        let is_sampled = generation.place_stats(place).count_call();
        let began = (is_sampled || bytes > 0).then(Instant::now);
        Timer { generation, place, phase, began }
    }

    pub(super) fn stop(self, bytes: usize, instance: &Instance) {
        match self.began {
            Some(began) => {
                let took = began.elapsed();
                self.generation.place_stats(self.place).record(took);
                self.generation.learn(self.phase, bytes, took);
            }
            // Not timed, but the watch met it, most often in its first milliseconds.
            None => {
                if let Some(since) = instance.since_noticed() {
                    let took = since + crate::limits::WATCH_PERIOD_BUSY;
                    self.generation.learn(self.phase, bytes, took);
                }
            }
        }
    }
}

/// The last call of a request, which nobody waits for.
pub(super) fn end(
    generation: &Arc<Generation>,
    place: usize,
    serial: Option<u64>,
    call: impl FnOnce(&mut Instance) -> Result<(), Failure> + Send + 'static,
) {
    let owner = Arc::clone(generation);
    let timed = move |instance: &mut Instance| {
        let timer = Timer::start(&owner, place, Phase::Log, 0);
        let result = call(instance);
        timer.stop(0, instance);
        result
    };
    // A failure is counted where it happens.
    if let Turn::Later(later) = at_place(generation, place, serial, timed) {
        generation.threads().of(place).spawn(later);
    }
}
