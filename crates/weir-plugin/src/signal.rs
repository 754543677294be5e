//! What a request and its exchange tell each other without a lock on the instance, which may be in
//! the middle of somebody's long call: it wakes whoever waits for a paused request, and knows whom
//! the request was sent on to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::properties::Properties;

/// Counts what was told. Those who wait do so in one task, each with what it has heard so far.
#[derive(Default)]
pub(crate) struct Signal {
    told: AtomicU64,
    waker: AtomicWaker,
    source: OnceLock<Arc<dyn Properties>>,
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

    /// The request was sent on to this source. The first word counts.
    pub(crate) fn set_source(&self, source: Arc<dyn Properties>) {
        let _ = self.source.set(source);
    }

    /// Whom the request was sent on to.
    pub(crate) fn source(&self) -> Option<&dyn Properties> {
        self.source.get().map(|source| &**source)
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
