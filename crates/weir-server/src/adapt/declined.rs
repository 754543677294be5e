//! Variants that are not worth it, or cannot be made: remembered, so that it is not tried again at
//! every hit.

use std::collections::{HashMap, VecDeque};

use parking_lot::RwLock;

/// Hits look here and write nothing; each of these has a lock of its own.
const SHARDS: usize = 64;

/// So many are remembered in each; then the oldest are forgotten, and tried again.
const DECLINED_MAX: usize = 65_536 / SHARDS;

/// Why, by what a job is known by.
pub(super) struct Declined([RwLock<Shard>; SHARDS]);

#[derive(Default)]
struct Shard {
    why: HashMap<u128, &'static str>,
    oldest: VecDeque<u128>,
}

impl Default for Declined {
    fn default() -> Declined {
        Declined(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Declined {
    pub(super) fn why(&self, key: u128) -> Option<&'static str> {
        self.shard(key).read().why.get(&key).copied()
    }

    pub(super) fn add(&self, key: u128, why: &'static str) {
        self.shard(key).write().add(key, why);
    }

    fn shard(&self, key: u128) -> &RwLock<Shard> {
        // Both halves differ between jobs: the original's number and the variant's fingerprint.
        let mixed = (key >> 64) as u64 ^ key as u64;
        &self.0[mixed as usize % SHARDS]
    }
}

impl Shard {
    fn add(&mut self, key: u128, why: &'static str) {
        if self.why.insert(key, why).is_some() {
            return;
        }
        self.oldest.push_back(key);
        if self.oldest.len() > DECLINED_MAX
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.why.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let declined = Declined::default();
        // All of one shard.
        let keys = (0..=DECLINED_MAX as u128).map(|number| number * SHARDS as u128);
        for key in keys {
            declined.add(key, "not-smaller");
            declined.add(key, "failed");
        }
        assert_eq!(declined.why(0), None);
        assert_eq!(declined.why(SHARDS as u128), Some("failed"));
        assert_eq!(declined.why(1), None);
        let shard = declined.shard(0).read();
        assert_eq!((shard.why.len(), shard.oldest.len()), (DECLINED_MAX, DECLINED_MAX));
    }
}
