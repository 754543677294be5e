//! Wakes the one who waits for a paused request, without a lock on the instance: that may be in the
//! middle of somebody's long call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Told at most once a pause.
#[derive(Default)]
pub(crate) struct Signal {
    told: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    /// Whoever waits, or will, goes on.
    pub(crate) fn tell(&self) {
        self.told.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Waits to be told, and forgets it.
    pub(crate) fn poll_told(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        match self.told.swap(false, Ordering::AcqRel) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
