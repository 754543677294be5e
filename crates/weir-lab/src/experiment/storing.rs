//! Has things stored before a window opens.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::load::Catalogue;
use crate::load::blocking::{self, Answer};

/// Connections that ask.
const CONNECTIONS: u64 = 16;
/// How often a variant is asked for, and the pause between.
const TRIES: usize = 4_000;
const PAUSE: Duration = Duration::from_millis(5);

/// Heads of what was made as it was sent have this, which is not kept.
const IS_STREAMED: &str = ";stream";

/// Fetches things number 0 to `count`, each until the head of the answer has the mark, and what has
/// it is kept.
pub(super) fn fetch(
    server: SocketAddr,
    catalogue: &dyn Catalogue,
    count: u64,
    mark: Option<&str>,
) -> Result<()> {
    thread::scope(|scope| {
        let threads = (0..CONNECTIONS.min(count)).map(|first| {
            let numbers = (first..count).step_by(CONNECTIONS as usize);
            scope.spawn(move || one_after_the_other(server, catalogue, numbers, mark))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| {
            let done = thread.join().map_err(|_| "a thread panicked".to_owned());
            done.and_then(|done| done).map_err(Error::Answer)
        })
    })
}

fn one_after_the_other(
    server: SocketAddr,
    catalogue: &dyn Catalogue,
    numbers: impl Iterator<Item = u64>,
    mark: Option<&str>,
) -> Result<(), String> {
    let mut stream = blocking::open(server, blocking::Options::default())?;
    for number in numbers {
        let request = catalogue.ask(number).render(server, true);
        let mut tries = 0;
        loop {
            let Answer { status, head, .. } = blocking::exchange(&mut stream, &request)?;
            if status != 200 {
                return Err(format!("status {status}, expected 200"));
            }
            let head = String::from_utf8_lossy(&head);
            if mark.is_none_or(|mark| head.contains(mark) && !head.contains(IS_STREAMED)) {
                break;
            }
            tries += 1;
            if tries > TRIES {
                return Err(format!("no variant: {head}"));
            }
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}
