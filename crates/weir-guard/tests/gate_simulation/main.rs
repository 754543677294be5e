//! A gate in front of simulated origins: what it gets out of them under too much load, and how it
//! follows when they change. Everything is seeded; the numbers are printed and held to bounds.

#![allow(clippy::print_stdout, reason = "the numbers are what one runs it for")]

mod origin;
mod simulation;

use weir_guard::LimitSettings;

use crate::origin::{Discipline, OriginModel, Work};
use crate::simulation::Simulation;

const MS: f64 = 1e6;

/// What each server's worth of requests too many costs a thrashing origin: with ten times as many
/// it does 36 % of its best.
const THRASH: f64 = 0.2;

/// What the top class asks for, as a part of the origin's capacity.
const TOP: f64 = 0.3;

fn fifo(servers: usize, work: Work) -> OriginModel {
    OriginModel { servers, work, discipline: Discipline::Fifo }
}

fn shared(servers: usize, work: Work, thrash: f64) -> OriginModel {
    OriginModel { servers, work, discipline: Discipline::Shared { thrash } }
}

fn exponential() -> OriginModel {
    fifo(16, Work::Exponential(20.0 * MS))
}

/// Origins whose requests are alike, and others.
fn usual_origins() -> [(&'static str, OriginModel); 3] {
    [
        ("nearly constant", fifo(16, Work::Even(20.0 * MS))),
        ("exponential", exponential()),
        ("mixed 10x", fifo(16, Work::Mixed(20.0 * MS))),
    ]
}

struct Seen {
    goodput: f64,
    top_p99_ms: f64,
    limit_mean: f64,
}

fn see(model: OriginModel, limit: LimitSettings, rates: &[f64], measure_s: f64) -> Seen {
    let mut simulation = Simulation::new(model, limit, rates);
    simulation.run(15.0);
    simulation.forget();
    simulation.run(measure_s);
    let limits: u32 = simulation.tenths.iter().map(|tenth| tenth.limit).sum();
    Seen {
        goodput: f64::from(simulation.answered()) / measure_s,
        top_p99_ms: simulation.clients[0].percentile_ms(99.0),
        limit_mean: f64::from(limits) / simulation.tenths.len() as f64,
    }
}

/// At once, twice and ten times the capacity, and at half of it. `p99_max` is for the top class's
/// 99th percentile, as a multiple of what it is with nobody else there.
fn check_loads(name: &str, model: OriginModel, share_min: f64, p99_max: f64) {
    let peak = model.capacity();
    let alone = see(model, LimitSettings::default(), &[TOP * peak, 0.0], 20.0).top_p99_ms;
    for load in [0.5, 1.0, 2.0, 10.0] {
        let rates = [TOP * peak, (load - TOP) * peak];
        let seen = see(model, LimitSettings::default(), &rates, 30.0);
        let right = see(model, LimitSettings::Fixed(model.servers as u32), &rates, 15.0);
        let of_peak = seen.goodput / (load.min(1.0) * peak);
        let of_right = seen.goodput / right.goodput;
        let p99 = seen.top_p99_ms / alone;
        println!(
            "{name:20} {load:4}x: goodput {of_peak:.3} of peak, {of_right:.3} of that with the \
             right limit configured; top class p99 {p99:.2} of unloaded ({alone:.0} ms; \
             configured {:.2}), limit {:.1} for {} servers",
            right.top_p99_ms / alone,
            seen.limit_mean,
            model.servers,
        );
        // As much as can be served comes at random moments: then nobody reaches the peak who does
        // not let requests wait for long.
        let share = if load == 1.0 { of_right } else { of_peak };
        assert!(share >= share_min, "{name} {load}x: {share:.3}");
        assert!(p99 <= p99_max, "{name} {load}x: {p99:.2}");
    }
}

#[test]
fn goodput_stays_at_its_peak_whatever_is_offered() {
    for (name, model) in usual_origins() {
        check_loads(name, model, 0.95, 1.5);
    }
    // One more than the four servers is a quarter more, and two are half as many.
    check_loads("few, slow", fifo(4, Work::Exponential(60.0 * MS)), 0.94, 1.75);
}

#[test]
fn goodput_stays_at_its_peak_with_many_servers() {
    check_loads("many", fifo(100, Work::Exponential(100.0 * MS)), 0.95, 1.5);
}

#[test]
fn goodput_stays_at_its_peak_where_requests_share_servers() {
    check_loads("shared", shared(16, Work::Exponential(20.0 * MS), 0.0), 0.95, 1.5);
    check_loads("thrashing", shared(16, Work::Exponential(20.0 * MS), THRASH), 0.95, 1.5);
}

/// With exactly constant work all servers get free at the same moments, and whoever comes in
/// between waits for one whole request, whatever the limit. 1.5 times unloaded cannot be had.
#[test]
fn goodput_stays_at_its_peak_in_lockstep() {
    check_loads("constant", fifo(16, Work::Constant(20.0 * MS)), 0.95, 2.1);
    check_loads("thrashing, constant", shared(16, Work::Constant(20.0 * MS), THRASH), 0.95, 2.4);
}

#[test]
fn little_traffic_does_not_lower_the_limit() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let mut simulation =
            Simulation::new(model, LimitSettings::default(), &[0.02 * peak, 0.08 * peak]);
        simulation.run(60.0);
        assert!(simulation.tenths.iter().all(|tenth| tenth.limit >= 16), "{name}");
        let unanswered =
            simulation.clients.iter().map(|clients| clients.offered - clients.answered);
        assert_eq!(unanswered.sum::<u32>(), simulation.gate.in_flight(), "{name}");
    }
}

/// Answers per second in a stretch of tenths of seconds.
fn rate(simulation: &Simulation, from_s: f64, to_s: f64) -> f64 {
    let tenths = &simulation.tenths[(from_s * 10.0) as usize..(to_s * 10.0) as usize];
    f64::from(tenths.iter().map(|tenth| tenth.answered).sum::<u32>()) / (to_s - from_s)
}

fn show(what: &str, simulation: &Simulation) {
    let limits: Vec<_> = simulation.tenths.chunks(10).map(|tenths| tenths[0].limit).collect();
    println!("{what}: limit by second {limits:?}");
}

/// An origin that takes four times as long for everything still has as many servers: lowering the
/// limit would only leave them idle.
#[test]
fn slower_requests_do_not_take_throughput() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let rates = [TOP / 4.0 * peak, 3.0 * peak];
        let mut simulation = Simulation::new(model, LimitSettings::default(), &rates);
        simulation.run(15.0);
        simulation.forget();
        simulation.run(5.0);
        simulation.origin.slowness = 4.0;
        simulation.run(20.0);
        simulation.origin.slowness = 1.0;
        simulation.run(10.0);
        show(name, &simulation);
        let slow = rate(&simulation, 8.0, 25.0) / (peak / 4.0);
        let again = rate(&simulation, 28.0, 35.0) / peak;
        println!("{name}: 4x slower {slow:.3} of what is possible, 3 s after that {again:.3}");
        assert!(slow >= 0.9 && again >= 0.85, "{name}: {slow:.3} {again:.3}");
    }
}

/// One that loses three quarters of its servers needs a quarter of the limit.
#[test]
fn limit_follows_servers_that_go_and_come_back() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let rates = [TOP / 4.0 * peak, 3.0 * peak];
        let mut simulation = Simulation::new(model, LimitSettings::default(), &rates);
        simulation.run(15.0);
        simulation.forget();
        simulation.run(5.0);
        simulation.origin.model.servers = model.servers / 4;
        simulation.run(20.0);
        simulation.origin.model.servers = model.servers;
        simulation.run(20.0);
        show(name, &simulation);
        let few = rate(&simulation, 8.0, 25.0) / (peak / 4.0);
        let again = rate(&simulation, 35.0, 45.0) / peak;
        println!("{name}: a quarter {few:.3} of what is possible, back {again:.3}");
        assert!(few >= 0.9 && again >= 0.85, "{name}: {few:.3} {again:.3}");
        let settled = &simulation.tenths[100..250];
        let limits: u32 = settled.iter().map(|tenth| tenth.limit).sum();
        let limit = f64::from(limits) / settled.len() as f64;
        assert!((3.0..=8.0).contains(&limit), "{name}: {limit} for 4 servers");
    }
}

#[test]
fn an_origin_that_was_down_is_used_again_at_once() {
    let model = exponential();
    let peak = model.capacity();
    let mut simulation =
        Simulation::new(model, LimitSettings::default(), &[TOP * peak, 2.0 * peak]);
    simulation.run(15.0);
    simulation.forget();
    simulation.run(5.0);
    simulation.origin.is_down = true;
    simulation.run(5.0);
    let during = simulation.gate.limit();
    simulation.origin.is_down = false;
    simulation.run(10.0);
    show("down for 5 s", &simulation);
    let again = rate(&simulation, 12.0, 20.0) / peak;
    println!("limit while down {during}; 2 s after {again:.3}");
    assert_eq!(during, 2);
    assert!(again >= 0.9, "{again:.3}");
}

#[test]
fn overload_ends_when_load_does() {
    let model = exponential();
    let peak = model.capacity();
    let mut simulation =
        Simulation::new(model, LimitSettings::default(), &[TOP * peak, 9.7 * peak]);
    simulation.run(60.0);
    assert!(simulation.tenths[20..].iter().all(|tenth| tenth.is_overloaded));
    simulation.forget();
    simulation.set_rates(&[TOP * peak, 0.2 * peak]);
    simulation.run(10.0);
    let over = simulation.tenths.iter().rposition(|tenth| tenth.is_overloaded);
    let served = f64::from(simulation.answered()) / (5.0 * peak);
    println!("last overloaded tenth after 60 s at 10x: {over:?}; then {served:.3} of all served");
    assert!(over.is_none_or(|tenth| tenth <= 4), "{over:?}");
    assert!(simulation.clients.iter().all(|clients| clients.answered >= clients.offered - 20));
}

#[test]
fn a_burst_after_an_hour_of_silence_is_served() {
    let model = exponential();
    let peak = model.capacity();
    let mut simulation = Simulation::new(model, LimitSettings::default(), &[0.0, 2.0 * peak]);
    simulation.run(15.0);
    simulation.set_rates(&[0.0, 0.0]);
    simulation.run(3600.0);
    simulation.forget();
    simulation.set_rates(&[TOP * peak, 9.7 * peak]);
    simulation.run(10.0);
    show("burst after an hour", &simulation);
    let first = rate(&simulation, 0.0, 1.0) / peak;
    let ten = rate(&simulation, 0.0, 10.0) / peak;
    println!("goodput in the first second {first:.3}, in ten {ten:.3}");
    assert!(first >= 0.85 && ten >= 0.9);
}

/// Under a lower limit more of what is served is of the top class. If that is slower, or faster, a
/// mean over all says nothing about a queue.
#[test]
fn classes_of_different_cost_do_not_mislead() {
    for work in [0.25, 4.0] {
        let model = exponential();
        let peak = model.capacity();
        let rates = [0.3 / work * peak, 2.0 * peak];
        let mut simulation = Simulation::new(model, LimitSettings::default(), &rates);
        simulation.clients[0].work = work;
        simulation.run(15.0);
        simulation.forget();
        simulation.run(40.0);
        let [top, low] = [0, 1].map(|class| f64::from(simulation.clients[class].answered) / 40.0);
        let goodput = (top * work + low) / peak;
        println!("top class {work} times the work: {goodput:.3} of the work that can be done");
        assert!(goodput >= 0.95, "{work}: {goodput:.3}");
    }
}

#[test]
fn an_origin_that_refuses_is_asked_for_less() {
    let model = exponential();
    let peak = model.capacity();
    let mut simulation =
        Simulation::new(model, LimitSettings::default(), &[TOP * peak, 2.0 * peak]);
    simulation.origin.refuses_above = 12;
    simulation.run(15.0);
    simulation.forget();
    simulation.refused = 0;
    simulation.run(40.0);
    show("refuses above 12", &simulation);
    let goodput = f64::from(simulation.answered()) / 40.0 / (0.75 * peak);
    let refused = f64::from(simulation.refused) / f64::from(simulation.answered());
    println!("{goodput:.3} of what is possible, {refused:.4} refused for each answer");
    assert!(goodput >= 0.85 && refused <= 0.03);
}
