//! What a certificate says of its owner, as text for plugins. It has been verified, or was not to
//! be: nothing is decided by this.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Attributes that RFC 4514 §3 gives short names, by their encoded identifiers.
const SHORT_NAMES: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

// DER's tags (X.690) of what a name is made of.
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The subject, in the form of RFC 2253: the last of its parts first.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    name(certificate.subject())
}

/// The first host name that it is valid for.
pub(crate) fn dns_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().map(str::to_owned)
}

/// The first URI that it is valid for.
pub(crate) fn uri(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_uri_names().next().map(str::to_owned)
}

/// SHA-256 of all of it, in hexadecimal.
pub(crate) fn digest(certificate: &CertificateDer<'_>) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    hex(digest.as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A name (X.501), without its own tag and length.
fn name(mut der: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !der.is_empty() {
        let (set, rest) = value(der, SET)?;
        parts.push(part(set)?);
        der = rest;
    }
    parts.reverse();
    Some(parts.join(","))
}

/// One part of a name: most often a single attribute.
fn part(mut set: &[u8]) -> Option<String> {
    let mut attributes = Vec::new();
    while !set.is_empty() {
        let (attribute, rest) = value(set, SEQUENCE)?;
        let (id, content) = value(attribute, OID)?;
        attributes.push(format!("{}={}", type_name(id), type_value(content)?));
        set = rest;
    }
    Some(attributes.join("+"))
}

fn type_name(id: &[u8]) -> String {
    if let Some((_, name)) = SHORT_NAMES.iter().find(|(known, _)| *known == id) {
        return (*name).to_owned();
    }
    // X.690 §8.19: seven bits a byte; the first number holds two.
    let mut numbers: Vec<u64> = Vec::new();
    let mut number: u64 = 0;
    for byte in id {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(number);
            number = 0;
        }
    }
    if let Some(both) = numbers.first().copied() {
        let first = (both / 40).min(2);
        numbers.splice(..1, [first, both - first * 40]);
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

fn type_value(content: &[u8]) -> Option<String> {
    let tag = *content.first()?;
    let (bytes, _) = value(content, tag)?;
    Some(match tag {
        UTF8_STRING | PRINTABLE_STRING | IA5_STRING => escaped(&String::from_utf8_lossy(bytes)),
        _ => format!("#{}", hex(content)),
    })
}

/// RFC 4514 §2.4.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_first = at == 0;
        let is_last = at + c.len_utf8() == text.len();
        let is_special = matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        if is_special || is_first && matches!(c, ' ' | '#') || is_last && c == ' ' {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The value at the beginning, which must have this tag, and what follows it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (len, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81 => {
            let (&len, rest) = rest.split_first()?;
            (usize::from(len), rest)
        }
        0x82 => {
            let (&len, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(len)), rest)
        }
        // No part of a name is as long.
        _ => return None,
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(content.len()).unwrap()], content].concat()
    }

    fn attribute(id: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        tagged(SEQUENCE, &[tagged(OID, id), tagged(tag, text)].concat())
    }

    #[test]
    fn names_are_written_last_part_first() {
        let cn = |text: &str| attribute(&[0x55, 4, 3], UTF8_STRING, text.as_bytes());
        let o = |text: &str| attribute(&[0x55, 4, 10], PRINTABLE_STRING, text.as_bytes());
        let odd = attribute(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], 0x1e, &[0, b'a']);
        let set = |content: Vec<u8>| tagged(SET, &content);
        for (der, expect) in [
            (vec![], ""),
            (set(cn("a")), "CN=a"),
            ([set(o("Weir, Inc.")), set(cn("a b"))].concat(), r"CN=a b,O=Weir\, Inc."),
            (set([cn("a"), o("b")].concat()), "CN=a+O=b"),
            (set(cn(" #+ ")), r"CN=\ #\+\ "),
            (set(cn("#é")), r"CN=\#é"),
            (set(odd), "1.2.840.113549.1.9.1=#1e020061"),
        ] {
            assert_eq!(name(&der).as_deref(), Some(expect));
        }
    }

    #[test]
    fn what_is_no_name_is_none() {
        let whole = tagged(SET, &attribute(&[0x55, 4, 3], UTF8_STRING, b"name"));
        for len in 1..whole.len() {
            assert_eq!(name(&whole[..len]), None, "{len}");
        }
        for der in [&[SEQUENCE, 0][..], &[SET, 0x84, 1, 1, 1, 1], &[SET, 3, SEQUENCE, 1, OID]] {
            assert_eq!(name(der), None, "{der:?}");
        }
    }
}
