//! Bodies on their way through a plugin of Weir's own interface: what it keeps, what it lets pass,
//! what becomes of them when it fails in the middle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::Host;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use weir_plugin::{CallBody, Content, Stream};

/// A body of these pieces, which says that it ends only at its end.
fn body(pieces: &[&'static str], trailers: Option<HeaderMap>) -> CallBody {
    let data = pieces.iter().map(|piece| Frame::data(Bytes::from_static(piece.as_bytes())));
    let frames: Vec<_> = data.chain(trailers.map(Frame::trailers)).map(Ok).collect();
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}

/// What came of a body.
#[derive(Debug, PartialEq)]
struct Outcome {
    content: String,
    trailers: Option<HeaderMap>,
    /// It ended as it should.
    is_whole: bool,
}

fn outcome(content: &str) -> Outcome {
    Outcome { content: content.to_owned(), trailers: None, is_whole: true }
}

/// Sends a request with a body through a plugin.
fn through(host: &Host, content: CallBody) -> Outcome {
    let stream: Stream = host.open("gray").unwrap();
    host.run(async move {
        let passed = stream.request(Arc::new(common::Head::new()), Content::Shown(content)).await;
        let mut body = passed.body.unwrap();
        let mut outcome = outcome("");
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) if frame.is_data() => {
                    let data = frame.into_data().unwrap();
                    outcome.content += std::str::from_utf8(&data).unwrap();
                }
                Ok(frame) => outcome.trailers = frame.into_trailers().ok(),
                Err(_) => {
                    outcome.is_whole = false;
                    break;
                }
            }
        }
        outcome
    })
}

/// A plugin that wants pieces, and whose body hook is this; edits lie from 512 on.
fn pieces(hook: &str, edits: &str) -> String {
    format!(
        r#"(module
            (memory (export "memory") 4)
            (func (export "weir_abi_1"))
            (func (export "weir_buffer") (param $kind i32) (param $size i32) (result i32)
                (i32.mul (i32.const 65536) (i32.add (local.get $kind) (i32.const 1))))
            ;; WANT 1
            (data (i32.const 256) "\0a\00\00\00\04\00\00\00\01\00\00\00")
            (func (export "weir_on_request") (param i32) (result i64)
                (i64.const 0x1000000000c))
            (data (i32.const 512) "{edits}")
            (func (export "weir_on_request_body") (param $frame i32) (result i64) {hook}))"#
    )
}

/// Whether the piece begins with this byte.
fn begins(byte: char) -> String {
    format!(
        "(i32.and
            (i32.ne (i32.load offset=100 (local.get $frame)) (i32.const 0))
            (i32.eq (i32.load8_u (i32.load offset=96 (local.get $frame))) (i32.const {})))",
        u32::from(byte)
    )
}

fn host(module: &str, on_failure: &str) -> Host {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gray.wat");
    std::fs::write(&path, module).unwrap();
    let block = format!(
        "plugin \"gray\" {{ source {:?}; on-failure {on_failure:?}; }}",
        path.to_str().unwrap()
    );
    Host::with(&block, "use \"gray\"").unwrap()
}

#[test]
fn untouched_pieces_pass() {
    let host = host(&pieces("(i64.const 0)", ""), "pass");
    assert_eq!(through(&host, body(&["one ", "two ", "three"], None)), outcome("one two three"));
}

#[test]
fn what_is_kept_is_shown_at_the_end_at_last() {
    // KEEP 2, unless it is the last piece, which may be empty.
    let hook = "(if (i32.and (i32.load offset=4 (local.get $frame)) (i32.const 2))
                    (then (return (i64.const 0))))
                (i64.const 0x2000000000c)";
    let keep = r"\16\00\00\00\04\00\00\00\02\00\00\00";
    let host = host(&pieces(hook, keep), "pass");
    assert_eq!(through(&host, body(&["one ", "two ", "three"], None)), outcome("one two three"));
}

#[test]
fn the_rest_passes_when_it_is_not_wanted_any_more() {
    // The first piece becomes "x"; WANT 0.
    let hook = "(i64.const 0x20000000015)";
    let edits = r"\09\00\00\00\01\00\00\00x\0a\00\00\00\04\00\00\00\00\00\00\00";
    let host = host(&pieces(hook, edits), "pass");
    assert_eq!(through(&host, body(&["one ", "two ", "three"], None)), outcome("xtwo three"));
}

#[test]
fn trailers_are_added_to_those_that_come() {
    let hook = "(i64.const 0x2000000000b)";
    let edits = r"\11\00\02\00\01\00\00\00xay";
    let host = host(&pieces(hook, edits), "pass");
    let mut trailers = HeaderMap::new();
    trailers.insert("xb", HeaderValue::from_static("y"));
    let got = through(&host, body(&["one"], Some(trailers)));
    let got = got.trailers.unwrap();
    assert!(got.contains_key("xa") && got.contains_key("xb"), "{got:?}");
    let got = through(&host, body(&["one"], None));
    assert!(got.trailers.unwrap().contains_key("xa"));
}

#[test]
fn a_failure_lets_pass_what_was_not_touched() {
    let hook = format!("(if {} (then unreachable)) (i64.const 0)", begins('t'));
    let host = host(&pieces(&hook, ""), "pass");
    let got = through(&host, body(&["one ", "two ", "three ", "four"], None));
    assert_eq!(got, outcome("one two three four"));
}

#[test]
fn a_failure_after_a_change_ends_the_body() {
    // A body that is half changed is not what anybody sent.
    let hook = format!("(if {} (then unreachable)) (i64.const 0x20000000009)", begins('t'));
    let edits = r"\09\00\00\00\01\00\00\00x";
    for on_failure in ["pass", "fail"] {
        let host = host(&pieces(&hook, edits), on_failure);
        let got = through(&host, body(&["one ", "two ", "three ", "four"], None));
        assert!(!got.is_whole, "{got:?}");
        assert_eq!(got.content, "x");
    }
}

#[test]
fn a_failure_after_something_was_kept_ends_the_body() {
    let hook = format!("(if {} (then unreachable)) (i64.const 0x2000000000c)", begins('e'));
    // KEEP 2: "e " comes again.
    let edits = r"\16\00\00\00\04\00\00\00\02\00\00\00";
    let host = host(&pieces(&hook, edits), "pass");
    let got = through(&host, body(&["one ", "two "], None));
    assert!(!got.is_whole, "{got:?}");
}
