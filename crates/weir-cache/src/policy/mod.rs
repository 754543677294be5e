//! RFC 9111 as plain functions: may a response be stored, how long is it fresh, what may a request
//! use, how is a stored response validated and invalidated. Reads no clock and stores nothing.

mod freshness;
mod invalidate;
mod lifetime;
mod storable;
mod validate;

use http::{HeaderMap, Method, StatusCode};

pub use freshness::{Freshness, Reuse, StaleBecause, Staleness};
pub use invalidate::{Target, invalidated};
pub(crate) use storable::is_confined;
pub use storable::{NotStorable, admit};
pub use validate::{Freshened, Mismatch, freshen, make_conditional};
pub use weir_http::cache_control::RequestDirectives;

/// A request and its response, as the policy needs them.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Fields of the client's request.
    pub request: &'a HeaderMap,
    /// Status of the response.
    pub status: StatusCode,
    /// Fields of the response as they came from the source.
    pub response: &'a HeaderMap,
    /// When the request was sent to the source, in milliseconds since the Unix epoch.
    pub request_time_ms: u64,
    /// When the response's head was received, likewise.
    pub response_time_ms: u64,
}

/// What the operator says about a route's responses. Spans are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Freshness lifetime that replaces the source's, counted from receipt. What forbids storing
    /// (no-store, private, Authorization) or use (no-cache) still does.
    pub ttl_ms: Option<u64>,
    /// Freshness lifetime of responses that state none; replaces the heuristic.
    pub default_ttl_ms: Option<u64>,
    /// stale-while-revalidate for responses that do not state it.
    pub stale_while_revalidate_ms: Option<u64>,
    /// stale-if-error for responses that do not state it.
    pub stale_if_error_ms: Option<u64>,
}
