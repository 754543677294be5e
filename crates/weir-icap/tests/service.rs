//! A client against services that are written out, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Script, ask, chunks, content, service, text_of};
use http::{HeaderMap, Method, StatusCode, Uri};
use weir_icap::{Failed, IcapError, KEPT_BYTES_MAX, Modified, Shown};

const OPTIONS: &str = "ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nMethods: RESPMOD\r\nPreview: 4\r\nEncapsulated: null-body=0\r\n\r\n";
const NO_PREVIEW: &str =
    "ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nMethods: RESPMOD\r\nEncapsulated: null-body=0\r\n\r\n";
const UNCHANGED: &str =
    "ICAP/1.0 204 No Content\r\nISTag: \"1\"\r\nEncapsulated: null-body=0\r\n\r\n";
const CONTINUE: &str = "ICAP/1.0 100 Continue\r\n\r\n";

/// A response with these bytes.
fn changed(content: &str) -> String {
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 999\r\n\r\n";
    format!(
        "ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nEncapsulated: res-hdr=0, res-body={}\r\n\r\n{head}{:x}\r\n{content}\r\n0\r\n\r\n",
        head.len(),
        content.len()
    )
}

#[tokio::test]
async fn a_preview_may_be_enough() {
    let (service, script) = service(vec![
        vec![(OPTIONS, "OPTIONS")],
        vec![
            (UNCHANGED, "4\r\nabcd\r\n0\r\n\r\n"),
            // The connection serves the next message too; this one ends with its preview.
            (UNCHANGED, "2\r\nyz\r\n0; ieof\r\n\r\n"),
        ],
    ])
    .await;
    for (sent, pieces) in [("abcdefgh", &["abcde", "fgh"][..]), ("xyz", &["x", "yz"])] {
        let modified = ask(&service, Some(content(pieces))).await.ok().unwrap();
        let Modified::Unchanged(content) = modified else { panic!("{sent} was changed") };
        assert_eq!(text_of(content).await.unwrap(), sent);
    }
    script.end().await;
}

#[tokio::test]
async fn the_rest_follows_when_it_is_wanted() {
    let changed = changed("no");
    let (service, script) = service(vec![
        vec![(OPTIONS, "OPTIONS")],
        vec![(CONTINUE, "4\r\nabcd\r\n0\r\n\r\n"), (&*changed, "1\r\ne\r\n3\r\nfgh\r\n0\r\n\r\n")],
    ])
    .await;
    let modified = ask(&service, Some(content(&["abcde", "fgh"]))).await.ok().unwrap();
    let Modified::Response(head, Some(content)) = modified else { panic!("not a response") };
    assert_eq!(head.status, StatusCode::FORBIDDEN);
    assert_eq!(head.headers.get("content-type").unwrap(), "text/plain");
    assert!(!head.headers.contains_key("content-length"), "how long it is will be seen");
    assert_eq!(text_of(content).await.unwrap(), "no");
    script.end().await;
}

#[tokio::test]
async fn it_may_stay_as_it_is_after_all() {
    let (service, script) = service(vec![
        vec![(OPTIONS, "OPTIONS")],
        vec![
            (CONTINUE, "4\r\nabcd\r\n0\r\n\r\n"),
            (UNCHANGED, "1\r\ne\r\n3\r\nfgh\r\n0\r\n\r\n"),
            // And again: the connection is in order.
            (UNCHANGED, "0; ieof\r\n\r\n"),
        ],
    ])
    .await;
    let Ok(Modified::Unchanged(all)) = ask(&service, Some(content(&["abcde", "fgh"]))).await else {
        panic!("changed")
    };
    assert_eq!(text_of(all).await.unwrap(), "abcdefgh");
    let unknown = common::unsized_content(&[]);
    let Ok(Modified::Unchanged(all)) = ask(&service, Some(unknown)).await else {
        panic!("changed")
    };
    assert_eq!(text_of(all).await.unwrap(), "");
    script.end().await;
}

#[tokio::test]
async fn without_a_preview_everything_is_sent_and_the_answer_may_come_meanwhile() {
    let changed = changed("early");
    let (service, script) =
        service(vec![vec![(NO_PREVIEW, "OPTIONS")], vec![(&*changed, "3\r\nabc\r\n")]]).await;
    // The content does not end before the answer is there.
    let (mut sender, slow) = common::slow_content();
    sender.send_data(Bytes::from_static(b"abc")).await.unwrap();
    let Ok(Modified::Response(_, Some(content))) = ask(&service, Some(slow)).await else {
        panic!("not a response")
    };
    assert_eq!(text_of(content).await.unwrap(), "early");
    script.end().await;
    drop(sender);
}

#[tokio::test]
async fn nothing_is_lost_when_the_service_fails() {
    for answer in [
        "",
        "ICAP/1.0 500 Server error\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body=12\r\n\r\nno head here",
        "ICAP/1.0 200 OK\r\nEncapsulated: null-body=0\r\n\r\n",
    ] {
        for begins in [OPTIONS, NO_PREVIEW] {
            let first = vec![(begins, "OPTIONS")];
            let awaited = if begins == OPTIONS { "0\r\n\r\n" } else { "fgh\r\n0\r\n\r\n" };
            let (service, script) = service(vec![first, vec![(answer, awaited)]]).await;
            let failed = ask(&service, Some(content(&["abcde", "fgh"]))).await.err().unwrap();
            let restored = text_of(failed.content.unwrap()).await.unwrap();
            assert_eq!(restored, "abcdefgh", "{answer} {begins}: {}", failed.error);
            script.end().await;
        }
    }
}

#[tokio::test]
async fn a_service_that_stands_still_is_left() {
    let lines = vec![vec![(NO_PREVIEW, "OPTIONS")], vec![(Script::SILENT, "0\r\n\r\n")]];
    let timeout = Duration::from_millis(900);
    let (service, script) = common::patient_service(timeout, lines).await;
    let Failed { error, content } = ask(&service, Some(content(&["abc"]))).await.err().unwrap();
    assert!(matches!(error, IcapError::Timeout(limit) if limit == timeout));
    assert_eq!(text_of(content.unwrap()).await.unwrap(), "abc");
    drop(script);
}

#[tokio::test]
async fn nobody_is_there() {
    let service = common::nobody().await;
    let Failed { error, content } = ask(&service, Some(content(&["abc"]))).await.err().unwrap();
    assert!(matches!(error, IcapError::Connect(_)), "{error}");
    assert_eq!(text_of(content.unwrap()).await.unwrap(), "abc");
}

#[tokio::test]
async fn more_than_is_kept_is_gone_with_the_service() {
    let (service, script) =
        service(vec![vec![(NO_PREVIEW, "OPTIONS")], vec![("", "0\r\n\r\n")]]).await;
    let piece = "x".repeat(KEPT_BYTES_MAX / 2 + 1);
    let failed = ask(&service, Some(content(&[&piece, &piece]))).await.err().unwrap();
    assert!(failed.content.is_none(), "{}", failed.error);
    let said = script.end().await;
    assert!(!said.contains("Allow: 204"), "204 was offered for what is not kept");
}

#[tokio::test]
async fn content_that_breaks_off_is_no_content() {
    let changed = changed("whatever");
    let (service, script) =
        service(vec![vec![(NO_PREVIEW, "OPTIONS")], vec![(&*changed, "never")]]).await;
    let (mut sender, slow) = common::slow_content();
    sender.send_data(Bytes::from_static(b"abc")).await.unwrap();
    sender.abort("the origin is gone".into());
    let failed = ask(&service, Some(slow)).await.err().unwrap();
    assert!(matches!(failed.error, IcapError::Content(_)), "{}", failed.error);
    let error = text_of(failed.content.unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("the origin is gone"), "{error}");
    drop(script);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_seen_to() {
    let whole = changed("whatever");
    let cut = &whole[..whole.len() - 9];
    let (service, script) =
        service(vec![vec![(OPTIONS, "OPTIONS")], vec![(cut, "ieof\r\n\r\n")]]).await;
    let Ok(Modified::Response(_, Some(content))) = ask(&service, Some(content(&["abc"]))).await
    else {
        panic!("not a response")
    };
    assert!(text_of(content).await.is_err(), "half an answer passed for a whole one");
    script.end().await;
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let (service, script) = service(vec![
        vec![(OPTIONS, "OPTIONS")],
        vec![(UNCHANGED, "ieof\r\n\r\n")],
        vec![(UNCHANGED, "ieof\r\n\r\n")],
    ])
    .await;
    for _ in 0..2 {
        let modified = ask(&service, Some(content(&["abc"]))).await;
        assert!(matches!(modified, Ok(Modified::Unchanged(_))));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    script.end().await;
}

#[tokio::test]
async fn requests_are_shown_and_answered() {
    let instead = "POST http://b.example/y HTTP/1.1\r\nX-Judged: yes\r\n\r\n";
    let answer = format!(
        "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, req-body={}\r\n\r\n{instead}2\r\nok\r\n0\r\n\r\n",
        instead.len()
    );
    let (service, script) = service(vec![
        vec![(NO_PREVIEW, "OPTIONS")],
        vec![(UNCHANGED, "null-body=")],
        vec![(&*answer, "0\r\n\r\n")],
    ])
    .await;
    let (uri, headers) = (Uri::from_static("http://a.example/x"), HeaderMap::new());
    let shown =
        Shown { method: &Method::GET, uri: &uri, headers: &headers, response: None, extra: &[] };
    let modified = service.modify(0, shown, None).await.ok().unwrap();
    let Modified::Unchanged(content) = modified else { panic!("changed") };
    assert_eq!(text_of(content).await.unwrap(), "");
    let modified = service.modify(0, shown, Some(common::content(&["body"]))).await.ok().unwrap();
    let Modified::Request(head, Some(content)) = modified else { panic!("not a request") };
    assert_eq!((head.method, head.uri.path()), (Method::POST, "/y"));
    assert_eq!(text_of(content).await.unwrap(), "ok");
    let said = script.end().await;
    assert_eq!(chunks(&said), 1, "{said}");
}
