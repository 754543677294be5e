//! How many requests of a key are being served. A key is kept for as long as it has one, so that
//! there are never more than there are requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;

use crate::keys::Tag;

/// Parts with a lock each: workers seldom meet.
const SHARDS: usize = 64;

/// Counts by key.
pub(crate) struct Running([Mutex<HashMap<Tag, u32, foldhash::fast::RandomState>>; SHARDS]);

impl Running {
    pub(crate) fn new() -> Running {
        Running(std::array::from_fn(|_| Mutex::default()))
    }

    /// Requests of a key.
    pub(crate) fn of(&self, tag: Tag) -> u32 {
        self.shard(tag).lock().get(&tag).copied().unwrap_or(0)
    }

    /// Counts one more, unless there are `most` already.
    pub(crate) fn begin(&self, tag: Tag, most: u32) -> bool {
        let mut shard = self.shard(tag).lock();
        let count = shard.entry(tag).or_insert(0);
        let begins = *count < most;
        *count += u32::from(begins);
        begins
    }

    /// Counts one less.
    pub(crate) fn end(&self, tag: Tag) {
        if let Entry::Occupied(mut entry) = self.shard(tag).lock().entry(tag) {
            match entry.get_mut() {
                1 => {
                    entry.remove();
                }
                count => *count -= 1,
            }
        }
    }

    fn shard(&self, tag: Tag) -> &Mutex<HashMap<Tag, u32, foldhash::fast::RandomState>> {
        &self.0[tag.0 as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyTable;

    #[test]
    fn as_many_as_may_and_nothing_is_left() {
        let (running, table) = (Running::new(), KeyTable::new(8));
        let (one, other) = (table.tag(0, 1), table.tag(0, 2));
        assert!(running.begin(one, 2) && running.begin(one, 2) && !running.begin(one, 2));
        assert!(running.begin(other, 1));
        running.end(one);
        assert_eq!((running.of(one), running.of(other)), (1, 1));
        assert!(running.begin(one, 2));
        for tag in [one, one, other] {
            running.end(tag);
        }
        assert!(running.0.iter().all(|shard| shard.lock().is_empty()));
    }
}
