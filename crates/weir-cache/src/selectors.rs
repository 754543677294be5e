//! The secondary cache key (RFC 9111 §4.1): the request fields that a response's Vary names, with
//! the values they had in the request that brought the response. What Vary means and how values
//! compare is `weir_http::vary`'s.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use weir_http::vary::{self, Vary};

/// Request fields and the values a request must have for the response to be selected.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    /// Sorted, each once.
    names: Box<[HeaderName]>,
    /// The fields as they were sent, where they had one line at most: what the same client sends
    /// again is recognised without being normalised.
    as_sent: Box<[AsSent]>,
    /// The normalised values, each ended by a 0.
    values: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq)]
enum AsSent {
    Absent,
    OneLine(HeaderValue),
    ManyLines,
}

impl Selectors {
    /// The selectors of a response to this request. `None` if no request can be known to match:
    /// Vary has a `*`, or cannot be understood.
    pub fn new(response: &HeaderMap, request: &HeaderMap) -> Option<Selectors> {
        match vary::of(response) {
            Vary::Anything => None,
            Vary::Nothing => Some(Selectors::default()),
            Vary::Fields(names) => Some(Selectors::of(names.into(), request)),
        }
    }

    fn of(names: Box<[HeaderName]>, request: &HeaderMap) -> Selectors {
        let as_sent = names.iter().map(|name| as_sent(request, name)).collect();
        let values = normalised(&names, request).into();
        Selectors { names, as_sent, values }
    }

    /// The same fields with another request's values: what is expected of a response to it.
    pub(crate) fn for_request(&self, request: &HeaderMap) -> Selectors {
        Selectors::of(self.names.clone(), request)
    }

    /// Whether `request` selects the response (§4.1).
    pub fn matches(&self, request: &HeaderMap) -> bool {
        self.matches_as_sent(request) || *normalised(&self.names, request) == *self.values
    }

    /// Whether `request` has the very same fields; allocates nothing.
    #[inline]
    fn matches_as_sent(&self, request: &HeaderMap) -> bool {
        let mut fields = self.names.iter().zip(&self.as_sent);
        fields.all(|(name, stored)| match stored {
            AsSent::Absent => !request.contains_key(name),
            AsSent::OneLine(value) => {
                let mut lines = request.get_all(name).iter();
                lines.next() == Some(value) && lines.next().is_none()
            }
            AsSent::ManyLines => false,
        })
    }

    /// Whether a response with these selectors takes the place of one with `old`: every request
    /// known to select this one would also select the old one.
    pub(crate) fn supersede(&self, old: &Selectors) -> bool {
        old.fields().all(|field| self.fields().any(|own| own == field))
    }

    fn fields(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        self.names.iter().zip(self.values.split(|&byte| byte == 0))
    }

    /// Whether the response is the only one of its key.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Bytes charged for the selectors.
    pub(crate) fn charge(&self) -> u64 {
        let per_name = size_of::<HeaderName>() + size_of::<AsSent>();
        (self.names.len() * per_name + 2 * self.values.len()) as u64
    }
}

impl PartialEq for Selectors {
    fn eq(&self, other: &Selectors) -> bool {
        self.names == other.names && self.values == other.values
    }
}

/// The first of `candidates` that `request` selects. Those that have the very same fields come
/// first, which changes nothing between variants by the same fields: one supersedes the other.
#[inline]
pub(crate) fn select<'a, T>(
    candidates: impl Iterator<Item = &'a T> + Clone,
    selectors: impl Fn(&'a T) -> &'a Selectors,
    request: &HeaderMap,
) -> Option<&'a T> {
    if let Some(found) = candidates.clone().find(|c| selectors(c).matches_as_sent(request)) {
        return Some(found);
    }
    // Most variants of a key vary by the same fields: normalise the request's once.
    let mut known: Option<(&[HeaderName], Vec<u8>)> = None;
    candidates.into_iter().find(|candidate| {
        let wanted = selectors(candidate);
        let values = match &known {
            Some((names, values)) if **names == *wanted.names => values,
            _ => &known.insert((&wanted.names, normalised(&wanted.names, request))).1,
        };
        **values == *wanted.values
    })
}

fn as_sent(request: &HeaderMap, name: &HeaderName) -> AsSent {
    let mut lines = request.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => AsSent::Absent,
        (Some(line), None) => AsSent::OneLine(line.clone()),
        (Some(_), Some(_)) => AsSent::ManyLines,
    }
}

fn normalised(names: &[HeaderName], request: &HeaderMap) -> Vec<u8> {
    let mut values = Vec::new();
    vary::push_selecting(&mut values, names, request);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::headers;

    fn make(vary: &str, request: &str) -> Selectors {
        Selectors::new(&headers(vary), &headers(request)).unwrap()
    }

    #[test]
    fn rfc9111_4_1_selection() {
        for (vary, stored, request, expect) in [
            ("", "accept: a", "accept: b", true),
            ("vary: accept", "accept: a", "accept: a", true),
            ("vary: Accept", "accept: a", "accept: b", false),
            ("vary: accept", "", "", true),
            ("vary: accept", "", "accept: a", false),
            ("vary: accept", "accept: a", "", false),
            ("vary: accept", "accept: a\naccept: b", "accept: a, b", true),
            ("vary: accept", "accept: a,b", "accept: a\naccept: b", true),
            ("vary: accept", "accept: a\naccept: b", "accept: b\naccept: a", false),
            ("vary: accept", "accept: a", "accept: a\naccept: b", false),
            ("vary: accept, x-a", "accept: a\nx-a: 1", "accept: a\nx-a: 1", true),
            ("vary: accept\nvary: x-a", "accept: a\nx-a: 1", "accept: a\nx-a: 2", false),
        ] {
            let selectors = make(vary, stored);
            let request = headers(request);
            let context = format!("{vary} | {stored} | {request:?}");
            assert_eq!(selectors.matches(&request), expect, "{context}");
            let selected = select([selectors].iter(), |s| s, &request).is_some();
            assert_eq!(selected, expect, "{context}");
        }
        for vary in ["vary: *", "vary: accept, *", "vary: accept\nvary: *", "vary: a b"] {
            assert_eq!(Selectors::new(&headers(vary), &headers("")), None, "{vary}");
        }
    }

    #[test]
    fn selects_among_variants_by_different_fields() {
        let variants = [
            make("vary: accept, x-a", "accept: a\nx-a: 1"),
            make("vary: accept", "accept: b, c"),
            make("vary: accept", "accept: a"),
        ];
        for (request, expect) in [
            ("accept: a\nx-a: 1", Some(0)),
            ("accept: a\nx-a: 2", Some(2)),
            ("accept: b\naccept: c", Some(1)),
            ("accept: d", None),
        ] {
            let found = select(variants.iter(), |s| s, &headers(request));
            let at = found.and_then(|f| variants.iter().position(|v| std::ptr::eq(v, f)));
            assert_eq!(at, expect, "{request}");
        }
    }

    #[test]
    fn a_response_supersedes_what_its_request_would_have_selected() {
        let plain = make("", "accept: a");
        let by_accept = make("vary: accept", "accept: a");
        let other_accept = make("vary: accept", "accept: b");
        let by_both = make("vary: accept, x-a", "accept: a");
        assert!(by_accept.supersede(&plain) && by_accept.supersede(&by_accept));
        assert!(by_both.supersede(&by_accept));
        assert!(!by_accept.supersede(&other_accept) && !plain.supersede(&by_accept));
        assert!(!by_both.supersede(&other_accept));
    }
}
