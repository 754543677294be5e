//! The secondary cache key (RFC 9111 §4.1): the request fields that a response's Vary names, with
//! the values they had in the request that brought the response. What Vary means and how values
//! compare is `weir_http::vary`'s.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use weir_http::vary::{self, Vary};

/// Request fields and the values a request must have for the response to be selected.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    /// Sorted by name, each once.
    fields: Box<[Field]>,
    /// The normalised values, each ended by a 0, then the values as they were sent. Copies: a
    /// slice of the request would keep its whole read buffer alive.
    text: Box<[u8]>,
    /// Length of the normalised part.
    normalised_len: usize,
}

#[derive(Clone, Debug)]
struct Field {
    name: HeaderName,
    as_sent: AsSent,
}

/// A field as it was sent, where it had one line at most: what the same client sends again is
/// recognised without being normalised.
#[derive(Clone, Copy, Debug)]
enum AsSent {
    Absent,
    /// The range of `text` that holds the line.
    OneLine(u32, u32),
    ManyLines,
}

impl Selectors {
    /// The selectors of a response to this request. `None` if no request can be known to match:
    /// Vary has a `*`, or cannot be understood.
    pub fn new(response: &HeaderMap, request: &HeaderMap) -> Option<Selectors> {
        match vary::of(response) {
            Vary::Anything => None,
            Vary::Nothing => Some(Selectors::default()),
            Vary::Fields(names) => Some(Selectors::of(names.iter(), request)),
        }
    }

    fn of<'a>(names: impl Iterator<Item = &'a HeaderName>, request: &HeaderMap) -> Selectors {
        let names: Vec<HeaderName> = names.cloned().collect();
        let mut text = Vec::new();
        vary::push_selecting(&mut text, &names, request);
        let normalised_len = text.len();
        let fields = names.into_iter().map(|name| {
            let as_sent = push_as_sent(&mut text, request, &name);
            Field { name, as_sent }
        });
        let fields = fields.collect();
        Selectors { fields, text: text.into(), normalised_len }
    }

    /// The same fields with another request's values: what is expected of a response to it.
    pub(crate) fn for_request(&self, request: &HeaderMap) -> Selectors {
        Selectors::of(self.names(), request)
    }

    /// Whether `request` selects the response (§4.1).
    pub fn matches(&self, request: &HeaderMap) -> bool {
        self.matches_as_sent(request) || *self.normalise(request) == *self.normalised()
    }

    /// Whether `request` has the very same fields; allocates nothing.
    #[inline]
    fn matches_as_sent(&self, request: &HeaderMap) -> bool {
        self.fields.iter().all(|field| match field.as_sent {
            AsSent::Absent => !request.contains_key(&field.name),
            AsSent::OneLine(start, end) => {
                let mut lines = request.get_all(&field.name).iter();
                let line = lines.next().map(HeaderValue::as_bytes);
                line == Some(&self.text[start as usize..end as usize]) && lines.next().is_none()
            }
            AsSent::ManyLines => false,
        })
    }

    /// Whether a response with these selectors takes the place of one with `old`: every request
    /// known to select this one would also select the old one.
    pub(crate) fn supersede(&self, old: &Selectors) -> bool {
        old.values().all(|value| self.values().any(|own| own == value))
    }

    fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|field| &field.name)
    }

    fn values(&self) -> impl Iterator<Item = (&HeaderName, &[u8])> {
        self.names().zip(self.normalised().split(|&byte| byte == 0))
    }

    fn normalised(&self) -> &[u8] {
        &self.text[..self.normalised_len]
    }

    fn normalise(&self, request: &HeaderMap) -> Vec<u8> {
        let names: Vec<HeaderName> = self.names().cloned().collect();
        let mut values = Vec::new();
        vary::push_selecting(&mut values, &names, request);
        values
    }

    /// Whether the response is the only one of its key.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Bytes charged for the selectors.
    pub(crate) fn charge(&self) -> u64 {
        (self.fields.len() * size_of::<Field>() + self.text.len()) as u64
    }
}

impl PartialEq for Selectors {
    fn eq(&self, other: &Selectors) -> bool {
        self.names().eq(other.names()) && self.normalised() == other.normalised()
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
    let mut known: Option<(&Selectors, Vec<u8>)> = None;
    candidates.into_iter().find(|candidate| {
        let wanted = selectors(candidate);
        let values = match &known {
            Some((like, values)) if like.names().eq(wanted.names()) => values,
            _ => &known.insert((wanted, wanted.normalise(request))).1,
        };
        **values == *wanted.normalised()
    })
}

fn push_as_sent(text: &mut Vec<u8>, request: &HeaderMap, name: &HeaderName) -> AsSent {
    let mut lines = request.get_all(name).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return AsSent::Absent,
        (Some(line), None) => line.as_bytes(),
        (Some(_), Some(_)) => return AsSent::ManyLines,
    };
    let start = text.len();
    text.extend_from_slice(line);
    // A request head is far below 4 GiB; if not, normalising does.
    match (u32::try_from(start), u32::try_from(text.len())) {
        (Ok(start), Ok(end)) => AsSent::OneLine(start, end),
        _ => AsSent::ManyLines,
    }
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
