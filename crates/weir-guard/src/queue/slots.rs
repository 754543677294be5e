//! Storage of waiting entries: one table for all classes, and a list through it for each, so that
//! an entry can leave from anywhere without a search. Grows to what has waited at most at a time.

use super::Ticket;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Both ends of one class's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) oldest: u32,
    pub(super) newest: u32,
}

impl Ends {
    pub(super) const EMPTY: Ends = Ends { oldest: NONE, newest: NONE };
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Head of the list of free slots, linked by `newer`.
    free: u32,
    len: usize,
    sequence: u64,
}

#[derive(Debug)]
struct Slot<T> {
    older: u32,
    newer: u32,
    /// Of the entry that is or was here. Sequence numbers are not used twice.
    sequence: u64,
    entry: Option<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    class: usize,
    arrived_ns: u64,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: NONE, len: 0, sequence: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// When the entry in a slot came; `None` for [`NONE`].
    pub(super) fn arrived_ns(&self, slot: u32) -> Option<u64> {
        Some(self.slots.get(slot as usize)?.entry.as_ref()?.arrived_ns)
    }

    /// The class of an entry that is still here.
    pub(super) fn class_of(&self, ticket: Ticket) -> Option<usize> {
        let slot = self.slots.get(ticket.slot as usize)?;
        let entry = slot.entry.as_ref().filter(|_| slot.sequence == ticket.sequence)?;
        Some(entry.class)
    }

    /// Puts an entry at the newest end.
    pub(super) fn insert(
        &mut self,
        ends: &mut Ends,
        class: usize,
        arrived_ns: u64,
        item: T,
    ) -> Ticket {
        self.sequence += 1;
        let filled = Slot {
            older: ends.newest,
            newer: NONE,
            sequence: self.sequence,
            entry: Some(Entry { item, class, arrived_ns }),
        };
        let at = match self.slots.get_mut(self.free as usize) {
            Some(slot) => {
                let at = self.free;
                self.free = slot.newer;
                *slot = filled;
                at
            }
            None => {
                // Sums of queue limits are far below 2^32: an entry takes more than a byte.
                let at = u32::try_from(self.slots.len()).unwrap_or(NONE);
                self.slots.push(filled);
                at
            }
        };
        match self.slots.get_mut(ends.newest as usize) {
            Some(before) => before.newer = at,
            None => ends.oldest = at,
        }
        ends.newest = at;
        self.len += 1;
        Ticket { slot: at, sequence: self.sequence }
    }

    /// Takes an entry out of the list it is in, which must be the one with these ends.
    pub(super) fn remove(&mut self, ends: &mut Ends, at: u32) -> Option<(T, Ticket, u64)> {
        let slot = self.slots.get_mut(at as usize)?;
        let entry = slot.entry.take()?;
        let (older, newer, sequence) = (slot.older, slot.newer, slot.sequence);
        slot.newer = self.free;
        self.free = at;
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => ends.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => ends.newest = older,
        }
        self.len -= 1;
        Some((entry.item, Ticket { slot: at, sequence }, entry.arrived_ns))
    }
}
