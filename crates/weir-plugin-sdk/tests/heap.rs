//! The allocator of plugins, over memory of the test's own.

#![allow(unsafe_code, reason = "blocks are addresses")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::alloc::Layout;
use std::collections::BTreeMap;

use weir_plugin_sdk::raw::heap::{Heap, Source};

const ARENA_BYTES: usize = 1 << 18;
const UNIT: usize = 16;

/// Hands an arena out, in parts that touch if there is no gap.
struct Arena {
    units: Vec<u128>,
    used: usize,
    gap: usize,
    handed_out: usize,
}

impl Arena {
    fn heap(gap: usize) -> Heap<Arena> {
        Heap::new(Arena { units: vec![0; ARENA_BYTES / UNIT], used: 0, gap, handed_out: 0 })
    }
}

impl Source for Arena {
    fn more(&mut self, bytes: usize) -> Option<(*mut u8, usize)> {
        let bytes = bytes.next_multiple_of(4096);
        let start = self.used + self.gap;
        self.used = start.checked_add(bytes).filter(|end| *end <= ARENA_BYTES)?;
        self.handed_out += bytes;
        Some((self.units.as_mut_ptr().cast::<u8>().wrapping_add(start), bytes))
    }
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).unwrap()
}

struct Block {
    start: *mut u8,
    layout: Layout,
    fill: u8,
}

impl Block {
    fn take(heap: &mut Heap<Arena>, layout: Layout, fill: u8) -> Option<Block> {
        let start = heap.allocate(layout);
        if start.is_null() {
            return None;
        }
        assert!(start.addr().is_multiple_of(layout.align()));
        // SAFETY: the block has these bytes.
        unsafe { start.write_bytes(fill, layout.size()) };
        Some(Block { start, layout, fill })
    }

    fn give_back(self, heap: &mut Heap<Arena>) {
        // SAFETY: it is allocated, and was written.
        let content = unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) };
        assert!(content.iter().all(|byte| *byte == self.fill), "written over");
        // SAFETY: it was allocated with this layout.
        unsafe { heap.free(self.start, self.layout) };
    }
}

/// Blocks of all sizes and alignments, taken and given back in no order: none overlaps another, and
/// nothing is lost.
fn check(seed: u64, gap: usize) {
    let mut heap = Arena::heap(gap);
    let mut live: BTreeMap<usize, Block> = BTreeMap::new();
    let mut state = seed;
    let mut random = |below: usize| {
        // Knuth's multiplier.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let steps = if cfg!(miri) { 300 } else { 4000 };
    for step in 0..steps {
        let most = [48, 600, 9000][random(3)];
        if random(2) == 0 || live.is_empty() {
            let wanted = layout(1 + random(most), 1 << random(8));
            let Some(block) = Block::take(&mut heap, wanted, step as u8) else { continue };
            let end = block.start.addr() + wanted.size();
            let below = live.range(..end).next_back();
            let is_apart =
                |at: usize, other: &Block| at + other.layout.size() <= end - wanted.size();
            assert!(below.is_none_or(|(at, other)| is_apart(*at, other)), "two in one place");
            live.insert(block.start.addr(), block);
        } else {
            let key = *live.keys().nth(random(live.len())).unwrap();
            live.remove(&key).unwrap().give_back(&mut heap);
        }
    }
    assert!(!live.is_empty() && heap.source().handed_out > ARENA_BYTES / 8, "too easy");
    live.into_values().for_each(|block| block.give_back(&mut heap));
    let (kept, large) = heap.free_bytes();
    assert_eq!(kept + large.iter().sum::<usize>(), heap.source().handed_out);
}

#[test]
fn blocks_are_apart_and_nothing_is_lost() {
    (0..8).for_each(|seed| check(seed, 0));
    (8..16).for_each(|seed| check(seed, UNIT));
}

#[test]
fn memory_is_used_again() {
    let mut heap = Arena::heap(0);
    for bytes in [1, 16, 17, 512, 513, 5000, 40_000] {
        for round in 0..100 {
            Block::take(&mut heap, layout(bytes, 8), round).unwrap().give_back(&mut heap);
        }
    }
    // One block of each small size is kept, 16, 32 and 512 bytes; the rest is one.
    let (kept, large) = heap.free_bytes();
    assert_eq!((kept, large.len()), (560, 1));
    assert!(heap.source().handed_out <= 52 << 10, "{}", heap.source().handed_out);
}

#[test]
fn there_is_an_end() {
    let mut heap = Arena::heap(0);
    assert!(Block::take(&mut heap, layout(ARENA_BYTES + 1, 1), 1).is_none());
    assert!(Block::take(&mut heap, layout(1, 1 << 20), 1).is_none());
    let all = Block::take(&mut heap, layout(ARENA_BYTES, 1), 1).unwrap();
    assert!(Block::take(&mut heap, layout(1, 1), 1).is_none());
    all.give_back(&mut heap);
    assert!(Block::take(&mut heap, layout(1, 1), 1).is_some());
}
