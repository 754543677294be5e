//! The head of a response, and where its body ends (RFC 9112, section 6.3). Every byte is looked at
//! twice: by the search for the ends of lines, and by the type that takes it in, which refuses what
//! may not be in a name or value. That is half the work of a general parser and of then asking the
//! table for each of the fields that matter here.

use std::ops::Range;

use bytes::BytesMut;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, Version};
use memchr::memchr_iter;

use super::super::limits::{FIELDS_MAX, HEAD_SIZE_MAX};
use super::receive::{Body, Chunked, garbage};
use super::{Expected, Failure};

/// A response's head.
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) body: Body,
    /// The connection stays open behind the response.
    pub(super) reusable: bool,
}

/// Room for the fields of most responses and what is added to them.
const FIELDS_USUAL: usize = 12;

/// Takes a head off the bytes received; `None` if it is not complete. Its fields are put into
/// `table`, which is empty.
pub(super) fn head(
    received: &mut BytesMut,
    expected: Expected,
    table: impl FnOnce() -> HeaderMap,
) -> Result<Option<Head>, Failure> {
    let mut lines = Lines { places: [0; FIELDS_MAX + 1], count: 0 };
    let Some(Outline { version, status, length }) = outline(received, &mut lines)? else {
        return Ok(None);
    };
    if length > HEAD_SIZE_MAX {
        return Err(garbage(format!("a response head above {HEAD_SIZE_MAX} bytes")));
    }
    // The values share the memory that they are in.
    let bytes = received.split_to(length).freeze();
    let mut headers = table();
    if headers.capacity() == 0 {
        headers.reserve(FIELDS_USUAL);
    }
    let mut present = Present::default();
    for line in lines.fields(&bytes) {
        let text = &bytes[line.clone()];
        let colon = text.iter().position(|byte| *byte == b':');
        let colon = colon.ok_or_else(|| garbage("a field without a colon"))?;
        let name = name(&text[..colon])?;
        let value = bytes.slice(trim(&bytes, line.start + colon + 1..line.end));
        let value = HeaderValue::from_maybe_shared(value).map_err(garbage)?;
        present.note(&name, &value);
        headers.append(name, value);
    }
    let has_connection = present.connection;
    let body = body(status, version, &mut headers, present, expected)?;
    let stays_open = match has_connection {
        true => stays_open(version, &headers),
        false => version == Version::HTTP_11,
    };
    let reusable = !matches!(body, Body::UntilClose) && stays_open;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = headers;
    Ok(Some(Head { response, body, reusable }))
}

/// A complete head.
struct Outline {
    version: Version,
    status: StatusCode,
    length: usize,
}

/// Where the lines of a head are.
struct Lines {
    /// Where the first field begins, and behind it the line feed of each line.
    places: [u32; FIELDS_MAX + 1],
    count: usize,
}

impl Lines {
    /// The fields, without the ends of their lines, in the bytes of the head.
    fn fields<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        let places = self.places[..=self.count].windows(2).enumerate();
        places.map(|(index, place)| {
            let start = place[0] as usize + usize::from(index > 0);
            start..line_end(bytes, place[1] as usize)
        })
    }
}

/// Where the line ends whose line feed is at `feed`. A line feed alone ends a line too (RFC 9112,
/// section 2.2).
fn line_end(bytes: &[u8], feed: usize) -> usize {
    feed - usize::from(feed > 0 && bytes[feed - 1] == b'\r')
}

/// Finds the lines of a head; `None` if it is not complete. What is no response is found to be none
/// at its first bytes, for it may have no end.
fn outline(received: &[u8], lines: &mut Lines) -> Result<Option<Outline>, Failure> {
    let mut status = None;
    let mut start = 0;
    for feed in memchr_iter(b'\n', received) {
        let line = start..line_end(received, feed);
        start = feed + 1;
        match status {
            // Some servers end their bodies with a line too many.
            None if line.is_empty() => {}
            None => {
                let found = status_line(&received[line]);
                status = Some(found.ok_or_else(|| garbage("an invalid status line"))?);
                lines.places[0] = start as u32;
            }
            Some((version, status)) if line.is_empty() => {
                return Ok(Some(Outline { version, status, length: start }));
            }
            Some(_) if lines.count == FIELDS_MAX => {
                return Err(garbage(format!("a response head of more than {FIELDS_MAX} fields")));
            }
            Some(_) => {
                lines.count += 1;
                lines.places[lines.count] = feed as u32;
            }
        }
    }
    let rest = &received[start..];
    let may_be_status = || rest.iter().zip(b"HTTP/1.").all(|(byte, expect)| byte == expect);
    match status.is_some() || rest == b"\r" || may_be_status() {
        true => Ok(None),
        false => Err(garbage("no response of HTTP/1")),
    }
}

fn status_line(line: &[u8]) -> Option<(Version, StatusCode)> {
    let (minor, code, reason) = match line.strip_prefix(b"HTTP/1.")? {
        [minor, b' ', a, b, c] => (minor, [*a, *b, *c], &[][..]),
        [minor, b' ', a, b, c, b' ', reason @ ..] => (minor, [*a, *b, *c], reason),
        _ => return None,
    };
    let version = match minor {
        b'0' => Version::HTTP_10,
        b'1' => Version::HTTP_11,
        _ => return None,
    };
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    let status = StatusCode::from_bytes(&code).ok()?;
    reason.iter().all(is_text).then_some((version, status))
}

/// A field's name. Those of most responses, as most write them, are found for a quarter of what the
/// general way costs.
fn name(text: &[u8]) -> Result<HeaderName, Failure> {
    Ok(match text {
        b"Age" | b"age" => header::AGE,
        b"Via" | b"via" => header::VIA,
        b"Date" | b"date" => header::DATE,
        b"ETag" | b"etag" => header::ETAG,
        b"Vary" | b"vary" => header::VARY,
        b"Server" | b"server" => header::SERVER,
        b"Expires" | b"expires" => header::EXPIRES,
        b"Location" | b"location" => header::LOCATION,
        b"Connection" | b"connection" => header::CONNECTION,
        b"Set-Cookie" | b"set-cookie" => header::SET_COOKIE,
        b"Content-Type" | b"content-type" => header::CONTENT_TYPE,
        b"Accept-Ranges" | b"accept-ranges" => header::ACCEPT_RANGES,
        b"Cache-Control" | b"cache-control" => header::CACHE_CONTROL,
        b"Last-Modified" | b"last-modified" => header::LAST_MODIFIED,
        b"Content-Length" | b"content-length" => header::CONTENT_LENGTH,
        b"Content-Encoding" | b"content-encoding" => header::CONTENT_ENCODING,
        b"Transfer-Encoding" | b"transfer-encoding" => header::TRANSFER_ENCODING,
        _ => return HeaderName::from_bytes(text).map_err(garbage),
    })
}

/// `range` of `bytes` without white space at its ends.
fn trim(bytes: &[u8], mut range: Range<usize>) -> Range<usize> {
    let is_space = |at: usize| matches!(bytes[at], b' ' | b'\t');
    while !range.is_empty() && is_space(range.start) {
        range.start += 1;
    }
    while !range.is_empty() && is_space(range.end - 1) {
        range.end -= 1;
    }
    range
}

/// What the fields say of how the response goes on.
#[derive(Default)]
struct Present {
    connection: bool,
    transfer_encoding: bool,
    length: Length,
}

impl Present {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.connection |= *name == header::CONNECTION;
        self.transfer_encoding |= *name == header::TRANSFER_ENCODING;
        if *name == header::CONTENT_LENGTH {
            self.length.note(value.as_bytes());
        }
    }
}

/// What the Content-Length fields say (RFC 9112, section 6.3, item 5).
#[derive(Default)]
struct Length {
    value: Option<u64>,
    statements: usize,
    wrong: Option<&'static str>,
}

impl Length {
    fn note(&mut self, line: &[u8]) {
        for statement in line.split(|byte| *byte == b',') {
            self.statements += 1;
            match (decimal(statement.trim_ascii()), self.value) {
                (None, _) => self.wrong = Some("an invalid Content-Length"),
                (Some(new), Some(old)) if new != old => {
                    self.wrong = Some("Content-Length fields that differ");
                }
                (new, _) => self.value = new,
            }
        }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Where the body ends. Leaves one statement of its length, and refuses what cannot be passed on
/// truthfully.
fn body(
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
    present: Present,
    expected: Expected,
) -> Result<Body, Failure> {
    if status == StatusCode::SWITCHING_PROTOCOLS && !expected.upgrade {
        return Err(garbage("101 Switching Protocols without having been asked"));
    }
    let no_body = expected.is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if present.transfer_encoding {
        if version == Version::HTTP_10 {
            return Err(garbage("Transfer-Encoding in HTTP/1.0"));
        }
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let first = codings.next().map_or(&b""[..], HeaderValue::as_bytes);
        // We never ask for others, so the body would reach the client still encoded.
        if !no_body && (!first.eq_ignore_ascii_case(b"chunked") || codings.next().is_some()) {
            return Err(garbage("a transfer coding other than chunked"));
        }
        // Transfer-Encoding overrides Content-Length, which goes.
        headers.remove(header::CONTENT_LENGTH);
        return Ok(if no_body { Body::Done } else { Body::Chunked(Chunked::Size) });
    }
    if no_body {
        return Ok(Body::Done);
    }
    let Length { value, statements, wrong } = present.length;
    if let Some(wrong) = wrong {
        return Err(garbage(wrong));
    }
    if statements > 1
        && let Some(length) = value
    {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(match value {
        None => Body::UntilClose,
        Some(0) => Body::Done,
        Some(length) => Body::Length(length),
    })
}

/// RFC 9112, section 9.3.
fn stays_open(version: Version, headers: &HeaderMap) -> bool {
    let mut keep_alive = false;
    for line in headers.get_all(header::CONNECTION) {
        for option in line.as_bytes().split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep_alive || version == Version::HTTP_11
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
