//! Boundaries of source ranges in a map, sorted, under an index that leads near to where an address
//! belongs. Ranges stay ranges: written as prefixes for the kernel's tries they would be several
//! times as many, each put there by a call of its own, and a look-up would meet one line of memory
//! for each bit that differs.

use std::os::fd::RawFd;

use super::sources::Family;
use crate::error::KernelError;
use crate::sys::Mapped;

/// Bits of an index at most: its 256 KiB still lie in the second cache.
const INDEX_BITS_MAX: u32 = 16;

/// A table in a map: first the keys of all columns, then indices and values.
#[derive(Debug)]
pub(crate) struct Table {
    map: Mapped,
    /// IPv4 addresses; or the upper halves of IPv6 addresses.
    pub(super) high: Column,
    /// Lower halves, where some upper half does not decide.
    pub(super) low: Option<Low>,
}

/// Boundaries and what belongs to each. Offsets are in bytes from the map's beginning.
#[derive(Debug)]
pub(super) struct Column {
    /// Keys of 64 bits, the first 0.
    pub(super) keys_at: usize,
    /// Values of 32 bits.
    pub(super) values_at: usize,
    pub(super) count: usize,
    /// How often candidates must be halved until one is left.
    pub(super) halvings: u32,
    pub(super) index: Index,
}

/// From a key to candidates: places by equal parts of what lies between the outermost boundaries.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) at: usize,
    /// Where the places of keys are that are below the first boundary, and from the last one on.
    pub(super) outside_at: usize,
    /// The first boundary but 0, and the last.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) shift: u32,
    pub(super) slots: usize,
}

/// Runs of boundaries within one upper half each.
#[derive(Debug)]
pub(super) struct Low {
    pub(super) column: Column,
    /// Where each run begins, and where the last one ends.
    pub(super) index_at: usize,
    pub(super) runs: usize,
}

/// One column's content while the table is built.
#[derive(Default)]
struct Content {
    keys: Vec<u64>,
    values: Vec<u32>,
}

impl Table {
    /// Marks, among the values of upper halves, those that are numbers of runs.
    pub(super) const WITHIN: u32 = 1 << 31;

    /// A table of what [`Sources`](super::sources::Sources) found.
    pub(super) fn new(family: Family, starts: &[(u128, u32)]) -> Result<Table, KernelError> {
        let (high, low, runs) = match family {
            Family::V4 => (v4(starts), Content::default(), Vec::new()),
            Family::V6 => v6(starts),
        };
        let (index, slots, halvings) = index(&high.keys);
        let high_count = high.keys.len();
        let low_at = high_count * 8;
        let index_at = low_at + low.keys.len() * 8;
        let values_at = index_at + slots.len() * 4;
        let runs_at = values_at + high_count * 4;
        let low_values_at = runs_at + runs.len() * 4;
        let bytes = low_values_at + low.values.len() * 4;
        let map = Mapped::new("weir_sources", bytes.div_ceil(8))?;
        let halves = slots.iter().chain(&high.values).chain(&runs).chain(&low.values).copied();
        map.fill(high.keys.iter().chain(&low.keys).copied().chain(pairs(halves)));
        let lengths = runs.windows(2).map(|pair| pair[1] - pair[0]);
        let longest = lengths.max().unwrap_or(1);
        let low = (!low.keys.is_empty()).then(|| Low {
            column: Column {
                keys_at: low_at,
                values_at: low_values_at,
                count: low.keys.len(),
                halvings: halvings_of(longest),
                index: Index::default(),
            },
            index_at: runs_at,
            runs: runs.len() - 1,
        });
        let outside_at = values_at - 8;
        let index = Index { at: index_at, outside_at, ..index };
        let high = Column { keys_at: 0, values_at, count: high_count, halvings, index };
        Ok(Table { map, high, low })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.map.fd()
    }
}

fn v4(starts: &[(u128, u32)]) -> Content {
    Content {
        keys: starts.iter().map(|(start, _)| *start as u64).collect(),
        values: starts.iter().map(|(_, set)| *set).collect(),
    }
}

/// Upper halves; lower halves of those that do not decide; and where the runs of those begin.
fn v6(starts: &[(u128, u32)]) -> (Content, Content, Vec<u32>) {
    let (mut high, mut low, mut runs) = (Content::default(), Content::default(), Vec::new());
    // What holds before the boundaries that are looked at.
    let mut before = starts.first().map_or(0, |(_, set)| *set);
    for same in starts.chunk_by(|(one, _), (other, _)| one >> 64 == other >> 64) {
        let Some(((first, set), (_, last))) = same.first().zip(same.last()) else { continue };
        let key = (first >> 64) as u64;
        if same.len() == 1 && *first as u64 == 0 {
            push(&mut high, key, *set);
        } else {
            push(&mut high, key, Table::WITHIN | runs.len() as u32);
            runs.push(low.keys.len() as u32);
            if *first as u64 != 0 {
                push(&mut low, 0, before);
            }
            same.iter().for_each(|(start, set)| push(&mut low, *start as u64, *set));
            // From the next upper half on, what held last holds; the next boundary may say else.
            if let Some(next) = key.checked_add(1) {
                push(&mut high, next, *last);
            }
        }
        before = *last;
    }
    runs.push(low.keys.len() as u32);
    (high, low, runs)
}

/// Adds a boundary, or corrects the last one.
fn push(content: &mut Content, key: u64, value: u32) {
    if content.keys.last() == Some(&key) {
        content.keys.pop();
        content.values.pop();
    }
    content.keys.push(key);
    content.values.push(value);
}

/// An index over keys, its places, and how often the candidates of a place must be halved. Slot
/// `i` has the last key at or below where its part begins, and the last of all follows.
fn index(keys: &[u64]) -> (Index, Vec<u32>, u32) {
    let first = keys.get(1).copied().unwrap_or(1);
    let last = keys.last().copied().unwrap_or(1).max(first);
    let bits = (usize::BITS - keys.len().leading_zeros()).min(INDEX_BITS_MAX);
    let span = last - first;
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(bits);
    let slots = (span >> shift) as usize + 1;
    let place = |slot: usize| {
        let begins = first + ((slot as u64) << shift);
        keys.partition_point(|key| *key <= begins) as u32 - 1
    };
    let mut places: Vec<u32> = (0..slots).map(place).collect();
    // The mask that programs apply allows so many.
    places.resize(slots.next_power_of_two() + 1, keys.len() as u32 - 1);
    let lengths = places.windows(2).map(|pair| pair[1] - pair[0] + 1);
    let halvings = halvings_of(lengths.max().unwrap_or(1));
    places.extend([0, keys.len() as u32 - 1]);
    (Index { at: 0, outside_at: 0, first, last, shift, slots }, places, halvings)
}

/// How often so many candidates are halved until one is left, the larger half each time.
fn halvings_of(candidates: u32) -> u32 {
    u32::BITS - candidates.saturating_sub(1).leading_zeros()
}

/// Two numbers in each word, as they lie in memory.
fn pairs(halves: impl Iterator<Item = u32>) -> impl Iterator<Item = u64> {
    let mut halves = halves;
    std::iter::from_fn(move || {
        let first = halves.next()?.to_ne_bytes();
        let second = halves.next().unwrap_or(0).to_ne_bytes();
        let mut word = [0; 8];
        word[..4].copy_from_slice(&first);
        word[4..].copy_from_slice(&second);
        Some(u64::from_ne_bytes(word))
    })
}
