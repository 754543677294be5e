//! The Via field (RFC 9110 §7.6.3): says that Weir forwarded a message, and notices when a
//! message comes round again.

use http::header::{self, HeaderMap};
use http::{HeaderValue, Version};

/// The name that stands for this server in Via; a host name would tell outsiders too much.
pub const PSEUDONYM: &str = "weir";

/// Passes through a Weir after which a request counts as looping. More than one, since sites put
/// one Weir behind another.
pub const VIA_PASSES_MAX: usize = 4;

/// Appends this hop to Via. `version` is that of the message as it was received.
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

/// How often the message has passed a server that calls itself `pseudonym`. More than
/// [`VIA_PASSES_MAX`] is a loop, to be answered with 508 or 502.
pub fn via_passes(headers: &HeaderMap, pseudonym: &str) -> usize {
    headers
        .get_all(header::VIA)
        .iter()
        .flat_map(|value| crate::syntax::split(value.as_bytes(), b','))
        .filter(|hop| received_by(hop).is_some_and(|name| name == pseudonym.as_bytes()))
        .count()
}

/// The second word: `1.1 name (comment)`.
fn received_by(hop: &[u8]) -> Option<&[u8]> {
    hop.split(|&byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).nth(1)
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
        assert_eq!(via_passes(&headers, PSEUDONYM), 2);
        assert_eq!(via_passes(&headers, "fred"), 1);
    }

    #[test]
    fn counts_only_its_own_name() {
        let check = |value: &'static str, expect: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(header::VIA, HeaderValue::from_static(value));
            assert_eq!(via_passes(&headers, PSEUDONYM), expect, "{value}");
        };
        check("", 0);
        check("weir", 0);
        check("1.1 weird, 1.1 a (weir)", 0);
        check("1.1 weir, HTTP/1.1\tweir (x), 2.0   weir", 3);
    }
}
