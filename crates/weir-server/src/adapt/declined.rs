//! Variants that are not worth it, or cannot be made: remembered, so that it is not tried again at
//! every hit.

use std::collections::{HashMap, VecDeque};

/// So many are remembered; then the oldest are forgotten, and tried again.
const DECLINED_MAX: usize = 65_536;

/// Why, by what a job is known by.
#[derive(Default)]
pub(super) struct Declined {
    why: HashMap<u128, &'static str>,
    oldest: VecDeque<u128>,
}

impl Declined {
    pub(super) fn why(&self, key: u128) -> Option<&'static str> {
        self.why.get(&key).copied()
    }

    pub(super) fn add(&mut self, key: u128, why: &'static str) {
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
        let mut declined = Declined::default();
        for key in 0..=DECLINED_MAX as u128 {
            declined.add(key, "not-smaller");
            declined.add(key, "failed");
        }
        assert_eq!(declined.why(0), None);
        assert_eq!(declined.why(1), Some("failed"));
        assert_eq!((declined.why.len(), declined.oldest.len()), (DECLINED_MAX, DECLINED_MAX));
    }
}
