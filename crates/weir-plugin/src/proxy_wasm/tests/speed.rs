//! What a request costs. Not run with the others: its figures mean something in optimised builds
//! only.

use std::hint::black_box;
use std::time::Instant;

use crate::exchange::Phase;
use crate::test_support::{Bench, Options, facts, request_head, response_head};

/// Every callback for heads, and none that does anything.
const EMPTY: &str = "(module (func (export \"proxy_abi_version_0_2_1\"))
  (memory (export \"memory\") 1)
  (func (export \"proxy_on_context_create\") (param i32 i32))
  (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export \"proxy_on_response_headers\") (param i32 i32 i32) (result i32) (i32.const 0))
  (func (export \"proxy_on_done\") (param i32) (result i32) (i32.const 1))
  (func (export \"proxy_on_log\") (param i32))
  (func (export \"proxy_on_delete\") (param i32)))";

#[test]
#[ignore = "a measurement: cargo test --profile quick -p weir-plugin proxy_wasm::tests::speed -- --ignored --nocapture"]
fn an_empty_plugin() {
    const REQUESTS: u32 = 100_000;
    let bench = Bench::of(EMPTY, Options::default()).unwrap();
    let facts = facts();
    let (mut request, mut response) = (Some(request_head()), Some(response_head()));
    let round = |_| {
        bench.instance(|instance| {
            let began = Instant::now();
            for _ in 0..REQUESTS {
                let id = instance.open(facts.clone()).unwrap();
                let exchange = instance.exchange(id).unwrap();
                exchange.request = request.take();
                black_box(instance.hook(id, Phase::RequestHead, true)).unwrap();
                let exchange = instance.exchange(id).unwrap();
                request = exchange.request.take();
                exchange.response = response.take();
                black_box(instance.hook(id, Phase::ResponseHead, true)).unwrap();
                response = instance.exchange(id).unwrap().response.take();
                instance.close(id).unwrap();
            }
            began.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
        })
    };
    let best = (0..15).map(round).fold(f64::MAX, f64::min);
    println!("empty plugin: {best:.0} ns a request");
}
