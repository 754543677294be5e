//! Validation: the conditional request for a stored response (RFC 9111 §4.3.1), and what a 304
//! makes of it (§4.3.4, §3.2).

use http::header::{self, HeaderMap, HeaderName};
use weir_http::cache_control::{ResponseDirectives, Scope};
use weir_http::etag::ETag;

use super::lifetime::{freshness, lifetime};
use super::storable::{date_of, stored_fields};
use super::{Exchange, Rules};
use crate::object::{Head, Object};

/// Turns a request into one that validates `stored`: the client's own preconditions and ranges go,
/// which are evaluated against the outcome, and the stored validators come. Returns `false` if
/// there are none; the request then asks for the whole response.
pub fn make_conditional(stored: &HeaderMap, request: &mut HeaderMap) -> bool {
    for name in [
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
        header::IF_RANGE,
        header::RANGE,
    ] {
        request.remove(name);
    }
    let etag = stored.get(header::ETAG);
    let modified = stored.get(header::LAST_MODIFIED);
    // §4.3.1: both, the date for recipients that do not know entity tags.
    for (name, value) in [(header::IF_NONE_MATCH, etag), (header::IF_MODIFIED_SINCE, modified)] {
        if let Some(value) = value {
            request.insert(name, value.clone());
        }
    }
    etag.is_some() || modified.is_some()
}

/// The 304 speaks of another representation than the stored one. Ask again without conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the 304's validator is not the stored response's")]
pub struct Mismatch;

/// A stored response after its validation.
#[derive(Clone, Debug)]
pub struct Freshened {
    /// The head to store with the old body.
    pub head: Head,
    /// `false` if the 304 forbids further storing: it is for this answer alone.
    pub storable: bool,
}

/// Freshens `stored` with a 304. `exchange` is the validating request (as the client sent it) with
/// its 304.
///
/// A 304 without any validator is believed: it answers a request that named this one response.
///
/// # Errors
/// [`Mismatch`] if the 304 names a validator that the stored response does not have.
pub fn freshen(
    stored: &Object,
    exchange: &Exchange<'_>,
    rules: &Rules,
) -> Result<Freshened, Mismatch> {
    if !validators_agree(stored.headers(), exchange.response) {
        return Err(Mismatch);
    }
    let mut headers = merge(stored.headers(), exchange.response);
    if !exchange.response.contains_key(header::DATE) {
        headers.insert(header::DATE, date_of(exchange.response_time_ms));
    }
    // The merged head states the lifetime, with the times and the age of the 304.
    let mut aged = headers.clone();
    if let Some(age) = exchange.response.get(header::AGE) {
        aged.insert(header::AGE, age.clone());
    }
    let exchange = Exchange { status: stored.status(), response: &aged, ..*exchange };
    let directives = ResponseDirectives::of(&aged);
    // As `admit` says of cookies: a 304 may bring one, too.
    if !directives.public && directives.s_maxage.is_none() {
        headers.remove(header::SET_COOKIE);
    }
    let lifetime = lifetime(&exchange, &directives, rules);
    let head = Head {
        status: stored.status(),
        headers: stored_fields(&headers, &directives),
        freshness: freshness(&exchange, &directives, lifetime, rules),
        ..stored.head().clone()
    };
    let private = directives.private == Some(Scope::Response);
    Ok(Freshened { head, storable: !directives.no_store && !private })
}

/// §4.3.4: a strong validator must agree strongly, a weak one weakly; the date counts only where
/// there is no tag.
fn validators_agree(stored: &HeaderMap, response: &HeaderMap) -> bool {
    fn etag(headers: &HeaderMap) -> Option<ETag<'_>> {
        headers.get(header::ETAG).and_then(|value| ETag::parse(value.as_bytes()))
    }
    match (etag(response), etag(stored)) {
        // If-None-Match compares weakly, so the tag may come back without its W/.
        (Some(new), Some(old)) => new.weak_eq(&old),
        (Some(_), None) => false,
        (None, _) => match (response.get(header::LAST_MODIFIED), stored.get(header::LAST_MODIFIED))
        {
            (Some(new), Some(old)) => new == old,
            (Some(_), None) => stored.contains_key(header::ETAG),
            (None, _) => true,
        },
    }
}

/// Fields that describe the very bytes that are stored.
const OF_THE_BODY: [HeaderName; 7] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// §3.2: the 304's fields replace the stored ones, except those that describe the stored body. A
/// media type may get other parameters: another type is what a server or a script says by default
/// more often than it is the truth.
fn merge(stored: &HeaderMap, response: &HeaderMap) -> HeaderMap {
    let update = stored_fields(response, &ResponseDirectives::default());
    let is_same_type = media_type(&update) == media_type(stored);
    let is_kept = |name: &HeaderName| {
        OF_THE_BODY.contains(name) || name == header::CONTENT_TYPE && !is_same_type
    };
    let mut headers = stored.clone();
    for name in update.keys().filter(|name| !is_kept(name)) {
        headers.remove(name);
        for value in update.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    headers
}

/// The media type without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let essence = value.split(|byte| *byte == b';').next()?;
    Some(essence.trim_ascii().to_ascii_lowercase())
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
