//! Tests of [`super`]: the table of range sets, limits, and multipart framing byte by byte.

use super::*;
use proptest::prelude::*;

fn span(first: u64, last: u64) -> Span {
    Span { first, last }
}

#[test]
fn single_ranges() {
    let check = |range: &str, length: u64, expect: Ranges| {
        assert_eq!(parse(range.as_bytes(), length), expect, "{range} of {length}");
    };
    use Ranges::{Ignore, Single, Unsatisfiable};
    check("bytes=0-0", 10, Single(span(0, 0)));
    check("bytes=0-", 10, Single(span(0, 9)));
    check("bytes=9-", 10, Single(span(9, 9)));
    check("bytes=2-100", 10, Single(span(2, 9)));
    check("bytes=-3", 10, Single(span(7, 9)));
    check("bytes=-30", 10, Single(span(0, 9)));
    check("BYTES=0-1", 10, Single(span(0, 1)));
    check("bytes= 0-1 ", 10, Single(span(0, 1)));
    check("bytes=0-1,", 10, Single(span(0, 1)));
    check("bytes=20-,1-2", 10, Single(span(1, 2)));
    check("bytes=0-99999999999999999999999", 10, Single(span(0, 9)));
    check("bytes=10-", 10, Unsatisfiable);
    check("bytes=-0", 10, Unsatisfiable);
    check("bytes=99999999999999999999999-", 10, Unsatisfiable);
    check("bytes=0-", 0, Unsatisfiable);
    check("bytes=-1", 0, Unsatisfiable);
    check("bytes=0-", u64::MAX, Single(span(0, u64::MAX - 1)));
    for invalid in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=a-b",
        "bytes=5-2",
        "bytes=1",
        "bytes=-",
        "bytes=--1",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=0 -1",
        "bytes=0-1,x",
        "items=0-1",
        "bytes 0-1",
        "bytes=0x0-1",
    ] {
        check(invalid, 10, Ignore);
    }
}

#[test]
fn several_ranges_keep_their_order_unless_joined() {
    let check = |range: &str, expect: &[(u64, u64)]| {
        let expect: Vec<_> = expect.iter().map(|&(first, last)| span(first, last)).collect();
        assert_eq!(parse(range.as_bytes(), 10_000), Ranges::Several(expect), "{range}");
    };
    check("bytes=0-9,5000-5009", &[(0, 9), (5000, 5009)]);
    check("bytes=5000-5009,0-9", &[(5000, 5009), (0, 9)]);
    check("bytes=5000-5009,0-9,5-20", &[(0, 20), (5000, 5009)]);
    check("bytes=0-500,100-200,5000-5009", &[(0, 500), (5000, 5009)]);
    check("bytes=0-9,60-70,-10", &[(0, 70), (9990, 9999)]);
    let joined = parse(b"bytes=0-,0-,0-,0-", 10_000);
    assert_eq!(joined, Ranges::Single(span(0, 9999)));
}

#[test]
fn too_many_ranges_are_ignored() {
    let range = |count: u64| {
        let specs: Vec<_> = (0..count).map(|n| format!("{0}-{0}", n * 1000)).collect();
        format!("bytes={}", specs.join(","))
    };
    let accepted = parse(range(16).as_bytes(), 100_000);
    assert!(matches!(accepted, Ranges::Several(spans) if spans.len() == RANGES_MAX));
    assert_eq!(parse(range(17).as_bytes(), 100_000), Ranges::Ignore);
}

#[test]
fn content_range_values() {
    assert_eq!(span(0, 9).content_range(100), "bytes 0-9/100");
    assert_eq!(unsatisfied(100), "bytes */100");
    let max = u64::MAX;
    assert_eq!(span(max, max).content_range(max), format!("bytes {max}-{max}/{max}"));
}

#[test]
fn content_range_tells_the_length() {
    assert_eq!(complete_length(b"bytes 0-9/100"), Some(100));
    assert_eq!(complete_length(b"bytes */0"), Some(0));
    for untold in [&b"bytes 0-9/*"[..], b"bytes 0-9", b"bytes 0-9/-1", b"bytes 0-9/1x", b"\xff/1"] {
        assert_eq!(complete_length(untold), None);
    }
}

#[test]
fn multipart_framing() {
    let content = b"0123456789";
    let spans = [span(0, 1), span(5, 9)];
    let content_type = HeaderValue::from_static("text/plain");
    let parts = Multipart::new(&spans, 10, Some(&content_type), 0xabc);
    let mut body = Vec::new();
    for (head, span) in parts.heads().iter().zip(spans) {
        body.extend_from_slice(head);
        body.extend_from_slice(&content[span.first as usize..=span.last as usize]);
    }
    body.extend_from_slice(parts.tail());
    let expect = "--weir0000000000000abc\r\nContent-Type: text/plain\r\n\
        Content-Range: bytes 0-1/10\r\n\r\n01\
        \r\n--weir0000000000000abc\r\nContent-Type: text/plain\r\n\
        Content-Range: bytes 5-9/10\r\n\r\n56789\
        \r\n--weir0000000000000abc--\r\n";
    assert_eq!(String::from_utf8(body).unwrap(), expect);
    assert_eq!(parts.content_length(), expect.len() as u64);
    assert_eq!(parts.content_type(), "multipart/byteranges; boundary=weir0000000000000abc");
}

proptest! {
    #[test]
    fn never_panics(range in proptest::collection::vec(any::<u8>(), 0..64), length: u64) {
        let _ = parse(&range, length);
    }

    #[test]
    fn spans_lie_inside_and_apart(
        specs in proptest::collection::vec("[0-9]{0,4}-[0-9]{0,4}", 0..20),
        length in 0..5000u64,
    ) {
        let range = format!("bytes={}", specs.join(","));
        let spans = match parse(range.as_bytes(), length) {
            Ranges::Single(span) => vec![span],
            Ranges::Several(spans) => {
                prop_assert!(spans.len() > 1 && spans.len() <= RANGES_MAX);
                spans
            }
            _ => return Ok(()),
        };
        let mut sorted = spans.clone();
        sorted.sort();
        for span in &sorted {
            prop_assert!(span.first <= span.last && span.last < length);
        }
        for pair in sorted.windows(2) {
            prop_assert!(pair[0].last + GAP_MAX < pair[1].first);
        }
        prop_assert!(spans.iter().map(Span::len).sum::<u64>() <= length);
    }
}
