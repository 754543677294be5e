//! Hop-by-hop fields (RFC 9110 §7.6.1): removed from every forwarded message, and put back where
//! the next hop needs them.

use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Version};

/// Fields that belong to one connection whether or not Connection lists them. `Trailer` is not
/// among them: trailers are forwarded. `Proxy` is no field at all, but CGI programs take it for
/// their proxy setting ("httpoxy").
static HOP_BY_HOP: [HeaderName; 11] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("proxy"),
];

/// Fields that Connection must not remove: they are for the origin or for Weir itself, and a
/// client that lists them wants the two to see different requests. Nor may they be trailers.
static END_TO_END: [HeaderName; 20] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::EXPECT,
    header::FORWARDED,
    header::HOST,
    HeaderName::from_static("max-forwards"),
    header::RANGE,
    header::SET_COOKIE,
    header::VARY,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// What the removed fields asked of this hop, for putting it back on the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// The Upgrade value, if Connection listed it.
    pub upgrade: Option<HeaderValue>,
    /// TE said that trailers are understood.
    pub trailers: bool,
}

/// Removes the fields that must not be forwarded from a request or response.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) -> Hop {
    let mut hop = Hop::default();
    // One walk finds which of them are there; eleven look-ups would cost ten times as much.
    let mut present = 0u16;
    for name in headers.keys() {
        if !may_be_hop_by_hop(name) {
            continue;
        }
        if let Some(index) = HOP_BY_HOP.iter().position(|hop| hop == name) {
            present |= 1 << index;
        }
    }
    if present == 0 {
        return hop;
    }
    if headers.contains_key(header::TE) {
        hop.trailers = members(headers, header::TE).any(|member| is_option(member, b"trailers"));
    }
    if headers.contains_key(header::CONNECTION) {
        let is_upgrade = |option| is_option(option, b"upgrade");
        if members(headers, header::CONNECTION).any(is_upgrade) {
            hop.upgrade = headers.get(header::UPGRADE).and_then(for_tunnels);
        }
        for name in listed_names(headers) {
            headers.remove(name);
        }
    }
    for (index, name) in HOP_BY_HOP.iter().enumerate() {
        if present & (1 << index) != 0 {
            headers.remove(name);
        }
    }
    hop
}

/// What all of [`HOP_BY_HOP`] are by first letter and length, and hardly any other name is.
fn may_be_hop_by_hop(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    matches!(
        (name[0], name.len()),
        (b'c' | b'k', 10) | (b't', 2 | 17) | (b'u', 7) | (b'h', 14) | (b'p', _)
    )
}

/// Whether a field may stand in a trailer section (RFC 9110 §6.5.1): none that frames, routes,
/// authenticates or controls the message, which the recipient has already acted upon.
pub fn may_be_trailer(name: &HeaderName) -> bool {
    !HOP_BY_HOP.contains(name) && !END_TO_END.contains(name) && *name != header::TRAILER
}

/// Removes from a trailer section what [may not stand in one](may_be_trailer).
pub fn strip_trailers(trailers: &mut HeaderMap) {
    let found: Vec<_> = trailers.keys().filter(|name| !may_be_trailer(name)).cloned().collect();
    for name in found {
        trailers.remove(name);
    }
}

impl Hop {
    /// Puts on a request what the next hop, which speaks `version`, needs to know. An upgrade is
    /// forwarded only over HTTP/1.1 and only where the caller can tunnel it.
    pub fn restore(&self, headers: &mut HeaderMap, version: Version, tunnel: bool) {
        let http1 = version == Version::HTTP_11;
        let upgrade = self.upgrade.as_ref().filter(|_| http1 && tunnel);
        if let Some(protocol) = upgrade {
            headers.insert(header::UPGRADE, protocol.clone());
        }
        if self.trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        // RFC 9110 §7.8 and §10.1.4 want both listed; HTTP/2 has no Connection.
        let connection = match (upgrade.is_some(), self.trailers && http1) {
            (true, true) => "upgrade, te",
            (true, false) => "upgrade",
            (false, true) => "te",
            (false, false) => return,
        };
        headers.insert(header::CONNECTION, HeaderValue::from_static(connection));
    }
}

/// Whether an Upgrade value asks for a protocol that may be tunnelled to an origin. HTTP and TLS
/// may not: they are for this hop, which offers neither so, and a client that spoke HTTP to an
/// origin through a tunnel would be past every route.
pub(crate) fn asks_for_tunnel(upgrade: &[u8]) -> bool {
    crate::syntax::split(upgrade, b',').any(is_for_tunnel)
}

fn is_for_tunnel(protocol: &[u8]) -> bool {
    let name = protocol.split(|&byte| byte == b'/').next().unwrap_or(protocol);
    let ours: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
    !name.is_empty() && !ours.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// The protocols of an Upgrade value that may be tunnelled, if there are any.
fn for_tunnels(upgrade: &HeaderValue) -> Option<HeaderValue> {
    let protocols = || crate::syntax::split(upgrade.as_bytes(), b',');
    let left: Vec<&[u8]> = protocols().filter(|protocol| is_for_tunnel(protocol)).collect();
    match left.len() {
        0 => None,
        all if all == protocols().count() => Some(upgrade.clone()),
        // Parts of a value are a value.
        _ => HeaderValue::from_bytes(&left.join(&b", "[..])).ok(),
    }
}

/// The members of a list field, over all its lines.
fn members(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|value| crate::syntax::split(value.as_bytes(), b','))
}

/// Whether `member` is `option`, with or without parameters.
fn is_option(member: &[u8], option: &[u8]) -> bool {
    let token = crate::syntax::split(member, b';').next();
    token.is_some_and(|token| token.eq_ignore_ascii_case(option))
}

/// The removable fields that Connection lists. Ordinary options are skipped before a name is made
/// of them, so that they cost no allocation.
fn listed_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let ordinary: [&[u8]; 4] = [b"close", b"keep-alive", b"upgrade", b"te"];
    members(headers, header::CONNECTION)
        .filter(|option| !ordinary.iter().any(|name| option.eq_ignore_ascii_case(name)))
        .filter_map(|option| HeaderName::from_bytes(option).ok())
        .filter(|name| !END_TO_END.contains(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn removes_what_belongs_to_the_connection() {
        let mut map = headers(&[
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-other"),
            ("x-private", "1"),
            ("x-private", "2"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("proxy", "http://evil"),
            ("trailer", "grpc-status"),
            ("accept", "*/*"),
        ]);
        assert_eq!(strip_hop_by_hop(&mut map), Hop::default());
        assert_eq!(names(&map), ["accept", "trailer"]);
    }

    #[test]
    fn every_hop_by_hop_field_is_removed() {
        for name in &HOP_BY_HOP {
            let mut map = HeaderMap::new();
            map.append(name, HeaderValue::from_static("a"));
            map.append(name, HeaderValue::from_static("b"));
            strip_hop_by_hop(&mut map);
            assert!(map.is_empty(), "{name}");
        }
    }

    #[test]
    fn connection_cannot_remove_end_to_end_fields() {
        for name in &END_TO_END {
            let mut map = HeaderMap::new();
            map.insert(name, HeaderValue::from_static("x"));
            map.insert(header::CONNECTION, HeaderValue::from_str(name.as_str()).unwrap());
            strip_hop_by_hop(&mut map);
            assert_eq!(names(&map), [name.as_str()]);
        }
    }

    #[test]
    fn trailers_cannot_pose_as_header_fields() {
        let mut map = headers(&[
            ("grpc-status", "0"),
            ("etag", "\"a\""),
            ("content-length", "5"),
            ("host", "b"),
            ("transfer-encoding", "chunked"),
            ("authorization", "x"),
        ]);
        strip_trailers(&mut map);
        assert_eq!(names(&map), ["etag", "grpc-status"]);
    }

    #[test]
    fn upgrade_and_trailers_are_put_back() {
        let check = |fields: &[(&'static str, &str)], version, tunnel, expect: &[(&str, &str)]| {
            let mut map = headers(fields);
            strip_hop_by_hop(&mut map).restore(&mut map, version, tunnel);
            let mut found: Vec<_> =
                map.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            found.sort_unstable();
            assert_eq!(found, expect, "{fields:?}");
        };
        let socket = &[("connection", "Upgrade"), ("upgrade", "websocket")];
        let grpc = &[("te", "trailers;q=0.5, gzip")];
        let (h1, h2) = (Version::HTTP_11, Version::HTTP_2);
        check(socket, h1, true, &[("connection", "upgrade"), ("upgrade", "websocket")]);
        check(socket, h1, false, &[]);
        check(socket, h2, true, &[]);
        check(&[("upgrade", "websocket")], h1, true, &[]);
        let of = |protocols| [("connection", "upgrade"), ("upgrade", protocols)];
        for none in ["h2c", "H2C", "HTTP/2.0, h2c", "TLS/1.3", "h2", ""] {
            check(&of(none), h1, true, &[]);
        }
        check(&of("h2c, a/1 , HTTP/3,b"), h1, true, &of("a/1, b"));
        check(&of("a/1 , b"), h1, true, &of("a/1 , b"));
        check(grpc, h1, false, &[("connection", "te"), ("te", "trailers")]);
        check(grpc, h2, false, &[("te", "trailers")]);
        check(&[("te", "gzip")], h2, false, &[]);
    }

    proptest! {
        #[test]
        fn nothing_hop_by_hop_survives(connection in "[ -~]{0,30}", te in "[ -~]{0,12}") {
            let mut map = headers(&[("connection", &connection), ("te", &te), ("host", "a"),
                ("content-length", "1")]);
            strip_hop_by_hop(&mut map);
            prop_assert_eq!(names(&map), ["content-length", "host"]);
        }
    }
}
