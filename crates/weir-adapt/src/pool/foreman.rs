//! A thread for each helper: takes jobs, starts and watches the helper, tells those who wait.
//!
//! A job takes the helper a while, and being told and heard takes a while, too: a few threads have
//! to be switched to. So that jobs which are quick do not spend their time on that, those that wait
//! together are done together, up to [`TOGETHER_COST`]. Should a helper die of one of them, each of
//! those which were not done is tried by itself.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::vec;

use bytes::Bytes;

use super::child::{self, Helper, Said};
use super::word::{Word, judge};
use super::{Shared, Task};
use crate::job::{Job, Made, Outcome};
use crate::wire::MESSAGE_BYTES_MAX;

/// Jobs that are done together, at most.
const TOGETHER_MAX: usize = 32;

/// What jobs that are done together may cost, by estimate: as long may the first one wait for the
/// others, or somebody's for these.
const TOGETHER_COST: Duration = Duration::from_millis(2);

/// Bytes that are told with them, at most, beside the orders themselves: what is stored in shared
/// pages is read there, and what is too small for that goes with the message.
const TOGETHER_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (32 << 10);

/// Times that a helper is started for one job.
const TRIES: u32 = 2;

/// Works until the pool is closed.
pub(super) fn run(shared: &Shared) {
    let mut foreman = Foreman { shared, helper: None };
    while let Some(tasks) = next(shared) {
        foreman.work(tasks);
    }
}

/// The next job, with those that can be done together with it. Leaves to other helpers their
/// share.
fn next(shared: &Shared) -> Option<Vec<Task>> {
    let (first, mut line) = shared.line.next_and_others()?;
    let share = line.waiting() / shared.settings.helpers.max(1);
    let told = |task: &Task| child::told_with(&task.job, &shared.arena);
    let (mut cost, mut bytes) = (cost(&first.job), told(&first));
    let mut tasks = vec![first];
    while tasks.len() <= share.min(TOGETHER_MAX - 1) && cost <= TOGETHER_COST {
        let left = TOGETHER_COST - cost;
        let fits =
            |task: &Task| self::cost(&task.job) <= left && bytes + told(task) <= TOGETHER_BYTES_MAX;
        let Some(task) = line.pop_if(fits) else { break };
        cost += self::cost(&task.job);
        bytes += told(&task);
        tasks.push(task);
    }
    Some(tasks)
}

fn cost(job: &Job) -> Duration {
    job.recipe.cost(job.input_bytes())
}

struct Foreman<'a> {
    shared: &'a Shared,
    helper: Option<Helper>,
}

/// Why jobs have no end yet.
enum Halt {
    /// No helper could be started.
    NotStarted(io::Error),
    /// They could not be told, being too long; the helper knows nothing of them.
    NotTold(io::Error),
    /// Another result has taken the file.
    NoFile,
    /// The helper has died, or was ended: how.
    Died(String),
}

impl Foreman<'_> {
    fn work(&mut self, mut tasks: Vec<Task>) {
        if tasks.len() > 1 {
            tasks = self.attempt(tasks).err().map_or_else(Vec::new, |(tasks, _)| tasks);
        }
        for task in tasks {
            self.work_alone(task);
        }
    }

    fn work_alone(&mut self, mut task: Task) {
        let mut last = String::new();
        for _ in 0..TRIES {
            let Err((mut left, halt)) = self.attempt(vec![task]) else { return };
            let Some(again) = left.pop() else { return };
            task = again;
            match halt {
                Halt::NotStarted(error) => {
                    // Or everybody who asks would have it tried.
                    self.shared.line.lock().beside.strikes.died(task.job.key, Instant::now());
                    last = format!("no helper can be started: {error}");
                    break;
                }
                Halt::NotTold(error) => {
                    return finish(self.shared, task, &Outcome::Failed(error.to_string()));
                }
                Halt::NoFile => {
                    return finish(self.shared, task, &Outcome::Failed("there is no file".into()));
                }
                Halt::Died(cause) => {
                    last = cause;
                    if !self.shared.line.lock().beside.strikes.died(task.job.key, Instant::now()) {
                        break;
                    }
                }
            }
        }
        finish(self.shared, task, &Outcome::Died(last));
    }

    /// Has a helper do jobs, and tells those who wait for them.
    ///
    /// # Errors
    /// Those that have no end yet, and why.
    fn attempt(&mut self, tasks: Vec<Task>) -> Result<(), (Vec<Task>, Halt)> {
        let mut helper = match self.take_helper() {
            Ok(helper) => helper,
            Err(error) => return Err((tasks, Halt::NotStarted(error))),
        };
        let mut last = Instant::now();
        let jobs: Vec<&Job> = tasks.iter().map(|task| &*task.job).collect();
        let at_work = match helper.begin(&jobs, &self.shared.arena) {
            Ok(at_work) => at_work,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.helper = Some(helper);
                return Err((tasks, Halt::NotTold(error)));
            }
            Err(error) => return Err((tasks, self.died(&error, last.elapsed()))),
        };
        self.shared.counters.orders.fetch_add(1, Relaxed);
        let (mut waiting, mut without) = (tasks.into_iter(), Vec::new());
        while !waiting.as_slice().is_empty() {
            let said = helper.ends(&at_work);
            let took = last.elapsed();
            last += took;
            self.shared.counters.busy_us.fetch_add(took.as_micros() as u64, Relaxed);
            let heard = said.and_then(|said| self.hear(said, took, &mut waiting, &mut without));
            if let Err(error) = heard {
                without.extend(waiting);
                return Err((without, self.died(&error, took)));
            }
        }
        self.helper = Some(helper);
        if without.is_empty() { Ok(()) } else { Err((without, Halt::NoFile)) }
    }

    /// Tells the ends of jobs to those who wait for them; those `without` a file have none yet.
    ///
    /// # Errors
    /// `InvalidData` for what a helper does not say.
    fn hear(
        &self,
        said: Said<'_>,
        took: Duration,
        waiting: &mut vec::IntoIter<Task>,
        without: &mut Vec<Task>,
    ) -> io::Result<()> {
        let count = said.ends.len();
        if count == 0 || count > waiting.as_slice().len() {
            let what = format!("the ends of {count} jobs, of {}", waiting.as_slice().len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let took = took / count as u32;
        let mut rest = said.rest;
        for end in said.ends {
            let Some(limits) = waiting.as_slice().first().map(|task| task.job.limits) else {
                break;
            };
            let word = judge(end, &mut rest, &limits)?;
            let Some(task) = waiting.next() else { break };
            let made = |body, detail| Outcome::Made(Made { body, detail, took });
            let outcome = match word {
                Word::Behind { result, detail } => made(Bytes::copy_from_slice(result), detail),
                Word::File { len, detail } => match said.file.take() {
                    Some(file) => match self.shared.arena.adopt(file, len as usize) {
                        Ok(body) => made(body, detail),
                        Err(error) => Outcome::Failed(error.to_string()),
                    },
                    None => Outcome::Failed("there is no file".to_owned()),
                },
                Word::Ended(outcome) => outcome,
                Word::NoFile => {
                    without.push(task);
                    continue;
                }
            };
            finish(self.shared, task, &outcome);
        }
        Ok(())
    }

    fn take_helper(&mut self) -> io::Result<Helper> {
        if let Some(helper) = self.helper.take() {
            return Ok(helper);
        }
        let helper = Helper::start(&self.shared.settings, &self.shared.arena)?;
        self.shared.counters.started.fetch_add(1, Relaxed);
        Ok(helper)
    }

    fn died(&self, error: &io::Error, took: Duration) -> Halt {
        self.shared.counters.died.fetch_add(1, Relaxed);
        let cause = death(error, took);
        tracing::warn!(cause, "a helper is ended that had to adapt a response");
        Halt::Died(cause)
    }
}

fn death(error: &io::Error, took: Duration) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => format!("it took longer than {} ms", took.as_millis()),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "its helper died of it".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Tells those who wait for a job.
fn finish(shared: &Shared, Task { job, then }: Task, outcome: &Outcome) {
    count(shared, &job, outcome);
    then(outcome);
    let waiters = shared.line.lock().beside.waiters.remove(&job.key);
    for waiter in waiters.into_iter().flatten() {
        // Whoever has gone needs no answer.
        let _ = waiter.send(outcome.clone());
    }
}

fn count(shared: &Shared, job: &Job, outcome: &Outcome) {
    let counters = &shared.counters;
    match outcome {
        Outcome::Made(made) => {
            counters.bytes_in.fetch_add(job.input_bytes(), Relaxed);
            counters.bytes_out.fetch_add(made.body.len() as u64, Relaxed);
            counters.made.fetch_add(1, Relaxed)
        }
        Outcome::Original(_) => counters.original.fetch_add(1, Relaxed),
        Outcome::Failed(_) | Outcome::Died(_) => counters.failed.fetch_add(1, Relaxed),
    };
}
