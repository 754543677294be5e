//! Each callback, what it is given, and what follows from its result.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::*;
use crate::exchange::{Action, Phase};
use crate::failure::Failure;
use crate::proxy_wasm::Peer;
use crate::signal::Signal;
use crate::test_support::{ALLOCATOR, Arg::*, Options, fields};

fn hook(bench: &Bench, id: u32, phase: Phase, end: bool) -> Action {
    bench.instance(|instance| instance.hook(id, phase, end).unwrap())
}

fn close(bench: &Bench, id: u32) {
    bench.instance(|instance| instance.close(id).unwrap());
}

/// Whether whoever waits for a request is told now.
fn is_told(bench: &Bench, id: u32) -> bool {
    let signal = bench.exchange(id, |exchange| exchange.signal.clone());
    is_ready(&signal)
}

/// Whether something was told since this was last asked.
fn is_ready(signal: &Arc<Signal>) -> bool {
    thread_local! {
        // With the signals, so that no other one is at their addresses.
        static HEARD: RefCell<HashMap<*const Signal, (Arc<Signal>, u64)>> = RefCell::default();
    }
    HEARD.with_borrow_mut(|heard| {
        let (_, heard) =
            heard.entry(Arc::as_ptr(signal)).or_insert_with(|| (Arc::clone(signal), 0));
        signal.poll_told(heard, &mut Context::from_waker(Waker::noop())).is_ready()
    })
}

#[test]
fn a_request_goes_through_its_callbacks_in_order() {
    let bench = bench();
    assert_eq!(
        bench.notes(),
        [
            ("proxy_on_context_create", vec![1, 0]),
            ("proxy_on_vm_start", vec![1, 2]),
            ("proxy_on_configure", vec![1, 12]),
        ]
    );
    let id = bench.open();
    bench.exchange(id, |exchange| {
        exchange.request_body.push("12345".into());
        exchange.response_body.push("123".into());
        exchange.request_trailers = fields(&[("t", "1")]);
        exchange.response_trailers = fields(&[("t", "1"), ("u", "2")]);
    });
    for (phase, end) in [
        (Phase::RequestHead, false),
        (Phase::RequestBody, true),
        (Phase::RequestTrailers, true),
        (Phase::Lookup, false),
        (Phase::ResponseHead, true),
        (Phase::ResponseBody, false),
        (Phase::ResponseTrailers, true),
    ] {
        assert_eq!(hook(&bench, id, phase, end), Action::Continue);
    }
    close(&bench, id);
    assert_eq!(
        bench.notes(),
        [
            ("proxy_on_context_create", vec![id, 1]),
            ("proxy_on_request_headers", vec![id, 7, 0]),
            ("proxy_on_request_body", vec![id, 5, 1]),
            ("proxy_on_request_trailers", vec![id, 1]),
            ("proxy_on_response_headers", vec![id, 3, 1]),
            ("proxy_on_response_body", vec![id, 3, 0]),
            ("proxy_on_response_trailers", vec![id, 2]),
            ("proxy_on_done", vec![id]),
            ("proxy_on_log", vec![id]),
            ("proxy_on_delete", vec![id]),
        ]
    );
    assert!(bench.instance(|instance| instance.exchange(id).is_none()));
}

#[test]
fn connections_that_are_not_http_have_callbacks_of_their_own() {
    let mut bench = bench();
    let id = bench.open();
    bench.notes();
    bench.returns("proxy_on_downstream_data", 1);
    assert_eq!(hook(&bench, id, Phase::Connection, false), Action::Continue);
    bench.exchange(id, |exchange| {
        exchange.request_body.push("12".into());
        exchange.response_body.push("123".into());
    });
    bench.store(|guest, store| {
        assert_eq!(guest.downstream_data(store, id, false).unwrap(), Action::Pause);
    });
    let read = [Num(2), Num(0), Num(9), Out(0), Out(1)];
    assert_eq!(bench.call("proxy_get_buffer_bytes", &read), OK);
    assert_eq!(bench.given(), b"12");
    assert_eq!(bench.call("proxy_continue_stream", &[Num(3)]), OK);
    bench.exchange(id, |exchange| assert_eq!(exchange.is_released, [false, true]));
    assert_eq!(bench.call("proxy_continue_stream", &[Num(2)]), OK);
    bench.exchange(id, |exchange| assert_eq!(exchange.is_released, [true, true]));
    assert!(is_told(&bench, id));
    bench.store(|guest, store| {
        assert_eq!(guest.upstream_data(store, id, true).unwrap(), Action::Continue);
        guest.downstream_closed(store, id, Peer::Remote).unwrap();
        guest.upstream_closed(store, id, Peer::Unknown).unwrap();
    });
    assert_eq!(bench.call("proxy_set_buffer_bytes", &[Num(3), Num(0), Num(1), Bytes(b"x")]), OK);
    bench.exchange(id, |exchange| assert_eq!(exchange.response_body.flatten(), "x23"));
    assert_eq!(
        bench.notes(),
        [
            ("proxy_on_new_connection", vec![id]),
            ("proxy_on_downstream_data", vec![id, 2, 0]),
            ("proxy_on_upstream_data", vec![id, 3, 1]),
            ("proxy_on_downstream_connection_close", vec![id, 2]),
            ("proxy_on_upstream_connection_close", vec![id, 0]),
        ]
    );
}

#[test]
fn bodies_that_the_policy_withholds_are_not_shown() {
    let mut options = Options::default();
    options.policy.allow.request_body = false;
    options.policy.allow.response_body = false;
    let bench = Bench::with(FUNCTIONS, ALLOCATOR, options).unwrap();
    let id = bench.open();
    bench.notes();
    for phase in [Phase::RequestBody, Phase::ResponseBody] {
        assert_eq!(hook(&bench, id, phase, true), Action::Continue);
    }
    assert_eq!(bench.notes(), []);
}

#[test]
fn paused_requests_go_on_when_the_plugin_says_so() {
    for (callback, phase, stream, other) in [
        ("proxy_on_request_headers", Phase::RequestHead, 0, 1),
        ("proxy_on_request_body", Phase::RequestBody, 0, 1),
        ("proxy_on_request_trailers", Phase::RequestTrailers, 0, 1),
        ("proxy_on_response_headers", Phase::ResponseHead, 1, 0),
        ("proxy_on_response_body", Phase::ResponseBody, 1, 0),
        ("proxy_on_response_trailers", Phase::ResponseTrailers, 0, 4),
    ] {
        let mut bench = bench();
        let id = bench.open();
        bench.returns(callback, 1);
        assert_eq!(hook(&bench, id, phase, false), Action::Pause);
        assert!(!is_told(&bench, id), "{callback}");
        let expect = if other == 4 { BAD_ARGUMENT } else { OK };
        assert_eq!(bench.call("proxy_continue_stream", &[Num(other)]), expect);
        assert!(!is_told(&bench, id), "{callback}");
        assert_eq!(bench.call("proxy_continue_stream", &[Num(stream)]), OK);
        assert!(is_told(&bench, id), "{callback}");
        // Once.
        assert_eq!(bench.call("proxy_continue_stream", &[Num(stream)]), OK);
        assert!(!is_told(&bench, id), "{callback}");
    }
}

#[test]
fn paused_requests_go_on_when_they_are_answered_or_closed() {
    for closes in [true, false] {
        let mut bench = bench();
        let id = bench.open();
        bench.returns("proxy_on_request_headers", 1);
        assert_eq!(hook(&bench, id, Phase::RequestHead, false), Action::Pause);
        match closes {
            true => assert_eq!(bench.call("proxy_close_stream", &[Num(0)]), OK),
            false => {
                let none = Num(u64::from(u32::MAX));
                let args = [Num(403), Bytes(b""), Bytes(b""), Bytes(b""), none];
                assert_eq!(bench.call("proxy_send_local_response", &args), OK);
            }
        }
        assert!(is_told(&bench, id), "{closes}");
    }
}

/// A callback that does something with host functions itself.
fn with(callback: &str) -> Bench {
    Bench::new(FUNCTIONS, &format!("{ALLOCATOR} {callback}"))
}

#[test]
fn what_is_continued_inside_its_callback_is_not_paused() {
    let bench = with(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
           (drop (call $proxy_continue_stream (i32.const 0))) (i32.const 1))",
    );
    let id = bench.open();
    assert_eq!(hook(&bench, id, Phase::RequestHead, false), Action::Continue);
    assert!(!is_told(&bench, id), "nobody waits");
}

#[test]
fn an_answer_inside_a_callback_ends_its_pause() {
    let bench = with(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
           (drop (call $proxy_send_local_response (i32.const 403) (i32.const 0) (i32.const 0)
             (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -1)))
           (i32.const 1))",
    );
    let id = bench.open();
    assert_eq!(hook(&bench, id, Phase::RequestHead, false), Action::Continue);
    bench.exchange(id, |exchange| {
        assert_eq!(exchange.wishes.answer.as_ref().unwrap().status, 403);
    });
}

#[test]
fn a_plugin_may_put_the_end_off() {
    let mut bench = bench();
    let id = bench.open();
    bench.notes();
    bench.returns("proxy_on_done", 0);
    close(&bench, id);
    assert_eq!(bench.notes(), [("proxy_on_done", vec![id])]);
    // It can still look at the request.
    assert_eq!(bench.call("proxy_get_header_map_size", &[Num(0), Out(0)]), OK);
    assert_ne!(bench.number(crate::test_support::OUT), 0);
    assert_eq!(bench.call("proxy_done", &[]), OK);
    assert_eq!(bench.call("proxy_done", &[]), NOT_FOUND);
    // What follows comes after the running callback.
    bench.instance(|instance| instance.tick().unwrap());
    assert_eq!(
        bench.notes(),
        [("proxy_on_tick", vec![1]), ("proxy_on_log", vec![id]), ("proxy_on_delete", vec![id]),]
    );
    assert!(bench.instance(|instance| instance.exchange(id).is_none()));
}

#[test]
fn an_end_that_is_put_off_for_ever_comes_at_last() {
    let bench = bench();
    bench.returns("proxy_on_done", 0);
    for _ in 0..2 * crate::limits::PENDING_DONE_MAX {
        let id = bench.open();
        close(&bench, id);
        bench.notes();
    }
    let open = bench.store(|_, store| store.data().exchanges.len());
    assert_eq!(open, crate::limits::PENDING_DONE_MAX);
}

#[test]
fn timers_tick_until_they_are_stopped() {
    let mut bench = bench();
    bench.notes();
    let ticks = |bench: &Bench| {
        bench.notes().iter().filter(|note| **note == ("proxy_on_tick", vec![1])).count()
    };
    assert_eq!(bench.call("proxy_set_tick_period_milliseconds", &[Num(100)]), OK);
    bench.pass(Duration::from_millis(350));
    assert_eq!(ticks(&bench), 3);
    assert_eq!(bench.call("proxy_set_tick_period_milliseconds", &[Num(10)]), OK);
    bench.pass(Duration::from_millis(55));
    assert_eq!(ticks(&bench), 5);
    assert_eq!(bench.call("proxy_set_tick_period_milliseconds", &[Num(0)]), OK);
    bench.pass(Duration::from_secs(1));
    assert_eq!(ticks(&bench), 0);
}

#[test]
fn foreign_callbacks_are_given_arguments() {
    let mut bench = with(
        "(func (export \"proxy_on_foreign_function\") (param i32 i32 i32)
           (i32.store (i32.const 800) (local.get 0)) (i32.store (i32.const 804) (local.get 1))
           (i32.store (i32.const 808) (local.get 2))
           (i32.store (i32.const 812) (call $proxy_get_buffer_bytes (i32.const 8) (i32.const 0)
             (i32.const -1) (i32.const 512) (i32.const 516))))",
    );
    bench.store(|guest, store| guest.foreign(store, 9, "arguments".into()).unwrap());
    assert_eq!([800, 804, 808, 812].map(|at| bench.number(at)), [1, 9, 9, OK]);
    assert_eq!(bench.given(), b"arguments");
    let later = [Num(8), Num(0), Num(9), Out(0), Out(1)];
    assert_eq!(bench.call("proxy_get_buffer_bytes", &later), NOT_FOUND);
}

#[test]
fn the_plugins_own_context_ends_with_its_generation() {
    let bench = bench();
    bench.notes();
    bench.store(|guest, store| guest.stop(store).unwrap());
    let expect = ["proxy_on_done", "proxy_on_log", "proxy_on_delete"];
    assert_eq!(bench.notes(), expect.map(|name| (name, vec![1])));
}

#[test]
fn a_callback_that_fails_ends_its_instance_only() {
    let bench = with(
        "(func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32) unreachable)",
    );
    let id = bench.open();
    let signal = bench.exchange(id, |exchange| exchange.signal.clone());
    let result = bench.slot.call_now(|instance| instance.hook(id, Phase::RequestHead, true));
    let failure: Failure = result.unwrap().unwrap_err();
    assert_eq!(failure.kind, crate::failure::FailureKind::Trap);
    assert_eq!(bench.failures.lock().len(), 1);
    assert!(!bench.slot.is_filled());
    // Whoever waited for it goes on.
    assert!(is_ready(&signal));
}
