//! How much of clients' requests lies in memory before an upstream is asked, over all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::connection::Connection;

/// Bytes of request bodies that are held at a time: a thousand buffers of the usual size. Beyond
/// that bodies are not gathered but streamed.
pub(crate) const BODY_BUDGET_BYTES: u64 = 64 << 20;

/// Counts what is held.
#[derive(Default)]
pub(crate) struct BodyBudget {
    held_bytes: AtomicU64,
    /// Bodies that were not gathered, or not as far as they might be.
    spent: AtomicU64,
}

impl BodyBudget {
    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// How often there was nothing left.
    pub(crate) fn times_spent(&self) -> u64 {
        self.spent.load(Relaxed)
    }
}

/// What one body holds of the budget, given back when it is dropped.
pub(crate) struct Charge {
    connection: Arc<Connection>,
    bytes: u64,
}

impl Charge {
    /// Nothing yet; `None` if nothing is left of the budget.
    pub(crate) fn begin(connection: &Arc<Connection>) -> Option<Charge> {
        let charge = Charge { connection: Arc::clone(connection), bytes: 0 };
        charge.has_left(charge.budget().held_bytes()).then_some(charge)
    }

    /// Takes what has arrived, which must be held in any case. Whether more may be.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        self.bytes += bytes as u64;
        let before = self.budget().held_bytes.fetch_add(bytes as u64, Relaxed);
        self.has_left(before + bytes as u64)
    }

    fn has_left(&self, held_bytes: u64) -> bool {
        let has_left = held_bytes < BODY_BUDGET_BYTES;
        if !has_left {
            self.budget().spent.fetch_add(1, Relaxed);
        }
        has_left
    }

    fn budget(&self) -> &BodyBudget {
        &self.connection.worker.shared.bodies
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget().held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
