//! Plain requests: a GET whose answer nothing but its host and target decides. Most requests for
//! stored documents are, and a server that has the document need not build a table of their fields
//! to answer them.
//!
//! What is not recognised here is not wrong. It is left to the full parser, which also words the
//! refusals; so every doubt is resolved by saying no.

use std::mem::MaybeUninit;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use httparse::{Header, ParserConfig, Request, Status};

use crate::host::{self, Host};

/// Most fields that a plain request has. Browsers send about twenty.
const FIELDS_MAX: usize = 32;

/// Longest target of a plain request, in bytes.
const TARGET_LEN_MAX: usize = 1024;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A request's head, borrowed from the bytes it arrived in.
#[derive(Debug)]
pub struct PlainGet<'a> {
    /// Bytes of the head. What follows is the next request.
    pub len: usize,
    /// Path and query.
    pub target: &'a str,
    /// The host that was asked.
    pub host: Host<'a>,
    /// The same as the client wrote it.
    pub authority: &'a [u8],
    /// `Connection: close`: the response is the connection's last.
    pub closes: bool,
    /// For the access log.
    pub referer: Option<&'a [u8]>,
    /// For the access log.
    pub user_agent: Option<&'a [u8]>,
    /// Forwarded and X-Forwarded-For, which may tell who the client is.
    pub forwarding: HeaderMap,
}

/// Recognises a plain request of HTTP/1.1 at the beginning of `bytes`, if its head is there whole,
/// no longer than `size_max` bytes and with no more than `fields_max` fields.
pub fn parse(bytes: &[u8], size_max: usize, fields_max: usize) -> Option<PlainGet<'_>> {
    if !bytes.starts_with(b"GET /") {
        return None;
    }
    let mut fields = [MaybeUninit::<Header<'_>>::uninit(); FIELDS_MAX];
    let mut request = Request::new(&mut []);
    let parsed =
        ParserConfig::default().parse_request_with_uninit_headers(&mut request, bytes, &mut fields);
    let Ok(Status::Complete(len)) = parsed else { return None };
    if len > size_max || request.headers.len() > fields_max || request.version != Some(1) {
        return None;
    }
    let target = request.path.filter(|target| is_plain_target(target.as_bytes()))?;
    let mut noted = Noted::default();
    for field in &*request.headers {
        noted.take(field)?;
    }
    let authority = noted.host?;
    let host = host::parse(authority).ok()?;
    let Noted { closes, referer, user_agent, forwarding, .. } = noted;
    Some(PlainGet { len, target, host, authority, closes, referer, user_agent, forwarding })
}

/// What the fields of a plain request say.
#[derive(Default)]
struct Noted<'a> {
    host: Option<&'a [u8]>,
    closes: bool,
    referer: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    forwarding: HeaderMap,
}

impl<'a> Noted<'a> {
    /// Takes note of a field. `None` if the request is not plain with it.
    fn take(&mut self, field: &Header<'a>) -> Option<()> {
        let (name, value) = (field.name, field.value);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.as_bytes().first()?.to_ascii_lowercase() {
            b'h' if is("host") && self.host.is_none() => self.host = Some(value),
            b'u' if is("user-agent") => self.user_agent = Some(value),
            b'u' if is("upgrade-insecure-requests") => {}
            b'r' if is("referer") => self.referer = Some(value),
            b'c' if is("cookie") => {}
            b'p' if is("priority") => {}
            b'c' if is("connection") => self.closes = closes(value)?,
            b'f' if is("forwarded") => self.forward(FORWARDED, value)?,
            b'x' if is("x-forwarded-for") => self.forward(X_FORWARDED_FOR, value)?,
            // Conditions, ranges, directives, expectations, framing and what imitates it.
            b'c' | b'e' | b'h' | b'i' | b'p' | b'r' | b't' | b'u' => return None,
            b'a'..=b'z' => {}
            _ => return None,
        }
        Some(())
    }

    fn forward(&mut self, name: HeaderName, value: &[u8]) -> Option<()> {
        self.forwarding.append(name, HeaderValue::from_bytes(value).ok()?);
        Some(())
    }
}

/// The two options that every client sends; others may name fields.
fn closes(connection: &[u8]) -> Option<bool> {
    let close = connection.eq_ignore_ascii_case(b"close");
    (close || connection.eq_ignore_ascii_case(b"keep-alive")).then_some(close)
}

/// Origin form (RFC 9112 §3.2.1) of the characters that RFC 3986 allows in a path and a query.
fn is_plain_target(target: &[u8]) -> bool {
    let plain = |byte: &u8| IS_PLAIN[usize::from(*byte)];
    target.len() <= TARGET_LEN_MAX && target.iter().all(plain)
}

static IS_PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%' | b'/' | b'?' | b':' | b'@')
            || matches!(b, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',')
            || matches!(b, b';' | b'=');
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expected: Option<(&str, &str, bool)>) {
        let found = parse(head.as_bytes(), 8192, 100);
        let seen = found.as_ref().map(|plain| {
            assert_eq!(plain.len, head.find("\r\n\r\n").unwrap() + 4, "{head:?}");
            (plain.target, &*plain.host.name, plain.closes)
        });
        assert_eq!(seen, expected, "{head:?}");
    }

    #[test]
    fn what_browsers_and_tools_send_is_plain() {
        check("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Some(("/", "a.example", false)));
        check(
            "GET /x?y=%20 HTTP/1.1\r\nHost: A.example:8080\r\nConnection: close\r\n\r\nGET",
            Some(("/x?y=%20", "a.example", true)),
        );
        check(
            "GET /i.png HTTP/1.1\r\nhost: a\r\nConnection: keep-alive\r\nUser-Agent: m\r\n\
             Accept: */*\r\nAccept-Encoding: gzip, br\r\nAccept-Language: en\r\nReferer: /\r\n\
             Cookie: a=b\r\nSec-Fetch-Mode: navigate\r\nUpgrade-Insecure-Requests: 1\r\n\
             Priority: u=0\r\nDNT: 1\r\n\r\n",
            Some(("/i.png", "a", false)),
        );
    }

    #[test]
    fn whatever_else_decides_is_not_plain() {
        for field in [
            "Host: b",
            "Range: bytes=0-1",
            "If-None-Match: *",
            "If-Modified-Since: x",
            "Cache-Control: no-cache",
            "Pragma: no-cache",
            "Expect: 100-continue",
            "Upgrade: websocket",
            "Connection: upgrade",
            "Connection: close, x",
            "Content-Length: 0",
            "Content_Length: 0",
            "Transfer-Encoding: chunked",
            "TE: trailers",
            "Trailer: x",
            "HTTP2-Settings: x",
            "_host: x",
        ] {
            check(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"), None);
        }
        for line in [
            "HEAD / HTTP/1.1",
            "GET / HTTP/1.0",
            "GET / HTTP/2.0",
            "GET http://a/ HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /\"a HTTP/1.1",
            "GET /ä HTTP/1.1",
            "get / HTTP/1.1",
        ] {
            check(&format!("{line}\r\nHost: a\r\n\r\n"), None);
        }
        check("GET / HTTP/1.1\r\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost: \r\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost:\r\nHost: b\r\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost: a\r\n x\r\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost : a\r\n\r\n", None);
    }

    #[test]
    fn a_head_that_is_not_whole_or_too_large_is_not_plain() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
        for len in 0..head.len() {
            assert!(parse(&head[..len], 8192, 100).is_none(), "{len} bytes");
        }
        assert!(parse(head, head.len(), 2).is_some());
        assert!(parse(head, head.len() - 1, 2).is_none());
        assert!(parse(head, head.len(), 1).is_none());
    }
}
