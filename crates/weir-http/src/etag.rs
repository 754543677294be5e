//! Entity tags (RFC 9110 §8.8.3): parsing, comparison, and the tags Weir gives to files.

use http::HeaderValue;

use crate::negotiate::Coding;

/// An entity tag, borrowed from its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ETag<'a> {
    /// `true` for `W/"…"`.
    pub weak: bool,
    /// What stands between the quotes.
    pub opaque: &'a [u8],
}

impl<'a> ETag<'a> {
    /// Parses exactly one tag, as in an ETag field; white space around it is allowed.
    pub fn parse(text: &'a [u8]) -> Option<ETag<'a>> {
        let (tag, rest) = ETag::parse_prefix(crate::syntax::trim(text))?;
        rest.is_empty().then_some(tag)
    }

    /// Strong comparison (§8.8.3.2): equal and neither weak.
    pub fn strong_eq(&self, other: &ETag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Weak comparison (§8.8.3.2): equal, weak or not.
    pub fn weak_eq(&self, other: &ETag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// The tag as a field has it.
    pub fn to_value(&self) -> Option<HeaderValue> {
        let before: &[u8] = if self.weak { b"W/\"" } else { b"\"" };
        HeaderValue::from_bytes(&[before, self.opaque, b"\""].concat()).ok()
    }

    /// A tag at the start of `text`, and what follows it. `W/` is case-sensitive, and a backslash
    /// is an ordinary character: an opaque tag is not a quoted-string.
    fn parse_prefix(text: &'a [u8]) -> Option<(ETag<'a>, &'a [u8])> {
        let (weak, text) = match text.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let text = text.strip_prefix(b"\"")?;
        let end = text.iter().position(|&byte| byte == b'"')?;
        let opaque = &text[..end];
        let valid = opaque.iter().all(|&byte| byte > b' ' && byte != 0x7f);
        valid.then_some((ETag { weak, opaque }, &text[end + 1..]))
    }
}

/// The tags of an If-Match or If-None-Match value, in order. Ends at the first thing that is
/// neither a tag nor a separator; what came before it counts.
pub fn list(value: &[u8]) -> impl Iterator<Item = ETag<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        let (tag, tail) = ETag::parse_prefix(rest)?;
        rest = match crate::syntax::trim(tail) {
            tail @ ([] | [b',', ..]) => tail,
            _ => &[],
        };
        Some(tag)
    })
}

/// The tag of a file: its modification time in nanoseconds since 1970 and its size in bytes, in
/// hexadecimal. The inode is left out on purpose, so that copies of a site on several machines
/// agree. A coded variant gets the coding's name, because different bytes need different tags.
pub fn for_file(modified_ns: u64, size: u64, coding: Coding) -> HeaderValue {
    // Two quotes, two numbers of at most 16 digits, a dash, and a dash with a coding's name.
    let mut tag = Vec::with_capacity(2 + 32 + 1 + 6);
    tag.push(b'"');
    push_hex(&mut tag, modified_ns);
    tag.push(b'-');
    push_hex(&mut tag, size);
    if coding != Coding::Identity {
        tag.push(b'-');
        tag.extend_from_slice(coding.token().as_bytes());
    }
    tag.push(b'"');
    // Hexadecimal digits, dashes, quotes and tokens are always a valid value.
    HeaderValue::from_bytes(&tag).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn push_hex(out: &mut Vec<u8>, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for index in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(number >> (index * 4)) as usize & 15]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_one_tag() {
        let check = |text: &str, expect: Option<(bool, &str)>| {
            let found = ETag::parse(text.as_bytes());
            let expect = expect.map(|(weak, opaque)| ETag { weak, opaque: opaque.as_bytes() });
            assert_eq!(found, expect, "{text}");
        };
        check("\"a\"", Some((false, "a")));
        check(" W/\"a\\\" ", Some((true, "a\\")));
        check("\"\"", Some((false, "")));
        check("w/\"a\"", None);
        check("a", None);
        check("\"a", None);
        check("\"a b\"", None);
        check("\"a\"b", None);
        check("", None);
    }

    #[test]
    fn comparison_table_of_rfc_9110() {
        let tag = |text: &'static str| ETag::parse(text.as_bytes()).unwrap();
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            assert_eq!(tag(a).strong_eq(&tag(b)), strong, "{a} {b}");
            assert_eq!(tag(a).weak_eq(&tag(b)), weak, "{a} {b}");
        }
    }

    #[test]
    fn lists_keep_commas_and_backslashes_inside_tags() {
        let check = |value: &str, expect: &[&str]| {
            let found: Vec<_> = list(value.as_bytes()).map(|tag| tag.opaque).collect();
            let expect: Vec<_> = expect.iter().map(|opaque| opaque.as_bytes()).collect();
            assert_eq!(found, expect, "{value}");
        };
        check(r#""a", W/"b","c,d""#, &["a", "b", "c,d"]);
        check(r#""a\", "b""#, &["a\\", "b"]);
        check(r#",, "a" ,"#, &["a"]);
        check(r#""a" "b""#, &["a"]);
        check(r#""a", b, "c""#, &["a"]);
        check("*", &[]);
    }

    #[test]
    fn file_tags_differ_by_time_size_and_coding() {
        assert_eq!(for_file(0x1234, 0xab, Coding::Identity), "\"1234-ab\"");
        assert_eq!(for_file(0, 0, Coding::Brotli), "\"0-0-br\"");
        assert_eq!(
            for_file(u64::MAX, u64::MAX, Coding::Zstd),
            "\"ffffffffffffffff-ffffffffffffffff-zstd\""
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = ETag::parse(&text);
            prop_assert!(list(&text).count() <= text.len());
        }

        #[test]
        fn file_tags_parse(modified_ns: u64, size: u64) {
            let value = for_file(modified_ns, size, Coding::Gzip);
            let tag = ETag::parse(value.as_bytes()).unwrap();
            let text = format!("{modified_ns:x}-{size:x}-gzip");
            prop_assert_eq!(tag, ETag { weak: false, opaque: text.as_bytes() });
        }
    }
}
