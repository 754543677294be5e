//! Responses as plugins see them: what is delivered, and what is about to be stored.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use weir_config::{At, OnFailure};
use weir_origin::upstream::ResponseBody;
use weir_plugin::{CallBody, Content as Shown, Passed, ResponseHead, Stream, Want};

use super::local::{closed, failed, replaced, unframed};
use super::request::{FRAMING, keep};
use super::{End, Onward, Passage, Shower, skipped};
use crate::body::{Content as Body, ReplyBody};

impl Passage {
    /// Shows a response to the plugins that see what is delivered.
    pub(super) async fn response(
        &self,
        response: Response<ReplyBody>,
        method: &http::Method,
    ) -> Response<ReplyBody> {
        self.response_from(response, method, Onward { index: 0, passed: None }).await
    }

    /// Goes on showing a response.
    pub(in crate::pipeline) async fn response_from(
        &self,
        mut response: Response<ReplyBody>,
        method: &http::Method,
        onward: Onward,
    ) -> Response<ReplyBody> {
        let Onward { index, mut passed } = onward;
        for step in &self.steps[index.min(self.steps.len())..] {
            let hooks = step.stream.hooks();
            if step.at != At::Delivery || !(hooks.sees_responses() || hooks.sees_ends()) {
                continue;
            }
            let (mut parts, mut body) = response.into_parts();
            let mut record = body.take_record();
            if *method != http::Method::HEAD {
                declare_length(&mut parts, &body);
            }
            let shown = Arc::new(Shower(ResponseHead {
                status: parts.status,
                headers: parts.headers.clone(),
            }));
            let sees_body = step.stream.hooks().sees_response_bodies();
            let (content, unseen) = match hyper::body::Body::is_end_stream(&body) {
                true => (Shown::None, Some(body)),
                false if sees_body => (Shown::Shown(BodyExt::boxed_unsync(body)), None),
                false => (Shown::Unseen, Some(body)),
            };
            let passed = match passed.take() {
                Some(passed) => passed.await,
                None => step.stream.response(shown, content).await,
            };
            let Outcome { body: seen, is_changed } = match outcome(&step.stream, passed, &mut parts)
            {
                Ok(outcome) => outcome,
                Err(End::Answered(answer)) => {
                    response = replaced(record, method, *answer);
                    continue;
                }
                Err(End::Closed | End::Torn) => return closed(record),
                Err(End::Failed(failure)) => {
                    return replaced(record, method, failed(&failure));
                }
            };
            if is_changed {
                transformed(&mut parts.headers);
            }
            if let Some(record) = &mut record {
                record.status = parts.status.as_u16();
            }
            let content = match (seen, unseen) {
                (Some(seen), _) => Body::Upstream(Box::new(ResponseBody::made(seen))),
                (None, Some(unseen)) => unseen.into_content(),
                (None, None) => Body::Empty,
            };
            response = Response::from_parts(parts, ReplyBody::new(content, record));
        }
        response
    }

    /// Shows what a source answered to the plugins that see what is stored. The second value tells
    /// that it must not be stored, since a plugin failed over it.
    pub(in crate::pipeline) async fn filled(
        &self,
        mut response: Response<ResponseBody>,
    ) -> (Response<ResponseBody>, bool) {
        let mut is_marred = false;
        for step in self.fill().filter(|step| step.stream.hooks().sees_responses()) {
            let (mut parts, body) = response.into_parts();
            let shown = Arc::new(Shower(ResponseHead {
                status: parts.status,
                headers: parts.headers.clone(),
            }));
            let content = match hyper::body::Body::is_end_stream(&body) {
                true => Shown::None,
                false => Shown::Shown(body.map_err(Into::into).boxed_unsync()),
            };
            let passed = step.stream.response(shown, content).await;
            let wishes = &passed.wishes.cache;
            is_marred |= passed.failure.is_some() || wishes.no_store || wishes.pass;
            let made = match outcome(&step.stream, passed, &mut parts) {
                Ok(Outcome { body, is_changed }) => {
                    if is_changed {
                        transformed(&mut parts.headers);
                    }
                    body
                }
                Err(End::Answered(answer)) => {
                    parts.status = answer.status;
                    parts.headers = answer.headers;
                    unframed(&mut parts.headers);
                    let content = http_body_util::Full::new(answer.body);
                    Some(content.map_err(|never| match never {}).boxed_unsync())
                }
                Err(End::Closed | End::Torn | End::Failed(_)) => {
                    is_marred = true;
                    parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                    parts.headers = HeaderMap::new();
                    None
                }
            };
            let made = made.unwrap_or_else(|| {
                http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
            });
            response = Response::from_parts(parts, ResponseBody::made(made));
        }
        (response, is_marred)
    }
}

/// Says how long the body is, where that is known: plugins expect it in the head, and what they
/// leave there stays.
fn declare_length(parts: &mut http::response::Parts, body: &ReplyBody) {
    let bodyless = matches!(parts.status.as_u16(), 100..=199 | 204 | 304);
    let is_there = parts.headers.contains_key(header::CONTENT_LENGTH);
    if let Some(length) =
        hyper::body::Body::size_hint(body).exact().filter(|_| !bodyless && !is_there)
    {
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
}

/// What a plugin has made of a response.
struct Outcome {
    body: Option<CallBody>,
    /// The body goes through its hands.
    is_changed: bool,
}

/// Takes a changed head over.
fn outcome(
    stream: &Stream,
    passed: Passed<ResponseHead>,
    parts: &mut http::response::Parts,
) -> Result<Outcome, End> {
    if let Some(failure) = passed.failure {
        if stream.generation().on_failure() == OnFailure::Fail {
            return Err(End::Failed(failure));
        }
        skipped(stream.generation().name(), &failure);
        return Ok(Outcome { body: passed.body, is_changed: false });
    }
    if let Some(answer) = passed.wishes.answer {
        return Err(End::Answered(Box::new(answer)));
    }
    if passed.wishes.close {
        return Err(End::Closed);
    }
    if let Some(changed) = passed.head {
        let mut headers = changed.headers;
        let length = headers.remove(header::CONTENT_LENGTH);
        keep(&FRAMING, &parts.headers, &mut headers);
        if passed.is_seen {
            // What the plugin says of the length of what it makes holds; it is held to it.
            headers.remove(header::CONTENT_LENGTH);
            length.map(|length| headers.insert(header::CONTENT_LENGTH, length));
        }
        parts.headers = headers;
        parts.status = changed.status;
    }
    // HEAD and 304 tell what GET would: that the plugin wants the body in its hands.
    let is_wanted = passed.body.is_none() && passed.wishes.response_body != Want::Nothing;
    // A proxy-wasm plugin that sees bodies need not change them: as elsewhere, one that does takes
    // the length away.
    let keeps =
        stream.hooks().keeps_lengths() && parts.headers.contains_key(header::CONTENT_LENGTH);
    let is_changed = (passed.is_seen || is_wanted) && !keeps;
    Ok(Outcome { body: passed.body, is_changed })
}

/// Takes away what described the body before a plugin had it in its hands.
fn transformed(headers: &mut HeaderMap) {
    for name in [header::CONTENT_LENGTH, header::ACCEPT_RANGES, header::CONTENT_RANGE] {
        headers.remove(name);
    }
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    // Another body, whose bytes are not those that the tag stood for (RFC 9110 §8.8.1).
    if let Some(tag) = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) {
        let weak = [b"W/", tag.as_bytes()].concat();
        if let Ok(weak) = HeaderValue::from_bytes(&weak) {
            headers.insert(header::ETAG, weak);
        }
    }
}
