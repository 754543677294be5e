//! Deployments into a server that is busy, and thousands of them.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::bystanders::undisturbed;
use crate::common::client::Client;
use crate::common::{PATIENCE, wait_for};
use crate::site::{Site, setup};
use crate::wasm::{own, proxy_wasm};
use crate::{GOOD_ROUTES, good};

fn version(number: usize) -> String {
    match number % 2 {
        0 => own(&format!(
            r#"(func (export "weir_on_response") (param i32) (result i64)
              @edits{{SET x-version={number}}})"#
        )),
        _ => proxy_wasm(&format!(
            r#"(func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
            (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
              (drop (call $proxy_add_header_map_value (i32.const 2) @{{x-version}} @{{{number}}}))
              (i32.const 0))"#
        )),
    }
}

fn deploy(site: &Site, number: usize) {
    let (status, said) =
        site.manage("POST", "/plugins/changing?route=/busy/*", version(number).as_bytes());
    assert_eq!(status, 200, "{said}");
}

#[test]
fn deployments_under_load_fail_no_request() {
    let routes = format!("{GOOD_ROUTES} route \"/busy/*\" {{ respond \"busy\"; }}");
    let site = setup().plugin("good", &good(), "").run(&routes);
    deploy(&site, 0);
    let is_over = AtomicBool::new(false);
    undisturbed(&site, || {
        std::thread::scope(|scope| {
            let load: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = Client::connect(site.address).unwrap();
                        let (mut last, mut count) = (0, 0);
                        while !is_over.load(SeqCst) {
                            let got = client.ask("GET", "/busy/a", &[]).unwrap();
                            assert_eq!(got.status, 200);
                            let version: usize = got.header("x-version").unwrap().parse().unwrap();
                            assert!(version >= last, "{version} after {last}");
                            last = version;
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            for number in 1..=30 {
                deploy(&site, number);
                // The next request runs it.
                let got = site.get("/busy/a", &[]);
                assert_eq!(got.header("x-version"), Some(&*number.to_string()));
            }
            is_over.store(true, SeqCst);
            let counts: Vec<i32> = load.into_iter().map(|load| load.join().unwrap()).collect();
            assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
        });
    });
    // Back, and away.
    let (status, said) = site.manage("POST", "/plugins/changing/rollback", b"{}");
    assert_eq!(status, 200, "{said}");
    assert_eq!(site.get("/busy/a", &[]).header("x-version"), Some("29"));
    assert_eq!(site.manage("DELETE", "/plugins/changing", b"").0, 200);
    assert_eq!(site.get("/busy/a", &[]).header("x-version"), None);
}

#[test]
fn memory_returns_after_thousands_of_deployments() {
    const ROUNDS: usize = 2_000;
    let routes = format!("{GOOD_ROUTES} route \"/busy/*\" {{ respond \"busy\"; }}");
    let site = setup().plugin("good", &good(), "").run(&routes);
    let run = |from: usize, count: usize| {
        for number in from..from + count {
            deploy(&site, number);
            if number % 50 == 0 {
                let got = site.get("/busy/a", &[]);
                assert_eq!(got.header("x-version"), Some(&*number.to_string()));
            }
        }
    };
    run(0, 200);
    let before = site.weir.resident_bytes();
    run(200, ROUNDS);
    // What the allocator keeps for a while, and no more: a deployment's code and instances take
    // some hundred KiB, which thousands would make hundreds of MiB.
    let after = wait_for(PATIENCE, || {
        let now = site.weir.resident_bytes();
        (now < before + (24 << 20)).then_some(now)
    });
    let now = site.weir.resident_bytes();
    assert!(after.is_some(), "{} KiB before, {} KiB after {ROUNDS}", before >> 10, now >> 10);
}
