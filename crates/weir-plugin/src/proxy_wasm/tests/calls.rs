//! HTTP calls: what is sent, what comes back, what is refused.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use http_body::Frame;

use super::*;
use crate::test_support::{ALLOCATOR, Arg, Arg::*, OUT, Options, Script, fields};

const HEAD: [(&str, &str); 4] =
    [(":method", "POST"), (":path", "/check?a"), (":authority", "auth"), ("x", "1")];

/// Writes the status of each map and buffer of the answer to memory while the callback runs.
const LOOKS: &str = "(func (export \"proxy_on_http_call_response\") (param i32 i32 i32 i32 i32)
  (i32.store (i32.const 800) (local.get 0)) (i32.store (i32.const 804) (local.get 1))
  (i32.store (i32.const 808) (local.get 2)) (i32.store (i32.const 812) (local.get 3))
  (i32.store (i32.const 816) (local.get 4))
  (drop (call $proxy_get_header_map_pairs (i32.const 6) (i32.const 820) (i32.const 824)))
  (drop (call $proxy_get_header_map_pairs (i32.const 7) (i32.const 828) (i32.const 832)))
  (drop (call $proxy_get_buffer_bytes (i32.const 4) (i32.const 0) (i32.const -1)
    (i32.const 836) (i32.const 840)))
  (drop (call $proxy_get_status (i32.const 844) (i32.const 848) (i32.const 852))))";

fn call(bench: &mut Bench, upstream: &str, head: &[(&str, &str)], timeout_ms: u64) -> u32 {
    let (head, trailers) = (map(head), map(&[("t", "2")]));
    let args: [Arg<'_>; 6] = [
        Bytes(upstream.as_bytes()),
        Bytes(&head),
        Bytes(b"body"),
        Bytes(&trailers),
        Num(timeout_ms),
        Out(0),
    ];
    bench.call("proxy_http_call", &args)
}

fn read(bench: &Bench, at: u32) -> Vec<u8> {
    let (data, size) = (bench.number(at), bench.number(at + 4));
    bench.memory(|memory| crate::memory::slice(memory, data, size).unwrap().to_vec())
}

#[test]
fn a_call_is_answered_by_a_callback() {
    let mut bench = Bench::new(FUNCTIONS, &format!("{ALLOCATOR} {LOOKS}"));
    let frames = vec![
        Frame::data("an".into()),
        Frame::data("swer".into()),
        Frame::trailers(fields(&[("end", "1")])),
    ];
    let answer = Script::Answer(StatusCode::CREATED, fields(&[("x-b", "3")]), frames);
    bench.services.scripts.lock().push_back(answer);
    // From the context of a request, which may be over by then.
    let id = bench.open();
    assert_eq!(call(&mut bench, "up", &HEAD, 500), OK);
    let token = bench.number(OUT);
    bench.instance(|instance| instance.close(id).unwrap());
    bench.settle();
    assert_eq!([800, 804, 808, 812, 816].map(|at| bench.number(at)), [1, token, 2, 6, 1]);
    assert_eq!(read(&bench, 820), map(&[(":status", "201"), ("x-b", "3")]));
    assert_eq!(read(&bench, 828), map(&[("end", "1")]));
    assert_eq!(read(&bench, 836), b"answer");
    assert_eq!((bench.number(844), &read(&bench, 848)[..]), (201, &b"Created"[..]));
    let called = bench.services.called.lock().pop().unwrap();
    assert_eq!((called.worker, &*called.upstream), (0, "up"));
    assert_eq!((called.method.as_str(), &*called.target), ("POST", "/check?a"));
    assert_eq!(called.headers, fields(&[("x", "1"), ("host", "auth")]));
    assert_eq!(called.body, "body");
    assert_eq!(called.trailers, fields(&[("t", "2")]));
    // It is over.
    assert_eq!(
        bench.call("proxy_get_buffer_bytes", &[Num(4), Num(0), Num(1), Out(0), Out(1)]),
        NOT_FOUND
    );
}

#[test]
fn a_call_that_fails_has_no_fields() {
    for (script, timeout_ms, expect) in [
        (Script::Error("refused"), 500, "refused"),
        (Script::Never, 500, "no answer within 500 ms"),
    ] {
        let mut bench = bench();
        bench.notes();
        bench.services.scripts.lock().push_back(script);
        assert_eq!(call(&mut bench, "up", &HEAD, timeout_ms), OK);
        let token = bench.number(OUT);
        bench.pass(Duration::from_millis(499));
        bench.pass(Duration::from_millis(2));
        let expect_note = ("proxy_on_http_call_response", vec![1, token, 0, 0, 0]);
        assert_eq!(bench.notes(), [expect_note]);
        assert_eq!(bench.call("proxy_get_status", &[Out(2), Out(0), Out(1)]), OK);
        assert_eq!(bench.given(), expect.as_bytes());
    }
}

#[test]
fn calls_that_cannot_be_made_are_refused() {
    let mut bench = bench();
    for (upstream, head) in [
        ("forbidden", &HEAD[..]),
        ("missing", &HEAD),
        ("up", &HEAD[1..]),
        ("up", &[HEAD[0], HEAD[2]]),
        ("up", &HEAD[..2]),
        ("up", &[HEAD[0], (":path", "a b"), HEAD[2]]),
        ("up", &[HEAD[0], HEAD[1], HEAD[2], ("a b", "1")]),
    ] {
        assert_eq!(call(&mut bench, upstream, head, 500), BAD_ARGUMENT, "{upstream} {head:?}");
    }
    for _ in 0..crate::limits::CALLS_MAX {
        assert_eq!(call(&mut bench, "up", &HEAD, 500), OK);
    }
    assert_eq!(call(&mut bench, "up", &HEAD, 500), INTERNAL_FAILURE);
    // Those that have ended make room.
    bench.pass(Duration::from_secs(1));
    assert_eq!(call(&mut bench, "up", &HEAD, 500), OK);
}

#[test]
fn heads_that_were_sent_to_the_plugin_make_calls_too() {
    for (changed, target, host) in [
        ([HEAD[0], HEAD[1], (":authority", "")], "/check?a", None),
        ([HEAD[0], (":path", ""), HEAD[2]], "/", Some("auth")),
        ([HEAD[0], (":path", "http://elsewhere/x?y"), HEAD[2]], "/x?y", Some("auth")),
    ] {
        let mut bench = bench();
        let head = [&changed[..], &[(":status", "200"), (":protocol", "x")]].concat();
        assert_eq!(call(&mut bench, "up", &head, 500), OK, "{head:?}");
        bench.settle();
        let called = bench.services.called.lock();
        assert_eq!(called[0].target, target);
        let sent_host = called[0].headers.get("host").map(|host| host.to_str().unwrap());
        assert_eq!(sent_host, host);
    }
}

#[test]
fn an_answer_for_an_instance_that_is_gone_is_dropped() {
    let mut bench = bench();
    let answer = Script::Answer(StatusCode::OK, HeaderMap::new(), Vec::new());
    bench.services.scripts.lock().push_back(answer);
    assert_eq!(call(&mut bench, "up", &HEAD, 500), OK);
    bench.slot.clear();
    bench.pass(Duration::from_secs(1));
    assert!(bench.failures.lock().is_empty());
}

#[test]
fn an_answer_finds_an_instance_that_was_still_starting() {
    let head = map(&HEAD);
    let escaped: String = head.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let asks = format!(
        "(data (i32.const 900) \"up\") (data (i32.const 1200) \"{escaped}\")
         (func (export \"proxy_on_configure\") (param i32 i32) (result i32)
           (i32.eqz (call $proxy_http_call (i32.const 900) (i32.const 2) (i32.const 1200)
             (i32.const {}) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
             (i32.const 500) (i32.const 512))))",
        head.len()
    );
    let script = Some(Script::Answer(StatusCode::OK, HeaderMap::new(), Vec::new()));
    let options = Options { script, ..Options::default() };
    let bench = Bench::with(FUNCTIONS, &format!("{ALLOCATOR} {asks}"), options).unwrap();
    bench.pass(Duration::from_secs(1));
    let id = bench.number(OUT);
    assert_eq!(bench.notes().last(), Some(&("proxy_on_http_call_response", vec![1, id, 1, 0, 0])));
}
