//! Who the client is, as the proxies in front of this server tell it.

use std::net::{IpAddr, SocketAddr};

use http::header::HeaderMap;

use super::forwarded::X_FORWARDED_FOR;

/// Trusted hops that are gone through; no chain of proxies is as long.
const HOPS_MAX: usize = 32;

/// The first address, from here on outwards, that `is_trusted` does not name a proxy of one's own:
/// the peer itself, or what X-Forwarded-For says of it. What cannot be read ends the search at the
/// hop that sent it; what stands before the first stranger's word may be invented and is not read.
/// If all hops are trusted, the client is the outermost.
pub fn client_address(
    headers: &HeaderMap,
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let values = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let mut told = values.flat_map(|value| value.as_bytes().rsplit(|&byte| byte == b','));
    let mut client = peer.to_canonical();
    for _ in 0..HOPS_MAX {
        if !is_trusted(client) {
            break;
        }
        match told.next().and_then(address) {
            Some(before) => client = before,
            None => break,
        }
    }
    client
}

/// An address as proxies write it: plain, with brackets, with a port.
fn address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(crate::syntax::trim(element)).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>();
    let address = address.or_else(|_| text.parse::<SocketAddr>().map(|with_port| with_port.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_client_is_the_first_that_is_not_trusted() {
        let is_trusted = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets()[0] == 10,
            IpAddr::V6(v6) => v6.segments()[0] == 0xfd00,
        };
        let check = |peer: &str, values: &[&'static str], expect: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(X_FORWARDED_FOR, HeaderValue::from_static(value));
            }
            let found = client_address(&headers, peer.parse().unwrap(), is_trusted);
            assert_eq!(found.to_string(), expect, "{peer} {values:?}");
        };
        check("192.0.2.1", &[], "192.0.2.1");
        check("192.0.2.1", &["198.51.100.1"], "192.0.2.1");
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["198.51.100.1"], "198.51.100.1");
        check("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1");
        check("10.0.0.1", &["203.0.113.9", "198.51.100.1, 10.0.0.2"], "198.51.100.1");
        check("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3");
        check("fd00::1", &[" [2001:db8::1]:4711\t"], "2001:db8::1");
        check("10.0.0.1", &["[2001:db8::1], fd00::2"], "2001:db8::1");
        check("10.0.0.1", &["198.51.100.1:80"], "198.51.100.1");
        for garbage in ["unknown", "", "198.51.100.1, ", "198.51.100.1, _hidden", "1.2.3"] {
            check("10.0.0.1", &[garbage], "10.0.0.1");
        }
    }

    #[test]
    fn a_chain_has_an_end() {
        let mut headers = HeaderMap::new();
        for i in 0..100u8 {
            let value = HeaderValue::try_from(format!("10.0.0.{i}")).unwrap();
            headers.append(X_FORWARDED_FOR, value);
        }
        let found = client_address(&headers, "10.1.1.1".parse().unwrap(), |_| true);
        assert_eq!(found.to_string(), "10.0.0.68");
    }
}
