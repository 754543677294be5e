//! Host and `:authority`: a name or address and an optional port (RFC 9112 §3.2, RFC 3986 §3.2),
//! in the one form by which sites are looked up and cache keys are made.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::Malformed;

/// Longest host accepted, in bytes: DNS's 253 and some room for a trailing dot and an IPv6 zone.
const HOST_LEN_MAX: usize = 256;

/// A parsed host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host<'a> {
    /// Name or IPv4 address in lower case without trailing dot; an IPv6 address in brackets, as
    /// written but in lower case.
    pub name: Cow<'a, str>,
    /// Port, where one was given.
    pub port: Option<u16>,
}

impl Host<'_> {
    /// The port, or the scheme's default.
    pub fn port_or_default(&self, tls: bool) -> u16 {
        self.port.unwrap_or(if tls { 443 } else { 80 })
    }

    /// The same host with a name of its own.
    pub fn into_owned(self) -> Host<'static> {
        Host { name: Cow::Owned(self.name.into_owned()), port: self.port }
    }
}

impl std::fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Parses a Host value or an authority. User information, percent-encoding, an empty host and
/// everything that is not a letter, digit, `-`, `.`, `_` or `~` in a name are refused: such names
/// exist in neither DNS nor `/etc/hosts`, and servers disagree about them.
pub fn parse(raw: &[u8]) -> Result<Host<'_>, Malformed> {
    // A port has at most five digits.
    let tail = &raw[raw.len().saturating_sub(6)..];
    let colon = tail.iter().position(|&byte| byte == b':').map(|at| raw.len() - tail.len() + at);
    let (name, port) = raw.split_at(colon.unwrap_or(raw.len()));
    if is_plain(name) {
        return Ok(Host { name: text(name, false)?, port: parse_port(port)? });
    }
    if raw.first() == Some(&b'[') {
        return parse_ipv6(raw);
    }
    let mut upper = false;
    let mut name_len = raw.len();
    let mut label_empty = true;
    for (index, &byte) in raw.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => label_empty = false,
            b'.' if !label_empty => label_empty = true,
            b'A'..=b'Z' => (upper, label_empty) = (true, false),
            b':' => {
                name_len = index;
                break;
            }
            _ => return Err(Malformed::Host),
        }
    }
    let port = parse_port(&raw[name_len..])?;
    let name = &raw[..name_len];
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.is_empty() || name.len() > HOST_LEN_MAX {
        return Err(Malformed::Host);
    }
    Ok(Host { name: text(name, upper)?, port })
}

/// Whether `raw` is a name in lower case and nothing else, as nearly every host is; may say no for
/// one that is. Without branches in the loop this costs half of the parser below it.
fn is_plain(raw: &[u8]) -> bool {
    let mut other = false;
    let mut previous = b'.';
    for &byte in raw {
        other |= !PLAIN[byte as usize] | ((byte == b'.') & (previous == b'.'));
        previous = byte;
    }
    !other && previous != b'.' && raw.len() <= HOST_LEN_MAX
}

static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

fn parse_ipv6(raw: &[u8]) -> Result<Host<'_>, Malformed> {
    let end = raw.iter().position(|&byte| byte == b']').ok_or(Malformed::Host)?;
    let address = std::str::from_utf8(&raw[1..end]).map_err(|_| Malformed::Host)?;
    address.parse::<Ipv6Addr>().map_err(|_| Malformed::Host)?;
    let port = parse_port(&raw[end + 1..])?;
    let upper = address.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(Host { name: text(&raw[..=end], upper)?, port })
}

/// `""` and `":"` mean no port (RFC 3986 §3.2.3).
fn parse_port(raw: &[u8]) -> Result<Option<u16>, Malformed> {
    let digits = match raw {
        [] | [b':'] => return Ok(None),
        [b':', digits @ ..] if digits.len() <= 5 => digits,
        _ => return Err(Malformed::Host),
    };
    let number = crate::syntax::digits(digits).ok_or(Malformed::Host)?;
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(Malformed::Host),
    }
}

fn text(name: &[u8], upper: bool) -> Result<Cow<'_, str>, Malformed> {
    let name = std::str::from_utf8(name).map_err(|_| Malformed::Host)?;
    Ok(if upper { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_names_and_addresses() {
        let check = |raw: &str, name: &str, port: Option<u16>| {
            let host = parse(raw.as_bytes()).expect(raw);
            assert_eq!((host.name.as_ref(), host.port), (name, port), "{raw}");
        };
        check("example.com", "example.com", None);
        check("EXAMPLE.com.", "example.com", None);
        check("example.com.:8080", "example.com", Some(8080));
        check("example.com:", "example.com", None);
        check("my_host", "my_host", None);
        check("127.0.0.1:80", "127.0.0.1", Some(80));
        check("[::1]", "[::1]", None);
        check("[2001:DB8::1]:443", "[2001:db8::1]", Some(443));
        check("a:00080", "a", Some(80));
    }

    #[test]
    fn lower_case_names_are_borrowed() {
        assert!(matches!(parse(b"example.com").unwrap().name, Cow::Borrowed(_)));
        assert!(matches!(parse(b"Example.com").unwrap().name, Cow::Owned(_)));
    }

    #[test]
    fn refuses_everything_else() {
        for raw in [
            "",
            ".",
            "..",
            ".a",
            "a..b",
            "a..",
            ":80",
            "a:0",
            "a:65536",
            "a:+1",
            "a:80:80",
            "a:8 0",
            "user@a",
            "a b",
            " a",
            "a,b",
            "a/b",
            "a?b",
            "a#b",
            "a%41",
            "ä",
            "a\\b",
            "[",
            "[]",
            "[::1",
            "::1",
            "[::1]a",
            "[1.2.3.4]",
            "[::1%25eth0]",
            "a\0",
            "a\t",
        ] {
            assert_eq!(parse(raw.as_bytes()), Err(Malformed::Host), "{raw:?}");
        }
        assert_eq!(parse("a".repeat(300).as_bytes()), Err(Malformed::Host));
    }

    proptest! {
        #[test]
        fn never_panics(raw in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&raw);
        }

        #[test]
        fn parsing_is_stable(raw in "[A-Za-z0-9.:\\[\\]_-]{0,24}") {
            if let Ok(host) = parse(raw.as_bytes()) {
                let again = host.to_string();
                prop_assert_eq!(parse(again.as_bytes()), Ok(host.clone()));
                prop_assert!(!host.name.bytes().any(|byte| byte.is_ascii_uppercase()));
            }
        }
    }
}
