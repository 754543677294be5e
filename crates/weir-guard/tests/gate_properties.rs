//! The queue and the gate against simple models: order, bounds, deadlines, and that every request
//! ends exactly once, whatever the clock does.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_guard::{
    Arrival, ClassLimits, ClassQueue, Due, Gate, GateSettings, LimitSettings, Outcome, Place,
    Pushed, Shed, ShedReason, Ticket, Waited,
};

const MS: u64 = 1_000_000;
const INTERVAL_NS: u64 = 100 * MS;

fn limits() -> Vec<ClassLimits> {
    [(3, 300), (5, 50), (2, 1000)]
        .map(|(entries_max, wait_ms)| ClassLimits { entries_max, wait_ns: wait_ms * MS })
        .to_vec()
}

#[derive(Clone, Debug)]
enum QueueOp {
    Pass(u64),
    Push(usize),
    Pop,
    Expire,
    Cancel(usize),
}

fn queue_op() -> impl Strategy<Value = QueueOp> {
    prop_oneof![
        3 => prop_oneof![0..2 * MS, 0..60 * MS].prop_map(QueueOp::Pass),
        4 => (0usize..3).prop_map(QueueOp::Push),
        2 => Just(QueueOp::Pop),
        1 => Just(QueueOp::Expire),
        1 => (0usize..40).prop_map(QueueOp::Cancel),
    ]
}

type ShedNumbers = Vec<(u32, ShedReason)>;

/// The queue as one would write it without a thought of speed.
struct Model {
    /// By class, oldest first: number and time.
    classes: Vec<Vec<(u32, u64)>>,
    /// Somebody has waited for half of the time since the class was last empty, or too many left.
    stands: Vec<bool>,
    /// Who waited in vain, of those who wait no more.
    vain: Vec<Vec<bool>>,
}

/// Whether one in eight waited in vain, as a mean in which each counts a sixteenth less than the
/// one after him.
fn is_much(vain: &[bool]) -> bool {
    let share = |share: u32, is_vain: &bool| share - share / 16 + u32::from(*is_vain) * 4096;
    vain.iter().fold(0, share) >= 8192
}

impl Model {
    /// Whether a class stands, which is kept in mind.
    fn stands(&mut self, now_ns: u64, class: usize) -> bool {
        let oldest = self.classes[class].first();
        let is_late =
            oldest.is_some_and(|(_, at_ns)| now_ns - at_ns >= limits()[class].wait_ns / 2);
        self.stands[class] = !self.classes[class].is_empty() && (self.stands[class] || is_late);
        self.stands[class]
    }

    fn len(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }

    /// `None`: waits. Otherwise who goes: the new one itself, or another.
    fn push(&mut self, now_ns: u64, class: usize, number: u32) -> Option<u32> {
        let is_full = self.classes[class].len() == limits()[class].entries_max;
        if is_full && !self.stands(now_ns, class) {
            return Some(number);
        }
        self.classes[class].push((number, now_ns));
        is_full.then(|| self.classes[class].remove(0).0)
    }

    fn expire(&mut self, now_ns: u64, class: usize) -> ShedNumbers {
        let mut shed = Vec::new();
        while let Some((number, at_ns)) = self.classes[class].first().copied() {
            if now_ns - at_ns < limits()[class].wait_ns {
                break;
            }
            shed.push((number, ShedReason::Expired));
            self.classes[class].remove(0);
            self.vain[class].push(true);
            self.stands[class] = true;
        }
        self.stands[class] &= !self.classes[class].is_empty();
        shed
    }

    fn pop(&mut self, now_ns: u64) -> (Option<(u32, u64)>, ShedNumbers) {
        let mut shed = Vec::new();
        for class in 0..self.classes.len() {
            shed.extend(self.expire(now_ns, class));
            let stands = self.stands(now_ns, class);
            let entries = &mut self.classes[class];
            if !entries.is_empty() {
                let at = if stands { entries.len() - 1 } else { 0 };
                let (number, at_ns) = entries.remove(at);
                self.vain[class].push(false);
                self.stands[class] &= !self.classes[class].is_empty();
                return (Some((number, now_ns - at_ns)), shed);
            }
        }
        (None, shed)
    }

    /// Whether it waited.
    fn cancel(&mut self, number: u32) -> bool {
        for class in 0..self.classes.len() {
            let Some(at) = self.classes[class].iter().position(|(n, _)| *n == number) else {
                continue;
            };
            self.classes[class].remove(at);
            self.vain[class].push(true);
            self.stands[class] |= is_much(&self.vain[class]);
            self.stands[class] &= !self.classes[class].is_empty();
            return true;
        }
        false
    }

    /// Whether anyone is to be shed, by trying.
    fn is_due(&self, now_ns: u64) -> bool {
        (0..self.classes.len()).any(|class| {
            let oldest = self.classes[class].first();
            oldest.is_some_and(|(_, at_ns)| now_ns - at_ns >= limits()[class].wait_ns)
        })
    }
}

fn numbers(shed: &[Shed<u32>]) -> ShedNumbers {
    shed.iter().map(|shed| (shed.waited.item, shed.reason)).collect()
}

proptest! {
    #[test]
    fn queue_does_what_the_model_does(ops in prop::collection::vec(queue_op(), 1..300)) {
        let mut queue = ClassQueue::new(&limits());
        let classes = vec![Vec::new(); 3];
        let mut model = Model { classes, stands: vec![false; 3], vain: vec![Vec::new(); 3] };
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
                    let classes = (0..3).rev();
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
            }
            prop_assert_eq!(queue.len(), model.len());
            if let Some(deadline_ns) = queue.next_deadline() {
                prop_assert!(model.is_due(deadline_ns.max(now_ns)));
                prop_assert!(deadline_ns <= now_ns || !model.is_due(deadline_ns - 1));
            } else {
                prop_assert_eq!(model.len(), 0);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum GateOp {
    Pass(u64),
    /// The clock goes elsewhere.
    Jump(u64),
    Arrive(usize),
    Done(usize, u64, u8),
    Cancel(usize),
    Tick,
    Configure(u32),
}

fn gate_op(with_jumps: bool) -> impl Strategy<Value = GateOp> {
    let jumps = u32::from(with_jumps);
    prop_oneof![
        30 => prop_oneof![0..2 * MS, 0..60 * MS].prop_map(GateOp::Pass),
        jumps => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(GateOp::Jump),
        60 => (0usize..5).prop_map(GateOp::Arrive),
        40 => (any::<usize>(), 0..50 * MS, 0u8..10).prop_map(|(a, b, c)| GateOp::Done(a, b, c)),
        5 => any::<usize>().prop_map(GateOp::Cancel),
        10 => Just(GateOp::Tick),
        1 => (1u32..6).prop_map(GateOp::Configure),
    ]
}

fn settings(limit: LimitSettings) -> GateSettings {
    GateSettings { classes: limits(), limit, interval_ns: INTERVAL_NS }
}

/// What is known of every request from outside.
#[derive(Default)]
struct Outside {
    waiting: BTreeMap<u32, (usize, Ticket)>,
    running: Vec<Place>,
    ended: BTreeSet<u32>,
    refused: u32,
    arrived: u32,
    /// At the end of the last call.
    limit: u32,
}

impl Outside {
    fn take(&mut self, gate: &Gate<u32>, due: &mut Due<u32>) {
        let has_started = !due.start.is_empty();
        for (waited, place) in due.start.drain(..) {
            self.end(&waited);
            assert_eq!(place.class(), waited.class);
            assert!(waited.waited_ns < limits()[waited.class].wait_ns);
            assert!(self.ended.insert(waited.item));
            self.running.push(place);
            // Nothing arrives within a call, so whoever is above and waits now did so before.
            let above = self.waiting.values().any(|(class, _)| *class < waited.class);
            assert!(!above || due.shed.iter().any(|shed| shed.waited.class < waited.class));
        }
        for shed in due.shed.drain(..) {
            self.end(&shed.waited);
            assert!(self.ended.insert(shed.waited.item));
        }
        assert!((1..=6).contains(&gate.limit()));
        // With the last that starts, a measurement may end and the limit fall.
        assert!(!has_started || gate.in_flight() <= self.places(gate));
        self.limit = gate.limit() + gate.headroom();
        assert_eq!(gate.in_flight() as usize, self.running.len() + gate.left_behind());
        assert_eq!(gate.waiting(), self.waiting.len());
        for (class, limits) in limits().iter().enumerate() {
            assert!(gate.class_waiting(class) <= limits.entries_max);
        }
        // Nobody waits beside a free place.
        assert!(gate.waiting() == 0 || gate.in_flight() >= gate.limit());
        assert_eq!(gate.waiting() == 0, gate.next_deadline().is_none());
    }

    /// As many as may be in flight now, or could before the call.
    fn places(&self, gate: &Gate<u32>) -> u32 {
        self.limit.max(gate.limit() + gate.headroom())
    }

    fn end(&mut self, waited: &Waited<u32>) {
        let known = self.waiting.remove(&waited.item);
        assert_eq!(known, Some((waited.class, waited.ticket)));
    }

    fn check_counts(&self, gate: &Gate<u32>) {
        let sum = |count: fn(&weir_guard::ClassCounts) -> u64| -> u64 {
            gate.counts().iter().map(count).sum()
        };
        let over = sum(|class| class.admitted + class.shed.iter().sum::<u64>() + class.cancelled);
        assert_eq!(sum(|class| class.offered), u64::from(self.arrived));
        assert_eq!(over + self.waiting.len() as u64, u64::from(self.arrived));
        assert_eq!(sum(|class| class.delay.buckets.iter().sum()), sum(|class| class.admitted));
    }
}

fn run_gate(limit: LimitSettings, ops: Vec<GateOp>) {
    let mut gate = Gate::new(0, &settings(limit));
    let (mut outside, mut due) = (Outside::default(), Due::default());
    let mut now_ns = 0u64;
    for op in ops {
        match op {
            GateOp::Pass(ns) => now_ns = now_ns.saturating_add(ns),
            GateOp::Jump(to_ns) => now_ns = to_ns,
            GateOp::Arrive(class) => {
                outside.arrived += 1;
                let number = outside.arrived;
                match gate.arrive(now_ns, class, || number, &mut due) {
                    Arrival::Run(place) => {
                        assert!(gate.in_flight() <= outside.places(&gate));
                        assert!(outside.ended.insert(number));
                        outside.running.push(place);
                    }
                    Arrival::Wait(ticket) => {
                        outside.waiting.insert(number, (class.min(2), ticket));
                    }
                    Arrival::Shed(_) => outside.refused += 1,
                }
            }
            GateOp::Done(at, latency_ns, outcome) if !outside.running.is_empty() => {
                let at = at % outside.running.len();
                let place = outside.running.swap_remove(at);
                let outcome = match outcome {
                    0 => Outcome::Failed,
                    1 => Outcome::Unknown,
                    2 => Outcome::Left,
                    _ => Outcome::Answered,
                };
                gate.done(now_ns, place, latency_ns, outcome, &mut due);
            }
            GateOp::Done(..) => {}
            GateOp::Cancel(at) if !outside.waiting.is_empty() => {
                let at = at % outside.waiting.len();
                let (number, (_, ticket)) = outside.waiting.pop_nth(at);
                assert_eq!(gate.cancel(now_ns, ticket), Some(number));
                assert_eq!(gate.cancel(now_ns, ticket), None);
                assert!(outside.ended.insert(number));
            }
            GateOp::Cancel(_) => {}
            GateOp::Tick => gate.tick(now_ns, &mut due),
            GateOp::Configure(limit) => {
                gate.configure(now_ns, &settings(LimitSettings::Fixed(limit)), &mut due);
            }
        }
        outside.take(&gate, &mut due);
        outside.check_counts(&gate);
    }
    // Whoever waits comes out by the deadlines alone.
    let mut rounds = 0;
    while let Some(deadline_ns) = gate.next_deadline() {
        now_ns = now_ns.max(deadline_ns);
        if now_ns == u64::MAX {
            // The clock has reached its end: no deadline is after it.
            now_ns = 0;
        }
        gate.tick(now_ns, &mut due);
        outside.take(&gate, &mut due);
        rounds += 1;
        assert!(rounds < 1000, "{deadline_ns} {now_ns} {}", gate.waiting());
    }
    assert_eq!(outside.ended.len() as u32 + outside.refused, outside.arrived);
}

trait PopNth<K, V> {
    fn pop_nth(&mut self, at: usize) -> (K, V);
}

impl<K: Ord + Copy, V> PopNth<K, V> for BTreeMap<K, V> {
    fn pop_nth(&mut self, at: usize) -> (K, V) {
        let key = *self.keys().nth(at).expect("an index below the length");
        (key, self.remove(&key).expect("a key that is there"))
    }
}

proptest! {
    #[test]
    fn every_request_ends_once(ops in prop::collection::vec(gate_op(false), 1..400)) {
        run_gate(LimitSettings::Fixed(3), ops.clone());
        run_gate(LimitSettings::Adaptive { floor: 1, initial: 2, ceiling: 6 }, ops);
    }

    #[test]
    fn every_request_ends_once_whatever_the_clock_does(
        ops in prop::collection::vec(gate_op(true), 1..400),
    ) {
        run_gate(LimitSettings::Fixed(3), ops.clone());
        run_gate(LimitSettings::Adaptive { floor: 1, initial: 2, ceiling: 6 }, ops);
    }
}

/// The order in which a class's entries come out, and what was shed, when they came one each
/// millisecond and are then taken at once.
#[track_caller]
fn check(came: u64, taken_after_ms: u64, expected: &[u32], expected_shed: &[u32]) {
    let class = ClassLimits { entries_max: 100, wait_ns: 150 * MS };
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

/// Requests that an upstream holds, as in long polling, keep nobody waiting for more than seconds.
#[test]
fn a_limit_doubles_while_nothing_ends() {
    let limit = LimitSettings::Adaptive { floor: 2, initial: 4, ceiling: 100 };
    let classes = vec![ClassLimits { entries_max: 1000, wait_ns: 10_000 * MS }];
    let settings = GateSettings { classes, limit, interval_ns: INTERVAL_NS };
    let mut gate: Gate<u32> = Gate::new(0, &settings);
    let mut due = Due::default();
    let mut held: Vec<Place> = Vec::new();
    for number in 0..50 {
        if let Arrival::Run(place) = gate.arrive(MS, 0, || number, &mut due) {
            held.push(place);
        }
    }
    assert_eq!(held.len(), 4);
    let mut seen = Vec::new();
    for second in 1..=5 {
        gate.tick(second * 1000 * MS + 2 * MS, &mut due);
        held.extend(due.start.drain(..).map(|(_, place)| place));
        seen.push(held.len());
    }
    assert_eq!(seen, [8, 16, 32, 50, 50]);
}
