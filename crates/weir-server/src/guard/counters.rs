//! What became of each class's requests, by worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_guard::{CLASSES_MAX, ClassId, ClassInfo};

/// What became of a request at the admit stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It went on.
    Admitted,
    /// A rule refused it, by its head or, after it had gone on, by what plugins made of it.
    Refused,
    /// It had gone on; the worker was overloaded, and others went first to the upstream.
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
        let Some(shard) = self.0.get(worker) else { return };
        let count = &shard.0[usize::from(class.0) % CLASSES_MAX][offer as usize];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Classes have other ranks from now on: counts go with their names, and a class that is new
    /// begins with none. What a worker counts at this very moment may be lost.
    pub(super) fn reorder(&self, before: &[ClassInfo], after: &[ClassInfo]) {
        for shard in &self.0 {
            let known: [_; CLASSES_MAX] = std::array::from_fn(|rank| {
                std::array::from_fn::<_, { Offer::ALL.len() }, _>(|it| {
                    shard.0[rank][it].load(Relaxed)
                })
            });
            for (rank, counts) in shard.0.iter().enumerate() {
                let name = after.get(rank).map(|class| &class.name);
                let was = before.iter().position(|class| Some(&class.name) == name);
                for (it, count) in counts.iter().enumerate() {
                    count.store(was.map_or(0, |was| known[was][it]), Relaxed);
                }
            }
        }
    }

    /// Over all workers.
    pub(crate) fn counted(&self, class: ClassId, offer: Offer) -> u64 {
        let of = |shard: &Shard| shard.0[usize::from(class.0)][offer as usize].load(Relaxed);
        self.0.iter().map(of).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Class;
    use weir_guard::Classes;

    use super::*;

    #[test]
    fn counts_go_with_the_names_of_classes() {
        let classes = |names: &[&str]| {
            let class = |(priority, name): (u8, &&str)| Class {
                name: (*name).to_owned(),
                priority,
                ..Class::default()
            };
            Classes::new(&(1..).zip(names).map(class).collect::<Vec<_>>(), None)
        };
        let counters = ClassCounters::new(2);
        let before = classes(&["gold", "default"]);
        for (worker, rank, times) in [(0, 0, 3), (1, 0, 4), (1, 1, 5)] {
            (0..times).for_each(|_| counters.count(worker, ClassId(rank), Offer::Admitted));
        }
        counters.count(0, ClassId(1), Offer::Shed);
        let after = classes(&["silver", "default", "gold"]);
        counters.reorder(before.all(), after.all());
        let of = |offer| [0, 1, 2, 3].map(|rank| counters.counted(ClassId(rank), offer));
        assert_eq!((of(Offer::Admitted), of(Offer::Shed)), ([0, 5, 7, 0], [0, 1, 0, 0]));
    }
}
