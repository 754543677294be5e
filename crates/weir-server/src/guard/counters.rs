//! What became of each class's requests, by worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_guard::{CLASSES_MAX, ClassId};

/// What became of a request at the admit stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It went on.
    Admitted,
    /// A rule refused it, by its head or, after it had gone on, by what plugins made of it.
    Refused,
    /// The server was overloaded, and others went first.
    Shed,
}

impl Offer {
    pub(crate) const ALL: [Offer; 3] = [Offer::Admitted, Offer::Refused, Offer::Shed];

    /// The word in metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Offer::Admitted => "admitted",
            Offer::Refused => "refused",
            Offer::Shed => "shed",
        }
    }
}

/// Counts of requests by class and by what became of them.
pub(crate) struct ClassCounters(Box<[Shard]>);

/// One worker's, which nobody else writes.
#[derive(Default)]
#[repr(align(64))]
struct Shard([[AtomicU64; Offer::ALL.len()]; CLASSES_MAX]);

impl ClassCounters {
    pub(super) fn new(workers: usize) -> ClassCounters {
        ClassCounters((0..workers).map(|_| Shard::default()).collect())
    }

    #[inline]
    pub(super) fn count(&self, worker: usize, class: ClassId, offer: Offer) {
        let shard = &self.0[worker % self.0.len()];
        let count = &shard.0[usize::from(class.0) % CLASSES_MAX][offer as usize];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Over all workers.
    pub(crate) fn counted(&self, class: ClassId, offer: Offer) -> u64 {
        let of = |shard: &Shard| shard.0[usize::from(class.0)][offer as usize].load(Relaxed);
        self.0.iter().map(of).fold(0, u64::wrapping_add)
    }
}
