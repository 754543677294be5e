//! The host function that answers a request in its source's stead.

use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::fields;
use super::plugin::Plugin;
use super::status::{Outcome, Status};
use crate::exchange::{Answer, Exchange};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

#[allow(clippy::too_many_arguments, reason = "the specification's parameters, each a number")]
pub(super) fn send(
    plugin: &mut Plugin<'_>,
    status: u32,
    details_data: u32,
    details_size: u32,
    body_data: u32,
    body_size: u32,
    headers_data: u32,
    headers_size: u32,
    grpc_status: u32,
) -> Outcome {
    let details = plugin.name(details_data, details_size)?;
    let body = plugin.owned(body_data, body_size)?;
    let pairs = plugin.owned(headers_data, headers_size)?;
    let pairs = super::maps::parse(&pairs).ok_or(Status::BadArgument)?;
    // SDKs know no status for a field that cannot be sent, and plugins hand on what they were sent.
    let mut dropped = Vec::new();
    let headers = fields::collect_valid(pairs.into_iter(), |name| dropped.push(name));
    for name in dropped {
        let name = name.escape_ascii();
        plugin.warn(&format!("a local response has no field \"{name}\": HTTP does not allow it"));
    }
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.filter(|status| !status.is_informational());
    if status.is_none() {
        plugin.warn("a response of the plugin's own has no valid status; 500 is sent");
    }
    let Some(exchange) = plugin.exchange() else { return Ok(()) };
    // The first one counts.
    if exchange.wishes.answer.is_none() {
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer { status, headers, body, trailers: HeaderMap::new(), details };
        dress(&mut answer, exchange, grpc_status);
        exchange.wishes.answer = Some(answer);
    }
    exchange.is_resumed = true;
    if exchange.is_paused {
        exchange.is_paused = false;
        exchange.signal.tell();
    }
    Ok(())
}

/// Adds what the kind of request needs: gRPC has its status in a field, and its message too.
fn dress(answer: &mut Answer, exchange: &Exchange, grpc_status: u32) {
    // -1 says that there is none.
    let given = i32::try_from(grpc_status).ok();
    let is_grpc = exchange.request.as_ref().is_some_and(|head| is_grpc(&head.get().headers));
    if is_grpc {
        let code = given.unwrap_or_else(|| grpc_status_of(answer.status));
        answer.status = StatusCode::OK;
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        answer.headers.insert(GRPC_STATUS, HeaderValue::from(code));
        let body = std::mem::take(&mut answer.body);
        set_message(answer, &body);
        return;
    }
    if let Some(code) = given {
        answer.headers.insert(GRPC_STATUS, HeaderValue::from(code));
        let body = answer.body.clone();
        set_message(answer, &body);
    }
    if !answer.body.is_empty() && !answer.headers.contains_key(CONTENT_TYPE) {
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest, [] | [b'+' | b';', ..]))
}

fn set_message(answer: &mut Answer, message: &[u8]) {
    if let Ok(value) = HeaderValue::from_str(&percent_encoded(message))
        && !message.is_empty()
    {
        answer.headers.insert(GRPC_MESSAGE, value);
    }
}

/// gRPC over HTTP/2, "Responses": everything but printable ASCII, and `%`, is percent-encoded.
fn percent_encoded(message: &[u8]) -> String {
    let mut encoded = String::with_capacity(message.len());
    for &byte in message {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// gRPC's mapping of HTTP statuses (grpc/doc/http-grpc-status-mapping.md).
fn grpc_status_of(status: StatusCode) -> i32 {
    match status.as_u16() {
        200..=299 => 0,
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502..=504 => 14,
        _ => 2,
    }
}
