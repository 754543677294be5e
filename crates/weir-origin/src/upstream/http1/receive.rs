//! A response as it comes in: the head, and where its body ends (RFC 9112, section 6.3).

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body::Frame;

use super::super::limits::{CHUNK_LINE_SIZE_MAX, FIELDS_MAX, HEAD_SIZE_MAX, READ_SIZE_MAX};
use super::{Expected, Failure};
use crate::error::ErrorKind;

/// A response's head.
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) body: Body,
    /// The connection stays open behind the response.
    pub(super) reusable: bool,
}

/// What is still to come of a body.
pub(super) enum Body {
    Done,
    /// So many bytes.
    Length(u64),
    UntilClose,
    Chunked(Chunked),
}

/// Where in the chunked coding (RFC 9112, section 7.1) the next byte is.
pub(super) enum Chunked {
    Size,
    /// So many bytes of data.
    Data(u64),
    /// The end of line behind data.
    DataEnd,
    Trailers,
}

/// What the bytes received so far yield.
pub(super) enum Piece {
    Frame(Frame<Bytes>),
    End,
    /// Nothing yet: as many bytes more may be of use.
    Wanted(usize),
}

fn garbage(cause: impl Into<crate::error::BoxError>) -> Failure {
    Failure::new(ErrorKind::Garbage, cause)
}

/// Takes a head off the bytes received; `None` if it is not complete.
pub(super) fn head(received: &mut BytesMut, expected: Expected) -> Result<Option<Head>, Failure> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let status = parser.parse_response_with_uninit_headers(&mut parsed, received, &mut fields);
    let httparse::Status::Complete(length) = status.map_err(garbage)? else { return Ok(None) };
    if length > HEAD_SIZE_MAX {
        return Err(garbage(format!("a response head above {HEAD_SIZE_MAX} bytes")));
    }
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let status = StatusCode::from_u16(parsed.code.unwrap_or_default()).map_err(garbage)?;
    // Where names and values lie: the values share the memory that they are in.
    let start = received.as_ptr() as usize;
    let place = |bytes: &[u8]| {
        let at = bytes.as_ptr() as usize - start;
        at..at + bytes.len()
    };
    let places: Vec<_> = parsed
        .headers
        .iter()
        .map(|field| (place(field.name.as_bytes()), place(field.value)))
        .collect();
    let bytes = received.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(places.len() + FIELDS_ADDED);
    for (name, value) in places {
        let name = HeaderName::from_bytes(&bytes[name]);
        let value = HeaderValue::from_maybe_shared(bytes.slice(value));
        headers.append(name.map_err(garbage)?, value.map_err(garbage)?);
    }
    let body = body(status, version, &mut headers, expected)?;
    let reusable = !matches!(body, Body::UntilClose) && stays_open(version, &headers);
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = headers;
    Ok(Some(Head { response, body, reusable }))
}

/// Room for what the caller adds, without which the table would grow.
const FIELDS_ADDED: usize = 4;

/// Where the body ends. Leaves one statement of its length, and refuses what cannot be passed on
/// truthfully.
fn body(
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
    expected: Expected,
) -> Result<Body, Failure> {
    if status == StatusCode::SWITCHING_PROTOCOLS && !expected.upgrade {
        return Err(garbage("101 Switching Protocols without having been asked"));
    }
    let no_body = expected.is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if headers.contains_key(header::TRANSFER_ENCODING) {
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
    match content_length(headers)? {
        None => Ok(Body::UntilClose),
        Some(0) => Ok(Body::Done),
        Some(length) => Ok(Body::Length(length)),
    }
}

/// The one length that all fields agree on (RFC 9112, section 6.3, item 5).
fn content_length(headers: &mut HeaderMap) -> Result<Option<u64>, Failure> {
    let invalid = || garbage("an invalid Content-Length");
    let mut length = None;
    let mut statements = 0;
    for line in headers.get_all(header::CONTENT_LENGTH) {
        for statement in line.as_bytes().split(|byte| *byte == b',') {
            let digits = std::str::from_utf8(statement.trim_ascii()).map_err(|_| invalid())?;
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(invalid());
            }
            let value: u64 = digits.parse().map_err(|_| invalid())?;
            if length.is_some_and(|length| length != value) {
                return Err(garbage("Content-Length fields that differ"));
            }
            length = Some(value);
            statements += 1;
        }
    }
    if statements > 1
        && let Some(length) = length
    {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(length)
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

impl Body {
    /// The length of what is still to come, if it is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Body::Done => Some(0),
            Body::Length(left) => Some(*left),
            Body::UntilClose | Body::Chunked(_) => None,
        }
    }

    /// Takes the next piece off the bytes received.
    pub(super) fn take(&mut self, received: &mut BytesMut) -> Result<Piece, Failure> {
        match self {
            Body::Done => Ok(Piece::End),
            Body::Length(left) => match take_data(received, left) {
                Some(data) => {
                    if *left == 0 {
                        *self = Body::Done;
                    }
                    Ok(Piece::Frame(Frame::data(data)))
                }
                None => Ok(Piece::Wanted(usize::try_from(*left).unwrap_or(usize::MAX))),
            },
            Body::UntilClose if received.is_empty() => Ok(Piece::Wanted(READ_SIZE_MAX)),
            Body::UntilClose => Ok(Piece::Frame(Frame::data(std::mem::take(received).freeze()))),
            Body::Chunked(state) => {
                let piece = take_chunked(state, received)?;
                let is_end = match &piece {
                    Piece::Frame(frame) => frame.is_trailers(),
                    Piece::End => true,
                    Piece::Wanted(_) => false,
                };
                if is_end {
                    *self = Body::Done;
                }
                Ok(piece)
            }
        }
    }
}

/// As much of `left` bytes as there is.
fn take_data(received: &mut BytesMut, left: &mut u64) -> Option<Bytes> {
    if received.is_empty() {
        return None;
    }
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
    *left -= count as u64;
    if count == received.len() {
        // Whoever takes the piece takes the memory with it.
        return Some(std::mem::take(received).freeze());
    }
    Some(received.split_to(count).freeze())
}

fn take_chunked(state: &mut Chunked, received: &mut BytesMut) -> Result<Piece, Failure> {
    /// Bytes asked for where a line is expected: what follows it comes along.
    const LINE: usize = 8 << 10;
    loop {
        match state {
            Chunked::Size => {
                // No digit at all would be taken for 0, which ends the body.
                if received.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
                    return Err(garbage("a chunk without a size"));
                }
                let parsed = httparse::parse_chunk_size(received);
                match parsed.map_err(|_| garbage("an invalid chunk size"))? {
                    httparse::Status::Complete((length, size)) => {
                        received.advance(length);
                        *state = if size == 0 { Chunked::Trailers } else { Chunked::Data(size) };
                    }
                    httparse::Status::Partial if received.len() > CHUNK_LINE_SIZE_MAX => {
                        return Err(garbage("a chunk's line is too long"));
                    }
                    httparse::Status::Partial => return Ok(Piece::Wanted(LINE)),
                }
            }
            Chunked::Data(left) => {
                let data = take_data(received, left);
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX - LINE);
                if *left == 0 {
                    *state = Chunked::DataEnd;
                }
                return Ok(match data {
                    Some(data) => Piece::Frame(Frame::data(data)),
                    // The next size comes along.
                    None => Piece::Wanted(wanted.saturating_add(LINE_MIN)),
                });
            }
            Chunked::DataEnd => match &received[..] {
                [] | [b'\r'] => return Ok(Piece::Wanted(LINE)),
                [b'\r', b'\n', ..] => {
                    received.advance(2);
                    *state = Chunked::Size;
                }
                _ => return Err(garbage("no end of line behind a chunk")),
            },
            Chunked::Trailers => {
                return match take_trailers(received)? {
                    None => Ok(Piece::Wanted(LINE)),
                    Some(trailers) if trailers.is_empty() => Ok(Piece::End),
                    Some(trailers) => Ok(Piece::Frame(Frame::trailers(trailers))),
                };
            }
        }
    }
}

/// The end of a chunk, a size and the end of the body fit.
const LINE_MIN: usize = 32;

fn take_trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let parsed = httparse::parse_headers(received, &mut fields).map_err(garbage)?;
    let httparse::Status::Complete((length, fields)) = parsed else {
        if received.len() >= HEAD_SIZE_MAX {
            return Err(garbage(format!("trailers above {HEAD_SIZE_MAX} bytes")));
        }
        return Ok(None);
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(garbage)?;
        trailers.append(name, HeaderValue::from_bytes(field.value).map_err(garbage)?);
    }
    received.advance(length);
    Ok(Some(trailers))
}
