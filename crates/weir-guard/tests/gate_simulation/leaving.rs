//! Clients who do not wait for ever.

use crate::origin::Work;
use crate::simulation::Simulation;
use crate::{MS, THRASH, as_served, check, fifo, shared};

/// Clients who leave do not make the origin faster: it works on for them.
#[test]
fn goodput_stays_at_its_peak_where_clients_leave() {
    let even = fifo(16, Work::Even(20.0 * MS));
    let thrashing = shared(16, Work::Exponential(20.0 * MS), THRASH);
    let slow = shared(16, Work::Exponential(200.0 * MS), THRASH);
    for (name, model, patience_ms, (median, worst)) in [
        ("even", even, 100, (0.97, 0.95)),
        ("thrashing", thrashing, 200, (0.94, 0.9)),
        ("slow", slow, 2000, (0.88, 0.75)),
    ] {
        for load in [1.5, 2.5, 10.0] {
            let peak = model.capacity();
            check(&format!("{name} {load}x"), [("goodput", median, worst)], |seed| {
                let mut simulation = Simulation::new(seed, model, as_served(), &[load * peak]);
                simulation.clients[0].patience_ns = Some(patience_ms * 1_000_000);
                simulation.run(30.0);
                simulation.forget();
                simulation.run(20.0);
                [f64::from(simulation.answered()) / 20.0 / peak]
            });
        }
    }
}

/// People who wait as long as it takes are not sent away for those who do not.
#[test]
fn patient_clients_are_all_served() {
    let model = fifo(16, Work::Even(20.0 * MS));
    check("400 patient clients", [("served", 1.0, 1.0)], |seed| {
        let mut simulation = Simulation::with_wait(seed, model, as_served(), &[0.0], 5.0);
        simulation.add_closed(0, 400);
        simulation.run(20.0);
        let clients = &simulation.clients[0];
        let waiting = simulation.gate.waiting() as u32 + simulation.gate.in_flight();
        [f64::from(clients.answered) / f64::from(clients.offered - waiting)]
    });
}
