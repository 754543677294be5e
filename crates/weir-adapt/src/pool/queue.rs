//! Jobs that wait: those that somebody waits for first, then those that cost little, then those
//! that cost much; each kind in order, so many in all.

use std::collections::VecDeque;

use super::{Priority, Task};

/// Of the jobs that nobody waits for every so many-th is one that costs much, if there is one, so
/// that these come round however much of the others there is.
const TURN_OF_DEAR: u32 = 8;

/// Waiting jobs.
pub(super) struct Queue {
    /// By [`Priority`].
    kinds: [VecDeque<Task>; 3],
    most: usize,
    /// Jobs begun that nobody waited for.
    turn: u32,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue { kinds: Default::default(), most, turn: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.iter().map(VecDeque::len).sum()
    }

    /// Lets a job wait. One of a lower priority makes room for it; returns that.
    ///
    /// # Errors
    /// The task, if there is no room.
    pub(super) fn push(&mut self, task: Task, priority: Priority) -> Result<Option<Task>, Task> {
        let mut out = None;
        if self.len() >= self.most {
            // The one that was asked for last: the others are about to be done.
            let lower = &mut self.kinds[priority as usize + 1..];
            out = lower.iter_mut().rev().find_map(VecDeque::pop_back);
            if out.is_none() {
                return Err(task);
            }
        }
        self.kinds[priority as usize].push_back(task);
        Ok(out)
    }

    /// Somebody waits for it now.
    pub(super) fn raise(&mut self, key: u128) {
        let [awaited, others @ ..] = &mut self.kinds;
        let raised = others.iter_mut().find_map(|kind| {
            let at = kind.iter().position(|task| task.job.key == key)?;
            kind.remove(at)
        });
        awaited.extend(raised);
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Task> {
        let [awaited, cheap, dear] = &mut self.kinds;
        if let Some(task) = awaited.pop_front() {
            return Some(task);
        }
        self.turn = self.turn.wrapping_add(1);
        match self.turn.is_multiple_of(TURN_OF_DEAR) {
            true => dear.pop_front().or_else(|| cheap.pop_front()),
            false => cheap.pop_front().or_else(|| dear.pop_front()),
        }
    }

    /// The next one, if it is to be had and does not cost much.
    pub(super) fn pop_if(&mut self, is_wanted: impl FnOnce(&Task) -> bool) -> Option<Task> {
        let [awaited, cheap, _] = &mut self.kinds;
        let kind = if awaited.is_empty() { cheap } else { awaited };
        kind.pop_front_if(|task| is_wanted(task))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Priority::{Awaited, Cheap, Dear};
    use super::*;
    use crate::job::{Job, Limits, Recipe};

    fn task(key: u128) -> Task {
        let limits = Limits { output_bytes: 1, time: Duration::from_secs(1) };
        let recipe = Recipe { steps: Vec::new() };
        let job = Job { key, input: Vec::new(), tables: Vec::new(), recipe, limits };
        Task { job: Box::new(job), then: Box::new(|_| {}) }
    }

    /// Which was displaced, or that it was refused.
    fn push(queue: &mut Queue, key: u128, priority: Priority) -> Result<Option<u128>, ()> {
        let pushed = queue.push(task(key), priority);
        pushed.map(|out| out.map(|task| task.job.key)).map_err(|task| assert_eq!(task.job.key, key))
    }

    fn keys(queue: &mut Queue) -> Vec<u128> {
        std::iter::from_fn(|| queue.pop()).map(|task| task.job.key).collect()
    }

    #[test]
    fn who_goes_first_displaces_who_goes_last() {
        let mut queue = Queue::new(3);
        for (key, priority, expected) in [
            (1, Cheap, Ok(None)),
            (2, Cheap, Ok(None)),
            (3, Awaited, Ok(None)),
            (4, Cheap, Err(())),
            (5, Dear, Err(())),
            (6, Awaited, Ok(Some(2))),
            (7, Awaited, Ok(Some(1))),
            (8, Awaited, Err(())),
        ] {
            assert_eq!(push(&mut queue, key, priority), expected, "{key}");
        }
        assert_eq!(keys(&mut queue), [3, 6, 7]);
        for (key, priority, expected) in [
            (1, Dear, Ok(None)),
            (2, Cheap, Ok(None)),
            (3, Dear, Ok(None)),
            (4, Cheap, Ok(Some(3))),
            (5, Awaited, Ok(Some(1))),
            (6, Awaited, Ok(Some(4))),
        ] {
            assert_eq!(push(&mut queue, key, priority), expected, "{key}");
        }
        assert_eq!(keys(&mut queue), [5, 6, 2]);
    }

    #[test]
    fn what_is_awaited_is_not_passed_by() {
        let mut queue = Queue::new(9);
        for (key, priority) in [(1, Awaited), (2, Cheap), (3, Dear)] {
            push(&mut queue, key, priority).unwrap();
        }
        let mut take = |wanted: u128| queue.pop_if(|task| task.job.key == wanted).is_some();
        assert_eq!([2, 1, 3, 2, 3].map(&mut take), [false, true, false, true, false]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn what_costs_much_goes_last_and_comes_round() {
        let mut queue = Queue::new(99);
        for key in 0..10 {
            push(&mut queue, 100 + key, Dear).unwrap();
            push(&mut queue, key, Cheap).unwrap();
        }
        assert_eq!(keys(&mut queue)[..11], [0, 1, 2, 3, 4, 5, 6, 100, 7, 8, 9]);
    }

    #[test]
    fn who_is_waited_for_meanwhile_moves_up() {
        let mut queue = Queue::new(9);
        push(&mut queue, 1, Dear).unwrap();
        push(&mut queue, 2, Cheap).unwrap();
        push(&mut queue, 3, Cheap).unwrap();
        for key in [3, 1, 9, 3] {
            queue.raise(key);
        }
        assert_eq!(keys(&mut queue), [3, 1, 2]);
    }
}
