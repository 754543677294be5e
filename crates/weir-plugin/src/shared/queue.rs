//! Shared queues: what one plugin puts in, another takes out.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::limits::{
    QUEUE_BYTES_MAX, QUEUE_ITEM_BYTES_MAX, QUEUE_ITEMS_MAX, QUEUES_MAX, SPACES_MAX,
};
use crate::place::Home;

/// Why a queue did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueError {
    /// There is none with that number, for this plugin.
    #[error("no queue has that number")]
    Unknown,
    /// Over a limit.
    #[error("{what} would be more than {limit}")]
    Beyond { what: &'static str, limit: usize },
}

/// All shared queues.
#[derive(Default)]
pub(super) struct Queues(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By number.
    queues: HashMap<u32, Queue>,
    /// Numbers, by space and name.
    names: HashMap<Box<str>, HashMap<Box<str>, u32>>,
    last_id: u32,
}

struct Queue {
    space: Box<str>,
    items: VecDeque<Bytes>,
    bytes: usize,
    /// Instances that registered it, the next one to be told first.
    listeners: VecDeque<Home>,
}

impl Queues {
    pub(super) fn register(
        &self,
        space: &str,
        name: &str,
        home: Option<&Home>,
    ) -> Result<u32, QueueError> {
        let mut inner = self.0.lock();
        let known = inner.names.get(space).and_then(|names| names.get(name)).copied();
        let id = match known {
            Some(id) => id,
            None => inner.create(space, name)?,
        };
        if let (Some(queue), Some(home)) = (inner.queues.get_mut(&id), home) {
            // A place's newer instance takes over from its older one.
            queue.listeners.retain(|other| other.place != home.place && is_there(other));
            queue.listeners.push_back(home.clone());
        }
        Ok(id)
    }

    pub(super) fn resolve(&self, space: &str, name: &str) -> Option<u32> {
        self.0.lock().names.get(space)?.get(name).copied()
    }

    pub(super) fn push(
        &self,
        id: u32,
        item: Bytes,
        may: impl FnOnce(&str) -> bool,
    ) -> Result<(), QueueError> {
        at_most("bytes of an item", item.len(), QUEUE_ITEM_BYTES_MAX)?;
        let mut inner = self.0.lock();
        let queue = inner.queue(id, may)?;
        at_most("items of a queue", queue.items.len() + 1, QUEUE_ITEMS_MAX)?;
        at_most("bytes of a queue", queue.bytes + item.len(), QUEUE_BYTES_MAX)?;
        queue.bytes += item.len();
        queue.items.push_back(item);
        queue.listeners.retain(is_there);
        let told = queue.listeners.pop_front();
        if let Some(home) = &told {
            queue.listeners.push_back(home.clone());
        }
        drop(inner);
        if let Some(home) = told {
            home.deliver(move |instance| instance.queue_ready(id));
        }
        Ok(())
    }

    pub(super) fn pop(
        &self,
        id: u32,
        may: impl FnOnce(&str) -> bool,
    ) -> Result<Option<Bytes>, QueueError> {
        let mut inner = self.0.lock();
        let queue = inner.queue(id, may)?;
        let item = queue.items.pop_front();
        queue.bytes -= item.as_ref().map_or(0, Bytes::len);
        Ok(item)
    }

    pub(super) fn forget(&self, space: &str) {
        let mut inner = self.0.lock();
        inner.names.remove(space);
        inner.queues.retain(|_, queue| *queue.space != *space);
    }
}

impl Inner {
    fn create(&mut self, space: &str, name: &str) -> Result<u32, QueueError> {
        if !self.names.contains_key(space) {
            at_most("names with shared queues", self.names.len() + 1, SPACES_MAX)?;
        }
        at_most("bytes of a name", name.len(), crate::limits::DATA_KEY_BYTES_MAX)?;
        let names = self.names.entry(space.into()).or_default();
        at_most("queues of one name", names.len() + 1, QUEUES_MAX)?;
        // At most a million queues exist, so that numbers run out before they come round.
        let id = loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.queues.contains_key(&self.last_id) {
                break self.last_id;
            }
        };
        names.insert(name.into(), id);
        let (items, listeners) = (VecDeque::new(), VecDeque::new());
        self.queues.insert(id, Queue { space: space.into(), items, bytes: 0, listeners });
        Ok(id)
    }

    fn queue(&mut self, id: u32, may: impl FnOnce(&str) -> bool) -> Result<&mut Queue, QueueError> {
        self.queues.get_mut(&id).filter(|queue| may(&queue.space)).ok_or(QueueError::Unknown)
    }
}

fn is_there(home: &Home) -> bool {
    home.slot.strong_count() > 0
}

fn at_most(what: &'static str, count: usize, limit: usize) -> Result<(), QueueError> {
    if count > limit { Err(QueueError::Beyond { what, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_and_only_to_those_who_may() {
        let queues = Queues::default();
        let id = queues.register("a", "q", None).unwrap();
        assert_eq!(queues.register("a", "q", None), Ok(id));
        assert_eq!(queues.resolve("a", "q"), Some(id));
        assert_eq!(queues.resolve("b", "q"), None);
        assert_ne!(queues.register("b", "q", None), Ok(id));
        for item in ["1", "2"] {
            queues.push(id, Bytes::from(item), |space| space == "a").unwrap();
        }
        assert_eq!(queues.pop(id, |space| space == "b"), Err(QueueError::Unknown));
        assert_eq!(queues.push(id, Bytes::new(), |_| false), Err(QueueError::Unknown));
        assert_eq!(queues.pop(id, |_| true), Ok(Some(Bytes::from("1"))));
        assert_eq!(queues.pop(id, |_| true), Ok(Some(Bytes::from("2"))));
        assert_eq!(queues.pop(id, |_| true), Ok(None));
        queues.forget("a");
        assert_eq!(queues.pop(id, |_| true), Err(QueueError::Unknown));
    }

    #[test]
    fn grows_no_further_than_its_limits() {
        let queues = Queues::default();
        let id = queues.register("a", "q", None).unwrap();
        let push = |bytes: usize| queues.push(id, Bytes::from(vec![0; bytes]), |_| true);
        assert!(matches!(push(QUEUE_ITEM_BYTES_MAX + 1), Err(QueueError::Beyond { .. })));
        let item = Bytes::from(vec![0; QUEUE_ITEM_BYTES_MAX]);
        for _ in 0..QUEUE_BYTES_MAX / QUEUE_ITEM_BYTES_MAX {
            queues.push(id, item.clone(), |_| true).unwrap();
        }
        assert!(matches!(push(1), Err(QueueError::Beyond { .. })));
        queues.pop(id, |_| true).unwrap();
        assert_eq!(push(1), Ok(()));
        for n in 1..QUEUES_MAX {
            queues.register("a", &n.to_string(), None).unwrap();
        }
        assert!(matches!(queues.register("a", "more", None), Err(QueueError::Beyond { .. })));
    }
}
