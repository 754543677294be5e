//! Responses of the demo's origin: head fields a well-behaved origin sends, and 304 where the
//! client has the body already.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use http::{Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use weir_http::conditional::{Outcome, Validators, evaluate};

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// For content that stays: shared caches keep it an hour, browsers ask each time, so that whoever
/// tries the demo sees Weir's answers and not the browser's memory.
pub(super) const KEEP: &str = "public, max-age=0, s-maxage=3600";

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A response with a type, a `Cache-Control` and a body.
pub(super) fn reply(
    content_type: &'static str,
    cache_control: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    set(&mut response, CONTENT_TYPE, content_type);
    set(&mut response, CACHE_CONTROL, cache_control);
    response
}

/// A response without anything to look at but its status.
pub(super) fn refuse(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = reply(TEXT, "no-store", why);
    *response.status_mut() = status;
    response
}

pub(super) fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// A response with validators; without its body if the request shows that the client has it.
pub(super) fn reply_with_validators(
    request: (&Method, &HeaderMap),
    content_type: &'static str,
    cache_control: &'static str,
    body: Bytes,
    modified: SystemTime,
) -> Response<Body> {
    let etag = tag(&body);
    let mut response = reply(content_type, cache_control, body);
    response.headers_mut().insert(ETAG, etag);
    response.headers_mut().insert(LAST_MODIFIED, weir_http::date::format(modified));
    let status = match evaluate(request.0, request.1, &Validators::of(response.headers())) {
        Outcome::Proceed => return response,
        Outcome::NotModified => StatusCode::NOT_MODIFIED,
        Outcome::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
    };
    *response.status_mut() = status;
    response.headers_mut().remove(CONTENT_TYPE);
    response.map(|_| Full::default().boxed_unsync())
}

/// Equal for equal bytes in every run: the hasher's keys are fixed.
fn tag(body: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    HeaderValue::try_from(format!("\"{:016x}\"", hasher.finish()))
        .expect("hexadecimal digits in quotes are visible ASCII")
}
