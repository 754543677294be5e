//! Which addresses are public: those that IANA's registries of special-purpose addresses (RFC 6890)
//! do not take out, and that are not multicast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of IPv4 that are not public: first address, bits.
const V4: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),       // this network (RFC 791)
    ([10, 0, 0, 0], 8),      // private (RFC 1918)
    ([100, 64, 0, 0], 10),   // shared with a carrier (RFC 6598)
    ([127, 0, 0, 0], 8),     // loopback (RFC 1122)
    ([169, 254, 0, 0], 16),  // link-local (RFC 3927), where clouds keep their metadata
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments (RFC 6890)
    ([192, 0, 2, 0], 24),    // documentation (RFC 5737)
    ([192, 88, 99, 0], 24),  // once relays of 6to4 (RFC 7526)
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks (RFC 2544)
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 4),     // multicast (RFC 5771)
    ([240, 0, 0, 0], 4),     // reserved, and broadcast (RFC 1112)
];

/// Ranges within the public part of IPv6, 2000::/3, that are not public all the same.
const V6: [([u16; 3], u32); 4] = [
    ([0x2001, 0, 0], 23), // protocol assignments (RFC 2928), Teredo (RFC 4380) among them
    ([0x2001, 0xdb8, 0], 32), // documentation (RFC 3849)
    ([0x2620, 0x4f, 0x8000], 48), // AS112, which answers for private names (RFC 7534)
    ([0x3fff, 0, 0], 20), // documentation (RFC 9637)
];

/// NAT64's prefix of the internet as a whole (RFC 6052): the address behind it counts.
const NAT64: u128 = 0x0064_ff9b << 96;

/// Whether an address is one that anybody on the internet may have.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !V4.iter().any(|(first, bits)| {
            let first = Ipv4Addr::from(*first).to_bits();
            v4.to_bits() >> (32 - bits) == first >> (32 - bits)
        }),
        IpAddr::V6(v6) => is_nat64(v6) || is_public_v6(v6),
    }
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let bits = v6.to_bits();
    let is_global = bits >> 125 == 0b001;
    let is_special = |([a, b, c], length): &([u16; 3], u32)| {
        let first = Ipv6Addr::new(*a, *b, *c, 0, 0, 0, 0, 0).to_bits();
        bits >> (128 - length) == first >> (128 - length)
    };
    is_global && !V6.iter().any(is_special)
}

fn is_nat64(v6: Ipv6Addr) -> bool {
    v6.to_bits() >> 32 == NAT64 >> 32
}

/// The IPv4 address that an IPv6 one carries, where packets to the one may reach the other.
pub(super) fn carried(ip: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = ip else { return None };
    let bits = v6.to_bits();
    let last = || Ipv4Addr::from_bits(bits as u32);
    let v4 = match v6.segments() {
        // 6to4 (RFC 3056).
        [0x2002, ..] => Ipv4Addr::from_bits((bits >> 80) as u32),
        // Teredo (RFC 4380, section 4): the client's address, inverted.
        [0x2001, 0, ..] => Ipv4Addr::from_bits(!(bits as u32)),
        _ if is_nat64(v6) => last(),
        // NAT64 of a network's own (RFC 8215), and IPv4-compatible addresses (RFC 4291). Mapped
        // ones are IPv4 addresses already.
        [0x64, 0xff9b, 1, ..] => last(),
        [0, 0, 0, 0, 0, 0, ..] if bits > 1 => last(),
        // ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => last(),
        _ => return None,
    };
    Some(IpAddr::V4(v4))
}
