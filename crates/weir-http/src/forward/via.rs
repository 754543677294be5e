//! The Via field (RFC 9110 §7.6.3): says that Weir forwarded a message, and notices when a
//! message comes round again.

use http::header::{self, HeaderMap};
use http::{HeaderValue, Version};

/// The name that stands for any Weir in Via; a host name would tell outsiders too much.
const PSEUDONYM: &str = "weir";

/// A name of one's own: by it a route of one instance knows requests again that it has forwarded.
#[derive(Clone, Debug)]
pub struct Via {
    name: String,
    /// Received by HTTP/1.0, 1.1 and 2.
    hops: [HeaderValue; 3],
}

impl Via {
    /// A name made of a number that should be nobody else's.
    pub fn new(id: u32) -> Via {
        let name = format!("{PSEUDONYM}-{id:08x}");
        let hops = ["1.0", "1.1", "2.0"].map(|version| {
            let hop = format!("{version} {name}");
            HeaderValue::try_from(hop).unwrap_or(HeaderValue::from_static("1.1 weir"))
        });
        Via { name, hops }
    }

    /// Appends this hop to a request's Via. `version` is that of the message as it was received.
    pub fn append(&self, headers: &mut HeaderMap, version: Version) {
        let [http10, http11, http2] = &self.hops;
        let hop = match version {
            Version::HTTP_09 | Version::HTTP_10 => http10,
            Version::HTTP_2 => http2,
            _ => http11,
        };
        headers.append(header::VIA, hop.clone());
    }

    /// Whether the request has passed here before.
    pub fn knows(&self, headers: &HeaderMap) -> bool {
        received_by(headers).any(|name| name == self.name.as_bytes())
    }
}

/// Passes through a Weir after which a request counts as looping. More than one, since sites put
/// one Weir behind another.
pub const VIA_PASSES_MAX: usize = 4;

/// Appends this hop to a response's Via. `version` is that of the message as it was received.
pub fn append_via(headers: &mut HeaderMap, version: Version) {
    let hop = match version {
        Version::HTTP_09 => "0.9 weir",
        Version::HTTP_10 => "1.0 weir",
        Version::HTTP_2 => "2.0 weir",
        Version::HTTP_3 => "3.0 weir",
        _ => "1.1 weir",
    };
    // A line of its own is the same list (RFC 9110 §5.3) and copies nothing.
    headers.append(header::VIA, HeaderValue::from_static(hop));
}

/// How often the request has passed a Weir. More than [`VIA_PASSES_MAX`] is a loop, to be answered
/// with 508 or 502.
pub fn via_passes(headers: &HeaderMap) -> usize {
    let is_weir = |name: &[u8]| match name.strip_prefix(PSEUDONYM.as_bytes()) {
        Some(rest) => rest.is_empty() || rest[0] == b'-',
        None => false,
    };
    received_by(headers).filter(|name| is_weir(name)).count()
}

/// Of each hop the second word: `1.1 name (comment)`.
fn received_by(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let hops = headers.get_all(header::VIA).iter();
    hops.flat_map(|value| crate::syntax::split(value.as_bytes(), b',')).filter_map(|hop| {
        hop.split(|&byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).nth(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_after_other_hops() {
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, HeaderValue::from_static("1.0 fred, 1.1 p.example (x)"));
        append_via(&mut headers, Version::HTTP_2);
        append_via(&mut headers, Version::HTTP_11);
        let values: Vec<_> = headers.get_all(header::VIA).iter().collect();
        assert_eq!(values, ["1.0 fred, 1.1 p.example (x)", "2.0 weir", "1.1 weir"]);
        assert_eq!(via_passes(&headers), 2);
    }

    #[test]
    fn a_name_of_ones_own_is_known_again() {
        let (mine, other) = (Via::new(0x1a2b), Via::new(0x1a2c));
        let mut headers = HeaderMap::new();
        other.append(&mut headers, Version::HTTP_10);
        assert!(other.knows(&headers) && !mine.knows(&headers));
        mine.append(&mut headers, Version::HTTP_2);
        let values: Vec<_> = headers.get_all(header::VIA).iter().collect();
        assert_eq!(values, ["1.0 weir-00001a2c", "2.0 weir-00001a2b"]);
        assert!(mine.knows(&headers));
        assert_eq!(via_passes(&headers), 2);
    }

    #[test]
    fn counts_only_weirs() {
        let check = |value: &'static str, expect: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(header::VIA, HeaderValue::from_static(value));
            assert_eq!(via_passes(&headers), expect, "{value}");
        };
        check("", 0);
        check("weir", 0);
        check("1.1 weird, 1.1 a (weir)", 0);
        check("1.1 weir, HTTP/1.1\tweir-01234567 (x), 2.0   weir", 3);
    }
}
