//! The numbers behind [`Freshness`]: freshness lifetime (RFC 9111 §4.2.1, §4.2.2, RFC 9213), age at
//! receipt (§4.2.3) and the stale windows (§4.2.4, RFC 5861).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use weir_http::cache_control::{DELTA_SECONDS_MAX, ResponseDirectives, Scope};
use weir_http::date;

use super::freshness::{Freshness, millis};
use super::{Exchange, Rules};
use crate::limits::{HEURISTIC_MS_MAX, HEURISTIC_PERCENT};

/// A freshness lifetime and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) ms: u64,
    pub(super) from: From,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The route's `ttl`.
    Operator,
    /// The response itself.
    Response,
    /// The route's `default_ttl`.
    OperatorDefault,
    /// The time since its last modification.
    Heuristic,
}

/// The freshness lifetime: the first that applies of the route's `ttl`, s-maxage, max-age, Expires,
/// the route's default, the heuristic. With CDN-Cache-Control, Expires does not apply.
pub(super) fn lifetime(
    exchange: &Exchange<'_>,
    directives: &ResponseDirectives,
    rules: &Rules,
) -> Option<Lifetime> {
    let status = exchange.status;
    if let Some(ms) = rules.ttl_ms.filter(|_| takes_operator_ttl(status)) {
        return Some(Lifetime { ms, from: From::Operator });
    }
    let stated = directives.s_maxage.or(directives.max_age).map(millis);
    let expires = || match directives.targeted {
        true => None,
        false => expires_ms(exchange.response, exchange.response_time_ms),
    };
    if let Some(ms) = stated.or_else(expires) {
        return Some(Lifetime { ms, from: From::Response });
    }
    if let Some(ms) = rules.default_ttl_ms.filter(|_| takes_operator_ttl(status)) {
        return Some(Lifetime { ms, from: From::OperatorDefault });
    }
    if !is_heuristically_cacheable(status) && !directives.public {
        return None;
    }
    heuristic_ms(exchange.response, exchange.response_time_ms)
        .map(|ms| Lifetime { ms, from: From::Heuristic })
}

/// Statuses whose responses may be given a heuristic lifetime (RFC 9110 §15.1), without 206, which
/// is not stored.
pub(super) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses to which a lifetime from the configuration applies. An operator who says "ten minutes"
/// means the site's pages and the fact that a page is missing, not a passing failure.
pub(super) fn takes_operator_ttl(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 410)
}

/// Expires minus Date (§4.2.1). An invalid Expires means "already expired" (§5.3).
fn expires_ms(response: &HeaderMap, response_time_ms: u64) -> Option<u64> {
    let value = response.get(header::EXPIRES)?;
    let date_ms = field_ms(response, header::DATE).unwrap_or(response_time_ms);
    let expires_ms = date::parse(value.as_bytes()).map_or(0, unix_ms);
    Some(expires_ms.saturating_sub(date_ms))
}

/// A share of the time since the last modification (§4.2.2).
fn heuristic_ms(response: &HeaderMap, response_time_ms: u64) -> Option<u64> {
    let modified_ms = field_ms(response, header::LAST_MODIFIED)?;
    let date_ms = field_ms(response, header::DATE).unwrap_or(response_time_ms);
    let unchanged_ms = date_ms.saturating_sub(modified_ms);
    Some((unchanged_ms / 100 * HEURISTIC_PERCENT).min(HEURISTIC_MS_MAX))
}

/// `corrected_initial_age` (§4.2.3).
pub(super) fn initial_age_ms(exchange: &Exchange<'_>) -> u64 {
    let response_time_ms = exchange.response_time_ms;
    let date_ms = field_ms(exchange.response, header::DATE);
    let apparent_age_ms = date_ms.map_or(0, |date_ms| response_time_ms.saturating_sub(date_ms));
    let response_delay_ms = response_time_ms.saturating_sub(exchange.request_time_ms);
    let corrected_age_ms = age_field_ms(exchange.response) + response_delay_ms;
    // Date has whole seconds: what is younger than one has an apparent age of 0.
    (apparent_age_ms / 1000 * 1000).max(corrected_age_ms)
}

/// The Age field; of a list the first, and nothing if it is no number (§5.1).
fn age_field_ms(response: &HeaderMap) -> u64 {
    let value = response.get(header::AGE).and_then(|value| value.to_str().ok());
    let first = value.and_then(|value| value.split(',').next()).unwrap_or_default().trim();
    let digits = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    match digits {
        true => first.parse().unwrap_or(DELTA_SECONDS_MAX).min(DELTA_SECONDS_MAX) * 1000,
        false => 0,
    }
}

/// When the response may be used.
pub(super) fn freshness(
    exchange: &Exchange<'_>,
    directives: &ResponseDirectives,
    lifetime: Option<Lifetime>,
    rules: &Rules,
) -> Freshness {
    let response_time_ms = exchange.response_time_ms;
    let initial_age_ms = initial_age_ms(exchange);
    let always_validate = directives.no_cache == Some(Scope::Response);
    let fresh_until_ms = match lifetime {
        _ if always_validate => 0,
        None => response_time_ms,
        // The operator counts from now, whatever the response has been through.
        Some(Lifetime { ms, from: From::Operator }) => response_time_ms.saturating_add(ms),
        Some(Lifetime { ms, .. }) => {
            response_time_ms.saturating_add(ms).saturating_sub(initial_age_ms)
        }
    };
    let must_revalidate = directives.must_revalidate || directives.proxy_revalidate;
    // §5.2.2.10: s-maxage has the meaning of proxy-revalidate. It overrules what others would
    // grant, but not a stale window that the same response grants itself, or the two could never
    // be used together.
    let never_stale = must_revalidate || directives.s_maxage.is_some();
    let window = |stated: Option<Duration>, operator: Option<u64>| match stated {
        _ if must_revalidate || always_validate => 0,
        Some(stated) => millis(stated),
        None if never_stale => 0,
        None => operator.unwrap_or(0),
    };
    Freshness {
        response_time_ms,
        initial_age_ms,
        fresh_until_ms,
        stale_while_revalidate_ms: window(
            directives.stale_while_revalidate,
            rules.stale_while_revalidate_ms,
        ),
        stale_if_error_ms: window(directives.stale_if_error, rules.stale_if_error_ms),
        always_validate,
        never_stale,
        heuristic: lifetime.is_some_and(|lifetime| lifetime.from == From::Heuristic),
    }
}

fn field_ms(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name).and_then(|value| date::parse(value.as_bytes())).map(unix_ms)
}

fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, millis)
}

#[cfg(test)]
#[path = "lifetime_tests.rs"]
mod tests;
