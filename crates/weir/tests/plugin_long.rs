//! A plugin that burns 20 ms for every body, on a server with one worker: its calls leave the
//! worker, and other requests take as long as they did.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "plugins/site.rs"]
mod site;
#[path = "plugins/wasm.rs"]
mod wasm;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::Client;
use site::{Site, setup};
use wasm::{own, proxy_wasm};

/// What the plugin burns for a body.
const BURN: Duration = Duration::from_millis(20);

/// Requests whose latency is measured, each time.
const SAMPLES: usize = 400;

/// Rounds of the burning loop; the test finds out how many make [`BURN`].
fn burning(rounds: u64) -> [(&'static str, String); 2] {
    let burn = format!(
        r#"(func $burn (local $n i64)
          (loop $more
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $more (i64.lt_u (local.get $n) (i64.const {rounds})))))"#
    );
    let own = own(&format!(
        r#"{burn}
        (func (export "weir_on_response") (param i32) (result i64) @edits{{WANT 2}})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $burn) (call $piece (local.get 0)))"#
    ));
    let wasm = proxy_wasm(&format!(
        r#"{burn}
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then (call $burn))) (i32.const 0))"#
    ));
    [("own", own), ("proxy-wasm", wasm)]
}

fn served(module: &str) -> Site {
    setup()
        .plugin("burns", module, "limits cpu=\"5s\"")
        .block("plugins { long-threads 1; }")
        .server("workers 1")
        .run(
            r#"
            route "/quick" { respond "quick"; }
            route "/burns" { respond "a body to burn for"; use "burns"; }
            "#,
        )
}

/// How many rounds take 20 ms here.
fn calibrated() -> u64 {
    let rounds = 20_000_000;
    let site = served(&burning(rounds)[0].1);
    let took = (0..5).map(|_| {
        let began = Instant::now();
        assert_eq!(site.get("/burns", &[]).status, 200);
        began.elapsed()
    });
    let took = took.min().unwrap();
    (rounds as f64 * BURN.as_secs_f64() / took.as_secs_f64()) as u64
}

/// Latencies of requests that no plugin sees, in order.
fn latencies(site: &Site) -> Vec<Duration> {
    let mut client = site.connect();
    let mut all: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(client.ask("GET", "/quick", &[]).unwrap().body, b"quick");
            let took = began.elapsed();
            std::thread::sleep(Duration::from_millis(1));
            took
        })
        .collect();
    all.sort();
    all
}

#[test]
fn requests_beside_a_plugin_that_burns_take_as_long_as_before() {
    let rounds = calibrated();
    for (name, module) in burning(rounds) {
        let site = served(&module);
        let is_over = AtomicBool::new(false);
        let burnt = AtomicUsize::new(0);
        // The host has to learn what the plugin costs.
        let mut client = site.connect();
        let began = Instant::now();
        for _ in 0..5 {
            assert_eq!(client.ask("GET", "/burns", &[]).unwrap().status, 200);
        }
        let each = began.elapsed() / 5;
        let quiet = latencies(&site);
        let beside = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = Client::connect(site.address).unwrap();
                    while !is_over.load(SeqCst) {
                        let got = client.ask("GET", "/burns", &[]).unwrap();
                        assert_eq!((got.status, got.body.len()), (200, 18));
                        burnt.fetch_add(1, SeqCst);
                    }
                });
            }
            let beside = latencies(&site);
            is_over.store(true, SeqCst);
            beside
        });
        let at = |all: &[Duration], share: usize| all[all.len() * share / 100];
        let told = format!(
            "{name}: a burn takes {each:?}; median {:?} and {:?}, p99 {:?} and {:?}; {} burnt",
            at(&quiet, 50),
            at(&beside, 50),
            at(&quiet, 99),
            at(&beside, 99),
            burnt.load(SeqCst)
        );
        eprintln!("{told}");
        assert!(each > BURN / 3, "{told}");
        assert!(burnt.load(SeqCst) >= 5, "{told}");
        // On the worker, a burn at a time would be in the way of most requests: the median would be
        // some 10 ms. The p99 may move by what two busy cores cost, and not by a burn.
        assert!(at(&beside, 50) < at(&quiet, 50) + BURN / 8, "{told}");
        assert!(at(&beside, 99) < at(&quiet, 99) * 3 + BURN / 2, "{told}");
    }
}
