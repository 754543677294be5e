//! One timer for a connection's whole life: moving a tokio timer later is a compare-and-swap,
//! making a new one for each request is an allocation and a lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

#[derive(Debug, Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Starts it (again).
    pub(super) fn start(&mut self, deadline: Instant) {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().reset(deadline),
            none => *none = Some(Box::pin(tokio::time::sleep_until(deadline))),
        }
    }

    /// Ready once the deadline has passed; never before a first `start`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}
