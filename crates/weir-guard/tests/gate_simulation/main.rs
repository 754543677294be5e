//! A gate in front of simulated origins: what it gets out of them under too much load, and how it
//! follows when they change. Everything is seeded; the numbers are printed and held to bounds.

mod origin;
mod simulation;

use weir_guard::LimitSettings;

use crate::origin::{Discipline, OriginModel, Work};
use crate::simulation::Simulation;

const MS: f64 = 1e6;

/// What each server's worth of requests too many costs a thrashing origin: with ten times as many it
/// does 36 % of its best.
const THRASH: f64 = 0.2;

/// What the top class asks for, as a part of the origin's capacity.
const TOP: f64 = 0.3;

fn origins() -> Vec<(&'static str, OriginModel)> {
    let fifo = |servers, work| OriginModel { servers, work, discipline: Discipline::Fifo };
    let shared = |servers, work, thrash| OriginModel {
        servers,
        work,
        discipline: Discipline::Shared { thrash },
    };
    vec![
        ("constant", fifo(16, Work::Constant(20.0 * MS))),
        ("nearly constant", fifo(16, Work::Even(20.0 * MS))),
        ("exponential", fifo(16, Work::Exponential(20.0 * MS))),
        ("mixed 10x", fifo(16, Work::Mixed(20.0 * MS))),
        ("few, slow", fifo(4, Work::Exponential(60.0 * MS))),
        ("many", fifo(100, Work::Exponential(100.0 * MS))),
        ("shared", shared(16, Work::Exponential(20.0 * MS), 0.0)),
        ("thrashing", shared(16, Work::Exponential(20.0 * MS), THRASH)),
        ("thrashing, constant", shared(16, Work::Constant(20.0 * MS), THRASH)),
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

#[test]
fn goodput_stays_at_its_peak_whatever_is_offered() {
    for (name, model) in origins() {
        let peak = model.capacity();
        let alone = see(model, LimitSettings::default(), &[TOP * peak, 0.0], 60.0).top_p99_ms;
        for load in [0.5, 1.0, 2.0, 10.0] {
            let rates = [TOP * peak, (load - TOP) * peak];
            let seen = see(model, LimitSettings::default(), &rates, 40.0);
            let right = see(model, LimitSettings::Fixed(model.servers as u32), &rates, 40.0);
            println!(
                "{name:20} {load:4}x: goodput {:.3} of peak, {:.3} of that with the right limit \
                 configured; top class p99 {:.2} of unloaded ({alone:.0} ms; configured {:.2}), \
                 limit {:.1} for {} servers",
                seen.goodput / (load.min(1.0) * peak),
                seen.goodput / right.goodput,
                seen.top_p99_ms / alone,
                right.top_p99_ms / alone,
                seen.limit_mean,
                model.servers,
            );
        }
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
    for (name, model) in origins().into_iter().take(4) {
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
    }
}

/// One that loses three quarters of its servers needs a quarter of the limit.
#[test]
fn limit_follows_servers_that_go_and_come_back() {
    for (name, model) in origins().into_iter().take(4) {
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
    }
}

#[test]
fn an_origin_that_was_down_is_used_again_at_once() {
    let model = origins()[2].1;
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
}

#[test]
fn overload_ends_when_load_does() {
    let model = origins()[2].1;
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
}

#[test]
fn a_burst_after_an_hour_of_silence_is_served() {
    let model = origins()[2].1;
    let peak = model.capacity();
    let mut simulation = Simulation::new(model, LimitSettings::default(), &[0.0, 2.0 * peak]);
    simulation.run(15.0);
    simulation.set_rates(&[0.0, 0.0]);
    simulation.run(3600.0);
    simulation.forget();
    simulation.set_rates(&[TOP * peak, 9.7 * peak]);
    simulation.run(10.0);
    show("burst after an hour", &simulation);
    println!("goodput in the first second {:.3}", rate(&simulation, 0.0, 1.0) / peak);
    println!("goodput in ten {:.3}", rate(&simulation, 0.0, 10.0) / peak);
}

/// Under a lower limit more of what is served is of the top class. If that is slower, or faster, a
/// mean over all says nothing about a queue.
#[test]
fn classes_of_different_cost_do_not_mislead() {
    for work in [0.25, 4.0] {
        let model = origins()[2].1;
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
        assert!(goodput >= 0.93);
    }
}

#[test]
fn an_origin_that_refuses_is_asked_for_less() {
    let model = origins()[2].1;
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
}
