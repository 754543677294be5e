//! Entity tags of what plugins make of responses. A generation makes another body than the one
//! before it of the same response, so its tags are other ones: they end in a mark.
//!
//! At the fill the mark is stored with the tag, and conditions are about what is stored; where
//! there is a date alone, a tag is made of it. At delivery the mark is put behind the tag that the
//! cache or the source knows, and taken off when it comes back; a tag without it is of what nobody
//! would be sent now. Dates cannot be marked: `Last-Modified` goes where the body is changed, and
//! is no condition where it may be.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_http::conditional::{self, Validators};
use weir_http::etag::{self, ETag};

use super::{Passage, Step};

/// What tells the responses of some generations from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Passage {
    /// The mark of what this request's plugins make of bodies at delivery, if they see any.
    pub(super) fn mark(&self) -> Option<Mark> {
        let makers = self.delivery().filter(|step| step.sees_response_bodies());
        Mark::of(makers.map(|step| step.stream.generation().fingerprint()))
    }

    /// Whether plugins may make another body of what the source answers, before it is stored: then
    /// the source's word on conditions and ranges is not about that.
    pub(in crate::pipeline) fn makes_bodies_at_fill(&self) -> bool {
        self.fill().any(Step::sees_response_bodies)
    }
}

impl Step {
    pub(super) fn sees_response_bodies(&self) -> bool {
        self.stream.hooks().sees_response_bodies()
    }

    /// The mark of what this plugin makes of bodies at the fill. Those at delivery have one
    /// together.
    pub(super) fn mark(&self) -> Option<Mark> {
        Mark::of([self.stream.generation().fingerprint()].into_iter())
    }
}

/// Whether a request has conditions that a mark is taken off.
pub(super) fn are_told(headers: &HeaderMap) -> bool {
    conditional::is_conditional(headers) || headers.contains_key(header::IF_RANGE)
}

/// Takes away what a client could find the body again by.
pub(super) fn remove(headers: &mut HeaderMap) {
    headers.remove(header::ETAG);
    headers.remove(header::LAST_MODIFIED);
}

/// Makes a tag of the date, where there is no other: one that can be marked.
pub(super) fn make_of_date(headers: &mut HeaderMap) {
    let validators = Validators::of(headers);
    let Some(modified) = validators.last_modified.filter(|_| validators.etag.is_none()) else {
        return;
    };
    let seconds = format!("{:x}", weir_http::date::unix_seconds(modified));
    let tag = ETag { weak: true, opaque: seconds.as_bytes() };
    if let Some(tag) = field(&[tag], <[u8]>::to_vec) {
        headers.insert(header::ETAG, tag);
    }
}

/// Makes a tag a weak one.
pub(in crate::pipeline) fn weaken(headers: &mut HeaderMap) {
    let Some(value) = headers.get(header::ETAG) else { return };
    let weak = ETag::parse(value.as_bytes());
    let weak = weak.and_then(|tag| ETag { weak: true, ..tag }.to_value());
    match weak {
        Some(weak) => _ = headers.insert(header::ETAG, weak),
        // It is none, but somebody might compare it.
        None => _ = headers.remove(header::ETAG),
    }
}

/// Fingerprints tell of configurations, which may hold secrets. Clients see marks, and without the
/// key they cannot try out on them what the secrets may be.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Mark {
    fn of(fingerprints: impl Iterator<Item = u64>) -> Option<Mark> {
        let mut hasher = None;
        for fingerprint in fingerprints {
            fingerprint.hash(hasher.get_or_insert_with(|| KEY.build_hasher()));
        }
        hasher.map(|hasher| Mark(hasher.finish()))
    }

    fn text(self) -> String {
        format!("-{:016x}", self.0)
    }

    /// Marks a response's tag.
    pub(super) fn put(self, headers: &mut HeaderMap) {
        let Some(value) = headers.get(header::ETAG) else { return };
        let marked = ETag::parse(value.as_bytes())
            .and_then(|tag| field(&[tag], |opaque| [opaque, self.text().as_bytes()].concat()));
        if let Some(marked) = marked {
            headers.insert(header::ETAG, marked);
        }
    }

    /// Makes a request's conditions what they are for whoever does not know the mark.
    pub(super) fn take(self, method: &Method, headers: &mut HeaderMap) {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        // What a writing request is for is not judged by what plugins make of it.
        let others = if reads { Others::Go } else { Others::Stay };
        self.take_off(header::IF_NONE_MATCH, others, headers);
        self.take_off(header::IF_MATCH, Others::Stay, headers);
        if !reads {
            return;
        }
        headers.remove(header::IF_MODIFIED_SINCE);
        if headers.contains_key(header::IF_RANGE) {
            self.take_off(header::IF_RANGE, Others::Go, headers);
            if !headers.contains_key(header::IF_RANGE) {
                headers.remove(header::RANGE);
            }
        }
    }

    /// Takes the mark off the tags of a field, which goes if none is left.
    fn take_off(self, name: HeaderName, others: Others, headers: &mut HeaderMap) {
        let is_any = |value: &HeaderValue| value.as_bytes().trim_ascii() == b"*";
        if !headers.contains_key(&name) || headers.get_all(&name).iter().any(is_any) {
            return;
        }
        let mark = self.text();
        let bare = |opaque: &[u8]| opaque.strip_suffix(mark.as_bytes()).map(<[u8]>::to_vec);
        let tags: Vec<ETag<'_>> = headers
            .get_all(&name)
            .iter()
            .flat_map(|value| etag::list(value.as_bytes()))
            .filter(|tag| others == Others::Stay || bare(tag.opaque).is_some())
            .collect();
        if tags.is_empty() && others == Others::Stay {
            return;
        }
        match field(&tags, |opaque| bare(opaque).unwrap_or_else(|| opaque.to_vec())) {
            Some(value) => headers.insert(name, value),
            None => headers.remove(name),
        };
    }
}

/// What becomes of tags without the mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Stay,
    Go,
}

/// A field with these tags, each made another one; none without any.
fn field(tags: &[ETag<'_>], make: impl Fn(&[u8]) -> Vec<u8>) -> Option<HeaderValue> {
    let mut list: Vec<u8> = Vec::new();
    for tag in tags {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(if tag.weak { b"W/\"" } else { b"\"" });
        list.extend(make(tag.opaque));
        list.push(b'"');
    }
    // Tags that were read from a field make a field.
    HeaderValue::from_bytes(&list).ok().filter(|_| !tags.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark(0xabc);

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn tags_are_marked() {
        for (tag, expect) in [
            ("\"a\"", "\"a-0000000000000abc\""),
            ("W/\"a\"", "W/\"a-0000000000000abc\""),
            ("\"\"", "\"-0000000000000abc\""),
            // It is none, and matches nothing.
            ("a", "a"),
        ] {
            let mut fields = headers(&[(header::ETAG, tag)]);
            MARK.put(&mut fields);
            assert_eq!(fields[header::ETAG], expect);
        }
        let mut none = HeaderMap::new();
        MARK.put(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn only_marked_tags_are_conditions_of_reads() {
        let marked = |tag: &str| tag.replace('~', "-0000000000000abc");
        for (given, read, written) in [
            ("\"a~\"", Some("\"a\""), "\"a\""),
            ("\"a\"", None, "\"a\""),
            ("\"a\", W/\"b~\",\"c~\"", Some("W/\"b\", \"c\""), "\"a\", W/\"b\", \"c\""),
            ("\"a-0000000000000abd\"", None, "\"a-0000000000000abd\""),
            ("*", Some("*"), "*"),
            ("nonsense", None, "nonsense"),
        ] {
            for (method, expect) in [(Method::GET, read), (Method::PUT, Some(written))] {
                let mut fields = headers(&[(header::IF_NONE_MATCH, &marked(given))]);
                MARK.take(&method, &mut fields);
                let left = fields.get(header::IF_NONE_MATCH).map(|v| v.to_str().unwrap());
                assert_eq!(left, expect, "{method} {given}");
            }
        }
    }

    #[test]
    fn dates_are_no_conditions_and_ranges_need_the_mark() {
        let date = "Sun, 06 Nov 1994 08:49:36 GMT";
        for (if_range, expect) in
            [("\"a-0000000000000abc\"", Some("\"a\"")), ("\"a\"", None), (date, None)]
        {
            let mut fields = headers(&[
                (header::IF_MODIFIED_SINCE, date),
                (header::IF_RANGE, if_range),
                (header::RANGE, "bytes=0-1"),
            ]);
            MARK.take(&Method::GET, &mut fields);
            assert!(!fields.contains_key(header::IF_MODIFIED_SINCE));
            let left = fields.get(header::IF_RANGE).map(|v| v.to_str().unwrap());
            assert_eq!(left, expect);
            assert_eq!(fields.contains_key(header::RANGE), expect.is_some(), "{if_range}");
        }
        let mut plain = headers(&[(header::RANGE, "bytes=0-1")]);
        MARK.take(&Method::GET, &mut plain);
        assert!(plain.contains_key(header::RANGE));
    }
}
