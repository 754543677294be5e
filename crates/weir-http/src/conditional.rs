//! Conditional requests (RFC 9110 §13): whether a request's preconditions hold for the selected
//! representation. Whether a representation may be used at all is the caller's decision.

use std::time::SystemTime;

use http::header::{
    HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderName, Method};

use crate::date::{self, unix_seconds};
use crate::etag::{self, ETag};

/// The outcome of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Perform the method.
    Proceed,
    /// Answer 304 (Not Modified).
    NotModified,
    /// Answer 412 (Precondition Failed).
    PreconditionFailed,
}

/// What is known of the selected representation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validators<'a> {
    /// Whether there is a current representation at all; `If-Match: *` asks for nothing more.
    pub exists: bool,
    /// Its entity tag.
    pub etag: Option<ETag<'a>>,
    /// Its Last-Modified time.
    pub last_modified: Option<SystemTime>,
}

impl<'a> Validators<'a> {
    /// Validators of a response that exists, from its ETag and Last-Modified fields.
    pub fn of(response: &'a HeaderMap) -> Validators<'a> {
        let etag = response.get(http::header::ETAG);
        let last_modified = response.get(http::header::LAST_MODIFIED);
        Validators {
            exists: true,
            etag: etag.and_then(|value| ETag::parse(value.as_bytes())),
            last_modified: last_modified.and_then(|value| date::parse(value.as_bytes())),
        }
    }
}

/// Whether the request has any field that [`evaluate`] looks at; without one it always proceeds,
/// and the caller need not compute validators.
pub fn is_conditional(request: &HeaderMap) -> bool {
    [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE]
        .iter()
        .any(|name| request.contains_key(name))
}

/// Evaluates a request's preconditions in the order of §13.2.2. To be called only where the
/// answer without them would be 2xx or 412 (§13.2.1).
pub fn evaluate(method: &Method, request: &HeaderMap, selected: &Validators<'_>) -> Outcome {
    // §13.2.1: methods that neither select nor modify a representation have no preconditions.
    if matches!(*method, Method::CONNECT | Method::OPTIONS | Method::TRACE) {
        return Outcome::Proceed;
    }
    if request.contains_key(IF_MATCH) {
        if !any_match(request, IF_MATCH, selected, |a, b| a.strong_eq(b)) {
            return Outcome::PreconditionFailed;
        }
    } else if let (Some(limit), Some(modified)) =
        (single_date(request, IF_UNMODIFIED_SINCE), selected.last_modified)
        && unix_seconds(modified) > unix_seconds(limit)
    {
        return Outcome::PreconditionFailed;
    }

    let reads = matches!(*method, Method::GET | Method::HEAD);
    if request.contains_key(IF_NONE_MATCH) {
        return match any_match(request, IF_NONE_MATCH, selected, |a, b| a.weak_eq(b)) {
            false => Outcome::Proceed,
            true if reads => Outcome::NotModified,
            true => Outcome::PreconditionFailed,
        };
    }
    if reads
        && let (Some(known), Some(modified)) =
            (single_date(request, IF_MODIFIED_SINCE), selected.last_modified)
        && unix_seconds(modified) <= unix_seconds(known)
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Whether a Range field is to be honoured: there is no If-Range, or it names the selected
/// representation (§13.1.5). `response_date` is the Date of the response that carried
/// Last-Modified; a date is a strong validator only if it lies at least a second before that
/// (§8.8.2.2).
pub fn if_range(request: &HeaderMap, selected: &Validators<'_>, response_date: SystemTime) -> bool {
    let mut values = request.get_all(IF_RANGE).iter();
    let Some(value) = values.next() else { return true };
    if values.next().is_some() {
        return false;
    }
    if let Some(tag) = ETag::parse(value.as_bytes()) {
        return selected.etag.is_some_and(|current| current.strong_eq(&tag));
    }
    let (Some(given), Some(modified)) = (date::parse(value.as_bytes()), selected.last_modified)
    else {
        return false;
    };
    let modified_s = unix_seconds(modified);
    unix_seconds(given) == modified_s && modified_s < unix_seconds(response_date)
}

fn any_match(
    request: &HeaderMap,
    name: HeaderName,
    selected: &Validators<'_>,
    same: fn(&ETag<'_>, &ETag<'_>) -> bool,
) -> bool {
    request.get_all(name).iter().any(|value| {
        if crate::syntax::trim(value.as_bytes()) == b"*" {
            return selected.exists;
        }
        let Some(current) = selected.etag else { return false };
        etag::list(value.as_bytes()).any(|tag| same(&tag, &current))
    })
}

/// The field's date; a repeated or invalid field is ignored (§13.1.3, §13.1.4).
fn single_date(request: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    let mut values = request.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    date::parse(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn modified() -> SystemTime {
        // Half a second more than the date says: files have times finer than HTTP's.
        UNIX_EPOCH + Duration::from_millis(784_111_777_500)
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn strong() -> Validators<'static> {
        Validators { exists: true, etag: ETag::parse(b"\"a\""), last_modified: Some(modified()) }
    }

    #[track_caller]
    fn check(method: Method, fields: &[(&'static str, &str)], expect: Outcome) {
        assert_eq!(evaluate(&method, &headers(fields), &strong()), expect);
    }

    #[test]
    fn if_none_match() {
        use Outcome::*;
        check(Method::GET, &[("if-none-match", "\"a\"")], NotModified);
        check(Method::HEAD, &[("if-none-match", "W/\"a\"")], NotModified);
        check(Method::GET, &[("if-none-match", "\"b\", \"a\"")], NotModified);
        check(Method::GET, &[("if-none-match", "\"b\""), ("if-none-match", "\"a\"")], NotModified);
        check(Method::GET, &[("if-none-match", "\"b\"")], Proceed);
        check(Method::GET, &[("if-none-match", "*")], NotModified);
        check(Method::PUT, &[("if-none-match", "*")], PreconditionFailed);
        check(Method::PUT, &[("if-none-match", "\"b\"")], Proceed);
        check(Method::OPTIONS, &[("if-none-match", "*")], Proceed);
    }

    #[test]
    fn if_match() {
        use Outcome::*;
        check(Method::PUT, &[("if-match", "\"a\"")], Proceed);
        check(Method::PUT, &[("if-match", "W/\"a\"")], PreconditionFailed);
        check(Method::PUT, &[("if-match", "*")], Proceed);
        check(Method::GET, &[("if-match", "\"b\"")], PreconditionFailed);
        let none = Validators::default();
        let request = headers(&[("if-match", "*")]);
        assert_eq!(evaluate(&Method::PUT, &request, &none), PreconditionFailed);
        let request = headers(&[("if-none-match", "*")]);
        assert_eq!(evaluate(&Method::PUT, &request, &none), Proceed);
    }

    #[test]
    fn dates() {
        use Outcome::*;
        check(Method::GET, &[("if-modified-since", BEFORE)], Proceed);
        check(Method::GET, &[("if-modified-since", MODIFIED)], NotModified);
        check(Method::GET, &[("if-modified-since", AFTER)], NotModified);
        check(Method::POST, &[("if-modified-since", AFTER)], Proceed);
        check(Method::GET, &[("if-modified-since", "yesterday")], Proceed);
        check(Method::GET, &[("if-modified-since", AFTER), ("if-modified-since", AFTER)], Proceed);
        check(Method::PUT, &[("if-unmodified-since", BEFORE)], PreconditionFailed);
        check(Method::PUT, &[("if-unmodified-since", MODIFIED)], Proceed);
        check(Method::PUT, &[("if-unmodified-since", "never")], Proceed);
    }

    #[test]
    fn order_of_evaluation() {
        use Outcome::*;
        // If-Match hides If-Unmodified-Since; If-None-Match hides If-Modified-Since.
        check(Method::GET, &[("if-match", "\"a\""), ("if-unmodified-since", BEFORE)], Proceed);
        check(Method::GET, &[("if-none-match", "\"b\""), ("if-modified-since", AFTER)], Proceed);
        // A failed If-Match ends it; one that holds leaves the decision to If-None-Match.
        check(
            Method::GET,
            &[("if-match", "\"b\""), ("if-none-match", "\"a\"")],
            PreconditionFailed,
        );
        check(Method::GET, &[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified);
    }

    #[test]
    fn if_range_compares_strongly() {
        let now = modified() + Duration::from_secs(60);
        let check = |value: Option<&str>, date: SystemTime, expect: bool| {
            let fields: Vec<_> = value.map(|value| ("if-range", value)).into_iter().collect();
            assert_eq!(if_range(&headers(&fields), &strong(), date), expect, "{value:?}");
        };
        check(None, now, true);
        check(Some("\"a\""), now, true);
        check(Some("W/\"a\""), now, false);
        check(Some("\"b\""), now, false);
        check(Some(MODIFIED), now, true);
        check(Some(AFTER), now, false);
        check(Some(BEFORE), now, false);
        check(Some("garbage"), now, false);
        // Modified in the very second of the response: the date is no strong validator.
        check(Some(MODIFIED), modified(), false);
    }

    proptest! {
        #[test]
        fn never_panics_and_needs_a_field_to_object(value in "[ -~]{0,40}", which in 0..5usize) {
            let name = ["if-match", "if-none-match", "if-modified-since", "if-unmodified-since",
                "if-range"][which];
            let request = headers(&[(name, &value)]);
            let outcome = evaluate(&Method::GET, &request, &strong());
            if !is_conditional(&request) {
                prop_assert_eq!(outcome, Outcome::Proceed);
            }
            let _ = if_range(&request, &strong(), modified());
        }
    }
}
