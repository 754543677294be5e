//! Load that stays as it is.

use weir_guard::LimitSettings;

use crate::origin::{OriginModel, Work};
use crate::simulation::{Simulation, Tenth};
use crate::{MS, THRASH, TOP, as_served, check, exponential, fifo, shared, usual_origins};

struct Seen {
    goodput: f64,
    top_p99_ms: f64,
}

fn see(seed: u64, model: OriginModel, limit: LimitSettings, rates: &[f64]) -> Seen {
    let mut simulation = Simulation::new(seed, model, limit, rates);
    // The limit is found after some thousands of requests.
    simulation.run(12_000.0 / model.capacity().min(1000.0));
    simulation.forget();
    simulation.run(20.0);
    Seen {
        goodput: f64::from(simulation.answered()) / 20.0,
        top_p99_ms: simulation.clients[0].percentile_ms(99.0),
    }
}

/// At once, twice and ten times the capacity, and at half of it. The top class's 99th percentile is
/// compared with what it is when nobody else is there, `p99` being the part of it that may be left.
fn check_loads(name: &str, model: OriginModel, goodput: (f64, f64), p99: (f64, f64)) {
    let peak = model.capacity();
    for load in [0.5, 1.0, 2.0, 10.0] {
        let rates = [TOP * peak, (load - TOP) * peak];
        let bounds = [("goodput", goodput.0, goodput.1), ("unloaded / p99", p99.0, p99.1)];
        check(&format!("{name} {load}x"), bounds, |seed| {
            let alone = see(seed, model, as_served(), &[TOP * peak, 0.0]).top_p99_ms;
            let seen = see(seed, model, as_served(), &rates);
            let right = see(seed, model, LimitSettings::Fixed(model.servers as u32), &rates);
            // As much as can be served comes at random moments, and chance makes it more or less:
            // what is possible is what the right limit, configured, gets.
            [seen.goodput / right.goodput, alone / seen.top_p99_ms]
        });
    }
}

#[test]
fn goodput_stays_at_its_peak_where_requests_are_alike() {
    let [(name, model), ..] = usual_origins();
    check_loads(name, model, (0.97, 0.95), (0.66, 0.6));
}

#[test]
fn goodput_stays_at_its_peak_where_requests_differ() {
    for (name, model) in &usual_origins()[1..] {
        check_loads(name, *model, (0.96, 0.9), (0.66, 0.5));
    }
}

#[test]
fn goodput_stays_at_its_peak_with_few_servers() {
    // One more than the four is a quarter more, and two are half as many.
    check_loads("few, slow", fifo(4, Work::Exponential(60.0 * MS)), (0.9, 0.82), (0.57, 0.45));
}

#[test]
fn goodput_stays_at_its_peak_with_many_servers() {
    check_loads("many", fifo(100, Work::Exponential(100.0 * MS)), (0.95, 0.9), (0.66, 0.5));
}

#[test]
fn goodput_stays_at_its_peak_where_requests_share_servers() {
    let work = Work::Exponential(20.0 * MS);
    check_loads("shared", shared(16, work, 0.0), (0.96, 0.9), (0.66, 0.5));
    check_loads("thrashing", shared(16, work, THRASH), (0.95, 0.88), (0.66, 0.5));
}

/// With exactly constant work all servers get free at the same moments, and whoever comes in
/// between waits for one whole request, whatever the limit. 1.5 times unloaded cannot be had.
#[test]
fn goodput_stays_at_its_peak_in_lockstep() {
    let work = Work::Constant(20.0 * MS);
    check_loads("constant", fifo(16, work), (0.97, 0.95), (0.45, 0.4));
    check_loads("thrashing, constant", shared(16, work, THRASH), (0.95, 0.9), (0.35, 0.3));
}

#[test]
fn little_traffic_does_not_lower_the_limit() {
    for (name, model) in usual_origins() {
        let peak = model.capacity();
        let rates = [0.02 * peak, 0.08 * peak];
        check(name, [("least limit", 64.0, 64.0)], |seed| {
            let mut simulation = Simulation::new(seed, model, as_served(), &rates);
            simulation.run(60.0);
            let unanswered =
                simulation.clients.iter().map(|clients| clients.offered - clients.answered);
            assert_eq!(unanswered.sum::<u32>(), simulation.gate.in_flight(), "{name}");
            let tenths = simulation.tenths.iter().filter(|tenth| !tenth.is_probing);
            [tenths.map(|tenth| tenth.limit).min().map_or(0.0, f64::from)]
        });
    }
}

/// Clients who ask again as soon as they are answered are never more than they are: the limit has
/// to be found though they never reach it.
#[test]
fn a_queue_is_found_that_never_reaches_the_limit() {
    for (name, model) in usual_origins() {
        for each in [4, 16, 48] {
            let bounds = [("goodput", 0.96, 0.9), ("unloaded / p99", 0.26, 0.26)];
            check(&format!("{name}, 8 + 2 x {each} clients"), bounds, |seed| {
                let mut alone = Simulation::new(seed, model, as_served(), &[0.0; 3]);
                alone.add_closed(0, 8);
                alone.run(10.0);
                let mut simulation = Simulation::new(seed, model, as_served(), &[0.0; 3]);
                simulation.add_closed(0, 8);
                simulation.add_closed(1, each);
                simulation.add_closed(2, each);
                simulation.run(10.0);
                simulation.forget();
                simulation.run(20.0);
                let busy = (8.0 + 2.0 * each as f64).min(16.0) / 16.0;
                let goodput = f64::from(simulation.answered()) / 20.0 / model.capacity() / busy;
                let unloaded_ms = alone.clients[0].percentile_ms(99.0);
                [goodput, unloaded_ms / simulation.clients[0].percentile_ms(99.0)]
            });
        }
    }
}

/// Clients of the highest class who ask for one thing after the other, and are no more than can be
/// served, hardly notice the others.
#[test]
fn clients_who_come_back_find_their_place() {
    let constant = Work::Constant(20.0 * MS);
    let thrashing = ("thrashing, constant", shared(16, constant, THRASH));
    for (name, model) in usual_origins().into_iter().chain([thrashing]) {
        for top in [4, 12] {
            let bounds = [("goodput", 0.96, 0.93), ("unloaded / p99", 0.66, 0.64)];
            check(&format!("{name}, {top} + 32 clients"), bounds, |seed| {
                let (mut alone, mut seen) =
                    (see_top(seed, model, top, 0), see_top(seed, model, top, 32));
                let goodput = f64::from(seen.answered()) / 10.0 / model.capacity();
                let unloaded_ms = alone.clients[0].percentile_ms(99.0);
                [goodput, unloaded_ms / seen.clients[0].percentile_ms(99.0)]
            });
        }
    }
}

/// So many clients of the highest class, each of whom asks again 0.3 ms after his answer, beside
/// others who do so at once.
fn see_top(seed: u64, model: OriginModel, top: u64, others: u64) -> Simulation {
    let mut simulation = Simulation::new(seed, model, as_served(), &[0.0; 2]);
    simulation.clients[0].think_ns = 300_000;
    simulation.add_closed(0, top);
    simulation.add_closed(1, others);
    simulation.run(10.0);
    simulation.forget();
    simulation.run(10.0);
    simulation
}

/// A server that has just started, and is asked for much, but not too much, holds few back to find
/// that out: the first question takes a moment. Without any limit one that thrashes would answer 2
/// to 30 % so soon; with the right one from the beginning, 99.9 %.
#[test]
fn a_start_under_load_holds_few_back() {
    let constant = Work::Constant(20.0 * MS);
    let models = [("queueing", fifo(16, constant)), ("thrashing", shared(16, constant, THRASH))];
    for (name, model) in models {
        check(name, [("answered in three times the usual", 0.91, 0.89)], |seed| {
            let rates = [0.2 * model.capacity(), 0.6 * model.capacity()];
            let mut simulation = Simulation::new(seed, model, as_served(), &rates);
            simulation.run(20.0);
            let patient = |ns: &&f64| **ns <= 3.0 * model.work.mean();
            let latencies_ns = simulation.clients.iter().flat_map(|clients| &clients.latencies_ns);
            let soon = latencies_ns.filter(patient).count() as f64;
            let offered = simulation.clients.iter().map(|clients| clients.offered);
            [soon / f64::from(offered.sum::<u32>())]
        });
    }
}

/// Also while they come one after the other, so that the first answers are those of a lesser load.
#[test]
fn a_queue_is_found_soon() {
    let works = [("constant", Work::Constant(20.0 * MS)), ("even", Work::Even(20.0 * MS))];
    for (name, work) in works {
        let model = shared(16, work, THRASH);
        for each in [10, 12, 14, 16, 18, 20, 24, 32] {
            let bounds = [("of the time after three seconds", 0.96, 0.8)];
            check(&format!("{name}, 3 x {each} clients within a second"), bounds, |seed| {
                let mut simulation = Simulation::new(seed, model, as_served(), &[0.0; 3]);
                for _ in 0..each {
                    (0..3).for_each(|class| simulation.add_closed(class, 1));
                    simulation.run(1.0 / f64::from(each));
                }
                simulation.run(2.0);
                simulation.forget();
                simulation.run(3.0);
                let is_found = |tenth: &&Tenth| tenth.limit <= 28;
                let found = simulation.tenths.iter().filter(is_found).count();
                [found as f64 / simulation.tenths.len() as f64]
            });
        }
    }
}

/// Where nothing is too much, hardly anybody waits.
#[test]
fn traffic_that_grows_is_not_held_back() {
    let fast = fifo(200, Work::Even(20.0 * MS));
    let slow = fifo(2000, Work::Even(1000.0 * MS));
    for (name, model) in [("fast", fast), ("slow", slow)] {
        check(name, [("answered in 1.5 times the usual", 0.99, 0.98)], |seed| {
            let mut simulation = Simulation::new(seed, model, as_served(), &[0.0]);
            let (mut soon, mut all) = (0.0, 0.0);
            for step in 1..=20 {
                simulation.set_rates(&[0.02 * f64::from(step) * model.capacity()]);
                simulation.run(5.0);
                let latencies_ns = &simulation.clients[0].latencies_ns;
                let limit_ns = 1.5 * model.work.mean();
                soon += latencies_ns.iter().filter(|ns| **ns <= limit_ns).count() as f64;
                all += latencies_ns.len() as f64;
                simulation.forget();
            }
            [soon / all]
        });
    }
}

/// Under a lower limit more of what is served is of the top class. If that is slower, or faster, a
/// mean over all says nothing about a queue.
#[test]
fn classes_of_different_cost_do_not_mislead() {
    for work in [0.25, 4.0] {
        let model = exponential();
        let peak = model.capacity();
        let rates = [0.3 / work * peak, 2.0 * peak];
        let bounds = [("of the work that can be done", 0.96, 0.9)];
        check(&format!("top class {work} times the work"), bounds, |seed| {
            let mut simulation = Simulation::new(seed, model, as_served(), &rates);
            simulation.clients[0].work = work;
            simulation.run(15.0);
            simulation.forget();
            simulation.run(40.0);
            let [top, low] = [0, 1].map(|class| f64::from(simulation.clients[class].answered));
            [(top * work + low) / 40.0 / peak]
        });
    }
}

#[test]
fn an_origin_that_refuses_is_asked_for_less() {
    let model = exponential();
    let peak = model.capacity();
    let bounds = [("goodput", 0.85, 0.8), ("not refused", 0.96, 0.95)];
    check("refuses above 12", bounds, |seed| {
        let mut simulation = Simulation::new(seed, model, as_served(), &[TOP * peak, 2.0 * peak]);
        simulation.origin.refuses_above = 12;
        simulation.run(15.0);
        simulation.forget();
        simulation.refused = 0;
        simulation.run(40.0);
        let answered = f64::from(simulation.answered());
        [answered / 40.0 / (0.75 * peak), 1.0 - f64::from(simulation.refused) / answered]
    });
}

/// Whatever the top class takes, what it may have beyond the limit included.
#[test]
fn a_class_has_its_share() {
    let model = exponential();
    let peak = model.capacity();
    for limit in [as_served(), LimitSettings::Fixed(model.servers as u32)] {
        let bounds = [("goodput", 0.92, 0.88), ("share", 0.95, 0.9), ("no more", 0.95, 0.9)];
        check("a share of 10", bounds, |seed| {
            let mut simulation =
                Simulation::new(seed, model, limit.clone(), &[2.0 * peak, 0.5 * peak, 0.5 * peak]);
            simulation.set_shares(&[0, 10, 0]);
            simulation.run(15.0);
            simulation.forget();
            simulation.run(40.0);
            let low = f64::from(simulation.clients[1].answered);
            let all = f64::from(simulation.answered());
            [all / 40.0 / peak, low / all / 0.1, 0.1 * all / low]
        });
    }
}
