//! Plugins that pause a request and never say how it goes on: its time is a minute, by a clock that
//! the test moves.

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::Host;
use http_body_util::{BodyExt, Full};
use weir_plugin::{CallBody, Content, FailureKind};

/// proxy-wasm, with these results of its hooks for heads and bodies: 0 continues, 1 pauses.
fn pausing(head: u32, body: u32) -> String {
    format!(
        "(module
           (memory (export \"memory\") 1)
           (func (export \"proxy_abi_version_0_2_1\"))
           (func (export \"proxy_on_request_headers\") (param i32 i32 i32) (result i32)
             (i32.const {head}))
           (func (export \"proxy_on_request_body\") (param i32 i32 i32) (result i32)
             (i32.const {body})))"
    )
}

fn body() -> CallBody {
    Full::new(Bytes::from_static(b"content")).map_err(|never| match never {}).boxed_unsync()
}

#[test]
fn a_pause_without_a_word_ends_after_a_minute() {
    // What the hooks do, and whether it is the head that the failure is told with.
    for (head, at_body, is_head_held) in [(1, 0, true), (1, 1, true), (0, 1, false)] {
        let host = Host::new();
        host.deploy("stalls", &pausing(head, at_body)).unwrap();
        let stream = host.open("stalls").unwrap();
        let has_body = at_body == 1;
        let content = if has_body { Content::Shown(body()) } else { Content::None };
        let (failure, content, took) = host.run(async move {
            tokio::time::pause();
            let began = tokio::time::Instant::now();
            let passed = stream.request(Arc::new(common::Head::new()), content).await;
            let content = match passed.body {
                Some(body) => body.collect().await.unwrap().to_bytes(),
                None => Bytes::new(),
            };
            (passed.failure, content, began.elapsed())
        });
        assert_eq!(failure.is_some(), is_head_held, "{head} {at_body}");
        assert!(failure.is_none_or(|failure| failure.kind == FailureKind::Stalled));
        // The policy is `pass`: what it held goes on as it was.
        assert_eq!(&content[..], if has_body { &b"content"[..] } else { b"" });
        assert_eq!(took.as_secs(), 60, "{head} {at_body}: {took:?}");
        let failures = host.active("stalls").stats().failures;
        let stalled = failures.iter().find(|(kind, _)| *kind == FailureKind::Stalled);
        assert_eq!(stalled.map(|(_, count)| *count), Some(1));
        // The instance is as good as before.
        assert!(host.open("stalls").is_ok());
        assert!(took >= Duration::from_secs(60));
    }
}
