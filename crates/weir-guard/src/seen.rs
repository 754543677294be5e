//! A set of small numbers that takes no memory before the first: what a request has met already.

/// The set.
#[derive(Default)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    /// Whether a number, which is below `most`, was not in it.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32, most: usize) -> bool {
        if self.0.is_empty() {
            self.0.resize(most.div_ceil(64), 0);
        }
        let (word, bit) = (&mut self.0[number as usize / 64], 1 << (number % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether a number is in it.
    #[inline]
    pub(crate) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }
}
