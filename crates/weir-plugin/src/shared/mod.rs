//! What plugins share: data, queues, and the metrics that they define. All of it outlives instances
//! and generations.

mod data;
mod metrics;
mod queue;

use std::sync::Arc;

use bytes::Bytes;

pub(crate) use data::{CAS_ABSENT, DataError, Expect};
pub(crate) use metrics::MetricError;
pub use metrics::{MetricKind, MetricReading, PluginMetrics};
pub(crate) use queue::QueueError;

use crate::place::Home;

/// Shared data and shared queues of all plugins in the process. Each has a space: the name of the
/// plugin that it belongs to, or another that several plugins may use.
#[derive(Default)]
pub struct Commons {
    data: data::Data,
    queues: queue::Queues,
}

impl Commons {
    /// Without content.
    pub fn new() -> Arc<Commons> {
        Arc::default()
    }

    /// Forgets what belongs to a plugin that is removed.
    pub fn forget(&self, space: &str) {
        self.data.forget(space);
        self.queues.forget(space);
    }

    /// The value of a key, and the number that changes with it.
    pub(crate) fn data(&self, space: &str, key: &str) -> Option<(Bytes, u32)> {
        self.data.value(space, key)
    }

    /// Sets a value, if the key holds what is expected. Returns the value's number.
    pub(crate) fn set_data(
        &self,
        space: &str,
        key: &str,
        value: Bytes,
        expect: Expect,
    ) -> Result<u32, DataError> {
        self.data.set(space, key, value, expect)
    }

    /// Opens a queue, and makes it if it is not there. An instance with a home that is not `home`'s
    /// place is told of what comes into it, as well as this one.
    pub(crate) fn register_queue(
        &self,
        space: &str,
        name: &str,
        home: &Home,
    ) -> Result<u32, QueueError> {
        self.queues.register(space, name, Some(home))
    }

    /// A queue that is there.
    pub(crate) fn queue(&self, space: &str, name: &str) -> Option<u32> {
        self.queues.resolve(space, name)
    }

    /// Puts something at a queue's end and tells one of the instances that registered it. To those
    /// that `may` not use its space, a queue is unknown.
    pub(crate) fn enqueue(
        &self,
        id: u32,
        item: Bytes,
        may: impl FnOnce(&str) -> bool,
    ) -> Result<(), QueueError> {
        self.queues.push(id, item, may)
    }

    /// Takes what is at a queue's front.
    pub(crate) fn dequeue(
        &self,
        id: u32,
        may: impl FnOnce(&str) -> bool,
    ) -> Result<Option<Bytes>, QueueError> {
        self.queues.pop(id, may)
    }
}
