//! Ranks change when classes come, go or change places. What was decided before then keeps its
//! class by name: whoever asks says which ranking he means.

use super::{ClassId, Classes};
use crate::queue::CLASSES_MAX;

/// Rankings that are remembered beside the one in force. Whatever was decided by one before that
/// counts as of the last class.
const REMEMBERED_MAX: usize = 16;

/// A class as it was called when something was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassRef {
    pub(crate) ranking: u32,
    pub(crate) class: ClassId,
}

impl ClassRef {
    /// A number that is the greater the higher the class. Where rankings differ, the later one's
    /// is greater.
    pub fn urgency(self) -> u64 {
        u64::from(self.ranking) << 8 | u64::from(u8::MAX - self.class.0)
    }

    /// What has this urgency.
    pub fn of_urgency(urgency: u64) -> ClassRef {
        // Both were put together from these parts.
        let class = ClassId(u8::MAX - urgency as u8);
        ClassRef { ranking: (urgency >> 8) as u32, class }
    }
}

/// What becomes of a class under another ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// It has this rank now.
    Is(usize),
    /// There is none of its name; whoever was of it is of this one.
    Joins(usize),
}

impl Heir {
    /// The rank, in either case.
    pub fn rank(self) -> usize {
        let (Heir::Is(rank) | Heir::Joins(rank)) = self;
        rank
    }
}

/// By rank, those after the last class included.
type Heirs = [u8; CLASSES_MAX];

/// Which ranking it is, and what became of those before.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranking {
    number: u32,
    /// The oldest first.
    before: Vec<(u32, Heirs)>,
}

impl Classes {
    /// A class of these, to be known later.
    #[inline]
    pub fn refer(&self, class: ClassId) -> ClassRef {
        ClassRef { ranking: self.ranking.number, class }
    }

    /// Whether ranks mean the same.
    pub fn ranks_as(&self, other: &Classes) -> bool {
        self.ranking.number == other.ranking.number
    }

    /// Which of these classes something is of: that of its name; if there is none any more, the
    /// default one, or the last if its own came after the default one. The last, too, if nothing is
    /// known of its ranking.
    pub fn rank(&self, of: ClassRef) -> usize {
        let (rank, last) = (usize::from(of.class.0).min(CLASSES_MAX - 1), self.names.len() - 1);
        if of.ranking == self.ranking.number {
            return rank.min(last);
        }
        let known = self.ranking.before.iter().find(|(number, _)| *number == of.ranking);
        known.map_or(last, |(_, heirs)| usize::from(heirs[rank]).min(last))
    }

    /// What becomes of these classes, by rank, when others come.
    pub fn heirs(&self, after: &Classes) -> Vec<Heir> {
        let heir = |(rank, class): (usize, &super::ClassInfo)| match after.find(&class.name) {
            Some(class) => Heir::Is(class.0.into()),
            None if rank < usize::from(self.default.0) => Heir::Joins(after.default.0.into()),
            None => Heir::Joins(after.names.len() - 1),
        };
        self.names.iter().enumerate().map(heir).collect()
    }

    /// The ranking of classes that come after these.
    pub(super) fn ranking_before(&self, after: &Classes) -> Ranking {
        let (names, new) = (self.names.iter(), after.names.iter());
        if names.map(|class| &class.name).eq(new.map(|class| &class.name)) {
            return self.ranking.clone();
        }
        let heirs = self.heirs(after);
        let last = after.names.len() - 1;
        let heir = |rank: usize| heirs.get(rank).map_or(last, |heir| heir.rank()) as u8;
        let of_these: Heirs = std::array::from_fn(heir);
        let older = self.ranking.before.iter();
        let mut before: Vec<(u32, Heirs)> = older
            .map(|(number, heirs)| (*number, heirs.map(|rank| heir(rank.into()))))
            .chain([(self.ranking.number, of_these)])
            .collect();
        before.drain(..before.len().saturating_sub(REMEMBERED_MAX));
        Ranking { number: self.ranking.number.wrapping_add(1), before }
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Class;

    use super::*;

    fn classes(names: &str, before: Option<&Classes>) -> Classes {
        let class = |(priority, name): (u8, &str)| Class {
            name: name.to_owned(),
            priority,
            ..Class::default()
        };
        Classes::new(&(1..).zip(names.split(' ')).map(class).collect::<Vec<_>>(), before)
    }

    /// Where each class of the first order is after all others came.
    #[track_caller]
    fn check(orders: &[&str], expected: &[usize]) {
        let first = classes(orders[0], None);
        let last = orders[1..].iter().fold(first.clone(), |before, it| classes(it, Some(&before)));
        let ranks = (0..).zip(first.all()).map(|(rank, _)| last.rank(first.refer(ClassId(rank))));
        assert_eq!(ranks.collect::<Vec<_>>(), expected, "{orders:?}");
    }

    #[test]
    fn what_was_decided_keeps_its_class_by_name() {
        check(&["gold default bulk"], &[0, 1, 2]);
        check(&["gold default bulk", "gold silver default bulk"], &[0, 2, 3]);
        check(&["gold default bulk", "bulk default gold"], &[2, 1, 0]);
        check(&["gold default bulk", "default"], &[0, 0, 0]);
        // Whoever's class is gone is as if no rule had given one, but not higher than before.
        check(&["gold default bulk", "default last"], &[0, 0, 1]);
        check(&["gold default bulk", "vip gold2 default last"], &[2, 2, 3]);
        // A class that is gone for a while is another one afterwards.
        check(&["gold default bulk", "default bulk", "gold default bulk"], &[1, 1, 2]);
    }

    #[test]
    fn nobody_is_of_a_class_that_is_not_there() {
        let (mut now, orders) = (classes("gold default", None), ["a default", "default"]);
        let first = now.refer(ClassId(0));
        let unknown = ClassRef { ranking: 77, class: ClassId(0) };
        for at in 0..=REMEMBERED_MAX {
            assert_eq!((now.rank(unknown), now.rank(now.refer(ClassId(7)))), {
                let last = now.all().len() - 1;
                (last, last)
            });
            now = classes(orders[at % 2], Some(&now));
        }
        // Too long ago.
        assert_eq!((now.all().len(), now.rank(first)), (2, 1));
        assert!(now.ranking.before.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn urgency_is_a_class_and_rises_with_it() {
        let refer = |ranking, class| ClassRef { ranking, class: ClassId(class) };
        for class in [refer(0, 0), refer(0, 7), refer(u32::MAX, 3)] {
            assert_eq!(ClassRef::of_urgency(class.urgency()), class);
        }
        assert!(refer(1, 0).urgency() > refer(1, 1).urgency());
        assert!(refer(2, 7).urgency() > refer(1, 0).urgency() && refer(0, 7).urgency() > 0);
    }
}
