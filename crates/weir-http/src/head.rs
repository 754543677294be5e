//! Heads of requests without content, read straight from the bytes they arrive in.
//!
//! What is not recognised here is not wrong. It is left to the full parser, which also words the
//! refusals; so every doubt is resolved by saying no.

use std::mem::MaybeUninit;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Version};
use httparse::{Header, ParserConfig, Status};

use crate::host::{self, Host};

/// Most fields that a head may have here. Browsers send about twenty.
const FIELDS_MAX: usize = 40;

/// Longest target, in bytes.
const TARGET_LEN_MAX: usize = 2048;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Room for the fields of a head.
pub struct Room<'a>([MaybeUninit<Header<'a>>; FIELDS_MAX]);

impl Room<'_> {
    /// Costs nothing.
    pub fn new() -> Self {
        Room([MaybeUninit::uninit(); FIELDS_MAX])
    }
}

impl Default for Room<'_> {
    fn default() -> Self {
        Room::new()
    }
}

/// The head of a GET or HEAD of HTTP/1.1 without content, expectations or wishes to upgrade.
#[derive(Debug)]
pub struct Head<'a, 'r> {
    /// Its bytes. What follows them is the next request.
    pub len: usize,
    /// HEAD.
    pub is_head: bool,
    /// `Connection: close`: the response is the connection's last.
    pub closes: bool,
    target: &'a str,
    fields: &'r [Header<'a>],
    noted: Noted<'a>,
}

impl Head<'_, '_> {
    /// How many field lines it has.
    pub fn field_count(&self) -> usize {
        self.fields.len()
    }
}

/// A GET whose answer nothing but its host and target decides. Most requests for stored documents
/// are such, and a server that has the document need not build a table of their fields.
#[derive(Debug)]
pub struct PlainGet<'a> {
    /// Path and query.
    pub target: &'a str,
    /// The host that was asked.
    pub host: Host<'a>,
    /// The same as the client wrote it.
    pub authority: &'a [u8],
    /// For the access log.
    pub referer: Option<&'a [u8]>,
    /// For the access log.
    pub user_agent: Option<&'a [u8]>,
    /// Forwarded and X-Forwarded-For, which may tell who the client is.
    pub forwarding: HeaderMap,
}

/// Recognises a request at the beginning of `bytes`, if its head is there whole, no longer than
/// `size_max` bytes and with no more than `fields_max` fields.
pub fn parse<'a, 'r>(
    bytes: &'a [u8],
    room: &'r mut Room<'a>,
    size_max: usize,
    fields_max: usize,
) -> Option<Head<'a, 'r>> {
    let is_head = bytes.starts_with(b"HEAD /");
    if !is_head && !bytes.starts_with(b"GET /") {
        return None;
    }
    let mut request = httparse::Request::new(&mut []);
    let parser = ParserConfig::default();
    let parsed = parser.parse_request_with_uninit_headers(&mut request, bytes, &mut room.0);
    let Ok(Status::Complete(len)) = parsed else { return None };
    if len > size_max || request.headers.len() > fields_max || request.version != Some(1) {
        return None;
    }
    let target = request.path.filter(|target| is_plain_target(target.as_bytes()))?;
    let fields: &[Header<'a>] = request.headers;
    let mut noted = Noted::default();
    for field in fields {
        noted.take(field)?;
    }
    Some(Head { len, is_head, closes: noted.closes, target, fields, noted })
}

impl<'a> Head<'a, '_> {
    /// The values of a field, whose name is in lower case.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let of_name = self.fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        of_name.map(|field| field.value)
    }

    /// All fields, with names as they were sent, and values.
    pub fn all(&self) -> impl Iterator<Item = (&[u8], &'a [u8])> {
        self.fields.iter().map(|field| (field.name.as_bytes(), field.value))
    }

    /// The plain request, if that is all it is.
    pub fn plain(&self) -> Option<PlainGet<'a>> {
        if self.is_head || self.noted.decides {
            return None;
        }
        let authority = self.noted.host?;
        let host = host::parse(authority).ok()?;
        let Noted { referer, user_agent, .. } = self.noted;
        let forwarding = match self.noted.forwards {
            true => self.forwarding(),
            false => HeaderMap::new(),
        };
        Some(PlainGet { target: self.target, host, authority, referer, user_agent, forwarding })
    }

    fn forwarding(&self) -> HeaderMap {
        let mut forwarding = HeaderMap::new();
        for field in self.fields {
            let is = |name: &HeaderName| field.name.eq_ignore_ascii_case(name.as_str());
            let name = [FORWARDED, X_FORWARDED_FOR].into_iter().find(is);
            if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) {
                forwarding.append(name, value);
            }
        }
        forwarding
    }

    /// The request with a table of its fields, which has room for some more: what is forwarded gets
    /// them, and the response's fields lie in the same table later. `None` if the `http` types do
    /// not take it.
    pub fn to_parts(&self) -> Option<Parts> {
        /// Enough that three fields, as simple clients send them, become six without growing.
        const FIELDS_ADDED: usize = 3;
        let mut parts = Request::new(()).into_parts().0;
        parts.method = if self.is_head { Method::HEAD } else { Method::GET };
        parts.version = Version::HTTP_11;
        parts.uri = self.target.parse().ok()?;
        parts.headers.reserve(self.fields.len() + FIELDS_ADDED);
        for field in self.fields {
            let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
            parts.headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
        }
        Some(parts)
    }
}

/// What the fields of a head say.
#[derive(Debug, Default)]
struct Noted<'a> {
    /// The first Host.
    host: Option<&'a [u8]>,
    closes: bool,
    referer: Option<&'a [u8]>,
    user_agent: Option<&'a [u8]>,
    /// There are fields that may tell who the client is.
    forwards: bool,
    /// There are fields that may change the answer, or a mistake that must be answered.
    decides: bool,
}

impl<'a> Noted<'a> {
    /// Takes note of a field. `None` if the full parser must judge the request.
    fn take(&mut self, field: &Header<'a>) -> Option<()> {
        let (name, value) = (field.name, field.value);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.as_bytes().first()?.to_ascii_lowercase() {
            b'h' if is("host") => self.decides |= self.host.replace(value).is_some(),
            b'u' if is("user-agent") => self.user_agent = Some(value),
            b'u' if is("upgrade-insecure-requests") => {}
            b'r' if is("referer") => self.referer = Some(value),
            b'c' if is("cookie") => {}
            b'p' if is("priority") => {}
            b'c' if is("connection") => self.closes |= closes(value)?,
            b'f' => self.forwards |= is("forwarded"),
            b'x' => self.forwards |= is("x-forwarded-for"),
            // Conditions, ranges, directives.
            b'i' | b'r' => self.decides = true,
            b'c' if is("cache-control") => self.decides = true,
            b'p' if is("pragma") => self.decides = true,
            // Expectations, framing and what imitates it.
            b'c' | b'e' | b'h' | b'p' | b't' | b'u' => return None,
            b'a'..=b'z' => {}
            _ => return None,
        }
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

    fn check(text: &str, expected: Option<(&str, &str, bool)>) {
        let mut room = Room::new();
        let head = parse(text.as_bytes(), &mut room, 8192, 100);
        let plain = head.as_ref().and_then(Head::plain);
        let seen = head.as_ref().zip(plain.as_ref()).map(|(head, plain)| {
            assert_eq!(head.len, text.find("\r\n\r\n").unwrap() + 4, "{text:?}");
            (plain.target, &*plain.host.name, head.closes)
        });
        assert_eq!(seen, expected, "{text:?}");
    }

    /// The line and the fields that the table has, if the head is taken at all.
    fn check_parts(text: &str, expected: Option<&str>) {
        let mut room = Room::new();
        let head = parse(text.as_bytes(), &mut room, 8192, 100);
        let parts = head.as_ref().and_then(Head::to_parts);
        let seen = parts.map(|parts| {
            let mut seen = format!("{} {} {:?}", parts.method, parts.uri, parts.version);
            for (name, value) in &parts.headers {
                seen.push_str(&format!("; {name}: {}", value.to_str().unwrap()));
            }
            seen
        });
        assert_eq!(seen.as_deref(), expected, "{text:?}");
    }

    #[test]
    fn requests_without_content_become_tables() {
        check_parts(
            "HEAD /a?b HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nACCEPT: x\r\naccept: y\r\n\r\n",
            Some("HEAD /a?b HTTP/1.1; host: a; if-none-match: *; accept: x; accept: y"),
        );
        // Mistakes that the pipeline answers.
        check_parts("GET / HTTP/1.1\r\n\r\n", Some("GET / HTTP/1.1"));
        check_parts(
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
            Some("GET / HTTP/1.1; host: a; host: b"),
        );
        for field in [
            "Content-Length: 0",
            "Content_Length: 1",
            "Transfer-Encoding: chunked",
            "TE: trailers",
            "Trailer: x",
            "Expect: 100-continue",
            "Upgrade: websocket",
            "Connection: upgrade",
            "HTTP2-Settings: x",
            "_host: x",
        ] {
            check_parts(&format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n"), None);
        }
        check_parts("POST / HTTP/1.1\r\nHost: a\r\n\r\n", None);
        check_parts("GET / HTTP/1.0\r\nHost: a\r\n\r\n", None);
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
    fn a_head_that_is_not_whole_or_too_large_is_not_taken() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
        let is_taken = |len: usize, size_max: usize, fields_max: usize| {
            parse(&head[..len], &mut Room::new(), size_max, fields_max).is_some()
        };
        for len in 0..head.len() {
            assert!(!is_taken(len, 8192, 100), "{len} bytes");
        }
        assert!(is_taken(head.len(), head.len(), 2));
        assert!(!is_taken(head.len(), head.len() - 1, 2));
        assert!(!is_taken(head.len(), head.len(), 1));
    }
}
