//! Jobs that wait: those that somebody waits for first, then those that cost little, then those
//! that cost much; each kind in order, so many in all.

use std::collections::VecDeque;

/// Of the jobs that nobody waits for every so many-th is one that costs much, if there is one, so
/// that these come round however much of the others there is.
const TURN_OF_DEAR: u32 = 8;

/// Who goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Somebody waits for it.
    Awaited,
    /// Nobody does: whoever comes later will have it.
    Cheap,
    /// Likewise, and it costs much.
    Dear,
}

/// Waiting jobs.
pub(crate) struct Queue<T> {
    /// By [`Rank`].
    kinds: [VecDeque<T>; 3],
    most: usize,
    /// Jobs begun that nobody waited for.
    turn: u32,
}

impl<T> Queue<T> {
    pub(crate) fn new(most: usize) -> Queue<T> {
        Queue { kinds: std::array::from_fn(|_| VecDeque::new()), most, turn: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.iter().map(VecDeque::len).sum()
    }

    /// Lets a job wait. One of a lower rank makes room for it; returns that.
    ///
    /// # Errors
    /// The job, if there is no room.
    pub(crate) fn push(&mut self, job: T, rank: Rank) -> Result<Option<T>, T> {
        let mut out = None;
        if self.len() >= self.most {
            // The one that was asked for last: the others are about to be done.
            let lower = &mut self.kinds[rank as usize + 1..];
            out = lower.iter_mut().rev().find_map(VecDeque::pop_back);
            if out.is_none() {
                return Err(job);
            }
        }
        self.kinds[rank as usize].push_back(job);
        Ok(out)
    }

    /// Somebody waits for it now.
    pub(crate) fn raise(&mut self, is_it: impl Fn(&T) -> bool) {
        let [awaited, others @ ..] = &mut self.kinds;
        let raised = others.iter_mut().find_map(|kind| {
            let at = kind.iter().position(&is_it)?;
            kind.remove(at)
        });
        awaited.extend(raised);
    }

    /// Forgets all others.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&T) -> bool) {
        for kind in &mut self.kinds {
            kind.retain(&is_wanted);
        }
    }

    /// The next one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let [awaited, cheap, dear] = &mut self.kinds;
        if let Some(job) = awaited.pop_front() {
            return Some(job);
        }
        self.turn = self.turn.wrapping_add(1);
        match self.turn.is_multiple_of(TURN_OF_DEAR) {
            true => dear.pop_front().or_else(|| cheap.pop_front()),
            false => cheap.pop_front().or_else(|| dear.pop_front()),
        }
    }

    /// The next one, if it is to be had and does not cost much.
    pub(crate) fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        let [awaited, cheap, _] = &mut self.kinds;
        let kind = if awaited.is_empty() { cheap } else { awaited };
        kind.pop_front_if(|job| is_wanted(job))
    }
}

#[cfg(test)]
mod tests {
    use super::Rank::{Awaited, Cheap, Dear};
    use super::*;

    fn all(queue: &mut Queue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn who_goes_first_displaces_who_goes_last() {
        let mut queue = Queue::new(3);
        for (job, rank, expected) in [
            (1, Cheap, Ok(None)),
            (2, Cheap, Ok(None)),
            (3, Awaited, Ok(None)),
            (4, Cheap, Err(4)),
            (5, Dear, Err(5)),
            (6, Awaited, Ok(Some(2))),
            (7, Awaited, Ok(Some(1))),
            (8, Awaited, Err(8)),
        ] {
            assert_eq!(queue.push(job, rank), expected, "{job}");
        }
        assert_eq!(all(&mut queue), [3, 6, 7]);
        for (job, rank, expected) in [
            (1, Dear, Ok(None)),
            (2, Cheap, Ok(None)),
            (3, Dear, Ok(None)),
            (4, Cheap, Ok(Some(3))),
            (5, Awaited, Ok(Some(1))),
            (6, Awaited, Ok(Some(4))),
        ] {
            assert_eq!(queue.push(job, rank), expected, "{job}");
        }
        assert_eq!(all(&mut queue), [5, 6, 2]);
    }

    #[test]
    fn what_is_awaited_is_not_passed_by() {
        let mut queue = Queue::new(9);
        for (job, rank) in [(1, Awaited), (2, Cheap), (3, Dear)] {
            queue.push(job, rank).unwrap();
        }
        let mut take = |wanted: u32| queue.pop_if(|job| *job == wanted).is_some();
        assert_eq!([2, 1, 3, 2, 3].map(&mut take), [false, true, false, true, false]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn what_costs_much_goes_last_and_comes_round() {
        let mut queue = Queue::new(99);
        for job in 0..10 {
            queue.push(100 + job, Dear).unwrap();
            queue.push(job, Cheap).unwrap();
        }
        assert_eq!(all(&mut queue)[..11], [0, 1, 2, 3, 4, 5, 6, 100, 7, 8, 9]);
    }

    #[test]
    fn who_is_waited_for_meanwhile_moves_up() {
        let mut queue = Queue::new(9);
        queue.push(1, Dear).unwrap();
        queue.push(2, Cheap).unwrap();
        queue.push(3, Cheap).unwrap();
        for job in [3, 1, 9, 3] {
            queue.raise(|one| *one == job);
        }
        assert_eq!(all(&mut queue), [3, 1, 2]);
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut queue = Queue::new(3);
        for (job, rank) in [(1, Dear), (2, Awaited), (3, Awaited)] {
            queue.push(job, rank).unwrap();
        }
        queue.retain(|job| *job > 1);
        assert_eq!(queue.push(4, Cheap), Ok(None));
        assert_eq!(all(&mut queue), [2, 3, 4]);
    }
}
