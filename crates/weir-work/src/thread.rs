//! How threads beside the serving begin: without what they have no business to have, and, where
//! they work for long, at a low priority.

use std::sync::OnceLock;

/// What takes long gets what requests leave, but must not starve under full load: of a processor
/// that a worker wants too, a thread gets a tenth at this value (sched(7): weight 110 of 1024), and
/// at 19 one part in seventy, so that what takes an eighth of a second took eight.
pub const NICE: i32 = 10;

static BEGIN: OnceLock<fn()> = OnceLock::new();

/// Every thread that is started from now on, by [`begin`], calls this before it does anything. The
/// first call counts.
pub fn begin_threads_with(begin: fn()) {
    BEGIN.get_or_init(|| begin);
}

/// To be called first on each thread: has it give up what whoever serves has said.
pub fn begin() {
    if let Some(begin) = BEGIN.get() {
        begin();
    }
}

/// The same on a thread that yields to those who serve, by [`NICE`].
pub fn begin_yielding() {
    begin();
    yield_to_others(NICE);
}

/// Lowers the priority of the calling thread, and of those that it starts: on Linux nice is a
/// thread's own, whatever POSIX says (setpriority(2), "C library/kernel differences").
pub fn yield_to_others(nice: i32) {
    if let Err(cause) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%cause, "a thread keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_yields_and_its_neighbours_do_not() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let yielding = std::thread::spawn(move || {
            begin_yielding();
            nice()
        });
        assert_eq!(yielding.join().unwrap(), NICE.max(before));
        assert_eq!(nice(), before);
    }
}
