//! A plugin's timer: calls its tick hook every period, for as long as its instance is there.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::place::Home;

/// The timer of one instance; it ends with it.
#[derive(Default)]
pub(crate) struct Timer(Option<AbortHandle>);

impl Timer {
    /// Ticks every `period` from now on; not at all if it is zero.
    pub(crate) fn set(&mut self, home: &Home, period: Duration) {
        if let Some(running) = self.0.take() {
            running.abort();
        }
        if period.is_zero() {
            return;
        }
        let (home, own_loop) = (home.clone(), home.own_loop.clone());
        let ticking = async move {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            // A plugin that is slower than its period is not called more often for it.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                match home.tick().await {
                    Some(Ok(())) => {}
                    // The instance is gone, or not there yet: it may be starting.
                    None if home.slot.upgrade().is_none_or(|slot| slot.is_filled()) => return,
                    None => {}
                    Some(Err(_)) => return,
                }
            }
        };
        self.0 = Some(own_loop.spawn(ticking).abort_handle());
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.abort();
        }
    }
}
