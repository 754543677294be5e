//! gRPC calls and streams: what is sent, the events that come back, and what ends them.

use std::time::Duration;

use bytes::Bytes as Content;
use http::{HeaderMap, StatusCode};
use http_body::Frame;

use super::*;
use crate::test_support::{ALLOCATOR, Arg::*, Bench, OUT, Script, fields};

const INITIAL: &str = "proxy_on_grpc_receive_initial_metadata";
const RECEIVE: &str = "proxy_on_grpc_receive";
const TRAILING: &str = "proxy_on_grpc_receive_trailing_metadata";
const CLOSE: &str = "proxy_on_grpc_close";

fn framed(message: &str) -> Content {
    let size = u32::try_from(message.len()).unwrap().to_be_bytes();
    Content::from([&[0][..], &size, message.as_bytes()].concat())
}

fn answer(frames: Vec<Frame<Content>>) -> Script {
    Script::Answer(StatusCode::OK, fields(&[("content-type", "application/grpc")]), frames)
}

fn ended(status: &'static str) -> Frame<Content> {
    Frame::trailers(fields(&[("grpc-status", status), ("grpc-message", "a%20b")]))
}

fn call(bench: &mut Bench, upstream: &[u8]) -> u32 {
    let metadata = map(&[("x", "1")]);
    let args = [
        Bytes(upstream),
        Bytes(b"pkg.S"),
        Bytes(b"M"),
        Bytes(&metadata),
        Bytes(b"ask"),
        Num(500),
        Out(0),
    ];
    bench.call("proxy_grpc_call", &args)
}

fn stream(bench: &mut Bench) -> u32 {
    let args = [Bytes(b"up"), Bytes(b"S"), Bytes(b"M"), Bytes(b""), Out(0)];
    assert_eq!(bench.call("proxy_grpc_stream", &args), OK);
    bench.number(OUT)
}

#[test]
fn a_call_ends_with_its_message_or_a_status() {
    let message = || Frame::data(framed("four"));
    let compressed = Frame::data(Content::from_static(b"\x01\0\0\0\x01x"));
    for (script, expect) in [
        (answer(vec![message(), ended("0")]), Ok("four")),
        (answer(vec![message(), ended("5")]), Err((5, "a b"))),
        (answer(vec![ended("0")]), Err((13, "the upstream ended without a message"))),
        (
            answer(vec![message(), message(), ended("0")]),
            Err((13, "the upstream sent more than one message")),
        ),
        (answer(vec![message()]), Err((2, "the upstream ended without a status"))),
        (answer(vec![compressed]), Err((12, "the message is compressed"))),
        (Script::Answer(StatusCode::OK, fields(&[("grpc-status", "7")]), vec![]), Err((7, ""))),
        (
            Script::Answer(StatusCode::NOT_FOUND, HeaderMap::new(), vec![]),
            Err((2, "the upstream answered with status 404 Not Found")),
        ),
        (Script::Error("refused"), Err((14, "refused"))),
        (Script::Never, Err((4, "no answer in time"))),
    ] {
        let reads = "(func (export \"proxy_on_grpc_receive\") (param i32 i32 i32)
          (call $note (i32.const 16)) (call $note (local.get 0)) (call $note (local.get 1))
          (call $note (local.get 2))
          (drop (call $proxy_get_buffer_bytes (i32.const 5) (i32.const 0) (i32.const -1)
            (i32.const 512) (i32.const 516))))";
        let mut bench = Bench::new(FUNCTIONS, &format!("{ALLOCATOR} {reads}"));
        bench.notes();
        bench.services.scripts.lock().push_back(script);
        assert_eq!(call(&mut bench, b"up"), OK);
        let id = bench.number(OUT);
        bench.pass(Duration::from_secs(1));
        match expect {
            Ok(message) => {
                assert_eq!(bench.notes(), [(RECEIVE, vec![1, id, 4])]);
                assert_eq!(bench.given(), message.as_bytes());
            }
            Err((code, message)) => {
                assert_eq!(bench.notes(), [(CLOSE, vec![1, id, code])], "{message}");
                assert_eq!(bench.call("proxy_get_status", &[Out(2), Out(0), Out(1)]), OK);
                assert_eq!(bench.number(OUT + 8), code);
                assert_eq!(String::from_utf8(bench.given()).unwrap(), message);
            }
        }
        // It is over.
        assert_eq!(bench.call("proxy_grpc_cancel", &[Num(u64::from(id))]), NOT_FOUND);
    }
}

#[test]
fn a_call_is_sent_as_grpc_says() {
    let mut bench = bench();
    // Envoy's plugins name the upstream in a message.
    assert_eq!(call(&mut bench, b"\x0a\x04\x0a\x02up"), OK);
    bench.settle();
    let called = bench.services.called.lock().pop().unwrap();
    assert_eq!((called.method.as_str(), &*called.target), ("POST", "/pkg.S/M"));
    assert_eq!(called.body, framed("ask"));
    let expect = fields(&[
        ("x", "1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "500m"),
        ("host", "up"),
    ]);
    assert_eq!(called.headers, expect);
}

#[test]
fn a_stream_tells_everything_in_order() {
    let looks = "(func (export \"proxy_on_grpc_receive_trailing_metadata\") (param i32 i32 i32)
      (call $note (i32.const 17)) (call $note (local.get 0)) (call $note (local.get 1))
      (call $note (local.get 2))
      (drop (call $proxy_get_header_map_pairs (i32.const 5) (i32.const 512) (i32.const 516))))
     (func (export \"proxy_on_grpc_receive_initial_metadata\") (param i32 i32 i32)
      (call $note (i32.const 15)) (call $note (local.get 0)) (call $note (local.get 1))
      (call $note (local.get 2))
      (drop (call $proxy_get_header_map_value (i32.const 4) (i32.const 900) (i32.const 12)
        (i32.const 520) (i32.const 524))))
     (data (i32.const 900) \"content-type\")";
    let mut bench = Bench::new(FUNCTIONS, &format!("{ALLOCATOR} {looks}"));
    bench.notes();
    let both = [framed("one"), framed("")].concat();
    let frames = vec![Frame::data(Content::from(both)), Frame::data(framed("three")), ended("0")];
    bench.services.scripts.lock().push_back(answer(frames));
    let id = stream(&mut bench);
    let number = Num(u64::from(id));
    for (message, end) in [("ping", 0), ("pong", 1)] {
        let send = [number, Bytes(message.as_bytes()), Num(end)];
        assert_eq!(bench.call("proxy_grpc_send", &send), OK);
    }
    let more = [number, Bytes(b"more"), Num(0)];
    assert_eq!(bench.call("proxy_grpc_send", &more), BAD_ARGUMENT, "after its end");
    bench.pass(Duration::from_secs(1));
    assert_eq!(
        bench.notes(),
        [
            (INITIAL, vec![1, id, 1]),
            (RECEIVE, vec![1, id, 3]),
            (RECEIVE, vec![1, id, 0]),
            (RECEIVE, vec![1, id, 5]),
            (TRAILING, vec![1, id, 2]),
            (CLOSE, vec![1, id, 0]),
        ]
    );
    assert_eq!(bench.given(), map(&[("grpc-status", "0"), ("grpc-message", "a%20b")]));
    assert_eq!(bench.number(OUT + 12), 16, "application/grpc");
    let called = bench.services.called.lock().pop().unwrap();
    assert_eq!(called.body, [framed("ping"), framed("pong")].concat());
    assert_eq!(bench.call("proxy_grpc_send", &more), NOT_FOUND);
}

#[test]
fn what_is_cancelled_tells_nothing_more() {
    for is_stream in [true, false] {
        let mut bench = bench();
        bench.services.scripts.lock().push_back(answer(vec![Frame::data(framed("x")), ended("0")]));
        let id = match is_stream {
            true => stream(&mut bench),
            false => {
                assert_eq!(call(&mut bench, b"up"), OK);
                bench.number(OUT)
            }
        };
        bench.notes();
        let id = Num(u64::from(id));
        assert_eq!(bench.call("proxy_grpc_cancel", &[id]), OK);
        assert_eq!(bench.call("proxy_grpc_cancel", &[id]), NOT_FOUND);
        assert_eq!(bench.call("proxy_grpc_close", &[id]), NOT_FOUND);
        bench.pass(Duration::from_secs(1));
        assert_eq!(bench.notes(), []);
    }
}

#[test]
fn a_stream_that_the_plugin_closes_is_half_open() {
    let mut bench = bench();
    bench.services.scripts.lock().push_back(answer(vec![ended("0")]));
    let id = stream(&mut bench);
    bench.notes();
    assert_eq!(bench.call("proxy_grpc_close", &[Num(u64::from(id))]), OK);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.notes().last(), Some(&(CLOSE, vec![1, id, 0])));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut bench = bench();
    for upstream in [&b"forbidden"[..], b"missing", b"", b"\x0a\x04\x0a\x02xx"] {
        assert_eq!(call(&mut bench, upstream), PARSE_FAILURE, "{upstream:?}");
    }
    for id in [0, 2, 99, 100] {
        let expect = if id % 2 == 1 { BAD_ARGUMENT } else { NOT_FOUND };
        let send = [Num(id), Bytes(b""), Num(0)];
        assert_eq!(bench.call("proxy_grpc_send", &send), expect, "{id}");
        for function in ["proxy_grpc_cancel", "proxy_grpc_close"] {
            assert_eq!(bench.call(function, &[Num(id)]), NOT_FOUND, "{id}");
        }
    }
    let id = stream(&mut bench);
    let send = [Num(u64::from(id)), Bytes(b""), Num(0)];
    // Nobody reads it.
    for _ in 0..crate::limits::GRPC_WAITING_MAX {
        assert_eq!(bench.call("proxy_grpc_send", &send), OK);
    }
    assert_eq!(bench.call("proxy_grpc_send", &send), BAD_ARGUMENT);
    for _ in 1..crate::limits::GRPC_MAX {
        stream(&mut bench);
    }
    assert_eq!(call(&mut bench, b"up"), INTERNAL_FAILURE);
}
