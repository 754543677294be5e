//! Requests that have nothing to do with a plugin that misbehaves, and must not notice it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::Scope;
use std::time::{Duration, Instant};

use crate::common::client::Client;
use crate::site::Site;

/// How long any of them may take: a misbehaving plugin may have its CPU time on a worker (50 ms by
/// default), and the machine may be busy with other tests.
const LATENCY_MAX: Duration = Duration::from_secs(4);

/// Runs requests for `/plain` and `/good` while `test` runs; `/good` bears the good plugin's mark.
pub(crate) fn undisturbed<R>(site: &Site, test: impl FnOnce() -> R) -> R {
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = OnDrop(&is_over);
        for target in ["/plain", "/good"] {
            spawn(scope, site, target, &is_over, &count);
        }
        let result = test();
        // At least some of them came after it.
        let before = count.load(SeqCst);
        while count.load(SeqCst) < before + 10 {
            std::thread::sleep(Duration::from_millis(5));
        }
        result
    })
}

fn spawn<'s>(
    scope: &'s Scope<'s, '_>,
    site: &'s Site,
    target: &'static str,
    is_over: &'s AtomicBool,
    count: &'s AtomicUsize,
) {
    scope.spawn(move || {
        while !is_over.load(SeqCst) {
            // New connections come to every worker.
            let mut client = Client::connect(site.address).unwrap();
            for _ in 0..5 {
                let began = Instant::now();
                let got = client.ask("GET", target, &[]).unwrap();
                let took = began.elapsed();
                count.fetch_add(1, SeqCst);
                assert_eq!(got.status, 200, "{target}");
                let is_marked = got.header("x-good").is_some();
                assert_eq!(is_marked, target == "/good", "{target}");
                assert!(took < LATENCY_MAX, "{target} took {took:?}");
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    });
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
