//! The gate from outside: order, bounds, deadlines, and that every request ends exactly once,
//! whatever the clock does and however classes change.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{MS, ORDERS, Order, heirs, limits, limits_of};
use proptest::prelude::*;
use weir_guard::{
    Arrival, ClassLimits, Due, Gate, GateSettings, LimitSettings, Outcome, Place, Ticket, Waited,
};

const INTERVAL_NS: u64 = 100 * MS;

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
    Reclass(Order),
    Raise(usize, usize),
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
        2 => prop::sample::select(&ORDERS[..]).prop_map(GateOp::Reclass),
        5 => (any::<usize>(), 0usize..4).prop_map(|(at, class)| GateOp::Raise(at, class)),
    ]
}

fn settings(order: Order, limit: LimitSettings) -> GateSettings {
    GateSettings { classes: limits(order), limit, interval_ns: INTERVAL_NS }
}

/// What is known of every request from outside.
struct Outside {
    order: Order,
    /// Classes were joined by those of others, so that more may wait than their limits say.
    have_joined: bool,
    waiting: BTreeMap<u32, (char, Ticket)>,
    /// Those who have come to a higher class.
    raised: BTreeSet<u32>,
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
            let wait_ns = limits(self.order)[waited.class].wait_ns;
            assert!(waited.waited_ns < wait_ns || self.raised.contains(&waited.item));
            assert!(self.ended.insert(waited.item));
            self.running.push(place);
            // Nothing arrives within a call, so whoever is above and waits now did so before.
            let rank = |name: char| self.order.find(name).unwrap_or(0);
            let above = self.waiting.values().any(|(name, _)| rank(*name) < waited.class);
            let has_share = limits(self.order)[waited.class].share > 0;
            let is_shed = due.shed.iter().any(|shed| shed.waited.class < waited.class);
            assert!(!above || has_share || is_shed);
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
        for (rank, name) in self.order.chars().enumerate() {
            let waiting = self.waiting.values().filter(|(of, _)| *of == name).count();
            assert_eq!(gate.class_waiting(rank), waiting);
            assert!(self.have_joined || waiting <= limits_of(name).entries_max);
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
        assert_eq!(known, Some((self.name(waited.class), waited.ticket)));
    }

    fn name(&self, rank: usize) -> char {
        self.order.chars().nth(rank).unwrap_or_default()
    }

    /// Classes of another order come: whoever waits is of a class of the same name, if there is
    /// one.
    fn reclass(&mut self, order: Order) -> Vec<weir_guard::Heir> {
        let heirs = heirs(self.order, order);
        self.have_joined |= self.order.chars().any(|name| !order.contains(name));
        let before = std::mem::replace(&mut self.order, order);
        for (name, _) in self.waiting.values_mut() {
            let heir = heirs[before.find(*name).unwrap_or(0)];
            *name = order.chars().nth(heir.rank()).unwrap_or_default();
        }
        heirs
    }

    fn check_counts(&self, gate: &Gate<u32>) {
        let sum = |count: fn(&weir_guard::ClassCounts) -> u64| -> u64 {
            gate.counts().iter().map(count).sum()
        };
        for (rank, class) in gate.counts().iter().enumerate() {
            let over =
                class.admitted + class.shed.iter().sum::<u64>() + class.cancelled + class.raised;
            assert_eq!(over + gate.class_waiting(rank) as u64, class.offered);
            assert_eq!(class.delay.buckets.iter().sum::<u64>(), class.admitted);
        }
        // Those of classes that are gone are forgotten.
        let offered = sum(|class| class.offered).wrapping_sub(sum(|class| class.raised));
        assert!(offered == u64::from(self.arrived) || self.have_joined);
    }
}

fn run_gate(limit: LimitSettings, ops: Vec<GateOp>) {
    let mut gate = Gate::new(0, &settings(ORDERS[0], limit.clone()));
    let mut due = Due::default();
    let mut outside = Outside {
        order: ORDERS[0],
        have_joined: false,
        waiting: BTreeMap::new(),
        raised: BTreeSet::new(),
        running: Vec::new(),
        ended: BTreeSet::new(),
        refused: 0,
        arrived: 0,
        limit: 0,
    };
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
                        let rank = class.min(outside.order.len() - 1);
                        outside.waiting.insert(number, (outside.name(rank), ticket));
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
                let settings = settings(outside.order, LimitSettings::Fixed(limit));
                gate.configure(now_ns, &settings, &mut due);
            }
            GateOp::Raise(at, class) if !outside.waiting.is_empty() => {
                let at = at % outside.waiting.len();
                let Some((number, (name, ticket))) = outside.waiting.iter_mut().nth(at) else {
                    continue;
                };
                if gate.raise(now_ns, *ticket, class, &mut due) {
                    let to = outside.order.chars().nth(class);
                    assert!(outside.order.find(*name) > Some(class));
                    *name = to.unwrap_or_default();
                    outside.raised.insert(*number);
                }
            }
            GateOp::Raise(..) => {}
            GateOp::Reclass(order) => {
                let settings = settings(order, gate.adaptive_limit().settings().clone());
                let in_flight = gate.in_flight();
                let limit = (!gate.adaptive_limit().is_probing()).then_some(gate.limit());
                let heirs = outside.reclass(order);
                gate.reclass(now_ns, &settings, &heirs, &mut due);
                let started = due.start.len() as u32;
                assert_eq!(gate.in_flight(), in_flight + started);
                assert!(limit.is_none_or(|limit| started > 0 || gate.limit() == limit));
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

/// Requests that an upstream holds, as in long polling, keep nobody waiting for more than seconds.
#[test]
fn a_limit_doubles_while_nothing_ends() {
    let limit = LimitSettings::Adaptive { floor: 2, initial: 4, ceiling: 100 };
    let classes = vec![ClassLimits { entries_max: 1000, wait_ns: 10_000 * MS, share: 0 }];
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
