//! A thread for each helper: takes jobs, starts and watches the helper, tells those who wait.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_arena::{Arena, ArenaError};

use super::child::Helper;
use super::{Shared, Task};
use crate::job::{Job, Limits, Made, Outcome};
use crate::wire::Report;

/// Results that are copied: a descriptor and a mapping cost more than so many bytes.
const COPIED_BYTES_MAX: u64 = 64 << 10;

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
            Ok((report, file)) => {
                *helper = Some(at_work);
                return outcome(report, file, took, job, &shared.arena);
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

fn outcome(report: Report, file: OwnedFd, took: Duration, job: &Job, arena: &Arena) -> Outcome {
    let (len, detail) = match said(report, &job.limits) {
        Ok(made) => made,
        Err(outcome) => return outcome,
    };
    match take(file, len, arena) {
        Ok(body) => Outcome::Made(Made { body, detail, took }),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// What a report on a job says: so many bytes and what was done, or the end without a result.
pub(super) fn said(report: Report, limits: &Limits) -> Result<(u64, String), Outcome> {
    match report {
        Report::Made { len, .. } if len > limits.output_bytes => {
            Err(Outcome::Failed(format!("{len} bytes, of {} allowed", limits.output_bytes)))
        }
        Report::Made { len, detail } => Ok((len, plain(&detail))),
        Report::Original { why } => Err(Outcome::Original(why.as_str())),
        Report::Failed { what } => Err(Outcome::Failed(plain(&what))),
        Report::Ready { .. } => Err(Outcome::Failed("it said what it must not".to_owned())),
    }
}

/// What a helper says, fit for a header field or a log: it may be under somebody else's control.
fn plain(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~')).take(WORDS_MAX).collect()
}

/// A result's bytes: as they are where they are many.
fn take(file: OwnedFd, len: u64, arena: &Arena) -> Result<Bytes, ArenaError> {
    let refused = |why| ArenaError::NotAdopted { len_bytes: len, why };
    if len > COPIED_BYTES_MAX {
        return arena.adopt(file, len as usize);
    }
    let mut bytes = vec![0; len as usize];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[read..], read as u64) {
            Ok(0) => return Err(refused(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => read += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(refused(error.into())),
        }
    }
    Ok(bytes.into())
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
