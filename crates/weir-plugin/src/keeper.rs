//! The thread that puts new instances where old ones failed, at once or when a quarantine ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Weak;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::generation::Generation;

/// Tells the keeper what to do.
#[derive(Clone)]
pub(crate) struct Keeper(Sender<Task>);

enum Task {
    Restart(Weak<Generation>, usize),
    Rest(Weak<Generation>, Instant),
}

/// A quarantine and its end.
struct Resting {
    until: Instant,
    generation: Weak<Generation>,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub(crate) fn start() -> std::io::Result<Keeper> {
        let (sender, tasks) = mpsc::channel();
        std::thread::Builder::new().name("plugin-keeper".to_owned()).spawn(move || keep(&tasks))?;
        Ok(Keeper(sender))
    }

    /// An instance is missing.
    pub(crate) fn restart(&self, generation: Weak<Generation>, place: usize) {
        // The thread ends with the last sender, and not before.
        let _ = self.0.send(Task::Restart(generation, place));
    }

    /// A quarantine begins, and ends then.
    pub(crate) fn rest(&self, generation: Weak<Generation>, until: Instant) {
        // As above.
        let _ = self.0.send(Task::Rest(generation, until));
    }
}

fn keep(tasks: &mpsc::Receiver<Task>) {
    weir_work::begin();
    let mut resting: BinaryHeap<Reverse<Resting>> = BinaryHeap::new();
    loop {
        let next = resting.peek().map(|Reverse(first)| first.until);
        let wait = next.map_or(Duration::from_secs(3600), |until| {
            until.saturating_duration_since(Instant::now())
        });
        match tasks.recv_timeout(wait) {
            Ok(Task::Restart(generation, place)) => restart(&generation, place),
            Ok(Task::Rest(generation, until)) => {
                if let Some(generation) = generation.upgrade() {
                    generation.begin_rest();
                }
                resting.push(Reverse(Resting { until, generation }));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while resting.peek().is_some_and(|Reverse(first)| first.until <= Instant::now()) {
            let Some(Reverse(rested)) = resting.pop() else { break };
            if let Some(generation) = rested.generation.upgrade() {
                generation.end_rest();
            }
        }
    }
}

fn restart(generation: &Weak<Generation>, place: usize) {
    let Some(generation) = generation.upgrade() else { return };
    if generation.is_resting() || generation.slot(place).is_filled() {
        return;
    }
    if let Err(failure) = generation.start_at(place) {
        generation.failed_at(place, &failure);
    }
}

impl PartialEq for Resting {
    fn eq(&self, other: &Resting) -> bool {
        self.until == other.until
    }
}

impl Eq for Resting {}

impl PartialOrd for Resting {
    fn partial_cmp(&self, other: &Resting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Resting {
    fn cmp(&self, other: &Resting) -> std::cmp::Ordering {
        self.until.cmp(&other.until)
    }
}
