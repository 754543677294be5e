//! Cases of the queue and the gate that are told one by one.

use weir_guard::{
    Arrival, ClassLimits, ClassQueue, Due, Gate, GateSettings, LimitSettings, Outcome, Pushed,
};

const MS: u64 = 1_000_000;

fn settings(limit: LimitSettings) -> GateSettings {
    let classes = vec![ClassLimits { entries_max: 10, wait_ns: 60_000 * MS, share: 0 }];
    GateSettings { classes, limit, interval_ns: 100 * MS }
}

#[test]
fn a_queue_turns_round_when_many_leave_it() {
    let class = ClassLimits { entries_max: 100, wait_ns: 5000 * MS, share: 0 };
    let mut queue = ClassQueue::new(&[class]);
    let mut tickets = Vec::new();
    for number in 0..40 {
        if let Pushed::Waits(ticket) = queue.push(number * MS, 0, || number) {
            tickets.push(ticket);
        }
    }
    let mut shed = Vec::new();
    // One in ten is not many.
    for number in [0, 9] {
        queue.cancel(50 * MS, tickets[number]);
        for _ in 0..9 {
            queue.pop(50 * MS, &mut shed);
        }
    }
    assert!(!queue.is_standing(50 * MS, 0));
    for ticket in &tickets[20..23] {
        assert!(queue.cancel(50 * MS, *ticket).is_some());
    }
    assert!(queue.is_standing(50 * MS, 0));
    assert_eq!(queue.pop(50 * MS, &mut shed).map(|waited| waited.item), Some(39));
    assert!(shed.is_empty());
}

/// The upstream works on for a client who has gone: nobody else gets the place meanwhile.
#[test]
fn a_place_is_kept_for_as_long_as_the_upstream_works_on() {
    let mut gate: Gate<u32> = Gate::new(0, &settings(LimitSettings::Fixed(1)));
    let mut due = Due::default();
    let run = |gate: &mut Gate<u32>, at_ms: u64, due: &mut Due<u32>| match gate.arrive(
        at_ms * MS,
        0,
        || 0,
        due,
    ) {
        Arrival::Run(place) => place,
        other => panic!("{other:?}"),
    };
    let answered = run(&mut gate, 0, &mut due);
    gate.done(100 * MS, answered, 100 * MS, Outcome::Answered, &mut due);
    let left = run(&mut gate, 200, &mut due);
    assert!(matches!(gate.arrive(210 * MS, 0, || 7, &mut due), Arrival::Wait(_)));
    gate.done(230 * MS, left, 30 * MS, Outcome::Left, &mut due);
    assert_eq!((gate.in_flight(), gate.left_behind()), (1, 1));
    assert!(due.is_empty());
    // An answer usually takes 100 ms.
    assert_eq!(gate.next_deadline(), Some(330 * MS));
    gate.tick(329 * MS, &mut due);
    assert!(due.is_empty());
    gate.tick(330 * MS, &mut due);
    assert_eq!((gate.in_flight(), gate.left_behind()), (1, 0));
    assert_eq!(due.start.len(), 1);
}

/// Something or other fails everywhere.
#[test]
fn a_few_failures_do_not_lower_the_limit() {
    let adaptive = LimitSettings::Adaptive { floor: 2, initial: 64, ceiling: 100 };
    let mut gate: Gate<u32> = Gate::new(0, &settings(adaptive));
    let mut due = Due::default();
    let mut run = |gate: &mut Gate<u32>, at: u64, outcome| {
        let Arrival::Run(place) = gate.arrive(at * MS, 0, || 0, &mut due) else { panic!("{at}") };
        gate.done((at + 1) * MS, place, MS, outcome, &mut due);
    };
    for at in 0..2000 {
        let outcome = if matches!(at % 100, 5 | 6) { Outcome::Failed } else { Outcome::Answered };
        run(&mut gate, at, outcome);
        assert_eq!(gate.limit(), 64, "{at}");
    }
    for at in 2000..2020 {
        run(&mut gate, at, Outcome::Failed);
    }
    assert!(gate.limit() < 64);
}
