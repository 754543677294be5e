//! Responses that plugins make, or make necessary.

use h2::Reason;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use weir_origin::upstream::ResponseBody;
use weir_plugin::{Answer, Failure, FailureKind};

use super::super::content::Content;
use super::super::reply;
use super::framing::{self, framed, has_no_content};
use crate::body::{Content as Body, ReplyBody};
use crate::record::Record;

/// A plugin's own answer to a request.
pub(in crate::pipeline) fn answered(
    record: Record,
    head: &Parts,
    content: Option<&Content>,
    answer: Answer,
) -> Response<ReplyBody> {
    let left = content.and_then(Content::client);
    let leaves_body = left.is_some_and(|body| !hyper::body::Body::is_end_stream(body));
    if leaves_body {
        record.connection().socket.set_body_left();
    }
    let draining = record.connection().worker.shared.is_draining();
    let is_head = record.is_head();
    let mut response = replaced(Some(record), is_head, answer);
    if (leaves_body || draining) && head.version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, reply::CLOSE);
    }
    response
}

/// A plugin's own response.
pub(super) fn replaced(
    mut record: Option<Record>,
    is_head: bool,
    answer: Answer,
) -> Response<ReplyBody> {
    if let Some(record) = &mut record {
        record.status = answer.status.as_u16();
    }
    let Answer { status, mut headers, body, trailers, .. } = framed(answer);
    if is_head && !has_no_content(status) && trailers.is_empty() {
        headers.insert(header::CONTENT_LENGTH, body.len().into());
    }
    let content = match (is_head, trailers.is_empty()) {
        (true, _) => Body::Empty,
        (false, true) => Body::One(body),
        (false, false) => {
            let body = framing::with_trailers(&mut headers, body, trailers);
            Body::Upstream(Box::new(ResponseBody::made(body)))
        }
    };
    let mut response = Response::new(ReplyBody::new(content, record));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The plugin wants the client gone.
pub(in crate::pipeline) fn closed(record: Option<Record>) -> Response<ReplyBody> {
    broken_off(record, Reason::INTERNAL_ERROR)
}

/// No response: the connection is reset, or the stream in HTTP/2.
pub(in crate::pipeline) fn broken_off(
    record: Option<Record>,
    reason: Reason,
) -> Response<ReplyBody> {
    if let Some(record) = &record {
        let socket = &record.connection().socket;
        socket.reset_on_close(true);
        socket.set_last();
    }
    let mut response = Response::new(ReplyBody::new(Body::Torn(reason), record));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// The answer to a request that cannot do without a plugin that failed.
pub(super) fn failed(failure: &Failure) -> Answer {
    let (status, what) = match failure.kind {
        FailureKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "a plugin is not available"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "a plugin failed"),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let reason = status.canonical_reason().unwrap_or("Error");
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    let body = format!("{} {reason}: {what}\n", status.as_u16()).into();
    Answer { status, headers, body, ..Answer::default() }
}
