//! May a response be stored (RFC 9111 §3), and what of its head (§3.1).

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use weir_http::cache_control::{RequestDirectives, ResponseDirectives, Scope};
use weir_http::date;
use weir_http::forward::strip_hop_by_hop;

use super::lifetime::{From, Lifetime, freshness, is_heuristically_cacheable, lifetime};
use super::{Exchange, Rules};
use crate::object::Head;
use crate::selectors::Selectors;

/// Why a response is not stored. Its text is for Cache-Status (`detail`) and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStorable {
    /// Only answers to GET are stored; HEAD is answered from them.
    Method,
    /// Not a final status that this cache understands: 1xx, 206, 304.
    Status,
    /// The request says no-store (§5.2.1.5).
    RequestNoStore,
    /// The response says no-store (§5.2.2.5).
    NoStore,
    /// The response is for one user (§5.2.2.7).
    Private,
    /// The request had Authorization, and the response does not allow sharing (§3.5).
    Authorization,
    /// The response sets a cookie, and does not allow sharing.
    SetCookie,
    /// No other request could select the response (§4.1).
    VaryAll,
    /// It has neither a lifetime nor a validator: it could never be used.
    NoFreshness,
}

impl NotStorable {
    /// A short token.
    pub fn as_str(self) -> &'static str {
        match self {
            NotStorable::Method => "method",
            NotStorable::Status => "status",
            NotStorable::RequestNoStore => "request-no-store",
            NotStorable::NoStore => "no-store",
            NotStorable::Private => "private",
            NotStorable::Authorization => "authorization",
            NotStorable::SetCookie => "set-cookie",
            NotStorable::VaryAll => "vary-all",
            NotStorable::NoFreshness => "no-freshness",
        }
    }
}

impl fmt::Display for NotStorable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Decides whether a response may be stored, and makes the head to store.
///
/// # Set-Cookie
/// RFC 9111 §7.3 leaves cookies to the origin's directives, and origins forget. nginx and Varnish
/// do not store such responses; neither does Weir, with two exceptions. A response that says
/// `public` or `s-maxage` addresses shared caches and is stored as it is. Where the route has a
/// `ttl`, the operator calls the response cacheable: it is stored without its cookies.
///
/// # Errors
/// The rule that forbids storing.
pub fn admit(exchange: &Exchange<'_>, rules: &Rules) -> Result<Head, NotStorable> {
    let directives = ResponseDirectives::of(exchange.response);
    let lifetime = lifetime(exchange, &directives, rules);
    check_message(exchange, &directives)?;
    let operator = lifetime.is_some_and(|lifetime| lifetime.from == From::Operator);
    let shareable = directives.public || directives.s_maxage.is_some();
    let sets_cookie = sends_cookie(exchange.response, &directives);
    if sets_cookie && !shareable && !operator {
        return Err(NotStorable::SetCookie);
    }
    let selectors = Selectors::new(exchange.response, exchange.request);
    let selectors = selectors.ok_or(NotStorable::VaryAll)?;
    check_usable(exchange, &directives, lifetime)?;
    let mut headers = stored_fields(exchange.response, &directives);
    if !shareable {
        headers.remove(header::SET_COOKIE);
    }
    // RFC 9110 §6.6.1: a recipient with a clock adds the Date of receipt to what it stores.
    if !headers.contains_key(header::DATE) {
        headers.insert(header::DATE, date_of(exchange.response_time_ms));
    }
    let freshness = freshness(exchange, &directives, lifetime, rules);
    Ok(Head { selectors, ..Head::new(exchange.status, headers, freshness) })
}

/// Whether a request asks that its response be for itself alone: such a response says nothing about
/// what others get, whose requests do not.
pub(crate) fn is_confined(request: &HeaderMap, directives: &RequestDirectives) -> bool {
    directives.no_store || request.contains_key(header::AUTHORIZATION)
}

/// The conditions of §3 that do not depend on a lifetime.
fn check_message(
    exchange: &Exchange<'_>,
    directives: &ResponseDirectives,
) -> Result<(), NotStorable> {
    if exchange.method != Method::GET {
        return Err(NotStorable::Method);
    }
    // Partial content is not combined here, and a 304 is not a response to be stored.
    let status = exchange.status;
    if status.is_informational() || matches!(status.as_u16(), 206 | 304) {
        return Err(NotStorable::Status);
    }
    if RequestDirectives::of(exchange.request).no_store {
        return Err(NotStorable::RequestNoStore);
    }
    // §5.2.2.3: must-understand overrules no-store for those who understand the status.
    if directives.must_understand && !is_understood(status) {
        return Err(NotStorable::Status);
    }
    if directives.no_store && !directives.must_understand {
        return Err(NotStorable::NoStore);
    }
    if directives.private == Some(Scope::Response) {
        return Err(NotStorable::Private);
    }
    let authorized = exchange.request.contains_key(header::AUTHORIZATION);
    // §3.5
    let shared_anyway =
        directives.public || directives.s_maxage.is_some() || directives.must_revalidate;
    if authorized && !shared_anyway {
        return Err(NotStorable::Authorization);
    }
    Ok(())
}

/// §3's last condition, and that the stored response could ever be used: with a lifetime, or
/// after validation.
fn check_usable(
    exchange: &Exchange<'_>,
    directives: &ResponseDirectives,
    lifetime: Option<Lifetime>,
) -> Result<(), NotStorable> {
    let allowed =
        lifetime.is_some() || directives.public || is_heuristically_cacheable(exchange.status);
    let lives = directives.no_cache != Some(Scope::Response)
        && lifetime.is_some_and(|lifetime| lifetime.ms > 0);
    let validates = has_validator(exchange.response);
    let stale = directives.stale_while_revalidate.is_some() || directives.stale_if_error.is_some();
    match allowed && (lives || validates || stale) {
        true => Ok(()),
        false => Err(NotStorable::NoFreshness),
    }
}

/// A Date field for a time in milliseconds since the Unix epoch.
pub(super) fn date_of(time_ms: u64) -> HeaderValue {
    date::format(UNIX_EPOCH + Duration::from_millis(time_ms))
}

/// Statuses whose caching rules this cache implements (RFC 9110 §15; RFC 9111 §3).
fn is_understood(status: StatusCode) -> bool {
    is_heuristically_cacheable(status)
        || matches!(status.as_u16(), 302 | 303 | 307 | 400 | 401 | 403 | 500 | 502 | 503 | 504)
}

pub(super) fn has_validator(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ETAG) || headers.contains_key(header::LAST_MODIFIED)
}

/// Whether a stored response would hand out a cookie: not if a qualified directive keeps the field
/// out of storage.
fn sends_cookie(response: &HeaderMap, directives: &ResponseDirectives) -> bool {
    response.contains_key(header::SET_COOKIE)
        && !kept_out(directives).any(|name| name == header::SET_COOKIE)
}

/// The fields that qualified `no-cache` and `private` keep out of storage (§5.2.2.4, §5.2.2.7).
/// (no-cache would allow to store the field and to send it after validation; leaving it out says
/// the same, for a 304 brings it again.)
fn kept_out(directives: &ResponseDirectives) -> impl Iterator<Item = &HeaderName> {
    [&directives.no_cache, &directives.private].into_iter().flatten().flat_map(
        |scope| match scope {
            Scope::Response => [].iter(),
            Scope::Fields(names) => names.iter(),
        },
    )
}

/// The fields to store (§3.1): without what is for this connection or this client alone, and
/// without Age, which is computed.
pub(super) fn stored_fields(response: &HeaderMap, directives: &ResponseDirectives) -> HeaderMap {
    let mut headers = response.clone();
    strip_hop_by_hop(&mut headers);
    headers.remove(header::AGE);
    for name in kept_out(directives) {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
#[path = "storable_tests.rs"]
mod tests;
