//! Verdicts that were given before: a table of so many, where the newest takes the place of
//! whatever was in its own. All threads share it, without a lock.

use std::hash::BuildHasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Places; 8 bytes each. A page asks for a hundred things, a site of many pages for the same ones.
const PLACES: usize = 1 << 14;

/// The part of a place that says what it is about; the rest is the verdict.
const TAG: u64 = !0xff;

/// A verdict as it is kept: 0 is none.
pub(super) type Code = u8;

/// What has been asked before.
#[derive(Debug)]
pub(super) struct Verdicts {
    places: Box<[AtomicU64]>,
    /// Keyed anew in each process: nobody can choose URLs that meet in one place.
    hasher: foldhash::quality::RandomState,
}

impl Verdicts {
    pub(super) fn new() -> Verdicts {
        let places = std::iter::repeat_with(AtomicU64::default).take(PLACES).collect();
        Verdicts { places, hasher: foldhash::quality::RandomState::default() }
    }

    /// What a question is known by.
    pub(super) fn key(&self, question: impl std::hash::Hash) -> u64 {
        self.hasher.hash_one(question)
    }

    /// What was answered to it.
    pub(super) fn find(&self, key: u64) -> Option<Code> {
        // A place is one word, so that what is read was written at once.
        let place = self.place(key).load(Relaxed);
        let code = (place & !TAG) as Code;
        (place & TAG == key & TAG && code != 0).then_some(code)
    }

    pub(super) fn keep(&self, key: u64, code: Code) {
        self.place(key).store(key & TAG | u64::from(code), Relaxed);
    }

    /// The tag has all of the key but its last 8 bits, which choose the place with the 6 before.
    fn place(&self, key: u64) -> &AtomicU64 {
        &self.places[key as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_kept_until_others_take_their_places() {
        let verdicts = Verdicts::new();
        let key = |number: u64| verdicts.key(("https://a.example/", number));
        let count = 4 * PLACES as u64;
        for number in 0..count {
            assert_eq!(verdicts.find(key(number)), None);
            verdicts.keep(key(number), (number % 250 + 1) as u8);
            assert_eq!(verdicts.find(key(number)), Some((number % 250 + 1) as u8));
        }
        let right = |number: &u64| verdicts.find(key(*number)) == Some((number % 250 + 1) as u8);
        let wrong = |number: &u64| verdicts.find(key(*number)).is_some() && !right(number);
        let kept = (0..count).filter(right).count();
        assert!(kept > PLACES / 2 && kept <= PLACES, "{kept}");
        assert_eq!((0..count).filter(wrong).count(), 0);
    }
}
