//! Address prefixes such as `10.0.0.0/8`: the type, and the rules for writing one.

use std::fmt;
use std::net::IpAddr;

use crate::value::{TextKind, Value, Wrong};

/// All addresses whose first bits are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    /// Bits that count, at most as many as the address has.
    bits: u8,
}

pub(crate) static PREFIX: TextKind = TextKind {
    what: "an address or a prefix of addresses such as \"10.0.0.0/8\" or \"fd00::/8\"",
    parse: |text| prefix(text).map(Value::Prefix),
};

impl Prefix {
    /// The prefix of the first `bits` bits of `address`, further bits being zero. `None` if the
    /// address has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Prefix> {
        (bits <= width(&address)).then(|| Prefix { address: masked(address, bits), bits })
    }

    /// Whether an address begins with the prefix. An IPv4 address that a socket of IPv6 shows
    /// (`::ffff:192.0.2.1`) counts as the IPv4 address it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.bits) == self.address
    }
}

impl fmt::Display for Prefix {
    /// As configuration writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn prefix(text: &str) -> Result<Prefix, Wrong> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| Wrong::default())?;
    if address.to_canonical() != address {
        let reason = "IPv4 addresses are written as such, also for listeners of both families";
        return Err(Wrong::because(reason));
    }
    let width = width(&address);
    let bits =
        match bits {
            None => width,
            Some(bits) => bits.parse().ok().filter(|&bits| bits <= width).ok_or_else(|| {
                Wrong::because(format!("the number of bits goes from 0 to {width}"))
            })?,
        };
    if masked(address, bits) != address {
        let meant = Prefix { address: masked(address, bits), bits };
        let reason = format!("its address goes beyond its {bits} bits");
        return Err(Wrong::because(reason).suggesting(meant.to_string()));
    }
    Ok(Prefix { address, bits })
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first bits of an address; a shift by the whole width would overflow.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_what_begins_with_it() {
        let check = |text: &str, address: &str, expect: bool| {
            let prefix = prefix(text).ok().unwrap();
            assert_eq!(prefix.contains(address.parse().unwrap()), expect, "{address} in {text}");
        };
        check("10.0.0.0/8", "10.255.0.1", true);
        check("10.0.0.0/8", "11.0.0.0", false);
        check("10.0.0.0/8", "::ffff:10.1.2.3", true);
        check("192.0.2.128/25", "192.0.2.127", false);
        check("192.0.2.1", "192.0.2.1", true);
        check("192.0.2.1", "192.0.2.0", false);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "2001:db8::1", false);
        check("::/0", "2001:db8::1", true);
        check("::/0", "192.0.2.1", false);
        check("fd00::/8", "fdff::1", true);
        check("fd00::/8", "fe00::1", false);
        check("::1", "::1", true);
    }

    #[test]
    fn bits_that_no_address_has_make_no_prefix() {
        assert!(Prefix::new([192, 0, 2, 1].into(), 33).is_none());
        let prefix = Prefix::new([192, 0, 2, 1].into(), 24).unwrap();
        assert_eq!(prefix.to_string(), "192.0.2.0/24");
    }
}
