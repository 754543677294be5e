//! What a proxy does to a message head on its way: hop-by-hop fields go, fields that tell of the
//! hop are added. Which origin it goes to is `weir-origin`'s business.

mod client;
mod forwarded;
mod hop;
mod via;

pub use client::client_address;
pub use forwarded::{Client, Element, add_client, is_about_client, parse_forwarded, strip_client};
pub(crate) use hop::asks_for_tunnel;
pub use hop::{Hop, may_be_trailer, strip_hop_by_hop, strip_trailers};
pub use via::{VIA_PASSES_MAX, Via, append_via, via_passes};

use http::header::{HeaderMap, HeaderName};
use http::{HeaderValue, Method};

const MAX_FORWARDS: HeaderName = HeaderName::from_static("max-forwards");

/// Whether a request may travel on (RFC 9110 §7.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxForwards {
    /// Forward it; the count, if there was one, has been lowered.
    Forward,
    /// Answer it here: its count has run out.
    Answer,
}

/// Applies Max-Forwards to an OPTIONS or TRACE request. Other methods, and values that are not a
/// number, leave the request as it is.
pub fn max_forwards(method: &Method, headers: &mut HeaderMap) -> MaxForwards {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return MaxForwards::Forward;
    }
    let value = headers.get(MAX_FORWARDS);
    match value.and_then(|value| crate::syntax::digits(value.as_bytes())) {
        None => MaxForwards::Forward,
        Some(0) => MaxForwards::Answer,
        Some(count) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(count - 1));
            MaxForwards::Forward
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_forwards_counts_down() {
        let check = |method: Method, value: &'static str, expect: MaxForwards, left: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(MAX_FORWARDS, HeaderValue::from_static(value));
            assert_eq!(max_forwards(&method, &mut headers), expect, "{method} {value}");
            assert_eq!(headers[MAX_FORWARDS], left, "{method} {value}");
        };
        check(Method::OPTIONS, "0", MaxForwards::Answer, "0");
        check(Method::TRACE, "10", MaxForwards::Forward, "9");
        check(Method::OPTIONS, "x", MaxForwards::Forward, "x");
        check(Method::GET, "0", MaxForwards::Forward, "0");
        assert_eq!(max_forwards(&Method::TRACE, &mut HeaderMap::new()), MaxForwards::Forward);
    }
}
