//! Range requests (RFC 9110 §14): parsing Range, Content-Range values, and the framing of
//! multipart/byteranges. If-Range is evaluated by [`crate::conditional`].

use bytes::Bytes;
use http::HeaderValue;

/// Ranges in one request beyond which the field is ignored. Players and PDF viewers ask for a
/// handful; §14.2 warns of requests that ask for many.
pub const RANGES_MAX: usize = 16;

/// Ranges nearer to each other than this are sent as one: a part's head costs as much (§15.3.7.2).
const GAP_MAX: u64 = 80;

/// Bytes `first..=last` of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, at least `first`.
    pub last: u64,
}

#[expect(clippy::len_without_is_empty, reason = "a span has at least one byte")]
impl Span {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }

    /// The Content-Range of a 206 for this span of `length` bytes.
    pub fn content_range(&self, length: u64) -> HeaderValue {
        let mut text = Vec::with_capacity(6 + 3 * 20 + 2);
        self.write_content_range(&mut text, length);
        value(&text)
    }

    fn write_content_range(&self, out: &mut Vec<u8>, length: u64) {
        out.extend_from_slice(b"bytes ");
        push_number(out, self.first);
        out.push(b'-');
        push_number(out, self.last);
        out.push(b'/');
        push_number(out, length);
    }
}

/// The Content-Range of a 416 for a representation of `length` bytes.
pub fn unsatisfied(length: u64) -> HeaderValue {
    let mut text = Vec::with_capacity(8 + 20);
    text.extend_from_slice(b"bytes */");
    push_number(&mut text, length);
    value(&text)
}

/// The representation's length that a Content-Range field tells, if it does (§14.4).
pub fn complete_length(content_range: &[u8]) -> Option<u64> {
    let (_, length) = std::str::from_utf8(content_range).ok()?.split_once('/')?;
    length.parse().ok()
}

/// What a Range field asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Answer 200 as if there were no Range field: another unit, a syntax error, too many ranges.
    Ignore,
    /// Answer 416.
    Unsatisfiable,
    /// Answer 206 with one range.
    Single(Span),
    /// Answer 206 with multipart/byteranges: at least two ranges, which neither overlap nor touch.
    Several(Vec<Span>),
}

/// Parses a Range value for a representation of `length` bytes.
///
/// Ranges that overlap or almost touch are joined, in ascending order; otherwise they stay in the
/// order asked for.
pub fn parse(range: &[u8], length: u64) -> Ranges {
    let Some(set) = strip_unit(range) else { return Ranges::Ignore };
    let mut spans = Vec::new();
    let mut count = 0;
    for spec in crate::syntax::split(set, b',') {
        count += 1;
        match parse_spec(spec, length) {
            _ if count > RANGES_MAX => return Ranges::Ignore,
            Spec::Invalid => return Ranges::Ignore,
            Spec::Unsatisfiable => {}
            Spec::Satisfiable(span) => spans.push(span),
        }
    }
    coalesce(&mut spans);
    match (spans.as_slice(), count) {
        (_, 0) => Ranges::Ignore,
        ([], _) => Ranges::Unsatisfiable,
        ([span], _) => Ranges::Single(*span),
        _ => Ranges::Several(spans),
    }
}

fn strip_unit(range: &[u8]) -> Option<&[u8]> {
    let (unit, set) = range.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

enum Spec {
    Invalid,
    Unsatisfiable,
    Satisfiable(Span),
}

/// One `first-`, `first-last` or `-suffix` (§14.1.2). Numbers too large for 64 bits saturate,
/// which makes them lie beyond any representation.
fn parse_spec(spec: &[u8], length: u64) -> Spec {
    let Some(dash) = spec.iter().position(|&byte| byte == b'-') else { return Spec::Invalid };
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let digits = crate::syntax::digits;
    let (first, last) = match (digits(first), digits(last)) {
        (Some(first), Some(last)) if first <= last => (first, last),
        (Some(first), None) if last.is_empty() => (first, u64::MAX),
        (None, Some(suffix)) if first.is_empty() => {
            if suffix == 0 || length == 0 {
                return Spec::Unsatisfiable;
            }
            (length.saturating_sub(suffix), u64::MAX)
        }
        _ => return Spec::Invalid,
    };
    if first >= length {
        return Spec::Unsatisfiable;
    }
    Spec::Satisfiable(Span { first, last: last.min(length - 1) })
}

/// Joins spans if any two overlap or nearly touch; otherwise leaves them as they are.
fn coalesce(spans: &mut Vec<Span>) {
    let near = |a: &Span, b: &Span| b.first <= a.last.saturating_add(GAP_MAX);
    let mut sorted = spans.clone();
    sorted.sort_unstable();
    if !sorted.windows(2).any(|pair| near(&pair[0], &pair[1])) {
        return;
    }
    spans.clear();
    for span in sorted {
        match spans.last_mut() {
            Some(previous) if near(previous, &span) => previous.last = previous.last.max(span.last),
            _ => spans.push(span),
        }
    }
}

/// The parts of a multipart/byteranges response (RFC 9110 §14.6) around the bytes themselves.
#[derive(Clone, Debug)]
pub struct Multipart {
    boundary: [u8; 20],
    heads: Vec<Bytes>,
    tail: Bytes,
    content_length: u64,
}

impl Multipart {
    /// Frames `spans` of a representation of `length` bytes. `random` makes the boundary, which
    /// must not occur in the content: 64 random bits are enough.
    pub fn new(
        spans: &[Span],
        length: u64,
        content_type: Option<&HeaderValue>,
        random: u64,
    ) -> Multipart {
        let mut boundary = *b"weir0000000000000000";
        for (index, digit) in boundary[4..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(random >> (60 - 4 * index)) as usize & 15];
        }
        let heads: Vec<_> = (0..spans.len())
            .map(|index| part_head(&boundary, index, &spans[index], length, content_type))
            .collect();
        let tail = Bytes::from([b"\r\n--", &boundary[..], b"--\r\n"].concat());
        let content: u64 = spans.iter().map(Span::len).sum();
        let framing = heads.iter().map(Bytes::len).sum::<usize>() + tail.len();
        Multipart { boundary, heads, tail, content_length: content + framing as u64 }
    }

    /// The response's Content-Type.
    pub fn content_type(&self) -> HeaderValue {
        value(&[b"multipart/byteranges; boundary=", &self.boundary[..]].concat())
    }

    /// The response's Content-Length: parts, heads and tail.
    pub fn content_length(&self) -> u64 {
        self.content_length
    }

    /// What goes before the content of each span, in the spans' order.
    pub fn heads(&self) -> &[Bytes] {
        &self.heads
    }

    /// What goes after the content of the last span.
    pub fn tail(&self) -> &Bytes {
        &self.tail
    }
}

fn part_head(
    boundary: &[u8],
    index: usize,
    span: &Span,
    length: u64,
    content_type: Option<&HeaderValue>,
) -> Bytes {
    let mut head = Vec::with_capacity(160);
    // The line break before a delimiter belongs to it; the first delimiter starts the content.
    head.extend_from_slice(if index == 0 { b"--" } else { b"\r\n--" });
    head.extend_from_slice(boundary);
    if let Some(content_type) = content_type {
        head.extend_from_slice(b"\r\nContent-Type: ");
        head.extend_from_slice(content_type.as_bytes());
    }
    head.extend_from_slice(b"\r\nContent-Range: ");
    span.write_content_range(&mut head, length);
    head.extend_from_slice(b"\r\n\r\n");
    Bytes::from(head)
}

/// A value made of visible ASCII, which is always valid.
fn value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
#[path = "range_tests.rs"]
mod tests;
