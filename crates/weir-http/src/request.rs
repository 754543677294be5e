//! Validation of request heads: what hyper accepts but a proxy must refuse, because another
//! server on the path might read it differently (request smuggling).
//!
//! Much is settled before: hyper refuses malformed lines, obsolete folding, Content-Length values
//! that differ, and drops Content-Length beside Transfer-Encoding; the `http` types hold no control
//! characters; `Uri` drops fragments. The checks here do not rely on the former two.

use http::header::HeaderMap;
use http::{Method, Uri, Version};

use crate::Malformed;
use crate::forward::asks_for_tunnel;
use crate::host::{self, Host};

/// How a request's content is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// HTTP/1 without content.
    Empty,
    /// Content-Length, in bytes.
    Length(u64),
    /// HTTP/1.1 chunked.
    Chunked,
    /// HTTP/2 without Content-Length: the content, if any, ends with the stream.
    Stream,
}

impl Framing {
    /// Whether a request with `method` has content that the method gives no meaning to (RFC 9110
    /// §9.3.1, §9.3.2): an origin that ignores it might take it for the next request. It may be
    /// forwarded only on a connection that is not used again, or refused.
    pub fn is_undefined_for(self, method: &Method) -> bool {
        matches!(self, Framing::Chunked | Framing::Length(1..))
            && matches!(*method, Method::GET | Method::HEAD)
    }
}

/// What validation found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid<'a> {
    /// How the content is delimited.
    pub framing: Framing,
    /// The host that was asked: the target's authority, else Host. `None` only in HTTP/1.0.
    pub host: Option<Host<'a>>,
    /// The host as the client wrote it: the one value to forward as Host.
    pub authority: &'a str,
    /// Fields that are there for later stages.
    pub notes: Notes,
}

/// Which fields later stages need to look at. Found in the same pass that validates, so that a
/// request without them pays nothing for their possibility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range or Range.
    pub selects: bool,
    /// Cache-Control or Pragma.
    pub directs: bool,
    /// Upgrade to something that may be tunnelled.
    pub upgrades: bool,
    /// `Connection: close`: the response is the connection's last.
    pub closes: bool,
}

/// Checks a request head. Costs one pass over the header and allocates only for a host written
/// in upper case.
///
/// # Errors
///
/// The first reason found to refuse the request; the connection must then be closed.
pub fn validate<'a>(
    method: &Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
) -> Result<Valid<'a>, Malformed> {
    if !matches!(version, Version::HTTP_11 | Version::HTTP_2 | Version::HTTP_10) {
        return Err(Malformed::Version);
    }
    let fields = scan(headers)?;
    check_target(method, uri, version)?;
    let framing = framing(&fields, version)?;
    let (host, authority) = effective_host(uri, version, fields.host)?;
    Ok(Valid { framing, host, authority, notes: fields.notes })
}

/// Checks the head of a CONNECT (RFC 9110 §9.3.6) and returns where it is to lead: a host and a
/// port, neither of which has a default.
///
/// # Errors
/// The first reason found to refuse the request; the connection must then be closed.
pub fn validate_connect<'a>(
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
) -> Result<Host<'a>, Malformed> {
    // Some clients ask for tunnels by HTTP/1.0, and speak what they like inside.
    if !matches!(version, Version::HTTP_10 | Version::HTTP_11 | Version::HTTP_2) {
        return Err(Malformed::Version);
    }
    let fields = scan(headers)?;
    if !matches!(framing(&fields, version)?, Framing::Empty | Framing::Stream) {
        // Content has no meaning here, and what follows the head is the tunnel's.
        return Err(Malformed::ConnectContent);
    }
    if let Some(field) = fields.host {
        host::parse(field)?;
    }
    let authority = uri.authority().filter(|_| uri.scheme().is_none());
    let authority = authority.ok_or(Malformed::Target)?;
    let host = host::parse(authority.as_str().as_bytes())?;
    match host.port {
        Some(_) => Ok(host),
        None => Err(Malformed::Target),
    }
}

/// The field lines that decide about framing and host.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<&'a [u8]>,
    transfer_encoding_lines: usize,
    notes: Notes,
}

impl Notes {
    fn take(&mut self, name: &[u8], value: &[u8]) {
        match name {
            [b'i', b'f', b'-', ..] | b"range" => self.selects = true,
            b"cache-control" | b"pragma" => self.directs = true,
            b"upgrade" => self.upgrades |= asks_for_tunnel(value),
            _ => {}
        }
    }
}

fn scan(headers: &HeaderMap) -> Result<Fields<'_>, Malformed> {
    let mut fields = Fields::default();
    for (name, value) in headers {
        let text = name.as_str().as_bytes();
        // Most names start with another letter and are done with here.
        if matches!(text, [b'a'..=b'z', ..]) && !matches!(text, [b'c' | b'h' | b't', ..]) {
            if matches!(text, [b'i' | b'p' | b'r' | b'u', ..]) {
                fields.notes.take(text, value.as_bytes());
            }
            continue;
        }
        let value = value.as_bytes();
        match text {
            b"host" => set_once(&mut fields.host, value, Malformed::HostRepeated)?,
            b"content-length" => {
                set_once(&mut fields.content_length, value, Malformed::ContentLengthRepeated)?;
            }
            b"transfer-encoding" => {
                fields.transfer_encoding = Some(value);
                fields.transfer_encoding_lines += 1;
            }
            b"connection" => fields.notes.closes |= value.eq_ignore_ascii_case(b"close"),
            _ if imitates_framing(text) => return Err(Malformed::SuspiciousName),
            _ => fields.notes.take(text, value),
        }
    }
    Ok(fields)
}

fn set_once<'a>(
    slot: &mut Option<&'a [u8]>,
    value: &'a [u8],
    repeated: Malformed,
) -> Result<(), Malformed> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(repeated),
    }
}

/// Whether `name`, which is not one of them, is Content-Length, Transfer-Encoding or Host to a
/// server that maps or skips characters other than letters, as CGI does (`Content_Length`).
fn imitates_framing(name: &[u8]) -> bool {
    // The shortest spellings are those without any other character.
    match name {
        [b'c', ..] if name.len() < CONTENT_LENGTH.len() => return false,
        [b't', ..] if name.len() < TRANSFER_ENCODING.len() => return false,
        _ => {}
    }
    let letters = || name.iter().copied().filter(u8::is_ascii_alphanumeric);
    match letters().next() {
        Some(b'c') => letters().eq(CONTENT_LENGTH),
        Some(b't') => letters().eq(TRANSFER_ENCODING),
        Some(b'h') => letters().eq(*b"host"),
        _ => false,
    }
}

const CONTENT_LENGTH: [u8; 13] = *b"contentlength";
const TRANSFER_ENCODING: [u8; 16] = *b"transferencoding";

/// RFC 9112 §3.2: each form of target belongs to certain methods.
fn check_target(method: &Method, uri: &Uri, version: Version) -> Result<(), Malformed> {
    if *method == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    match (uri.scheme_str(), uri.authority()) {
        // Origin form, and asterisk form for OPTIONS.
        (None, None) => {
            let path = uri.path();
            let asterisk = path == "*" && *method == Method::OPTIONS;
            if path.starts_with('/') || asterisk { Ok(()) } else { Err(Malformed::Target) }
        }
        // Authority form is for CONNECT alone.
        (None, Some(_)) => Err(Malformed::Target),
        // Absolute form, and every HTTP/2 request. HTTP/2 has an asterisk form of it too.
        (Some("http" | "https"), _) => {
            let path = uri.path();
            let asterisk = path == "*" && *method == Method::OPTIONS && version == Version::HTTP_2;
            if path.starts_with('/') || asterisk { Ok(()) } else { Err(Malformed::Target) }
        }
        (Some(_), _) => Err(Malformed::Scheme),
    }
}

/// RFC 9112 §6.3, with every choice it leaves taken the strict way.
fn framing(fields: &Fields<'_>, version: Version) -> Result<Framing, Malformed> {
    match (fields.transfer_encoding, fields.content_length) {
        (None, None) if version == Version::HTTP_2 => Ok(Framing::Stream),
        (None, None) => Ok(Framing::Empty),
        (None, Some(length)) => content_length(length).map(Framing::Length),
        (Some(_), _) if version != Version::HTTP_11 => Err(Malformed::TransferEncodingVersion),
        (Some(_), Some(_)) => Err(Malformed::BothLengths),
        (Some(coding), None) => {
            if fields.transfer_encoding_lines == 1 && coding.eq_ignore_ascii_case(b"chunked") {
                return Ok(Framing::Chunked);
            }
            Err(unsupported_coding(coding, fields.transfer_encoding_lines))
        }
    }
}

/// 1*DIGIT: no sign, no list, no overflow.
fn content_length(text: &[u8]) -> Result<u64, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed::ContentLength)?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Malformed::ContentLength);
    }
    text.parse().map_err(|_| Malformed::ContentLength)
}

/// Tells well-formed codings that end in chunked, which Weir merely does not implement, from
/// those that leave the length undefined.
fn unsupported_coding(last_line: &[u8], lines: usize) -> Malformed {
    let codings: Vec<_> = crate::syntax::split(last_line, b',').collect();
    let chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let ends_in_chunked = codings.last().is_some_and(chunked);
    let once = codings.iter().filter(|coding| chunked(coding)).count() == 1;
    let tokens = codings.iter().all(|coding| crate::syntax::is_token(coding));
    if ends_in_chunked && once && tokens && (codings.len() > 1 || lines > 1) {
        Malformed::TransferCoding
    } else {
        Malformed::TransferEncoding
    }
}

/// The target's authority wins over Host (RFC 9112 §3.2.2), but in HTTP/2 they may not differ
/// (RFC 9113 §8.3.1), and a Host that is sent must be valid whether it is used or not.
fn effective_host<'a>(
    uri: &'a Uri,
    version: Version,
    field: Option<&'a [u8]>,
) -> Result<(Option<Host<'a>>, &'a str), Malformed> {
    let from_field = match field {
        // An empty Host is what RFC 9112 §3.2 asks of a client whose target has no authority.
        Some(b"") if uri.authority().is_some() => None,
        Some(value) => Some((host::parse(value)?, value)),
        None if version == Version::HTTP_11 => return Err(Malformed::HostMissing),
        None => None,
    };
    if let Some(authority) = uri.authority() {
        let host = host::parse(authority.as_str().as_bytes())?;
        if version == Version::HTTP_2
            && let Some((field, _)) = &from_field
            && *field != host
        {
            return Err(Malformed::HostDiffers);
        }
        return Ok((Some(host), authority.as_str()));
    }
    match from_field {
        // A parsed host is ASCII.
        Some((host, value)) => {
            Ok((Some(host), std::str::from_utf8(value).map_err(|_| Malformed::Host)?))
        }
        None if version == Version::HTTP_2 => Err(Malformed::HostMissing),
        None => Ok((None, "")),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
