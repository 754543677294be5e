//! Heads as a service sends them: its own, and those of the HTTP messages that follow (RFC 3507
//! §4.4).

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::error::IcapError;

/// Longest head of a service's own.
pub(crate) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Longest heads of HTTP messages that follow one.
const HTTP_HEADS_BYTES_MAX: usize = 128 << 10;
/// Fields of a head.
const FIELDS_MAX: usize = 256;

/// A service's answer, without what it encapsulates.
#[derive(Debug)]
pub(crate) struct IcapHead {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
}

/// What follows a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encapsulated {
    /// Where a request's head begins and ends.
    pub(crate) request: Option<(usize, usize)>,
    /// Likewise a response's.
    pub(crate) response: Option<(usize, usize)>,
    /// Bytes of all heads.
    pub(crate) heads_len: usize,
    /// Content follows them.
    pub(crate) has_content: bool,
}

/// Takes a service's own head from the beginning of `buffer`, if it is whole.
pub(crate) fn take_icap(buffer: &mut BytesMut) -> Result<Option<IcapHead>, IcapError> {
    let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return match buffer.len() <= HEAD_BYTES_MAX {
            true => Ok(None),
            false => Err(IcapError::Garbage("a head that is too long")),
        };
    };
    let head = buffer.split_to(end + 4);
    let line_end = head.windows(2).position(|window| window == b"\r\n").unwrap_or(end);
    let status = status(&head[..line_end])
        .ok_or(IcapError::Garbage("a status line that is none of ICAP/1.0"))?;
    let headers = fields(&head[line_end + 2..])?;
    Ok(Some(IcapHead { status, headers }))
}

/// `ICAP/1.0 204 No Content`.
fn status(line: &[u8]) -> Option<u16> {
    let mut words = std::str::from_utf8(line).ok()?.splitn(3, ' ');
    let status = words.next().filter(|version| *version == "ICAP/1.0").and(words.next())?;
    let is_status = status.len() == 3 && status.bytes().all(|digit| digit.is_ascii_digit());
    is_status.then(|| status.parse().ok())?
}

fn fields(text: &[u8]) -> Result<HeaderMap, IcapError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    match httparse::parse_headers(text, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => map(fields),
        _ => Err(IcapError::Garbage("a head whose fields cannot be read")),
    }
}

fn map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, IcapError> {
    let wrong = || IcapError::Garbage("a field that HTTP does not allow");
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| wrong())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| wrong())?;
        headers.append(name, value);
    }
    Ok(headers)
}

impl IcapHead {
    /// Whether the service takes nothing more on this connection (RFC 9112 §9.6).
    pub(crate) fn closes(&self) -> bool {
        let values = self.headers.get_all(CONNECTION).into_iter();
        let mut options = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    }

    /// What follows (§4.4.1). An answer that says nothing of it has nothing.
    pub(crate) fn encapsulated(&self) -> Result<Encapsulated, IcapError> {
        let wrong = IcapError::Garbage("an Encapsulated field that cannot be right");
        let Some(value) = self.headers.get("encapsulated") else {
            return Ok(Encapsulated::default());
        };
        value.to_str().ok().and_then(encapsulated).ok_or(wrong)
    }
}

fn encapsulated(value: &str) -> Option<Encapsulated> {
    let mut parts: Vec<(&str, usize)> = Vec::new();
    for part in value.split(',') {
        let (name, offset) = part.trim().split_once('=')?;
        parts.push((name.trim_end(), offset.trim_start().parse().ok()?));
    }
    let is_ordered = parts.first()?.1 == 0 && parts.is_sorted_by_key(|(_, offset)| *offset);
    let (last, heads) = parts.split_last().filter(|_| is_ordered)?;
    let (kind, heads_len) = *last;
    let mut encapsulated = Encapsulated { heads_len, ..Encapsulated::default() };
    encapsulated.has_content = match kind {
        "null-body" => false,
        "req-body" | "res-body" | "opt-body" => true,
        _ => return None,
    };
    for (index, (name, begin)) in heads.iter().enumerate() {
        let range = Some((*begin, parts.get(index + 1)?.1));
        match *name {
            "req-hdr" if encapsulated.request.is_none() => encapsulated.request = range,
            "res-hdr" if encapsulated.response.is_none() => encapsulated.response = range,
            _ => return None,
        }
    }
    (heads_len <= HTTP_HEADS_BYTES_MAX).then_some(encapsulated)
}

/// Reads the head of an HTTP request.
pub(crate) fn request(text: &Bytes) -> Result<http::request::Parts, IcapError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut read = httparse::Request::new(&mut fields);
    let wrong = || IcapError::Garbage("a request that HTTP does not allow");
    match read.parse(text) {
        Ok(httparse::Status::Complete(len)) if len == text.len() => {}
        _ => return Err(wrong()),
    }
    let method = read.method.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    let target = read.path.and_then(|path| Uri::try_from(path).ok());
    let (mut parts, ()) = http::Request::new(()).into_parts();
    (parts.method, parts.uri) = method.zip(target).ok_or_else(wrong)?;
    parts.headers = map(read.headers)?;
    Ok(parts)
}

/// Reads the head of an HTTP response.
pub(crate) fn response(text: &Bytes) -> Result<http::response::Parts, IcapError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut read = httparse::Response::new(&mut fields);
    let wrong = || IcapError::Garbage("a response that HTTP does not allow");
    match read.parse(text) {
        Ok(httparse::Status::Complete(len)) if len == text.len() => {}
        _ => return Err(wrong()),
    }
    let status = read.code.and_then(|code| StatusCode::from_u16(code).ok());
    let (mut parts, ()) = http::Response::new(()).into_parts();
    // One that is not final is no answer.
    parts.status = status.filter(|status| !status.is_informational()).ok_or_else(wrong)?;
    parts.headers = map(read.headers)?;
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_taken_when_they_are_whole() {
        let text = b"ICAP/1.0 204 No Content\r\nISTag: \"x\"\r\n\r\nrest";
        for len in 0..text.len() - 4 {
            assert!(take_icap(&mut text[..len].into()).unwrap().is_none(), "{len}");
        }
        let mut buffer = BytesMut::from(&text[..]);
        let head = take_icap(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (head.status, &head.headers["istag"]),
            (204, &HeaderValue::from_static("\"x\""))
        );
        assert_eq!(buffer, "rest");
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for text in [
            &b"HTTP/1.1 200 OK\r\n\r\n"[..],
            b"ICAP/1.0 20 OK\r\n\r\n",
            b"ICAP/1.0 +20 OK\r\n\r\n",
            b"ICAP/1.0 200 OK\r\nno field\r\n\r\n",
            &[b'x'; HEAD_BYTES_MAX + 1],
        ] {
            let shown = String::from_utf8_lossy(&text[..text.len().min(40)]);
            assert!(take_icap(&mut text.into()).is_err(), "{shown}");
        }
    }

    #[test]
    fn what_follows_is_understood() {
        let of = |request, response, heads_len, has_content| {
            Some(Encapsulated { request, response, heads_len, has_content })
        };
        for (value, expect) in [
            ("null-body=0", of(None, None, 0, false)),
            ("res-hdr=0, res-body=222", of(None, Some((0, 222)), 222, true)),
            ("req-hdr=0, null-body=170", of(Some((0, 170)), None, 170, false)),
            (
                "req-hdr=0, res-hdr=137,res-body = 296",
                of(Some((0, 137)), Some((137, 296)), 296, true),
            ),
            ("", None),
            ("res-hdr=0", None),
            ("res-hdr=1, res-body=2", None),
            ("res-hdr=0, res-body=-2", None),
            ("res-hdr=0, req-hdr=9, res-body=3", None),
            ("res-hdr=0, res-hdr=3, res-body=9", None),
            ("res-hdr=0, res-body=99999999", None),
            ("what=0, null-body=3", None),
        ] {
            assert_eq!(encapsulated(value), expect, "{value}");
        }
    }

    #[test]
    fn http_heads_are_whole_and_final() {
        let read = |text: &'static str| response(&Bytes::from_static(text.as_bytes()));
        assert_eq!(read("HTTP/1.1 403 No\r\nA: b\r\n\r\n").unwrap().status, 403);
        for text in [
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\n\r\nmore",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let read = |text: &'static str| request(&Bytes::from_static(text.as_bytes()));
        let parts = read("GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
        assert_eq!((parts.method, parts.uri.query()), (Method::GET, Some("y")));
        assert!(read("GET /x y HTTP/1.1\r\n\r\n").is_err());
    }
}
