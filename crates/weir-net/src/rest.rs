//! The rest of an idle connection. HTTP's buffers and state cost some 20 KB; a connection that has
//! been idle for a while gives them up and keeps its socket, about 1 KB.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Nobody serves the connection who could rest.
const ABSENT: u8 = 0;
/// Somebody serves it and has left a waker.
const AWAKE: u8 = 1;
/// Rest was asked for.
const ASKED: u8 = 2;
/// It rests.
const RESTING: u8 = 3;

/// Whether a connection rests, and whom to ask.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Rest {
    /// Called by the serving task at each of its turns; costs a load at all but the first.
    #[inline]
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.state.load(Relaxed) {
            AWAKE => Poll::Pending,
            ASKED => {
                self.state.store(RESTING, Relaxed);
                Poll::Ready(())
            }
            _ => {
                *self.waker.lock() = Some(cx.waker().clone());
                self.state.store(AWAKE, Relaxed);
                Poll::Pending
            }
        }
    }

    /// Asks the serving task to rest.
    pub(crate) fn ask(&self) {
        if self.state.compare_exchange(AWAKE, ASKED, Relaxed, Relaxed).is_ok()
            && let Some(waker) = self.waker.lock().take()
        {
            waker.wake();
        }
    }

    /// Bytes have arrived: who was asked need not rest, and who rests has company soon.
    pub(crate) fn end(&self) {
        if self.state.load(Relaxed) >= ASKED {
            self.state.store(ABSENT, Relaxed);
        }
    }
}
