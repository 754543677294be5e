//! What of a response a request wants: its conditions (RFC 9110 §13) and ranges (§14).

use std::time::SystemTime;

use http::header;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use weir_http::conditional::{self, Outcome, Validators};
use weir_http::range::{self, Ranges, Span};

use super::whole::Whole;

/// The part of a response to send.
#[derive(Debug)]
pub(super) enum Selection {
    /// All of it.
    Whole,
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
    /// 206 with one range
    Single(Span),
    /// 206 with several
    Several(Vec<Span>),
    /// 416
    Unsatisfiable,
}

/// What a date tells of the bytes that a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dates {
    /// Which they are: whatever else has this date is the same.
    One,
    /// Nothing: adaptations make other bytes of the same date.
    Many,
}

/// Applies a request to a response. Only a 200 to GET or HEAD has anything to select from.
pub(super) fn select(
    request: &Parts,
    status: StatusCode,
    response: &HeaderMap,
    whole: &Whole,
    dates: Dates,
) -> Selection {
    let reads = matches!(request.method, Method::GET | Method::HEAD);
    if status != StatusCode::OK || !reads || whole.is_passing() {
        return Selection::Whole;
    }
    if conditional::is_conditional(&request.headers) {
        let validators = Validators::of(response);
        match conditional::evaluate(&request.method, &request.headers, &validators) {
            Outcome::Proceed => {}
            Outcome::NotModified => return Selection::NotModified,
            Outcome::PreconditionFailed => return Selection::PreconditionFailed,
        }
    }
    // §14.2: Range is for GET only.
    let Some(wanted) = request.headers.get(header::RANGE) else { return Selection::Whole };
    if request.method != Method::GET || !whole.has_ranges() {
        return Selection::Whole;
    }
    let Some(length) = whole.len() else { return Selection::Whole };
    if dates == Dates::Many && is_by_date(&request.headers) || !if_range(request, response) {
        return Selection::Whole;
    }
    match range::parse(wanted.as_bytes(), length) {
        Ranges::Ignore => Selection::Whole,
        Ranges::Unsatisfiable => Selection::Unsatisfiable,
        Ranges::Single(span) => Selection::Single(span),
        Ranges::Several(spans) => match whole {
            // Parts of what is still arriving cannot be sent in any order.
            Whole::Object(_) | Whole::Bytes(_) => Selection::Several(spans),
            _ => Selection::Whole,
        },
    }
}

/// Whether a range is asked for by date: an entity tag ends with a quotation mark (RFC 9110
/// §13.1.5). Without If-Range some go on by If-Unmodified-Since (§13.1.4), which means nothing
/// beside If-Match.
pub(super) fn is_by_date(request: &HeaderMap) -> bool {
    match request.get(header::IF_RANGE) {
        Some(value) => !value.as_bytes().trim_ascii_end().ends_with(b"\""),
        None => {
            request.contains_key(header::IF_UNMODIFIED_SINCE)
                && !request.contains_key(header::IF_MATCH)
        }
    }
}

fn if_range(request: &Parts, response: &HeaderMap) -> bool {
    if !request.headers.contains_key(header::IF_RANGE) {
        return true;
    }
    let date = response.get(header::DATE).and_then(|v| weir_http::date::parse(v.as_bytes()));
    // A response without Date is dated by this server, now.
    let date = date.unwrap_or_else(SystemTime::now);
    conditional::if_range(&request.headers, &Validators::of(response), date)
}
