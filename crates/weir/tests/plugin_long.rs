//! Plugins that burn 20 ms for every body, after every request, or in their timers, on a server
//! with one worker: their calls leave the worker, and other requests take as long as they did.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

#[path = "plugins/site.rs"]
mod site;
#[path = "plugins/wasm.rs"]
mod wasm;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::client::Client;
use common::origin;
use site::{Site, setup};
use wasm::{own, proxy_wasm};

/// What the plugin burns for a body.
const BURN: Duration = Duration::from_millis(20);

/// Requests whose latency is measured, each time.
const SAMPLES: usize = 400;

/// A plugin that burns.
struct Case {
    name: &'static str,
    module: String,
    /// A response waits for it.
    is_waited_for: bool,
}

/// What each does with this many rounds of the burning loop; the test finds out how many make
/// [`BURN`].
fn burning(rounds: u64) -> [Case; 6] {
    let burn = format!(
        r#"(func $burn (local $n i64)
          (loop $more
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $more (i64.lt_u (local.get $n) (i64.const {rounds})))))"#
    );
    let own_body = own(&format!(
        r#"{burn}
        (func (export "weir_on_response") (param i32) (result i64) @edits{{WANT 2}})
        (func (export "weir_on_response_body") (param i32) (result i64)
          (call $burn) (call $piece (local.get 0)))"#
    ));
    let wasm_body = proxy_wasm(&format!(
        r#"{burn}
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32) (i32.const 0))
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
          (if (local.get 2) (then (call $burn))) (i32.const 0))"#
    ));
    let own_tick = own(&format!(
        r#"{burn}
        (func (export "weir_configure") (param i32 i32) (result i32)
          (drop (call $tick (i32.const 1))) (i32.const 0))
        (func (export "weir_on_tick") (param i32) (result i64)
          (drop (call $log (i32.const 3) @{{burnt}})) (call $burn) (i64.const 0))"#
    ));
    let wasm_tick = proxy_wasm(&format!(
        r#"{burn}
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
          (drop (call $proxy_set_tick_period_milliseconds (i32.const 1))) (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
          (drop (call $proxy_log (i32.const 3) @{{burnt}})) (call $burn))"#
    ));
    let own_log = own(&format!(
        r#"{burn}
        (func (export "weir_on_log") (param i32) (result i64)
          (drop (call $log (i32.const 3) @{{burnt}})) (call $burn) (i64.const 0))"#
    ));
    let wasm_log = proxy_wasm(&format!(
        r#"{burn}
        (func (export "proxy_on_log") (param i32)
          (drop (call $proxy_log (i32.const 3) @{{burnt}})) (call $burn))"#
    ));
    let case = |name, module, is_waited_for| Case { name, module, is_waited_for };
    [
        case("own, bodies", own_body, true),
        case("proxy-wasm, bodies", wasm_body, true),
        case("own, timer", own_tick, false),
        case("proxy-wasm, timer", wasm_tick, false),
        case("own, log", own_log, false),
        case("proxy-wasm, log", wasm_log, false),
    ]
}

fn served(module: &str) -> Site {
    setup()
        .plugin("burns", module, "limits cpu=\"5s\" log=100000")
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
    let site = served(&burning(rounds)[0].module);
    let took = (0..5).map(|_| {
        let began = Instant::now();
        assert_eq!(site.get("/burns", &[]).status, 200);
        began.elapsed()
    });
    let took = took.min().unwrap();
    (rounds as f64 * BURN.as_secs_f64() / took.as_secs_f64()) as u64
}

/// Latencies of requests that no plugin sees, in order. On a busy machine low priority means little
/// time: they are measured until that was `enough`, for ten seconds at most.
fn latencies(site: &Site, enough: impl Fn() -> bool) -> Vec<Duration> {
    let mut client = site.connect();
    let mut all = Vec::with_capacity(SAMPLES);
    while all.len() < SAMPLES || (!enough() && all.len() < 10 * SAMPLES) {
        let began = Instant::now();
        assert_eq!(client.ask("GET", "/quick", &[]).unwrap().body, b"quick");
        all.push(began.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    all.sort();
    all
}

#[test]
fn requests_beside_a_plugin_that_burns_take_as_long_as_before() {
    let rounds = calibrated();
    // On a server whose plugin has nothing to do.
    let mut quiet = None;
    for Case { name, module, is_waited_for } in burning(rounds) {
        let site = served(&module);
        let is_over = AtomicBool::new(false);
        let burnt = AtomicUsize::new(0);
        // How often it did, as far as that is known.
        let has_burnt = |site: &Site, burnt: usize| match is_waited_for {
            true => burnt >= 5,
            false => site.weir.log().matches("burnt").count() >= 5,
        };
        // The host has to learn what the plugin costs.
        let mut client = site.connect();
        let began = Instant::now();
        for _ in 0..5 {
            assert_eq!(client.ask("GET", "/burns", &[]).unwrap().status, 200);
        }
        let each = began.elapsed() / 5;
        let quiet = quiet.get_or_insert_with(|| latencies(&site, || true));
        let beside = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut client = Client::connect(site.address).unwrap();
                    while !is_over.load(SeqCst) {
                        let got = client.ask("GET", "/burns", &[]).unwrap();
                        assert_eq!((got.status, got.body.len()), (200, 18));
                        burnt.fetch_add(1, SeqCst);
                        if !is_waited_for {
                            std::thread::sleep(BURN);
                        }
                    }
                });
            }
            let beside = latencies(&site, || has_burnt(&site, burnt.load(SeqCst)));
            is_over.store(true, SeqCst);
            beside
        });
        let at = |all: &[Duration], share: usize| all[all.len() * share / 100];
        let told = format!(
            "{name}: a burn takes {each:?}; median {:?} and {:?}, p99 {:?} and {:?}; {} burnt",
            at(quiet, 50),
            at(&beside, 50),
            at(quiet, 99),
            at(&beside, 99),
            burnt.load(SeqCst)
        );
        eprintln!("{told}");
        assert!(!is_waited_for || each > BURN / 3, "{told}");
        assert!(has_burnt(&site, burnt.load(SeqCst)), "{told}");
        // On the worker, a burn at a time would be in the way of most requests: the median would be
        // some 10 ms. The p99 may move by what two busy cores cost, and not by a burn.
        assert!(at(&beside, 50) < at(quiet, 50) + BURN / 8, "{told}");
        assert!(at(&beside, 99) < at(quiet, 99) * 3 + BURN / 2, "{told}");
    }
}

#[test]
fn a_response_waits_for_the_hook_that_has_the_requests_body() {
    let module = own(&format!(
        r#"(func $burn (local $n i64)
          (loop $more
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $more (i64.lt_u (local.get $n) (i64.const {})))))
        (func (export "weir_on_request") (param i32) (result i64) @edits{{WANT 1}})
        (func (export "weir_on_request_body") (param i32) (result i64) (call $burn) (i64.const 0))
        (func (export "weir_on_response") (param i32) (result i64) @edits{{SET x-seen=yes}})"#,
        calibrated()
    ));
    // It answers before it has the content.
    let origin = origin::raw(|_, mut stream| {
        if origin::read_head(&mut stream).is_ok() {
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly",
            );
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let site = setup()
        .plugin("burns", &module, "limits cpu=\"5s\"; on-failure \"fail\"")
        .block("plugins { long-threads 1; }")
        .run(&format!(r#"route "/*" {{ proxy "http://{origin}"; use "burns"; }}"#));
    for round in 0..8 {
        let mut client = site.connect();
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        for _ in 0..5 {
            client.send(b"5\r\npiece\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
        client.send(b"0\r\n\r\n").unwrap();
        let got = client.response("POST").unwrap();
        assert_eq!((got.status, got.header("x-seen")), (200, Some("yes")), "{round}");
    }
}
