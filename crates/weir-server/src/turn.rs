//! Turns of a worker's event loop. What was found out at the beginning of a turn holds for every
//! request whose bytes the turn's events announced: they had arrived before.
//!
//! A turn is ended by a task that queues behind all tasks that were woken before it. tokio's queue
//! of one thread is first in, first out, so whatever later events wake comes after the end.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::Notify;

thread_local! {
    static WORKER: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Counts from 1.
    static TURN: Cell<u64> = const { Cell::new(1) };
    static ENDING: Cell<bool> = const { Cell::new(false) };
    static END: Arc<Notify> = Arc::new(Notify::new());
}

/// A turn of one worker's event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The worker's number.
    pub(crate) worker: usize,
    pub(crate) number: u64,
}

/// The turn that this thread is in; `None` on threads that are no workers.
pub(crate) fn current() -> Option<Turn> {
    let worker = WORKER.get();
    (worker != usize::MAX).then(|| Turn { worker, number: TURN.get() })
}

/// Something was found out that the turn's other requests may use: from now on the turn will end.
pub(crate) fn use_until_end() {
    if !ENDING.replace(true) {
        END.with(|end| end.notify_one());
    }
}

/// Makes this thread worker number `worker`, and ends its turns. Runs as long as the worker.
pub(crate) async fn keep(worker: usize) {
    WORKER.set(worker);
    let end = END.with(Arc::clone);
    loop {
        end.notified().await;
        ENDING.set(false);
        TURN.set(TURN.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_behind_the_tasks_that_were_woken_before_and_before_later_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::spawn(keep(0));
            tokio::task::yield_now().await;
            let turn = || current().unwrap().number;
            let first = turn();
            let same = tokio::spawn(async move { turn() });
            use_until_end();
            let later = tokio::spawn(async move { turn() });
            assert_eq!(turn(), first);
            assert_eq!(same.await.unwrap(), first);
            assert_eq!(later.await.unwrap(), first + 1);
        });
    }

    #[test]
    fn other_threads_have_no_turns() {
        assert_eq!(std::thread::spawn(current).join().unwrap(), None);
    }
}
