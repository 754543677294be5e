//! The Cache-Status field (RFC 9211): what the cache did with a request, for people who debug.
//! Written without the formatting machinery, because every hit carries one.

use std::io::{self, Write};

use http::HeaderValue;

/// Bytes of a member without key and detail: with every parameter at its longest it has 87.
const PARAMETERS_LEN_MAX: usize = 96;

/// Bytes of key or detail that are written; the rest is cut off.
const TEXT_LEN_MAX: usize = 256;

/// Why a request went to the origin (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was configured not to handle the request.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// Nothing stored for the URI.
    UriMiss,
    /// Something stored for the URI, but not for these request fields.
    VaryMiss,
    /// Nothing usable stored, for a reason not told apart.
    Miss,
    /// The request's own directives required it, though the stored response was usable.
    Request,
    /// The stored response was stale.
    Stale,
    /// Only a part of the response was stored.
    Partial,
}

impl Forward {
    /// The reason as RFC 9211 spells it; also for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

/// The parameters of one Cache-Status member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Why the request was forwarded; `None` for a hit, or where the server itself answered.
    pub forward: Option<Forward>,
    /// The request was answered from the cache without going forward.
    pub hit: bool,
    /// Status of the origin's response, where it differs from the one sent.
    pub forward_status: Option<u16>,
    /// Remaining freshness lifetime in seconds; negative when stale.
    pub ttl_s: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request shared another request's fill.
    pub collapsed: bool,
    /// The cache key, if it is to be shown.
    pub key: Option<&'a str>,
    /// Anything else worth telling.
    pub detail: Option<&'a str>,
}

impl<'a> CacheStatus<'a> {
    /// A response from the cache.
    pub fn hit(ttl_s: i64) -> CacheStatus<'a> {
        CacheStatus { hit: true, ttl_s: Some(ttl_s), ..CacheStatus::default() }
    }

    /// A response from the origin.
    pub fn forwarded(reason: Forward) -> CacheStatus<'a> {
        CacheStatus { forward: Some(reason), ..CacheStatus::default() }
    }

    /// Renders the member. It goes after any that the origin's response carries (§2).
    pub fn to_value(&self) -> HeaderValue {
        let mut text = [0; PARAMETERS_LEN_MAX];
        let mut rest = &mut text[..];
        // Neither write can fail: a Vec grows, and the array has room for every parameter but the
        // texts. What they write is visible ASCII, which is always a valid value.
        let value = if self.key.is_none() && self.detail.is_none() {
            let written = self.write_parameters(&mut rest);
            let len = PARAMETERS_LEN_MAX - rest.len();
            written.ok().and_then(|()| HeaderValue::from_bytes(&text[..len]).ok())
        } else {
            let mut text = Vec::with_capacity(PARAMETERS_LEN_MAX);
            let written = self.write_parameters(&mut text);
            push_string(&mut text, b"; key=", self.key);
            push_string(&mut text, b"; detail=", self.detail);
            written.ok().and_then(|()| HeaderValue::from_bytes(&text).ok())
        };
        value.unwrap_or_else(|| HeaderValue::from_static("weir"))
    }

    fn write_parameters(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"weir")?;
        if self.hit {
            out.write_all(b"; hit")?;
        }
        if let Some(reason) = self.forward {
            out.write_all(b"; fwd=")?;
            out.write_all(reason.as_str().as_bytes())?;
        }
        if let Some(status) = self.forward_status {
            out.write_all(b"; fwd-status=")?;
            out.write_all(itoa::Buffer::new().format(status).as_bytes())?;
        }
        if let Some(ttl_s) = self.ttl_s {
            out.write_all(b"; ttl=")?;
            out.write_all(itoa::Buffer::new().format(ttl_s).as_bytes())?;
        }
        if self.stored {
            out.write_all(b"; stored")?;
        }
        if self.collapsed {
            out.write_all(b"; collapsed")?;
        }
        Ok(())
    }
}

/// A structured-field string (RFC 9651 §3.3.3) has visible ASCII and spaces only; anything else
/// becomes `?`.
fn push_string(out: &mut Vec<u8>, name: &[u8], text: Option<&str>) {
    let Some(text) = text else { return };
    out.extend_from_slice(name);
    out.push(b'"');
    for byte in text.bytes().take(TEXT_LEN_MAX) {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.push(b'?'),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn renders() {
        assert_eq!(CacheStatus::hit(60).to_value(), "weir; hit; ttl=60");
        assert_eq!(CacheStatus::hit(-5).to_value(), "weir; hit; ttl=-5");
        let miss = CacheStatus::forwarded(Forward::UriMiss);
        assert_eq!(miss.to_value(), "weir; fwd=uri-miss");
        let stored = CacheStatus { stored: true, collapsed: true, ..miss };
        assert_eq!(stored.to_value(), "weir; fwd=uri-miss; stored; collapsed");
        let full = CacheStatus {
            forward: Some(Forward::Stale),
            forward_status: Some(304),
            ttl_s: Some(9),
            key: Some("a\"b\\cä"),
            detail: Some("x y"),
            ..CacheStatus::default()
        };
        let expect =
            "weir; fwd=stale; fwd-status=304; ttl=9; key=\"a\\\"b\\\\c??\"; detail=\"x y\"";
        assert_eq!(full.to_value(), expect);
    }

    #[test]
    fn the_longest_member_fits() {
        let longest = CacheStatus {
            forward: Some(Forward::VaryMiss),
            hit: true,
            forward_status: Some(u16::MAX),
            ttl_s: Some(i64::MIN),
            stored: true,
            collapsed: true,
            ..CacheStatus::default()
        };
        let expect = "weir; hit; fwd=vary-miss; fwd-status=65535; ttl=-9223372036854775808; \
            stored; collapsed";
        assert_eq!(longest.to_value(), expect);
        assert!(expect.len() <= PARAMETERS_LEN_MAX);
    }

    proptest! {
        /// A structured-field parser of another hand reads back what was written.
        #[test]
        fn is_a_structured_field(key in any::<String>(), ttl_s in -999_999_999..999_999_999i64) {
            let status = CacheStatus { key: Some(&key), ..CacheStatus::hit(ttl_s) };
            let value = status.to_value();
            let list: sfv::List = sfv::Parser::new(value.as_bytes()).parse().unwrap();
            let Some(sfv::ListEntry::Item(item)) = list.first() else { panic!("not an item") };
            prop_assert_eq!(item.bare_item.as_token().map(|token| token.as_str()), Some("weir"));
            prop_assert_eq!(item.params.get("hit").and_then(|hit| hit.as_boolean()), Some(true));
            let ttl = item.params.get("ttl").and_then(|ttl| ttl.as_integer());
            prop_assert_eq!(ttl.map(i64::from), Some(ttl_s));
            prop_assert!(item.params.get("key").and_then(|key| key.as_string()).is_some());
        }
    }
}
