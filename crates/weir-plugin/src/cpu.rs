//! CPU time of one call. It is measured from the first time the watch meets the call, so that calls
//! that are over by then, nearly all of them, do not pay for a look at the clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The running call's time.
#[derive(Debug)]
pub(crate) struct CpuTime {
    /// What a call may have.
    pub(crate) limit: Duration,
    since: Option<Duration>,
}

impl CpuTime {
    pub(crate) fn new(limit: Duration) -> CpuTime {
        CpuTime { limit, since: None }
    }

    /// A call begins.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.since = None;
    }

    /// The watch met the call. Whether it has had more than its limit.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = thread_cpu_time();
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) >= self.limit
    }

    /// If the watch has met the call: what it has taken since.
    pub(crate) fn since_noticed(&self) -> Option<Duration> {
        self.since.map(|since| thread_cpu_time().saturating_sub(since))
    }
}

fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), now.tv_nsec.try_into().unwrap_or(0))
}
