//! The last stage: a whole response becomes what this request gets – conditions and ranges applied,
//! the route's header edits made, the record completed.

use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Version};
use weir_cache::Object;
use weir_http::cache_status::CacheStatus;
use weir_http::range::{self, Multipart, Span};

use super::adapt::Fitted;
use super::plugins::has_no_content;
use super::select::{Selection, select};
use super::streamed::{self, Unfitted};
use super::whole::Whole;
use crate::body::{Content, ReplyBody};
use crate::live::{Edit, Route, Source};
use crate::metrics::CacheResult;
use crate::record::Record;

pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");
pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");
const BYTES: HeaderValue = HeaderValue::from_static("bytes");

/// A response before it is fitted to its request.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) whole: Whole,
    pub(super) cache: CacheResult,
    pub(super) cache_status: Option<HeaderValue>,
}

/// What came of looking a stored response up, and the fields that tell so.
pub(super) struct Found {
    pub(super) cache: CacheResult,
    pub(super) fields: HitFields,
}

impl Found {
    pub(super) fn hit(route: &Route, object: &Object, now_ms: u64) -> Found {
        Found { cache: CacheResult::Hit, fields: HitFields::of(route, object, now_ms) }
    }

    fn set(self, headers: &mut HeaderMap) {
        let HitFields { age, cache_status } = self.fields;
        if let Some(age) = age {
            headers.insert(header::AGE, age);
        }
        if self.cache == CacheResult::Hit {
            headers.remove(CACHE_STATUS);
        }
        // What caches on the way have said of this very request stands before it.
        headers.append(CACHE_STATUS, cache_status);
    }
}

/// A response of what is stored. The request's own header table is emptied and used again: it has
/// been read by then, and the table of a response is about as large.
pub(super) fn from_cache(
    mut record: Record,
    route: &Route,
    request: &mut Parts,
    selects: bool,
    fitted: &Fitted,
    found: Found,
) -> Response<ReplyBody> {
    let whole = Whole::Object(Arc::clone(fitted.body()));
    let (object, changed) = (&fitted.original, fitted.headers(route.offers.as_deref()));
    let status = object.status();
    let stored = changed.as_ref().unwrap_or(object.headers());
    let selection = match selects {
        true => select(request, status, stored, &whole, fitted.dates()),
        false => Selection::Whole,
    };
    let mut headers = match changed {
        Some(changed) => changed,
        None => {
            let mut headers = std::mem::take(&mut request.headers);
            headers.clear();
            copy(object.headers(), &mut headers);
            headers
        }
    };
    record.cache = found.cache;
    found.set(&mut headers);
    assemble(record, route, request, selection, Head { status, headers }, whole)
}

/// The fields that tell a stored response's age and how it was found. They take the place of stored
/// ones.
pub(super) struct HitFields {
    pub(super) age: Option<HeaderValue>,
    pub(super) cache_status: HeaderValue,
}

impl HitFields {
    pub(super) fn of(route: &Route, object: &Object, now_ms: u64) -> HitFields {
        if let Source::Files(_) = &route.source {
            // A file is as old as it is: it was compared with the disk just now.
            let cache_status = HeaderValue::from_static("weir; hit");
            return HitFields { age: None, cache_status };
        }
        let ttl_ms = object.freshness().fresh_until_ms as i64 - now_ms as i64;
        HitFields {
            age: Some(HeaderValue::from(object.age_secs(now_ms))),
            cache_status: CacheStatus::hit(ttl_ms / 1000).to_value(),
        }
    }

    /// How many there are on a route.
    pub(super) fn count(route: &Route) -> usize {
        1 + usize::from(!matches!(route.source, Source::Files(_)))
    }

    /// Whether they are the same for every hit.
    pub(super) fn is_constant(&self) -> bool {
        self.age.is_none()
    }

    /// Whether a stored field gives way to one of these.
    pub(super) fn replace(name: &HeaderName) -> bool {
        *name == header::AGE || *name == CACHE_STATUS
    }

    /// Whether a route's edits say something of them.
    pub(super) fn are_edited(route: &Route) -> bool {
        let mut names = route.response_edits.iter().map(|edit| match edit {
            Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name) => name,
        });
        names.any(HitFields::replace)
    }

    pub(super) fn each(&self, mut field: impl FnMut(&HeaderName, &HeaderValue)) {
        if let Some(age) = &self.age {
            field(&header::AGE, age);
        }
        field(&CACHE_STATUS, &self.cache_status);
    }

    pub(super) fn set(self, headers: &mut HeaderMap) {
        if let Some(age) = self.age {
            headers.insert(header::AGE, age);
        }
        headers.insert(CACHE_STATUS, self.cache_status);
    }
}

/// A response of a stored page that no helper has changed yet, and why that is so.
pub(super) fn late(
    record: Record,
    route: &Route,
    request: &Parts,
    (fitted, why): (&Fitted, &'static str),
    found: Found,
) -> Response<ReplyBody> {
    let object = &fitted.original;
    let mut headers = HeaderMap::new();
    copy(object.headers(), &mut headers);
    let (status, cache) = (object.status(), found.cache);
    found.set(&mut headers);
    let whole = Whole::Object(Arc::clone(object));
    let answer = Answer { status, headers, whole, cache, cache_status: None };
    finish(record, route, request, (answer, fitted.part), Some(why))
}

/// A response from a source. `part` is that of the route's cache in which it is stored, if it is.
pub(super) fn from_source(
    record: Record,
    route: &Route,
    request: &Parts,
    part: u64,
    answer: Answer,
) -> Response<ReplyBody> {
    finish(record, route, request, (answer, part), None)
}

/// A response that no variant stands for; `why`, if there might be one.
fn finish(
    mut record: Record,
    route: &Route,
    request: &Parts,
    (answer, part): (Answer, u64),
    why: Option<&'static str>,
) -> Response<ReplyBody> {
    let Answer { status, mut headers, whole, cache, cache_status } = answer;
    let unfitted = Unfitted { status, headers: &mut headers, whole, part, why };
    let (whole, dates) = streamed::fit(&record, route, request, unfitted);
    let selection = select(request, status, &headers, &whole, dates);
    if let Some(value) = cache_status {
        headers.append(CACHE_STATUS, value);
    }
    record.cache = cache;
    assemble(record, route, request, selection, Head { status, headers }, whole)
}

/// Appends all of `from` to `to`; names and values are shared, not copied.
pub(super) fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    to.reserve(from.len() + 3);
    for (name, value) in from {
        to.append(name, value.clone());
    }
}

struct Head {
    status: StatusCode,
    headers: HeaderMap,
}

fn assemble(
    mut record: Record,
    route: &Route,
    request: &Parts,
    selection: Selection,
    mut head: Head,
    whole: Whole,
) -> Response<ReplyBody> {
    let mut content = cut(selection, &mut head, whole);
    edit(&mut head.headers, &route.response_edits);
    if has_no_content(head.status) {
        // What is stored may have got its status from a plugin.
        content = Content::Empty;
        if head.status != StatusCode::NOT_MODIFIED {
            head.headers.remove(header::CONTENT_LENGTH);
        }
    } else if record.is_head() {
        declare_length(&mut head, &content);
        content = Content::Empty;
    } else if request.method == Method::HEAD {
        // A plugin made it that of a client's GET, whose content is another one than was meant.
        for name in [header::CONTENT_LENGTH, header::ETAG, header::LAST_MODIFIED] {
            head.headers.remove(name);
        }
        content = Content::Empty;
    }
    let draining = record.connection().worker.shared.is_draining();
    if draining && request.version < Version::HTTP_2 {
        head.headers.insert(header::CONNECTION, CLOSE);
    }
    record.status = head.status.as_u16();
    let mut response = Response::new(ReplyBody::new(content, Some(record)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// The selected part, and the status and fields that go with it.
fn cut(selection: Selection, head: &mut Head, whole: Whole) -> Content {
    match selection {
        Selection::Whole => {
            if !matches!(whole, Whole::Object(_)) && !whole.is_passing() {
                describe(head, &whole);
            }
            whole.content()
        }
        Selection::NotModified => {
            head.status = StatusCode::NOT_MODIFIED;
            without_content(&mut head.headers);
            Content::Empty
        }
        Selection::PreconditionFailed => {
            head.status = StatusCode::PRECONDITION_FAILED;
            without_content(&mut head.headers);
            Content::Empty
        }
        Selection::Unsatisfiable => {
            let length = whole.len().unwrap_or_default();
            head.status = StatusCode::RANGE_NOT_SATISFIABLE;
            without_content(&mut head.headers);
            head.headers.insert(header::CONTENT_RANGE, range::unsatisfied(length));
            Content::Empty
        }
        Selection::Single(span) => {
            let length = whole.len().unwrap_or_default();
            head.status = StatusCode::PARTIAL_CONTENT;
            head.headers.remove(header::CONTENT_LENGTH);
            head.headers.insert(header::CONTENT_RANGE, span.content_range(length));
            whole.part(span.first, span.last + 1)
        }
        Selection::Several(spans) => several(&spans, head, whole),
    }
}

/// What stored heads have, or lack, already: see [`storable`].
fn describe(head: &mut Head, whole: &Whole) {
    if head.status == StatusCode::OK && whole.has_ranges() {
        head.headers.insert(header::ACCEPT_RANGES, BYTES);
    }
    if whole.len().is_some() {
        head.headers.remove(header::CONTENT_LENGTH);
    }
}

/// Makes a head for storage, once, what every response made of it needs: it says that ranges can be
/// had, and leaves the length to hyper, which knows it from the body.
pub(crate) fn storable(status: StatusCode, headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
    if status == StatusCode::OK {
        headers.insert(header::ACCEPT_RANGES, BYTES);
    }
}

fn several(spans: &[Span], head: &mut Head, whole: Whole) -> Content {
    let length = whole.len().unwrap_or_default();
    let bounds: Vec<(u64, u64)> = spans.iter().map(|span| (span.first, span.last + 1)).collect();
    let parts = match whole.parts(&bounds) {
        Ok(parts) => parts,
        Err(whole) => return whole.content(),
    };
    let content_type = head.headers.get(header::CONTENT_TYPE);
    let multipart = Multipart::new(spans, length, content_type, fastrand::u64(..));
    head.status = StatusCode::PARTIAL_CONTENT;
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, multipart.content_type());
    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    for (head, part) in multipart.heads().iter().zip(parts) {
        pieces.push(head.clone());
        pieces.extend(part);
    }
    pieces.push(multipart.tail().clone());
    Content::Pieces { pieces: pieces.into_iter(), left: multipart.content_length() }
}

/// Takes away what describes a content that is not sent (RFC 9110 §15.4.5).
fn without_content(headers: &mut HeaderMap) {
    for name in [
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::CONTENT_RANGE,
    ] {
        headers.remove(name);
    }
}

/// HEAD has the Content-Length that GET would have (RFC 9110 §9.3.2).
fn declare_length(head: &mut Head, content: &Content) {
    let bodyless = matches!(head.status.as_u16(), 100..=199 | 204 | 304);
    if bodyless || matches!(content, Content::Upstream(_)) {
        return;
    }
    if let Some(length) = content.len() {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Makes the edits in order.
pub(super) fn edit(headers: &mut HeaderMap, edits: &[Edit]) {
    for edit in edits {
        match edit {
            Edit::Set(name, value) => {
                headers.insert(name, value.clone());
            }
            Edit::Add(name, value) => {
                headers.append(name, value.clone());
            }
            Edit::Remove(name) => {
                headers.remove(name);
            }
        }
    }
}
