//! A thread for each helper: takes jobs, starts and watches the helper, tells those who wait.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_arena::Arena;

use super::child::{Helper, Said};
use super::{Shared, Task};
use crate::job::{Job, Limits, Made, Outcome};
use crate::wire::{BESIDE_BYTES_MAX, Place, Report};

/// Characters of what a helper says.
const WORDS_MAX: usize = 256;

/// Times that a helper is started for one job.
const TRIES: u32 = 2;

/// Works until the pool is closed.
pub(super) fn run(shared: &Shared) {
    let mut helper: Option<Helper> = None;
    while let Some(Task { job, then }) = next(shared) {
        let outcome = work(shared, &mut helper, &job);
        count(shared, &job, &outcome);
        then(&outcome);
        let waiters = shared.state.lock().waiters.remove(&job.key);
        for waiter in waiters.into_iter().flatten() {
            // Whoever has gone needs no answer.
            let _ = waiter.send(outcome.clone());
        }
    }
}

fn next(shared: &Shared) -> Option<Task> {
    let mut state = shared.state.lock();
    loop {
        if state.is_closed {
            return None;
        }
        if let Some(task) = state.queue.pop() {
            return Some(task);
        }
        shared.has_work.wait(&mut state);
    }
}

fn work(shared: &Shared, helper: &mut Option<Helper>, job: &Job) -> Outcome {
    let mut last = String::new();
    for _ in 0..TRIES {
        let mut at_work = match helper.take() {
            Some(helper) => helper,
            None => match Helper::start(&shared.settings, &shared.arena) {
                Ok(helper) => {
                    shared.counters.started.fetch_add(1, Relaxed);
                    helper
                }
                Err(error) => {
                    // Or everybody who asks would have it tried.
                    shared.state.lock().strikes.died(job.key, Instant::now());
                    return Outcome::Died(format!("no helper can be started: {error}"));
                }
            },
        };
        let began = Instant::now();
        let worked = at_work.work(job, &shared.arena);
        let took = began.elapsed();
        shared.counters.busy_us.fetch_add(took.as_micros() as u64, Relaxed);
        match worked {
            Ok(said) => {
                *helper = Some(at_work);
                return outcome(said, took, job, &shared.arena);
            }
            // It was not even sent, being too long, and the helper knows nothing of it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                *helper = Some(at_work);
                return Outcome::Failed(error.to_string());
            }
            Err(error) => {
                shared.counters.died.fetch_add(1, Relaxed);
                last = death(&error, took);
                tracing::warn!(cause = last, "a helper is ended that had to adapt a response");
                if !shared.state.lock().strikes.died(job.key, Instant::now()) {
                    break;
                }
            }
        }
    }
    Outcome::Died(last)
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

fn outcome(said: Said, took: Duration, job: &Job, arena: &Arena) -> Outcome {
    let (place, detail) = match judge(said.report, &said.rest, &job.limits) {
        Ok(made) => made,
        Err(outcome) => return outcome,
    };
    let body = match (place, said.file) {
        (Place::Behind, _) => said.rest,
        (Place::File { len }, Some(file)) => match arena.adopt(file, len as usize) {
            Ok(body) => body,
            Err(error) => return Outcome::Failed(error.to_string()),
        },
        (Place::File { .. }, None) => return Outcome::Failed("there is no file".to_owned()),
    };
    Outcome::Made(Made { body, detail, took })
}

/// What a report on a job says: where the result is and what was done, or the end without one.
pub(super) fn judge(
    report: Report,
    rest: &[u8],
    limits: &Limits,
) -> Result<(Place, String), Outcome> {
    let (place, detail) = match report {
        Report::Made { place, detail } => (place, detail),
        Report::Original { why } => return Err(Outcome::Original(why.as_str())),
        Report::Failed { what } => return Err(Outcome::Failed(plain(&what))),
        Report::Ready { .. } => {
            return Err(Outcome::Failed("it said what it must not".to_owned()));
        }
    };
    let len = match place {
        Place::Behind => rest.len() as u64,
        Place::File { len } => len,
    };
    if len > limits.output_bytes {
        return Err(Outcome::Failed(format!("{len} bytes, of {} allowed", limits.output_bytes)));
    }
    // Each file is a descriptor and a mapping, of which there are only so many.
    if place != Place::Behind && len <= BESIDE_BYTES_MAX as u64 {
        return Err(Outcome::Failed(format!("a file for {len} bytes")));
    }
    Ok((place, plain(&detail)))
}

/// What a helper says, fit for a header field or a log: it may be under somebody else's control.
fn plain(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~')).take(WORDS_MAX).collect()
}

fn count(shared: &Shared, job: &Job, outcome: &Outcome) {
    let counters = &shared.counters;
    match outcome {
        Outcome::Made(made) => {
            let bytes_in: usize = job.input.iter().map(Bytes::len).sum();
            counters.bytes_in.fetch_add(bytes_in as u64, Relaxed);
            counters.bytes_out.fetch_add(made.body.len() as u64, Relaxed);
            counters.made.fetch_add(1, Relaxed)
        }
        Outcome::Original(_) => counters.original.fetch_add(1, Relaxed),
        Outcome::Failed(_) | Outcome::Died(_) => counters.failed.fetch_add(1, Relaxed),
    };
}
