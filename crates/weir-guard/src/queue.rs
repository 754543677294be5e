//! Requests that wait for an upstream: the highest class first but for the shares of others, each
//! no longer than its class allows, and newest first in a class whose queue stands. Decides nothing
//! about how many may run.

mod slots;
mod state;

use weir_config::Class;

use self::slots::Slots;
use self::state::ClassState;
use crate::class::Heir;

/// Classes that one queue, and one [`crate::Gate`], can tell apart. Higher indices count as the
/// last.
pub const CLASSES_MAX: usize = 8;

/// How long entries of a class wait, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLimits {
    /// Entries that may wait at a time. None waits when it is 0.
    pub entries_max: usize,
    /// How long one waits at most, in nanoseconds. None waits when it is 0.
    pub wait_ns: u64,
    /// So many turns in [`TURN`] are its own while one of its entries waits. All together have
    /// half of them at most; otherwise somebody may have to wait for longer than his share says.
    pub share: u32,
}

/// What a turn is worth in shares.
pub const TURN: u32 = 100;

impl From<&Class> for ClassLimits {
    fn from(class: &Class) -> ClassLimits {
        let wait_ns = u64::try_from(class.wait.as_nanos()).unwrap_or(u64::MAX);
        ClassLimits { entries_max: class.queue, wait_ns, share: class.share.into() }
    }
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShedReason {
    /// As many wait as may.
    Full,
    /// It has waited as long as its class allows.
    Expired,
}

impl ShedReason {
    /// All of them, in the order of [`ShedReason::index`].
    pub const ALL: [ShedReason; 2] = [ShedReason::Full, ShedReason::Expired];

    /// What header fields, logs and metrics call it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ShedReason::Full => "queue-full",
            ShedReason::Expired => "queue-wait",
        }
    }

    /// Its place in [`ShedReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What a waiting entry is called by while it waits. Never refers to another entry afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u32,
    sequence: u64,
}

/// An entry that waits no longer.
#[derive(Debug, PartialEq, Eq)]
pub struct Waited<T> {
    /// What was put in.
    pub item: T,
    /// The ticket it had.
    pub ticket: Ticket,
    /// Its class.
    pub class: usize,
    /// How long it has waited, in nanoseconds.
    pub waited_ns: u64,
}

/// A waiting request that is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Shed<T> {
    /// The request.
    pub waited: Waited<T>,
    /// Why.
    pub reason: ShedReason,
}

/// The outcome of [`ClassQueue::push`].
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed<T> {
    /// It waits.
    Waits(Ticket),
    /// It waits in the place of the oldest of its class.
    InsteadOf(Ticket, Shed<T>),
    /// It may not wait.
    Refused,
}

/// Whether there is room for one more.
enum Room<T> {
    None,
    Free,
    /// That of somebody who goes.
    Of(Shed<T>),
}

/// Waiting requests by class; class 0 goes first.
///
/// A class is first-in-first-out until somebody has waited for half of what may be waited, or until
/// one in eight leaves before his turn. From then on, until nobody waits, it *stands*: arrivals
/// exceed what can be served, so that in their order everyone would be served just before giving
/// up. The newest goes first then, and the oldest wait out their time ("adaptive LIFO": B. Maurer,
/// Fail at Scale, ACM Queue 13(8), 2015).
///
/// That article's queues stand as soon as they have not been empty for 100 ms, and their entries
/// are then shed after 5 ms: its clients are other servers, and try elsewhere. A person's browser
/// does not. Where 500 people wait a second each, nobody has to be sent away.
///
/// A class with a share earns it with each turn, whoever takes that, and takes one itself once it
/// has earned a whole. While nobody of it waits it earns nothing, and has nothing left. So it has
/// its share of the turns for as long as somebody waits, and comes late for it by no more than a
/// turn for each class that has a share, too.
///
/// When a class is full, whoever would be served last goes: the new entry while the order is
/// first-in-first-out, the oldest once the newest goes first.
#[derive(Debug)]
pub struct ClassQueue<T> {
    slots: Slots<T>,
    classes: Vec<ClassState>,
}

impl<T> ClassQueue<T> {
    /// An empty queue. Of `classes`, the first [`CLASSES_MAX`] count; none means one that may not
    /// wait.
    pub fn new(classes: &[ClassLimits]) -> ClassQueue<T> {
        ClassQueue { slots: Slots::new(), classes: ClassState::all(classes) }
    }

    /// Changes limits of classes that are there already; entries in excess leave as they are served
    /// or expire.
    pub fn configure(&mut self, classes: &[ClassLimits]) {
        for (state, limits) in self.classes.iter_mut().zip(classes) {
            state.limits = *limits;
        }
    }

    /// Other classes. `heirs` says what becomes of those before, by index. Whoever waits keeps its
    /// ticket and the time since when it has waited; those of a class that is gone stand among
    /// those of another in the order in which all came, and in excess as above. O(entries).
    pub fn reclass(&mut self, classes: &[ClassLimits], heirs: &[Heir]) {
        let before = std::mem::replace(&mut self.classes, ClassState::all(classes));
        let last = self.classes.len() - 1;
        for (class, was) in before.into_iter().enumerate() {
            let heir = heirs.get(class).copied().unwrap_or(Heir::Joins(last));
            let class = heir.rank().min(last);
            let state = &mut self.classes[class];
            self.slots.merge(was.ends, &mut state.ends, class);
            state.len += was.len;
            if let Heir::Is(_) = heir {
                (state.stands, state.vain, state.credit) = (was.stands, was.vain, was.credit);
            }
        }
    }

    /// Entries of all classes.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Entries of a class.
    pub fn class_len(&self, class: usize) -> usize {
        self.classes.get(class).map_or(0, |state| state.len)
    }

    /// The highest class of those who wait.
    pub fn first_class(&self) -> Option<usize> {
        self.classes.iter().position(|state| state.len > 0)
    }

    /// Whether a class stands.
    pub fn is_standing(&self, now_ns: u64, class: usize) -> bool {
        self.classes.get(class).is_some_and(|state| {
            let waited_ns = self.slots.since_ns(state.ends.oldest);
            let waited_ns = waited_ns.map_or(0, |arrived_ns| now_ns.saturating_sub(arrived_ns));
            state.len > 0 && (state.stands || waited_ns >= state.limits.wait_ns / 2)
        })
    }

    /// The same, which is kept in mind until the class is empty.
    fn stands(&mut self, now_ns: u64, class: usize) -> bool {
        let stands = self.is_standing(now_ns, class);
        self.classes[class].stands = stands;
        stands
    }

    /// Lets an entry wait; `make` is called if it may. O(1).
    pub fn push(&mut self, now_ns: u64, class: usize, make: impl FnOnce() -> T) -> Pushed<T> {
        let class = class.min(self.classes.len() - 1);
        let room = self.make_room(now_ns, class);
        if let Room::None = room {
            return Pushed::Refused;
        }
        let state = &mut self.classes[class];
        state.len += 1;
        let ticket = self.slots.insert(&mut state.ends, class, now_ns, make());
        match room {
            Room::Of(shed) => Pushed::InsteadOf(ticket, shed),
            _ => Pushed::Waits(ticket),
        }
    }

    /// Room for one more of a class, who comes into it at once.
    fn make_room(&mut self, now_ns: u64, class: usize) -> Room<T> {
        let ClassState { limits, len, credit, ends, .. } = self.classes[class];
        if limits.entries_max == 0 || limits.wait_ns == 0 {
            return Room::None;
        }
        if len < limits.entries_max {
            return Room::Free;
        }
        if !self.stands(now_ns, class) {
            return Room::None;
        }
        let Some(waited) = self.take(now_ns, class, ends.oldest) else { return Room::Free };
        // Taking the oldest of a queue of one does not end its standing: it was never empty.
        let state = &mut self.classes[class];
        (state.stands, state.credit) = (true, credit);
        Room::Of(Shed { waited, reason: ShedReason::Full })
    }

    /// Who goes next. What has expired by now is added to `shed` and never returned. O(classes),
    /// and O(1) for each that is shed.
    pub fn pop(&mut self, now_ns: u64, shed: &mut Vec<Shed<T>>) -> Option<Waited<T>> {
        self.expire(now_ns, shed);
        let first = self.first_class()?;
        let class = self.turn(first);
        self.next(now_ns, class)
    }

    /// Who goes before one of a class who does not have to wait: somebody of another one whose
    /// share the turn is. Where there is none, the turn counts as taken. Nobody may have expired.
    pub fn pop_before(&mut self, now_ns: u64, class: usize) -> Option<Waited<T>> {
        let taken_by = self.turn(class);
        if taken_by == class { None } else { self.next(now_ns, taken_by) }
    }

    /// Whose turn it is: that of one class, unless it is another's by its share.
    fn turn(&mut self, first: usize) -> usize {
        let mut taken_by = None;
        for (class, state) in self.classes.iter_mut().enumerate().filter(|(_, it)| it.len > 0) {
            state.credit = state.credit.saturating_add(state.limits.share);
            if state.credit >= TURN && class != first {
                taken_by = taken_by.or(Some(class));
            }
        }
        let class = taken_by.unwrap_or(first);
        if let Some(state) = self.classes.get_mut(class) {
            state.credit = state.credit.saturating_sub(TURN);
        }
        class
    }

    /// Who goes next in a class.
    fn next(&mut self, now_ns: u64, class: usize) -> Option<Waited<T>> {
        let stands = self.stands(now_ns, class);
        let state = &mut self.classes[class];
        state.vain.count(false);
        let next = if stands { state.ends.newest } else { state.ends.oldest };
        self.take(now_ns, class, next)
    }

    /// Takes an entry out whose client is gone. `None` if it does not wait any more. O(1).
    pub fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> Option<Waited<T>> {
        let class = self.slots.class_of(ticket)?;
        let state = &mut self.classes[class];
        state.vain.count(true);
        state.stands |= state.vain.is_much();
        self.take(now_ns, class, ticket.slot)
    }

    /// The class of an entry that waits.
    pub fn class_of(&self, ticket: Ticket) -> Option<usize> {
        self.slots.class_of(ticket)
    }

    /// Moves an entry to a higher class, where it waits like one that comes now: behind all of that
    /// class, and for as long as one may there. Where no more of them may wait, the one goes who
    /// would be served last, as in [`ClassQueue::push`], or the entry stays where it is. Whether it
    /// was moved; not if it does not wait any more, either. O(1).
    pub fn raise(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        class: usize,
        shed: &mut Vec<Shed<T>>,
    ) -> bool {
        let Some(from) = self.slots.class_of(ticket).filter(|from| class < *from) else {
            return false;
        };
        let since_ns = self.slots.since_ns(ticket.slot).unwrap_or(now_ns);
        let is_over = now_ns.saturating_sub(since_ns) >= self.classes[from].limits.wait_ns;
        let room = if is_over { Room::None } else { self.make_room(now_ns, class) };
        match room {
            Room::None => return false,
            Room::Free => {}
            Room::Of(instead_of) => shed.push(instead_of),
        }
        let (above, below) = self.classes.split_at_mut(from);
        let (into, was) = (&mut above[class], &mut below[0]);
        self.slots.move_to(&mut was.ends, &mut into.ends, ticket.slot, class, now_ns);
        was.leave();
        into.len += 1;
        true
    }

    /// Adds to `shed` whoever has waited as long as its class allows.
    pub fn expire(&mut self, now_ns: u64, shed: &mut Vec<Shed<T>>) {
        for class in (0..self.classes.len()).rev() {
            self.expire_class(now_ns, class, shed);
        }
    }

    /// How long the one has waited who has waited longest; 0 if nobody waits.
    pub fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        let arrived = |state: &ClassState| self.slots.since_ns(state.ends.oldest);
        let first = self.classes.iter().filter_map(arrived).min();
        first.map_or(0, |arrived_ns| now_ns.saturating_sub(arrived_ns))
    }

    /// When [`ClassQueue::expire`] has something to do next, if nothing else happens.
    pub fn next_deadline(&self) -> Option<u64> {
        let deadline = |state: &ClassState| {
            let arrived_ns = self.slots.since_ns(state.ends.oldest)?;
            Some(arrived_ns.saturating_add(state.limits.wait_ns))
        };
        self.classes.iter().filter_map(deadline).min()
    }

    fn expire_class(&mut self, now_ns: u64, class: usize, shed: &mut Vec<Shed<T>>) {
        loop {
            let state = &self.classes[class];
            let oldest = state.ends.oldest;
            let Some(arrived_ns) = self.slots.since_ns(oldest) else { return };
            if now_ns.saturating_sub(arrived_ns) < state.limits.wait_ns {
                return;
            }
            let Some(waited) = self.take(now_ns, class, oldest) else { return };
            // Others came after somebody who has waited in vain.
            let state = &mut self.classes[class];
            state.vain.count(true);
            state.stands = state.len > 0;
            shed.push(Shed { waited, reason: ShedReason::Expired });
        }
    }

    fn take(&mut self, now_ns: u64, class: usize, slot: u32) -> Option<Waited<T>> {
        let state = &mut self.classes[class];
        let (item, ticket, arrived_ns) = self.slots.remove(&mut state.ends, slot)?;
        state.leave();
        let waited_ns = now_ns.saturating_sub(arrived_ns);
        Some(Waited { item, ticket, class, waited_ns })
    }
}
