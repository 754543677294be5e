//! The retry budget: retries help against one bad server and make an outage of all worse, so they
//! are paid for by requests (a token bucket; limits in `limits.rs`).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::limits::{RETRY_EARN_CENTS, RETRY_SAVED_MAX_CENTS};

#[derive(Debug)]
pub(super) struct RetryBudget(AtomicU32);

impl RetryBudget {
    pub(super) fn new() -> Self {
        RetryBudget(AtomicU32::new(RETRY_SAVED_MAX_CENTS))
    }

    /// Called once a request. While nothing has to be retried it only reads a shared word.
    pub(super) fn earn(&self) {
        let saved = self.0.load(Relaxed);
        if saved < RETRY_SAVED_MAX_CENTS {
            // A lost race loses a fifth of a token.
            let more = (saved + RETRY_EARN_CENTS).min(RETRY_SAVED_MAX_CENTS);
            let _ = self.0.compare_exchange(saved, more, Relaxed, Relaxed);
        }
    }

    /// Takes the price of one retry, if it is there.
    pub(super) fn spend(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |saved| saved.checked_sub(100)).is_ok()
    }

    /// Retries that may be made now.
    pub(super) fn left(&self) -> u32 {
        self.0.load(Relaxed) / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_at_most_a_fifth_once_the_reserve_is_gone() {
        let budget = RetryBudget::new();
        let reserve = budget.left();
        assert_eq!((0..1_000).filter(|_| budget.spend()).count(), reserve as usize);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.earn();
            retries += u32::from(budget.spend());
        }
        assert_eq!(retries, 200);
    }
}
