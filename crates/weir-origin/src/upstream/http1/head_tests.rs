//! Tests of [`super`]: heads good and bad, against httparse.

use proptest::prelude::*;

use super::*;

const EXPECTED: Expected = Expected { is_head: true, upgrade: true };

/// Status and fields, as this parser and as httparse finds them; `None` if there is an error.
type Found = Option<(u16, Vec<(String, Vec<u8>)>)>;

fn ours(text: &[u8]) -> Found {
    let mut received = BytesMut::from(text);
    let head = head(&mut received, EXPECTED, HeaderMap::new).ok()??;
    let fields = head.response.headers().iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    Some((head.response.status().as_u16(), sorted(fields)))
}

fn theirs(text: &[u8]) -> Found {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(_) = response.parse(text).ok()? else { return None };
    let status = StatusCode::from_u16(response.code?).ok()?;
    let fields = response.headers.iter();
    let fields = fields.map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()));
    Some((status.as_u16(), sorted(fields)))
}

fn sorted(fields: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    fields
}

#[test]
fn heads_are_what_httparse_takes_them_for() {
    let heads: [&[u8]; 26] = [
        b"HTTP/1.1 200 OK\r\nDate: a\r\nETAG:b\r\nx-y: \t c d \t \r\n\r\n",
        b"HTTP/1.0 404\r\n\r\n",
        b"HTTP/1.1 200 \r\n\r\n",
        b"\r\n\n\r\nHTTP/1.1 200 OK\na: b\n\r\n",
        b"HTTP/1.1 200 OK\r\na:\r\nb: \t \r\n\r\n",
        b"HTTP/1.1 200 \xffhm\t\r\na: \xff\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n a: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\x7f\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\x0c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\r\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na\xff: b\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b" HTTP/1.1 200 OK\r\n\r\n",
    ];
    for text in heads {
        assert_eq!(ours(text), theirs(text), "{:?}", String::from_utf8_lossy(text));
    }
    assert!(heads[..6].iter().all(|text| ours(text).is_some()));
    assert!(heads[6..].iter().all(|text| ours(text).is_none()));
}

#[test]
fn usual_names_are_known_however_they_are_written() {
    for usual in [
        "Age",
        "VIA",
        "date",
        "ETag",
        "Vary",
        "Server",
        "Expires",
        "Location",
        "Connection",
        "Set-Cookie",
        "Content-Type",
        "Accept-Ranges",
        "Cache-Control",
        "Last-Modified",
        "Content-Length",
        "Content-Encoding",
        "Transfer-Encoding",
    ] {
        assert_eq!(name(usual.as_bytes()).unwrap().as_str(), usual.to_ascii_lowercase());
        let (other, _) = usual.split_at(usual.len() - 1);
        let other = format!("{other}0");
        assert_eq!(name(other.as_bytes()).unwrap().as_str(), other.to_ascii_lowercase());
    }
}

#[test]
fn what_is_no_response_is_known_at_once() {
    let check = |text: &[u8], expect: Option<bool>| {
        let mut lines = Lines { places: [0; FIELDS_MAX + 1], count: 0 };
        let complete = outline(text, &mut lines).ok().map(|outline| outline.is_some());
        assert_eq!(complete, expect, "{:?}", String::from_utf8_lossy(text));
    };
    for part in ["", "\r", "\r\n", "\r\nH", "HTTP/1.", "HTTP/1.1 2", "HTTP/1.1 200\r\na"] {
        check(part.as_bytes(), Some(false));
    }
    for other in ["SSH-", "HTTP/2", "\0\0\x06\x04", "\rx", "HTTP/1.1\r\n"] {
        check(other.as_bytes(), None);
    }
    check(b"HTTP/1.1 200\n\n", Some(true));
}

proptest! {
    #[test]
    fn any_head_is_what_httparse_takes_it_for(
        lines in prop::collection::vec("[aB1:, \t\r\x00\x7f\u{e9}-]{0,12}(\r\n|\n|\r)", 0..6),
        status in "HTTP/1.[012] {1,2}[0-9]{2,4}( [ -~]{0,5})?(\r\n|\n)",
    ) {
        let text = format!("{status}{}\r\n", lines.concat());
        prop_assert_eq!(ours(text.as_bytes()), theirs(text.as_bytes()), "{:?}", text);
    }
}
