//! Vary (RFC 9110 §12.5.5): the fields that select among stored responses, and a request's
//! values of them in a form that can be compared and hashed (RFC 9111 §4.1).

use http::header::{self, HeaderMap};
use http::{HeaderName, HeaderValue};

/// Fields in one Vary beyond which the response counts as varying on everything.
pub const FIELDS_MAX: usize = 32;

/// What a response varies on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vary {
    /// Nothing: the response serves every request.
    Nothing,
    /// `*`, or something that cannot be understood: the response serves no other request.
    Anything,
    /// These request fields, sorted, each once.
    Fields(Vec<HeaderName>),
}

/// What the response with this header varies on.
pub fn of(response: &HeaderMap) -> Vary {
    parse(response.get_all(header::VARY).iter().map(HeaderValue::as_bytes))
}

/// Parses the values of Vary.
pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Vary {
    let mut fields = Vec::new();
    for member in values.into_iter().flat_map(|value| crate::syntax::split(value, b',')) {
        let name = HeaderName::from_bytes(member).ok().filter(|_| member != b"*");
        let Some(name) = name else { return Vary::Anything };
        fields.push(name);
        if fields.len() > FIELDS_MAX {
            return Vary::Anything;
        }
    }
    if fields.is_empty() {
        return Vary::Nothing;
    }
    fields.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    fields.dedup();
    Vary::Fields(fields)
}

/// Appends a request's values of `fields` to `key`, so that two requests match (RFC 9111 §4.1) if
/// they append the same bytes. Field lines are joined and white space around commas is dropped;
/// of fields whose values ignore case it is dropped too.
pub fn push_selecting(key: &mut Vec<u8>, fields: &[HeaderName], request: &HeaderMap) {
    for name in fields {
        // 0 ends a value and cannot occur in one; 1 starts each line that exists, so that an
        // absent field differs from an empty one.
        let start = key.len();
        for value in request.get_all(name) {
            push_value(key, start, value.as_bytes());
        }
        if ignores_case(name) {
            key[start..].make_ascii_lowercase();
        }
        key.push(0);
    }
}

fn push_value(key: &mut Vec<u8>, start: usize, value: &[u8]) {
    if key.len() == start {
        key.push(1);
    }
    for element in crate::syntax::split(value, b',') {
        if key.len() > start + 1 {
            key.push(b',');
        }
        key.extend_from_slice(element);
    }
}

/// Fields whose every part is case-insensitive by definition.
fn ignores_case(name: &HeaderName) -> bool {
    matches!(*name, header::ACCEPT_ENCODING | header::ACCEPT_LANGUAGE | header::ACCEPT_CHARSET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(fields: &[&'static str]) -> Vec<HeaderName> {
        fields.iter().map(|name| HeaderName::from_static(name)).collect()
    }

    fn key(fields: &[&'static str], request: &[(&'static str, &'static str)]) -> Vec<u8> {
        let mut map = HeaderMap::new();
        for &(name, value) in request {
            map.append(name, HeaderValue::from_static(value));
        }
        let mut key = Vec::new();
        push_selecting(&mut key, &names(fields), &map);
        key
    }

    #[test]
    fn parses_members() {
        let check = |value: &str, expect: Vary| {
            assert_eq!(parse([value.as_bytes()]), expect, "{value}");
        };
        check("", Vary::Nothing);
        check(" , ", Vary::Nothing);
        check("*", Vary::Anything);
        check("Accept, *", Vary::Anything);
        check("a b", Vary::Anything);
        check("Foo, accept-encoding, FOO", Vary::Fields(names(&["accept-encoding", "foo"])));
        let lines = [&b"b"[..], b"a"];
        assert_eq!(parse(lines), Vary::Fields(names(&["a", "b"])));
        let many: Vec<_> = (0..=FIELDS_MAX).map(|n| format!("x-{n}")).collect();
        check(&many.join(","), Vary::Anything);
    }

    #[test]
    fn requests_that_match_have_equal_keys() {
        let same = |a: &[(&'static str, &'static str)], b: &[(&'static str, &'static str)]| {
            assert_eq!(key(&["accept-encoding", "foo"], a), key(&["accept-encoding", "foo"], b));
        };
        same(&[("foo", "1, 2")], &[("foo", "1 ,2")]);
        same(&[("foo", "1, 2")], &[("foo", "1"), ("foo", "2")]);
        same(&[("accept-encoding", "GZIP")], &[("accept-encoding", "gzip")]);
        same(&[("bar", "1")], &[]);
    }

    #[test]
    fn requests_that_differ_have_different_keys() {
        let differ = |a: &[(&'static str, &'static str)], b: &[(&'static str, &'static str)]| {
            assert_ne!(key(&["bar", "foo"], a), key(&["bar", "foo"], b));
        };
        differ(&[("foo", "1")], &[("foo", "2")]);
        differ(&[("foo", "A")], &[("foo", "a")]);
        differ(&[("foo", "1, 2")], &[("foo", "2, 1")]);
        differ(&[("foo", "")], &[]);
        differ(&[("foo", "1")], &[("bar", "1")]);
        differ(&[("foo", "\"1, 2\"")], &[("foo", "\"1,2\"")]);
    }

    proptest! {
        #[test]
        fn parsing_what_was_parsed_changes_nothing(value in "[a-cA-C*, ]{0,12}") {
            let vary = parse([value.as_bytes()]);
            if let Vary::Fields(fields) = &vary {
                let again: Vec<_> = fields.iter().map(HeaderName::as_str).collect();
                prop_assert_eq!(parse([again.join(", ").as_bytes()]), vary);
            }
        }

        #[test]
        fn never_panics(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse([&value[..]]);
        }
    }
}
