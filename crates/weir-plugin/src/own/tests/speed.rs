//! What a hook costs. Not run with the others: its figures mean something in optimised builds only.

use std::hint::black_box;
use std::time::Instant;

use super::*;

/// Nanoseconds a call, the best of several rounds.
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 100_000;
    let round = |_| {
        let began = Instant::now();
        (0..CALLS).for_each(|_| call());
        began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..15).map(round).fold(f64::MAX, f64::min)
}

fn eight_fields() -> RequestHead {
    let headers = headers(&[
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        ("accept-encoding", "gzip, deflate, br"),
        ("accept-language", "en-GB,en;q=0.5"),
        ("cache-control", "no-cache"),
        ("cookie", "session=0123456789abcdef0123456789abcdef"),
        ("referer", "https://example.org/articles"),
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        ("x-request-id", "7c1e5f6a"),
    ]);
    RequestHead { headers, ..request() }
}

#[test]
#[ignore = "a measurement: cargo test --release -p weir-plugin own::tests::speed -- --ignored --nocapture"]
fn an_empty_hook() {
    for (name, mask) in [("nothing", 0), ("the request line", 1), ("everything", -1)] {
        let module = module(&format!(
            r#"{} (func (export "weir_wants") (param i32) (result i32) (i32.const {mask}))"#,
            hook("weir_on_request", 1024, &List::new())
        ));
        let mut puppet = Puppet::new(&module);
        puppet.exchange().request = Some(Lent::Own(eight_fields()));
        puppet.exchange().response = None;
        let took = nanoseconds(|| {
            black_box(puppet.guest.hook(&mut puppet.store, ID, Phase::RequestHead, true)).unwrap();
        });
        println!("empty hook that wants {name} of 8 fields: {took:.1} ns");
    }
}
