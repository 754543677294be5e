//! What rules look at: a connection, or a request with its named values. The server shows its own
//! types through [`Fields`]; cookies and query parameters are taken apart here, since only rules
//! that ask for them should pay for it.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// The addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The client, as far as it is known: the peer, or whom a PROXY header or a trusted proxy
    /// names. Nothing at Unix sockets.
    pub source: Option<SocketAddr>,
    /// Where it connected to.
    pub destination: Option<SocketAddr>,
}

/// A request.
pub struct Subject<'a> {
    /// Of whom to whom.
    pub ends: Ends,
    /// The site's first name.
    pub site: &'a str,
    /// The normalised path.
    pub path: &'a str,
    /// The query as it was sent, without `?`.
    pub query: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// The name that the client asked for in its TLS handshake.
    pub server_name: Option<&'a str>,
    /// What plugins made of it; empty before they have seen it.
    pub verdict: &'a str,
    /// Its header fields.
    pub fields: &'a dyn Fields<'a>,
}

/// A header section.
pub trait Fields<'a> {
    /// Shows every value of a field, in order. The name is in lower case.
    fn values(&self, name: &str, see: &mut dyn FnMut(&'a [u8]));

    /// Shows every field's name, in either case, and value, in order.
    fn each(&self, see: &mut dyn FnMut(&[u8], &'a [u8]));
}

impl Ends {
    /// The source's address, an IPv4 one as such.
    pub(crate) fn source_ip(&self) -> Option<IpAddr> {
        self.source.map(|source| source.ip().to_canonical())
    }

    pub(crate) fn destination_ip(&self) -> Option<IpAddr> {
        self.destination.map(|destination| destination.ip().to_canonical())
    }
}

/// Shows the cookies of a `Cookie` field (RFC 6265 §4.2.1). A value in quotes is shown without
/// them: servers read both as the same.
pub(crate) fn each_cookie<'a>(field: &'a [u8], mut see: impl FnMut(&'a [u8], &'a [u8])) {
    for pair in field.split(|&byte| byte == b';') {
        let pair = pair.trim_ascii();
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else { continue };
        let (name, value) = (pair[..at].trim_ascii_end(), pair[at + 1..].trim_ascii_start());
        let bare = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        see(name, bare.unwrap_or(value));
    }
}

/// Shows the parameters of a query, decoded as forms encode them (URL standard, "parsing
/// `application/x-www-form-urlencoded`"): what an application reads decides, not how it is written.
pub(crate) fn each_parameter<'a>(
    query: &'a str,
    mut see: impl FnMut(Cow<'a, [u8]>, Cow<'a, [u8]>),
) {
    for pair in query.as_bytes().split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        let value = pair.get(at + 1..).unwrap_or_default();
        see(form_decoded(&pair[..at]), form_decoded(value));
    }
}

fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'+', _) => (b' ', after),
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (byte, &rest[1..]),
            },
            _ => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_taken_apart() {
        let check = |field: &str, expected: &[(&str, &str)]| {
            let mut seen = Vec::new();
            each_cookie(field.as_bytes(), |name, value| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                seen.push((text(name), text(value)));
            });
            let seen: Vec<_> = seen.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(seen, expected, "{field}");
        };
        check("a=b", &[("a", "b")]);
        check("a=b; c=d;e=f", &[("a", "b"), ("c", "d"), ("e", "f")]);
        check("a=\"b\"; c=\"", &[("a", "b"), ("c", "\"")]);
        check("a=b=c; ;x; =y", &[("a", "b=c"), ("", "y")]);
        check("", &[]);
    }

    #[test]
    fn parameters_are_decoded() {
        let check = |query: &str, expected: &[(&str, &str)]| {
            let mut seen = Vec::new();
            each_parameter(query, |name, value| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                seen.push((text(&name), text(&value)));
            });
            let seen: Vec<_> = seen.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(seen, expected, "{query}");
        };
        check("a=b&c=d", &[("a", "b"), ("c", "d")]);
        check("%61=%62+c&&x", &[("a", "b c"), ("x", "")]);
        check("a=%zz%4&=1", &[("a", "%zz%4"), ("", "1")]);
        check("", &[]);
    }
}
