//! Address prefixes such as `10.0.0.0/8`, and ranges such as `10.0.0.1-10.0.0.9`: the types, and
//! the rules for writing them.

use std::fmt;
use std::net::IpAddr;

use crate::model::AddressRange;
use crate::rules::plugin::is_plugin_name;
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

/// One of the values of `from` and `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// A prefix, a range or an address.
    Range(AddressRange),
    /// All that is in a list.
    List(String),
}

pub(crate) static ADDRESSES: TextKind = TextKind {
    what: "an address, a prefix such as \"10.0.0.0/8\", a range such as \"10.0.0.1-10.0.0.9\", or a list such as \"@crawlers\"",
    parse: |text| match text.strip_prefix('@') {
        Some(name) if is_plugin_name(name) => {
            Ok(Value::Addresses(Addresses::List(name.to_owned())))
        }
        Some(_) => Err(Wrong::because("after `@` stands the name of a list")),
        None => range(text).map(|range| Value::Addresses(Addresses::Range(range))),
    },
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

impl Prefix {
    /// The first address and the last.
    pub fn range(&self) -> AddressRange {
        let bits = u32::from(self.bits);
        let last = match self.address {
            IpAddr::V4(v4) => {
                IpAddr::V4((v4.to_bits() | u32::MAX.checked_shr(bits).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                IpAddr::V6((v6.to_bits() | u128::MAX.checked_shr(bits).unwrap_or(0)).into())
            }
        };
        (self.address, last)
    }
}

impl fmt::Display for Prefix {
    /// As configuration writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A prefix as configuration writes it.
pub(crate) fn parse_prefix(text: &str) -> Result<Prefix, Wrong> {
    prefix(text)
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

/// A range of addresses, written as one, as a prefix, or as a single address.
pub(crate) fn range(text: &str) -> Result<AddressRange, Wrong> {
    let Some((first, last)) = text.split_once('-') else {
        return prefix(text).map(|prefix| prefix.range());
    };
    let address = |text: &str| match prefix(text) {
        Ok(prefix) if !text.contains('/') => Ok(prefix.address),
        Ok(_) => Err(Wrong::because("at the ends of a range stand addresses")),
        Err(wrong) => Err(wrong),
    };
    let (first, last) = (address(first)?, address(last)?);
    if first.is_ipv4() != last.is_ipv4() {
        return Err(Wrong::because("the ends of a range are both IPv4 or both IPv6"));
    }
    if first > last {
        let wrong = Wrong::because("the lower end of a range stands first");
        return Err(wrong.suggesting(format!("{last}-{first}")));
    }
    Ok((first, last))
}

/// A range as it is written in a configuration: in the shortest way that says it.
pub(crate) fn print_range((first, last): &AddressRange) -> String {
    if first == last {
        return first.to_string();
    }
    let differing = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        _ => 0,
    };
    let bits = u8::try_from(differing).unwrap_or(0);
    match Prefix::new(*first, bits) {
        Some(prefix) if prefix.range() == (*first, *last) => prefix.to_string(),
        _ => format!("{first}-{last}"),
    }
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
    fn ranges_print_as_they_are_written() {
        for text in [
            "10.0.0.0/8",
            "10.0.0.1",
            "10.0.0.1-10.0.0.9",
            "0.0.0.0/0",
            "0.0.0.0/1",
            "0.0.0.1-255.255.255.255",
            "::/0",
            "::1",
            "fd00::/8",
            "2001:db8::-2001:db8::2",
        ] {
            assert_eq!(print_range(&range(text).ok().unwrap()), text);
        }
        assert_eq!(print_range(&range("10.0.0.0-10.255.255.255").ok().unwrap()), "10.0.0.0/8");
        let (first, last) = range("192.0.2.128/25").ok().unwrap();
        assert_eq!(
            (first.to_string(), last.to_string()),
            ("192.0.2.128".into(), "192.0.2.255".into())
        );
    }

    #[test]
    fn bits_that_no_address_has_make_no_prefix() {
        assert!(Prefix::new([192, 0, 2, 1].into(), 33).is_none());
        let prefix = Prefix::new([192, 0, 2, 1].into(), 24).unwrap();
        assert_eq!(prefix.to_string(), "192.0.2.0/24");
    }
}
