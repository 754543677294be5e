//! A word for each key, for as many keys as there is room for: where rules keep a bucket for each
//! address, header value or cookie. Bounded from the start, shared by all workers, without locks.
//!
//! The table is a cache of eight ways: a key's word is looked for in one set of eight, which is
//! two cache lines. In a full set the least word goes: the bucket that has been idle longest, which
//! is mostly full and so lost without loss.
//!
//! A key is known by 64 bits of its hash under a seed of the process; that two keys share a word
//! has a chance of 1 in 10^13 for a million keys. When a word is given to another key at the moment
//! that it is used, a token may be taken from the wrong bucket: one, once.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::quality::RandomState;

/// Ways of a set: their tags fill one cache line, their words another.
const WAYS: usize = 8;

/// Sets that [`KeyTable::busy`] looks at: with 32,768 ways the count of a table that is half full
/// is wrong by 0.6 % (one standard deviation), and takes as long however large the table is.
const SAMPLED_SETS: usize = 4096;

/// A key, as the table knows it. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub(crate) u64);

/// The table.
pub struct KeyTable {
    sets: Box<[Set]>,
    hasher: RandomState,
    /// Keys that lost their word before they were idle.
    pub forgotten: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Set {
    tags: [AtomicU64; WAYS],
    words: [AtomicU64; WAYS],
}

impl KeyTable {
    /// Room for at least so many keys, all taken from the start: 16 bytes each.
    pub fn new(keys: usize) -> KeyTable {
        KeyTable::with(keys, RandomState::default(), 0)
    }

    /// A table of another size in which keys have the same tags, and their words as far as there is
    /// room.
    pub fn resized(&self, keys: usize) -> KeyTable {
        let table = KeyTable::with(keys, self.hasher.clone(), self.forgotten.load(Relaxed));
        for set in &self.sets {
            for (tag, word) in set.tags.iter().zip(&set.words) {
                let (tag, word) = (tag.load(Relaxed), word.load(Relaxed));
                if tag != 0 && word != 0 {
                    // Whatever has no room in the new one is not forgotten for want of it later.
                    table.bucket(Tag(tag), u64::MAX).store(word, Relaxed);
                }
            }
        }
        table
    }

    fn with(keys: usize, hasher: RandomState, forgotten: u64) -> KeyTable {
        let sets = keys.div_ceil(WAYS).next_power_of_two();
        let sets = (0..sets).map(|_| Set::default()).collect();
        KeyTable { sets, hasher, forgotten: AtomicU64::new(forgotten) }
    }

    /// Keys there is room for.
    pub fn room(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Keys that have a word; walks over all.
    pub fn len(&self) -> usize {
        let used = |set: &Set| set.tags.iter().filter(|tag| tag.load(Relaxed) != 0).count();
        self.sets.iter().map(used).sum()
    }

    /// Keys whose word is above `now_ns`: those that are in use, where words are times. Exact in
    /// tables with room for up to 32,768 keys, estimated from as many in larger ones.
    pub fn busy(&self, now_ns: u64) -> usize {
        // Both are powers of two.
        let step = (self.sets.len() / SAMPLED_SETS).max(1);
        self.busy_in_every(step, now_ns) * step
    }

    /// The same, exactly; walks over all.
    pub fn busy_exactly(&self, now_ns: u64) -> usize {
        self.busy_in_every(1, now_ns)
    }

    fn busy_in_every(&self, step: usize, now_ns: u64) -> usize {
        let busy = |set: &Set| set.words.iter().filter(|word| word.load(Relaxed) > now_ns).count();
        self.sets.iter().step_by(step).map(busy).sum()
    }

    /// Whether no key has a word.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tag of a key of an owner, such as a rule's name.
    #[inline]
    pub fn tag(&self, owner: u64, key: impl Hash) -> Tag {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(owner);
        key.hash(&mut hasher);
        Tag(hasher.finish().max(1))
    }

    /// What stands for a name as an owner, the same for as long as the table lives.
    pub fn owner(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The word of a key, if it has one.
    #[inline]
    pub fn find(&self, tag: Tag) -> Option<&AtomicU64> {
        let set = self.set(tag);
        let way = set.tags.iter().position(|known| known.load(Relaxed) == tag.0)?;
        Some(&set.words[way])
    }

    /// The word of a key, zero if it had none. `now_ns` is the time up to which a word is idle.
    #[inline]
    pub fn bucket(&self, tag: Tag, now_ns: u64) -> &AtomicU64 {
        if let Some(word) = self.find(tag) {
            return word;
        }
        let set = self.set(tag);
        let (way, least) = set.least();
        if least > now_ns && set.tags[way].load(Relaxed) != 0 {
            self.forgotten.fetch_add(1, Relaxed);
        }
        set.give(way, tag)
    }

    #[inline]
    fn set(&self, tag: Tag) -> &Set {
        // A power of two of them; the low bits tell tags of a set apart no better than the high.
        &self.sets[tag.0 as usize & (self.sets.len() - 1)]
    }
}

impl Set {
    /// The way with the least word.
    fn least(&self) -> (usize, u64) {
        let words = self.words.iter().map(|word| word.load(Relaxed)).enumerate();
        words.min_by_key(|(_, word)| *word).unwrap_or((0, 0))
    }

    fn give(&self, way: usize, tag: Tag) -> &AtomicU64 {
        self.words[way].store(0, Relaxed);
        self.tags[way].store(tag.0, Relaxed);
        &self.words[way]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_with_its_key() {
        let table = KeyTable::new(1000);
        assert!(table.room() >= 1000);
        for key in 0..100_u64 {
            table.bucket(table.tag(1, key), 0).store(key + 1, Relaxed);
        }
        for key in 0..100_u64 {
            assert_eq!(table.find(table.tag(1, key)).unwrap().load(Relaxed), key + 1);
            assert!(table.find(table.tag(2, key)).is_none());
        }
        assert_eq!(table.len(), 100);
    }

    #[test]
    fn words_stay_when_the_table_grows() {
        let small = KeyTable::new(1 << 10);
        for key in 0..200_u64 {
            small.bucket(small.tag(1, key), 0).store(key + 1, Relaxed);
        }
        let large = small.resized(1 << 14);
        for key in 0..200_u64 {
            let tag = large.tag(1, key);
            assert_eq!(tag, small.tag(1, key));
            assert_eq!(large.find(tag).unwrap().load(Relaxed), key + 1);
        }
        assert_eq!((large.len(), large.owner("a")), (200, small.owner("a")));
        // Eight of them have room in one set.
        assert_eq!((small.resized(0).len(), large.resized(0).room()), (8, 8));
    }

    #[test]
    fn keys_in_use_are_counted_or_estimated() {
        let check = |room: usize, error_max: usize| {
            let table = KeyTable::new(room);
            assert_eq!(table.busy(0), 0);
            for key in 0..(room / 2) as u64 {
                table.bucket(table.tag(1, key), 100).store(100 + key % 2, Relaxed);
            }
            let expected = room / 4;
            let error = table.busy(100).abs_diff(expected);
            assert!(error <= error_max, "{room}: {error}");
            assert_eq!(table.busy(101), 0);
        };
        // A few keys lose their word to others of their set.
        check(1 << 12, 1 << 8);
        check(1 << 18, 1 << 14);
    }

    /// Millions of keys that are used once do not cost one that is in use its bucket.
    #[test]
    fn a_flood_of_keys_takes_the_place_of_idle_ones() {
        let table = KeyTable::new(1 << 12);
        let (mine, mut lost) = (table.tag(1, "mine"), 0);
        for now in 1..2_000_000_u64 {
            table.bucket(table.tag(1, now), now).store(now + 10, Relaxed);
            if now % 100 == 0 {
                lost += u32::from(table.find(mine).is_none());
                table.bucket(mine, now).store(now + 1000, Relaxed);
            }
        }
        assert!(table.len() <= table.room());
        assert_eq!(lost, 1, "only the first time");
    }
}
