//! The line before threads that work: they sleep while there is nothing to do, and end when nothing
//! more comes.

use std::ops::{Deref, DerefMut};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::queue::{Queue, Rank};

/// Jobs that wait for a thread, and, under the same lock, what its user has to keep beside them.
pub struct Line<T, B = ()> {
    inside: Mutex<Inside<T, B>>,
    /// There is work, or nothing more comes.
    has_work: Condvar,
}

/// What the lock is for.
pub struct Inside<T, B> {
    queue: Queue<T>,
    is_closed: bool,
    /// The user's.
    pub beside: B,
}

/// A line that nobody else changes meanwhile.
pub struct Locked<'a, T, B> {
    inside: MutexGuard<'a, Inside<T, B>>,
    has_work: &'a Condvar,
}

/// Why a job may not even wait. It is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<T> {
    /// As many wait as may, and none of them goes after this one.
    Full(T),
    /// Nothing more is done.
    Closed(T),
}

impl<T, B> Line<T, B> {
    /// Nobody; so many may wait at a time.
    pub fn new(most: usize, beside: B) -> Line<T, B> {
        let inside = Inside { queue: Queue::new(most), is_closed: false, beside };
        Line { inside: Mutex::new(inside), has_work: Condvar::new() }
    }

    /// The line, for as long as it takes to change something.
    pub fn lock(&self) -> Locked<'_, T, B> {
        Locked { inside: self.inside.lock(), has_work: &self.has_work }
    }

    /// The next job, once there is one; `None` once the line is closed, whatever waits then.
    pub fn next(&self) -> Option<T> {
        self.next_and_others().map(|(job, _)| job)
    }

    /// The same, and the line as it is then, for whoever takes others with it.
    pub fn next_and_others(&self) -> Option<(T, Locked<'_, T, B>)> {
        let mut inside = self.inside.lock();
        while !inside.is_closed {
            if let Some(job) = inside.queue.pop() {
                return Some((job, Locked { inside, has_work: &self.has_work }));
            }
            self.has_work.wait(&mut inside);
        }
        None
    }
}

impl<T, B> Locked<'_, T, B> {
    /// Lets a job wait, and wakes somebody who does it. Returns the one of a lower rank that has
    /// lost its place to it.
    ///
    /// # Errors
    /// The job, which may not wait.
    pub fn push(&mut self, job: T, rank: Rank) -> Result<Option<T>, Refused<T>> {
        if self.inside.is_closed {
            return Err(Refused::Closed(job));
        }
        let out = self.inside.queue.push(job, rank).map_err(Refused::Full)?;
        self.has_work.notify_one();
        Ok(out)
    }

    /// Nothing more is done. Returns what waited, to be dropped without the lock.
    pub fn close(&mut self) -> Vec<T> {
        self.inside.is_closed = true;
        self.has_work.notify_all();
        std::iter::from_fn(|| self.inside.queue.pop()).collect()
    }
}

impl<T, B> Inside<T, B> {
    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing more is done.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Somebody waits for a job now: it goes before those that nobody waits for, if it waits still.
    pub fn raise(&mut self, is_it: impl Fn(&T) -> bool) {
        self.queue.raise(is_it);
    }

    /// The next job, if it is to be had and does not cost much.
    pub fn pop_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        self.queue.pop_if(is_wanted)
    }

    /// Forgets all other jobs.
    pub fn retain(&mut self, is_wanted: impl Fn(&T) -> bool) {
        self.queue.retain(is_wanted);
    }
}

impl<T, B> Deref for Locked<'_, T, B> {
    type Target = Inside<T, B>;

    fn deref(&self) -> &Inside<T, B> {
        &self.inside
    }
}

impl<T, B> DerefMut for Locked<'_, T, B> {
    fn deref_mut(&mut self) -> &mut Inside<T, B> {
        &mut self.inside
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn all_is_done_once_by_whoever_has_time() {
        const JOBS: u32 = 1000;
        let (line, sum) = (Line::new(JOBS as usize, 0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(job) = line.next() {
                        sum.fetch_add(job, Relaxed);
                        line.lock().beside += 1;
                    }
                });
            }
            for job in 1..=JOBS {
                let rank = if job % 2 == 0 { Rank::Awaited } else { Rank::Dear };
                assert_eq!(line.lock().push(job, rank), Ok(None));
            }
            while line.lock().beside < JOBS {
                std::thread::yield_now();
            }
            assert!(line.lock().close().is_empty());
        });
        assert_eq!(sum.into_inner(), JOBS * (JOBS + 1) / 2);
    }

    #[test]
    fn a_closed_line_gives_back_what_waits_and_what_comes() {
        let line = Line::new(2, ());
        for job in [1, 2] {
            line.lock().push(job, Rank::Cheap).unwrap();
        }
        assert_eq!(line.lock().push(3, Rank::Dear), Err(Refused::Full(3)));
        assert_eq!(line.lock().push(4, Rank::Awaited), Ok(Some(2)));
        assert_eq!(line.lock().waiting(), 2);
        assert_eq!(line.lock().close(), [4, 1]);
        assert_eq!(line.lock().push(5, Rank::Awaited), Err(Refused::Closed(5)));
        assert!(line.lock().is_closed());
        assert_eq!(line.next(), None);
    }

    #[test]
    fn who_sleeps_wakes_up_at_the_end() {
        let line: Line<()> = Line::new(1, ());
        std::thread::scope(|scope| {
            let sleeps = scope.spawn(|| line.next());
            std::thread::sleep(std::time::Duration::from_millis(10));
            line.lock().close();
            assert_eq!(sleeps.join().unwrap(), None);
        });
    }
}
