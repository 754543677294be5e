//! The queue against a simple model: order, bounds and deadlines, also while classes change.

mod common;

use std::collections::BTreeMap;

use common::{MS, ORDERS, Order, heirs, limits};
use proptest::prelude::*;
use weir_guard::{ClassLimits, ClassQueue, Heir, Pushed, Shed, ShedReason, Ticket};

#[derive(Clone, Debug)]
enum QueueOp {
    Pass(u64),
    Push(usize),
    Pop,
    Expire,
    Cancel(usize),
    Reclass(Order),
    Raise(usize, usize),
}

fn queue_op() -> impl Strategy<Value = QueueOp> {
    prop_oneof![
        3 => prop_oneof![0..2 * MS, 0..60 * MS].prop_map(QueueOp::Pass),
        4 => (0usize..5).prop_map(QueueOp::Push),
        2 => Just(QueueOp::Pop),
        1 => Just(QueueOp::Expire),
        1 => (0usize..40).prop_map(QueueOp::Cancel),
        1 => prop::sample::select(&ORDERS[..]).prop_map(QueueOp::Reclass),
        2 => (0usize..40, 0usize..4).prop_map(|(at, class)| QueueOp::Raise(at, class)),
    ]
}

type ShedNumbers = Vec<(u32, ShedReason)>;

/// The queue as one would write it without a thought of speed.
struct Model {
    order: Order,
    /// One that goes first in front.
    classes: Vec<ClassModel>,
    /// When each came.
    arrived_ns: BTreeMap<u32, u64>,
}

#[derive(Clone, Default)]
struct ClassModel {
    /// Oldest first: number, and since when it is here.
    entries: Vec<(u32, u64)>,
    /// Somebody has waited for half of the time since the class was last empty, or too many left.
    stands: bool,
    /// Who waited in vain, of those who wait no more.
    vain: Vec<bool>,
    /// Hundredths of a turn that its share has earned while somebody waited.
    credit: u32,
}

/// Whether one in eight waited in vain, as a mean in which each counts a sixteenth less than the
/// one after him.
fn is_much(vain: &[bool]) -> bool {
    let share = |share: u32, is_vain: &bool| share - share / 16 + u32::from(*is_vain) * 4096;
    vain.iter().fold(0, share) >= 8192
}

impl Model {
    fn new(order: Order) -> Model {
        let classes = vec![ClassModel::default(); order.len()];
        Model { order, classes, arrived_ns: BTreeMap::new() }
    }

    fn reclass(&mut self, order: Order) {
        let heirs = heirs(self.order, order);
        let before = std::mem::replace(self, Model::new(order));
        self.arrived_ns = before.arrived_ns;
        for (was, heir) in before.classes.into_iter().zip(heirs) {
            let class = &mut self.classes[heir.rank()];
            class.entries.extend(was.entries);
            class.entries.sort_by_key(|(_, at_ns)| *at_ns);
            if matches!(heir, Heir::Is(_)) {
                (class.stands, class.vain, class.credit) = (was.stands, was.vain, was.credit);
            }
        }
    }

    /// Whether a class stands, which is kept in mind.
    fn stands(&mut self, now_ns: u64, class: usize) -> bool {
        let half_ns = limits(self.order)[class].wait_ns / 2;
        let class = &mut self.classes[class];
        let is_late = class.entries.first().is_some_and(|(_, at_ns)| now_ns - at_ns >= half_ns);
        class.stands = !class.entries.is_empty() && (class.stands || is_late);
        class.stands
    }

    fn len(&self) -> usize {
        self.classes.iter().map(|class| class.entries.len()).sum()
    }

    /// `None`: waits. Otherwise who goes: the new one itself, or another.
    fn push(&mut self, now_ns: u64, class: usize, number: u32) -> Option<u32> {
        let class = class.min(self.classes.len() - 1);
        let is_full = self.classes[class].entries.len() >= limits(self.order)[class].entries_max;
        if is_full && !self.stands(now_ns, class) {
            return Some(number);
        }
        self.arrived_ns.insert(number, now_ns);
        let entries = &mut self.classes[class].entries;
        entries.push((number, now_ns));
        is_full.then(|| entries.remove(0).0)
    }

    fn expire(&mut self, now_ns: u64, class: usize) -> ShedNumbers {
        let mut shed = Vec::new();
        let wait_ns = limits(self.order)[class].wait_ns;
        let class = &mut self.classes[class];
        while let Some((number, at_ns)) = class.entries.first().copied() {
            if now_ns - at_ns < wait_ns {
                break;
            }
            shed.push((number, ShedReason::Expired));
            class.entries.remove(0);
            class.vain.push(true);
            class.stands = true;
        }
        class.stands &= !class.entries.is_empty();
        shed
    }

    fn pop(&mut self, now_ns: u64) -> (Option<(u32, u64)>, ShedNumbers) {
        let classes = (0..self.classes.len()).rev();
        let shed = classes.flat_map(|class| self.expire(now_ns, class)).collect();
        let first = self.classes.iter().position(|class| !class.entries.is_empty());
        (first.map(|first| self.take_turn(now_ns, first)), shed)
    }

    /// The turn of one class, unless another has earned it.
    fn take_turn(&mut self, now_ns: u64, first: usize) -> (u32, u64) {
        self.forget_credit();
        let shares = limits(self.order);
        let waits: Vec<usize> =
            (0..shares.len()).filter(|class| !self.classes[*class].entries.is_empty()).collect();
        waits.iter().for_each(|class| self.classes[*class].credit += shares[*class].share);
        let has_earned = |class: &&usize| **class != first && self.classes[**class].credit >= 100;
        let class = *waits.iter().find(has_earned).unwrap_or(&first);
        let stands = self.stands(now_ns, class);
        let class = &mut self.classes[class];
        class.credit = class.credit.saturating_sub(100);
        let at = if stands { class.entries.len() - 1 } else { 0 };
        let (number, _) = class.entries.remove(at);
        class.vain.push(false);
        class.stands &= !class.entries.is_empty();
        (number, now_ns - self.arrived_ns[&number])
    }

    /// Where nobody waits.
    fn forget_credit(&mut self) {
        let empty = self.classes.iter_mut().filter(|class| class.entries.is_empty());
        empty.for_each(|class| class.credit = 0);
    }

    /// Whether it is of a higher class now, and who has gone for that.
    fn raise(&mut self, now_ns: u64, number: u32, to: usize) -> (bool, Option<u32>) {
        let place = |class: &ClassModel| class.entries.iter().position(|(n, _)| *n == number);
        let mut places = self.classes.iter().map(place).enumerate();
        let found = places.find_map(|(from, at)| Some((from, at?))).filter(|(from, _)| to < *from);
        let Some((from, at)) = found else { return (false, None) };
        if now_ns - self.classes[from].entries[at].1 >= limits(self.order)[from].wait_ns {
            return (false, None);
        }
        let arrived_ns = self.arrived_ns[&number];
        let gone = self.push(now_ns, to, number);
        self.arrived_ns.insert(number, arrived_ns);
        if gone == Some(number) {
            return (false, None);
        }
        let class = &mut self.classes[from];
        class.entries.remove(at);
        class.stands &= !class.entries.is_empty();
        (true, gone)
    }

    /// Whether it waited.
    fn cancel(&mut self, number: u32) -> bool {
        for class in &mut self.classes {
            let Some(at) = class.entries.iter().position(|(n, _)| *n == number) else { continue };
            class.entries.remove(at);
            class.vain.push(true);
            class.stands |= is_much(&class.vain);
            class.stands &= !class.entries.is_empty();
            return true;
        }
        false
    }

    /// Whether anyone is to be shed, by trying.
    fn is_due(&self, now_ns: u64) -> bool {
        self.classes.iter().zip(limits(self.order)).any(|(class, limits)| {
            class.entries.first().is_some_and(|(_, at_ns)| now_ns - at_ns >= limits.wait_ns)
        })
    }
}

fn numbers(shed: &[Shed<u32>]) -> ShedNumbers {
    shed.iter().map(|shed| (shed.waited.item, shed.reason)).collect()
}

proptest! {
    #[test]
    fn queue_does_what_the_model_does(ops in prop::collection::vec(queue_op(), 1..300)) {
        let mut queue = ClassQueue::new(&limits(ORDERS[0]));
        let mut model = Model::new(ORDERS[0]);
        let mut tickets: Vec<(Ticket, u32)> = Vec::new();
        let (mut now_ns, mut number) = (0, 0);
        for op in ops {
            let mut shed = Vec::new();
            match op {
                QueueOp::Pass(ns) => now_ns += ns,
                QueueOp::Push(class) => {
                    number += 1;
                    let (ticket, gone) = match queue.push(now_ns, class, || number) {
                        Pushed::Waits(ticket) => (Some(ticket), None),
                        Pushed::InsteadOf(ticket, shed) => (Some(ticket), Some(shed.waited.item)),
                        Pushed::Refused => (None, Some(number)),
                    };
                    tickets.extend(ticket.map(|ticket| (ticket, number)));
                    prop_assert_eq!(gone, model.push(now_ns, class, number));
                }
                QueueOp::Pop => {
                    let popped = queue.pop(now_ns, &mut shed);
                    let popped = popped.map(|waited| (waited.item, waited.waited_ns));
                    prop_assert_eq!((popped, numbers(&shed)), model.pop(now_ns));
                }
                QueueOp::Expire => {
                    queue.expire(now_ns, &mut shed);
                    let classes = (0..model.classes.len()).rev();
                    let expected: Vec<_> =
                        classes.flat_map(|class| model.expire(now_ns, class)).collect();
                    prop_assert_eq!(numbers(&shed), expected);
                }
                QueueOp::Cancel(at) if at < tickets.len() => {
                    let (ticket, number) = tickets[tickets.len() - 1 - at];
                    let cancelled = queue.cancel(now_ns, ticket).map(|waited| waited.item);
                    let waits = model.cancel(number);
                    prop_assert_eq!(cancelled, waits.then_some(number));
                }
                QueueOp::Cancel(_) => {}
                QueueOp::Raise(at, class) if at < tickets.len() => {
                    let (ticket, number) = tickets[tickets.len() - 1 - at];
                    let is_raised = queue.raise(now_ns, ticket, class, &mut shed);
                    let gone = numbers(&shed).first().map(|(number, _)| *number);
                    prop_assert_eq!((is_raised, gone), model.raise(now_ns, number, class));
                }
                QueueOp::Raise(..) => {}
                QueueOp::Reclass(order) => {
                    queue.reclass(&limits(order), &heirs(model.order, order));
                    model.reclass(order);
                }
            }
            model.forget_credit();
            prop_assert_eq!(queue.len(), model.len());
            for (rank, class) in model.classes.iter().enumerate() {
                prop_assert_eq!(queue.class_len(rank), class.entries.len());
            }
            if let Some(deadline_ns) = queue.next_deadline() {
                prop_assert!(model.is_due(deadline_ns.max(now_ns)));
                prop_assert!(deadline_ns <= now_ns || !model.is_due(deadline_ns - 1));
            } else {
                prop_assert_eq!(model.len(), 0);
            }
        }
    }
}

/// The order in which a class's entries come out, and what was shed, when they came one each
/// millisecond and are then taken at once.
#[track_caller]
fn check(came: u64, taken_after_ms: u64, expected: &[u32], expected_shed: &[u32]) {
    let class = ClassLimits { entries_max: 100, wait_ns: 150 * MS, share: 0 };
    let mut queue = ClassQueue::new(&[class]);
    for at in 0..came {
        assert!(matches!(queue.push(at * MS, 0, || at as u32), Pushed::Waits(_)));
    }
    let now_ns = (came - 1 + taken_after_ms) * MS;
    let mut shed = Vec::new();
    queue.expire(now_ns, &mut shed);
    let mut order = Vec::new();
    while let Some(waited) = queue.pop(now_ns, &mut shed) {
        order.push(waited.item);
    }
    let shed: Vec<_> = shed.into_iter().map(|shed| shed.waited.item).collect();
    assert_eq!((&order[..], &shed[..]), (expected, expected_shed));
}

#[test]
fn a_queue_turns_round_when_somebody_has_waited_for_half_of_the_time() {
    check(6, 10, &[0, 1, 2, 3, 4, 5], &[]);
    check(6, 69, &[0, 1, 2, 3, 4, 5], &[]);
    check(6, 70, &[5, 4, 3, 2, 1, 0], &[]);
    check(6, 147, &[5, 4, 3], &[0, 1, 2]);
    check(3, 150, &[], &[0, 1, 2]);
}

proptest! {
    /// Whatever waits above, a class that always waits has its share, and goes no oftener for that.
    #[test]
    fn a_class_that_waits_has_its_share(shares in prop::collection::vec(0u32..=7, 2..=7)) {
        let limits = |share: &u32| ClassLimits { entries_max: 2, wait_ns: u64::MAX, share: *share };
        let limits: Vec<ClassLimits> = [0].iter().chain(&shares).map(limits).collect();
        let mut queue = ClassQueue::new(&limits);
        let mut turns = vec![0u32; limits.len()];
        for turn in 1..=1000 {
            for class in 0..limits.len() {
                queue.push(0, class, || ());
            }
            let class = queue.pop(0, &mut Vec::new()).unwrap().class;
            turns[class] += 1;
            for (had, limits) in turns.iter().zip(&limits).skip(1) {
                let due = turn * limits.share / 100;
                prop_assert!((due.saturating_sub(shares.len() as u32)..=due).contains(had));
            }
        }
    }
}
