//! Wakes whoever waits for a paused request, without a lock on the instance: that may be in the
//! middle of somebody's long call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Counts what was told. Those who wait do so in one task, each with what it has heard so far.
#[derive(Default)]
pub(crate) struct Signal {
    told: AtomicU64,
    waker: AtomicWaker,
}

impl Signal {
    /// Whoever waits, or will, goes on.
    pub(crate) fn tell(&self) {
        self.told.fetch_add(1, Ordering::AcqRel);
        self.waker.wake();
    }

    /// What has been told so far.
    pub(crate) fn heard(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// Waits to be told more than what was `heard`.
    pub(crate) fn poll_told(&self, heard: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        let told = self.told.load(Ordering::Acquire);
        match std::mem::replace(heard, told) == told {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}
