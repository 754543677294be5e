//! Origins and loads that change.

use crate::origin::OriginModel;
use crate::simulation::Simulation;
use crate::{TOP, as_served, check, exponential, usual_origins};

/// Answers per second in a stretch of seconds.
fn rate(simulation: &Simulation, from_s: f64, to_s: f64) -> f64 {
    let tenths = &simulation.tenths[(from_s * 10.0) as usize..(to_s * 10.0) as usize];
    f64::from(tenths.iter().map(|tenth| tenth.answered).sum::<u32>()) / (to_s - from_s)
}

/// One that has seen so much, as multiples of the capacity, for long enough to know its limit.
fn settled(seed: u64, model: OriginModel, loads: [f64; 2]) -> Simulation {
    let rates = loads.map(|load| load * model.capacity());
    let mut simulation = Simulation::new(seed, model, as_served(), &rates);
    simulation.run(15.0);
    simulation.forget();
    simulation.run(5.0);
    simulation
}

/// An origin that takes four times as long for everything still has as many servers: lowering the
/// limit would only leave them idle.
#[test]
fn slower_requests_do_not_take_throughput() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let bounds = [("4x slower", 0.9, 0.75), ("3 s after", 0.85, 0.4)];
        check(name, bounds, |seed| {
            let mut simulation = settled(seed, model, [TOP / 4.0, 3.0]);
            simulation.origin.slowness = 4.0;
            simulation.run(20.0);
            simulation.origin.slowness = 1.0;
            simulation.run(10.0);
            [rate(&simulation, 8.0, 25.0) / (peak / 4.0), rate(&simulation, 28.0, 35.0) / peak]
        });
    }
}

/// One that loses three quarters of its servers needs a quarter of the limit.
#[test]
fn limit_follows_servers_that_go_and_come_back() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let bounds = [
            ("a quarter", 0.93, 0.85),
            ("15 s after they are back", 0.93, 0.5),
            ("servers / limit", 0.55, 0.2),
        ];
        check(name, bounds, |seed| {
            let mut simulation = settled(seed, model, [TOP / 4.0, 3.0]);
            simulation.origin.model.servers = model.servers / 4;
            simulation.run(20.0);
            simulation.origin.model.servers = model.servers;
            simulation.run(25.0);
            let limits: u32 = simulation.tenths[150..250].iter().map(|tenth| tenth.limit).sum();
            let few = rate(&simulation, 8.0, 25.0) / (peak / 4.0);
            let again = rate(&simulation, 40.0, 50.0) / peak;
            [few, again, 4.0 / (f64::from(limits) / 100.0)]
        });
    }
}

#[test]
fn an_origin_that_was_down_is_used_again_at_once() {
    let model = exponential();
    check("down for 5 s", [("2 s after", 0.93, 0.85)], |seed| {
        let mut simulation = settled(seed, model, [TOP, 2.0]);
        simulation.origin.is_down = true;
        simulation.run(5.0);
        assert_eq!(simulation.gate.limit(), 2);
        simulation.origin.is_down = false;
        simulation.run(10.0);
        [rate(&simulation, 12.0, 20.0) / model.capacity()]
    });
}

#[test]
fn overload_ends_when_load_does() {
    let model = exponential();
    let peak = model.capacity();
    check("60 s at 10x", [("served of what comes then", 0.99, 0.98)], |seed| {
        let mut simulation = Simulation::new(seed, model, as_served(), &[TOP * peak, 9.7 * peak]);
        simulation.run(60.0);
        assert!(simulation.tenths[20..].iter().all(|tenth| tenth.is_overloaded));
        simulation.forget();
        simulation.set_rates(&[TOP * peak, 0.2 * peak]);
        simulation.run(10.0);
        // At once, but for the moments in which the limit is lowered to see something.
        let over = simulation.tenths[5..].iter().filter(|tenth| tenth.is_overloaded).count();
        assert!(over <= 4, "{over}");
        let offered: u32 = simulation.clients.iter().map(|clients| clients.offered).sum();
        [f64::from(simulation.answered()) / f64::from(offered)]
    });
}

#[test]
fn a_burst_after_an_hour_of_silence_is_served() {
    let model = exponential();
    let peak = model.capacity();
    check("a burst", [("first second", 0.85, 0.7), ("ten", 0.93, 0.85)], |seed| {
        let mut simulation = Simulation::new(seed, model, as_served(), &[0.0, 2.0 * peak]);
        simulation.run(15.0);
        simulation.set_rates(&[0.0, 0.0]);
        simulation.run(3600.0);
        simulation.forget();
        simulation.set_rates(&[TOP * peak, 9.7 * peak]);
        simulation.run(10.0);
        [rate(&simulation, 0.0, 1.0) / peak, rate(&simulation, 0.0, 10.0) / peak]
    });
}
