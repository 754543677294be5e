//! What is adapted while it is sent: what is not stored, what is being stored, and pages that no
//! helper has changed yet.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use weir_adapt::stream::Coder;
use weir_http::etag::{self, ETag};
use weir_http::range;
use weir_origin::upstream::ResponseBody;

use super::adapt::{OF_CONTENT, WEIR_ADAPT, not};
use super::coded::Coded;
use super::keep::Keep;
use super::plugins::{declared_length, weaken};
use super::select::{Dates, Selection, is_by_date, select};
use super::whole::Whole;
use crate::adapt::{Asked, Offers, Plan, Shape, Streamed, tag_of};
use crate::body::ReplyBody;
use crate::live::Route;
use crate::record::Record;

/// A response before its client's conditions and ranges.
pub(super) struct Unfitted<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a mut HeaderMap,
    pub(super) whole: Whole,
    /// Of the route's cache, where it is stored, if it is.
    pub(super) part: u64,
    /// Why it is the original, if it is sent as it is.
    pub(super) why: Option<&'static str>,
}

/// What is sent of a response that no variant stands for: adapted while it is sent, or as it is,
/// with a word that it may be another one next time. And what dates tell of it.
pub(super) fn fit(
    record: &Record,
    route: &Route,
    request: &Parts,
    unfitted: Unfitted<'_>,
) -> (Whole, Dates) {
    let Unfitted { status, headers, whole, part, why } = unfitted;
    let Some(offers) = route.offers.as_deref() else { return (whole, Dates::One) };
    if !matches!(request.method, Method::GET | Method::HEAD | Method::POST) {
        // The entity tag is that of what the client has sent (RFC 9110 §9.3.4): for If-Match.
        return (whole, Dates::One);
    }
    if status == StatusCode::NOT_MODIFIED {
        confirm(offers, request, headers);
        return (whole, Dates::One);
    }
    if status == StatusCode::PARTIAL_CONTENT {
        vary_of_whole(offers, headers);
        return (whole, Dates::One);
    }
    let len = match &whole {
        // The content of an answer to HEAD is as long as it says.
        Whole::Upstream(_) if record.is_head() => declared_length(headers),
        whole => whole.len(),
    };
    if !offers.concern(status, headers, len) {
        return (whole, Dates::One);
    }
    let sent = headers.clone();
    let shape = Shape::new(status, &sent, len);
    offers.vary(&shape, headers);
    let asked = Asked::of(request);
    let fitted = choose(record, offers, &asked, &shape, &whole).and_then(|streamed| {
        let mut described = sent.clone();
        describe(&streamed, &mut described);
        let is_sent = match select(request, status, &described, &whole, Dates::Many) {
            // Of what nobody has coded yet no part is known.
            Selection::Single(_) | Selection::Several(_) | Selection::Unsatisfiable => {
                return Err("not-stored");
            }
            Selection::Whole => !record.is_head(),
            Selection::NotModified | Selection::PreconditionFailed => false,
        };
        let coder = match is_sent {
            true => Some(place(record, &streamed)?),
            false => None,
        };
        Ok((streamed, coder))
    });
    match fitted {
        Err(word) => {
            headers.insert(WEIR_ADAPT, not(why.unwrap_or(word)));
            let may_differ = || matches!(offers.plan(&asked, shape), Plan::Variant(_));
            let dates = match is_by_date(&request.headers) && may_differ() {
                true => Dates::Many,
                false => Dates::One,
            };
            (whole, dates)
        }
        Ok((streamed, coder)) => {
            describe(&streamed, headers);
            let coder =
                coder.map(|coder| (coder, Keep::new(record, request, part, &whole, streamed)));
            (through(record, whole, coder), Dates::Many)
        }
    }
}

/// Waits for the beginning of what would be decoded on its way, which tells whether it can be: once
/// it is being sent there is no other way to say that than to break off.
pub(super) async fn begin(
    route: &Route,
    status: StatusCode,
    headers: &HeaderMap,
    whole: &mut Whole,
) {
    let is_coded = headers.contains_key(header::CONTENT_ENCODING);
    let offers = route.offers.as_deref().filter(|offers| is_coded && offers.streams_pages());
    if offers.is_some_and(|offers| offers.concern(status, headers, whole.len())) {
        whole.begin().await;
    }
}

/// What would be made of it.
fn choose(
    record: &Record,
    offers: &Offers,
    asked: &Asked<'_>,
    shape: &Shape<'_>,
    whole: &Whole,
) -> Result<Streamed, &'static str> {
    let streamed = offers.stream(asked, shape)?;
    let is_there = !matches!(whole, Whole::Upstream(_) | Whole::Fill(_));
    if is_there && !streamed.changes_pages() {
        // It will be coded once for all, from spare time.
        return Err("not-stored");
    }
    if !streamed.may_take(&whole.beginning()) {
        return Err("failed");
    }
    if record.passage().is_some_and(|passage| passage.reads_delivered()) {
        // They are to see it as it is.
        return Err("plugins");
    }
    match record.connection().worker.shared.adaptation.streams_are_on() {
        true => Ok(streamed),
        false => Err("off"),
    }
}

/// A place among those that are adapted while they are sent.
fn place(record: &Record, streamed: &Streamed) -> Result<Coder, &'static str> {
    let worker = &record.connection().worker;
    if worker.shared.guard.load(worker.index).is_overloaded() {
        return Err("overloaded");
    }
    let chain = streamed.chain().ok_or("not-stored")?;
    worker.shared.adaptation.stream(chain).ok_or("no-place")
}

/// The body on its way through `coder`, which what is not sent has none of.
fn through(record: &Record, whole: Whole, coder: Option<(Coder, Option<Keep>)>) -> Whole {
    let Some((coder, keep)) = coder else {
        return match whole {
            // Its length is that of the original.
            whole if record.is_head() && !matches!(whole, Whole::Upstream(_)) => {
                let body = ReplyBody::new(whole.content(), None);
                Whole::Upstream(Box::new(ResponseBody::made(body.boxed_unsync())))
            }
            whole => whole,
        };
    };
    let shared = std::sync::Arc::clone(&record.connection().worker.shared);
    let coded = Coded::new(ReplyBody::new(whole.content(), None), coder, keep, shared);
    Whole::Coded(Box::new(coded))
}

/// The fields of what is adapted while it is sent. Its tag is a weak one: another time the same
/// content may be coded otherwise (RFC 9110 §8.8.3.3). Of another page it is another tag, which
/// changes with the rules.
fn describe(streamed: &Streamed, headers: &mut HeaderMap) {
    for name in OF_CONTENT.iter().chain([&header::ACCEPT_RANGES]) {
        headers.remove(name);
    }
    if let Some(token) = streamed.coding() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
    }
    if let Ok(detail) = HeaderValue::try_from(streamed.detail()) {
        headers.insert(WEIR_ADAPT, detail);
    }
    if streamed.changes_pages() {
        headers.remove(header::LAST_MODIFIED);
        let tag = headers.remove(header::ETAG);
        let tag = tag.and_then(|tag| tag_of(&tag, &streamed.name()));
        headers.extend(tag.map(|tag| (header::ETAG, tag)));
    }
    weaken(headers);
}

/// An origin has confirmed what a client has: where that has the tag of what was adapted, it is
/// that one's.
fn confirm(offers: &Offers, request: &Parts, headers: &mut HeaderMap) {
    let Some(value) = headers.get(header::ETAG).cloned() else { return };
    let Some(tag) = ETag::parse(value.as_bytes()) else { return };
    let known = || {
        let lines = request.headers.get_all(header::IF_NONE_MATCH).into_iter();
        lines.flat_map(|line| etag::list(line.as_bytes()))
    };
    let weak = ETag { weak: true, ..tag };
    let is_of_variant = |one: &ETag<'_>| offers.original_of(one.opaque) == Some(tag.opaque);
    let told = match offers.streams() && !tag.weak && known().any(|one| one == weak) {
        true => Some(weak),
        false if known().any(|one| one == tag) => None,
        false => known().find(is_of_variant),
    };
    if let Some(value) = told.and_then(|told| told.to_value()) {
        headers.insert(header::ETAG, value);
        offers.vary_of_streams(headers);
    }
}

/// A part's Vary is that of the whole (RFC 9110 §15.3.7). Of several parts sent together the
/// whole's type is not known.
fn vary_of_whole(offers: &Offers, headers: &mut HeaderMap) {
    let content_range = headers.get(header::CONTENT_RANGE);
    let len = content_range.and_then(|value| range::complete_length(value.as_bytes()));
    let sent = headers.clone();
    if offers.concern(StatusCode::OK, &sent, len) {
        offers.vary(&Shape::new(StatusCode::OK, &sent, len), headers);
    }
}

/// Has an origin asked for the whole of what its client wants a part of by date, where what has
/// that date may have been adapted while it was sent: no part of the original goes on with it.
pub(super) fn ask_for_all(route: &Route, request: &Parts, headers: &mut HeaderMap) {
    let Some(offers) = route.offers.as_deref() else { return };
    let asked = Asked::of(request);
    if is_by_date(headers) && offers.may_stream(&asked) {
        headers.remove(header::RANGE);
        headers.remove(header::IF_RANGE);
    }
}

/// A request's conditions as its origin knows them. What was adapted while it was sent has a weak
/// tag, and many origins compare letter by letter; compared as they should be, the strong one is
/// the same (RFC 9110 §13.1.2). And a variant has its name in its tag.
pub(super) fn ask_for_originals(route: &Route, headers: &mut HeaderMap) {
    let Some(offers) = route.offers.as_deref() else { return };
    if offers.streams_pages() && wants_page(headers) {
        forget_originals(offers, headers);
    }
    let lines: Vec<HeaderValue> =
        headers.get_all(header::IF_NONE_MATCH).into_iter().cloned().collect();
    let tags = || lines.iter().flat_map(|line| etag::list(line.as_bytes()));
    let mut originals: Vec<ETag<'_>> = Vec::new();
    for tag in tags() {
        let original = offers.original_of(tag.opaque).map(|opaque| ETag { opaque, ..tag });
        let is_streamed = |tag: &ETag<'_>| tag.weak && offers.streams();
        let strong = [Some(tag), original].into_iter().flatten().filter(is_streamed);
        let strong = strong.map(|tag| ETag { weak: false, ..tag });
        for one in strong.chain(original) {
            if !tags().any(|tag| tag == one) && !originals.contains(&one) {
                originals.push(one);
            }
        }
    }
    let all = lines.iter().cloned().chain(originals.iter().filter_map(ETag::to_value));
    let all: Vec<HeaderValue> = all.collect();
    let all: Vec<&[u8]> = all.iter().map(HeaderValue::as_bytes).collect();
    if let Ok(value) = HeaderValue::from_bytes(&all.join(&b", "[..]))
        && !originals.is_empty()
    {
        headers.insert(header::IF_NONE_MATCH, value);
    }
}

/// Whether a request is one for a page, as browsers send it.
fn wants_page(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).into_iter();
    let page = b"text/html";
    accepted.any(|line| line.as_bytes().windows(page.len()).any(|at| at.eq_ignore_ascii_case(page)))
}

/// Takes conditions away that tell of an original: a page that its origin confirms as such would
/// stay as it was before rules were there for it, or a place. Changed pages have no date.
fn forget_originals(offers: &Offers, headers: &mut HeaderMap) {
    headers.remove(header::IF_MODIFIED_SINCE);
    let lines = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let tags = lines.flat_map(|line| etag::list(line.as_bytes()));
    let own = tags.filter(|tag| offers.original_of(tag.opaque).is_some());
    let own: Vec<HeaderValue> = own.filter_map(|tag| tag.to_value()).collect();
    headers.remove(header::IF_NONE_MATCH);
    for tag in own {
        headers.append(header::IF_NONE_MATCH, tag);
    }
}
