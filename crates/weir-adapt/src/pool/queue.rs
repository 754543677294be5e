//! Jobs that wait: those that somebody waits for first, each kind in order, so many in all.

use std::collections::VecDeque;

use super::{Priority, Task};

/// Waiting jobs.
pub(super) struct Queue {
    awaited: VecDeque<Task>,
    later: VecDeque<Task>,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Queue {
        Queue { awaited: VecDeque::new(), later: VecDeque::new(), most }
    }

    pub(super) fn len(&self) -> usize {
        self.awaited.len() + self.later.len()
    }

    /// Lets a job wait. One that nobody waits for makes room for one that somebody does.
    ///
    /// # Errors
    /// The task, if there is no room.
    pub(super) fn push(&mut self, task: Task, priority: Priority) -> Result<Option<Task>, Task> {
        let mut out = None;
        if self.len() >= self.most {
            if priority == Priority::Later || self.later.is_empty() {
                return Err(task);
            }
            // The one that was asked for last: the others are about to be done.
            out = self.later.pop_back();
        }
        self.of(priority).push_back(task);
        Ok(out)
    }

    /// Somebody else wants the same, and perhaps waits for it.
    pub(super) fn raise(&mut self, key: u128, priority: Priority) {
        if priority == Priority::Awaited
            && let Some(at) = self.later.iter().position(|task| task.job.key == key)
            && let Some(task) = self.later.remove(at)
        {
            self.awaited.push_back(task);
        }
    }

    /// The next one.
    pub(super) fn pop(&mut self) -> Option<Task> {
        self.awaited.pop_front().or_else(|| self.later.pop_front())
    }

    fn of(&mut self, priority: Priority) -> &mut VecDeque<Task> {
        match priority {
            Priority::Awaited => &mut self.awaited,
            Priority::Later => &mut self.later,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::{Job, Limits, Recipe};

    fn task(key: u128) -> Task {
        let limits = Limits { output_bytes: 1, time: Duration::from_secs(1) };
        let recipe = Recipe { steps: Vec::new() };
        let job = Job { key, input: Vec::new(), tables: Vec::new(), recipe, limits };
        Task { job: Box::new(job), then: Box::new(|_| {}) }
    }

    fn keys(queue: &mut Queue) -> Vec<u128> {
        std::iter::from_fn(|| queue.pop()).map(|task| task.job.key).collect()
    }

    #[test]
    fn awaited_jobs_go_first_and_displace_others() {
        let mut queue = Queue::new(3);
        assert!(queue.push(task(1), Priority::Later).is_ok());
        assert!(queue.push(task(2), Priority::Later).is_ok());
        assert!(queue.push(task(3), Priority::Awaited).is_ok());
        let refused = queue.push(task(4), Priority::Later);
        assert_eq!(refused.map_err(|task| task.job.key).map(|_| ()), Err(4));
        let out = queue.push(task(5), Priority::Awaited).ok().flatten();
        assert_eq!(out.map(|task| task.job.key), Some(2));
        assert_eq!(keys(&mut queue), [3, 5, 1]);
    }

    #[test]
    fn a_job_that_is_refused_displaces_nobody() {
        let mut queue = Queue::new(1);
        assert!(queue.push(task(1), Priority::Later).is_ok());
        assert!(queue.push(task(2), Priority::Later).is_err());
        assert_eq!(keys(&mut queue), [1]);
    }

    #[test]
    fn who_is_waited_for_meanwhile_moves_up() {
        let mut queue = Queue::new(9);
        for key in 1..=3 {
            assert!(queue.push(task(key), Priority::Later).is_ok());
        }
        queue.raise(2, Priority::Awaited);
        queue.raise(3, Priority::Later);
        queue.raise(9, Priority::Awaited);
        assert_eq!(keys(&mut queue), [2, 1, 3]);
    }
}
