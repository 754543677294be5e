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
    /// Since when it is in its list, by which that is sorted; like the former unless it was moved.
    since_ns: u64,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: NONE, len: 0, sequence: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Since when the entry in a slot is in its class; `None` for [`NONE`].
    pub(super) fn since_ns(&self, slot: u32) -> Option<u64> {
        Some(self.slots.get(slot as usize)?.entry.as_ref()?.since_ns)
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
            older: NONE,
            newer: NONE,
            sequence: self.sequence,
            entry: Some(Entry { item, class, arrived_ns, since_ns: arrived_ns }),
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
        self.link(ends, at);
        self.len += 1;
        Ticket { slot: at, sequence: self.sequence }
    }

    /// Takes an entry out of the list it is in, which must be the one with these ends.
    pub(super) fn remove(&mut self, ends: &mut Ends, at: u32) -> Option<(T, Ticket, u64)> {
        let slot = self.slots.get_mut(at as usize)?;
        let entry = slot.entry.take()?;
        let sequence = slot.sequence;
        self.unlink(ends, at);
        self.slots[at as usize].newer = self.free;
        self.free = at;
        self.len -= 1;
        Some((entry.item, Ticket { slot: at, sequence }, entry.arrived_ns))
    }

    /// Moves an entry to the newest end of another list.
    pub(super) fn move_to(
        &mut self,
        from: &mut Ends,
        into: &mut Ends,
        at: u32,
        class: usize,
        since_ns: u64,
    ) {
        self.unlink(from, at);
        if let Some(entry) = &mut self.slots[at as usize].entry {
            (entry.class, entry.since_ns) = (class, since_ns);
        }
        self.link(into, at);
    }

    /// Puts the entries of one list into another, whose class they are of from now on, so that all
    /// stand in the order in which they came.
    pub(super) fn merge(&mut self, from: Ends, into: &mut Ends, class: usize) {
        let (mut one, mut other) = (from.oldest, into.oldest);
        *into = Ends::EMPTY;
        loop {
            let from_one = match (self.since_ns(one), self.since_ns(other)) {
                (None, None) => return,
                (Some(came), Some(other_came)) => came < other_came,
                (came, None) => came.is_some(),
                (None, Some(_)) => false,
            };
            let next = if from_one { &mut one } else { &mut other };
            let at = *next;
            let slot = &mut self.slots[at as usize];
            *next = slot.newer;
            if let Some(entry) = &mut slot.entry {
                entry.class = class;
            }
            self.link(into, at);
        }
    }

    /// Puts a slot at the newest end of a list.
    fn link(&mut self, ends: &mut Ends, at: u32) {
        let slot = &mut self.slots[at as usize];
        (slot.older, slot.newer) = (ends.newest, NONE);
        match self.slots.get_mut(ends.newest as usize) {
            Some(before) => before.newer = at,
            None => ends.oldest = at,
        }
        ends.newest = at;
    }

    /// Takes a slot out of the list it is in.
    fn unlink(&mut self, ends: &mut Ends, at: u32) {
        let Slot { older, newer, .. } = self.slots[at as usize];
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => ends.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => ends.newest = older,
        }
    }
}
