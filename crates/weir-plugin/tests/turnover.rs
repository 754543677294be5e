//! Old generations go away: thousands of deployments in a row leave memory where it was. Alone in
//! its process, since it measures that.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::sync::Weak;

use common::{Host, idle, wait_for};
use weir_plugin::Generation;

const WARM_UP: u32 = 300;
const DEPLOYMENTS: u32 = 2000;

/// What allocators and the kernel may keep for reasons of their own, and the kilobyte that each of
/// the weak references below holds.
const SLACK_BYTES: u64 = 8 << 20;

#[test]
fn thousands_of_deployments_leave_memory_where_it_was() {
    let host = Host::new();
    let mut generations: Vec<Weak<Generation>> = Vec::new();
    let mut deploy = |mark: u32| {
        host.deploy("gray", &idle(mark)).unwrap();
        assert!(host.pass("gray").failure.is_none());
        generations.push(std::sync::Arc::downgrade(&host.active("gray")));
    };
    (0..WARM_UP).for_each(&mut deploy);
    let before = resident_bytes();
    let mut held = Vec::new();
    for mark in WARM_UP..WARM_UP + DEPLOYMENTS {
        deploy(mark);
        if mark % 100 == 0 {
            // A request that takes its time.
            held.push(host.open("gray").unwrap());
        }
    }
    let alive = || generations.iter().filter(|generation| generation.strong_count() > 0).count();
    assert!(wait_for(|| alive() == 1 + held.len()), "{} with {} held", alive(), held.len());
    for stream in &held {
        assert!(host.show(stream).failure.is_none());
    }
    drop(held);
    assert!(wait_for(|| alive() == 1), "{} are alive", alive());
    let after = resident_bytes();
    assert!(after <= before + SLACK_BYTES, "{before} bytes before, {after} after");
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}
