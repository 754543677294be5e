//! First packets of connections, for test runs and measurements.

use std::net::{IpAddr, SocketAddr};

/// A frame with a TCP header and these flags.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) flags: u8,
    /// Bytes of options of IPv4, in fours.
    pub(crate) ip_options: usize,
    /// Bytes of options of TCP, in fours.
    pub(crate) tcp_options: usize,
    /// VLAN tags before the type.
    pub(crate) tags: usize,
}

pub(crate) const SYN: u8 = 0x02;

impl Frame {
    /// A SYN without options.
    pub(crate) fn syn(from: SocketAddr, to: SocketAddr) -> Frame {
        Frame { from, to, flags: SYN, ip_options: 0, tcp_options: 0, tags: 0 }
    }

    /// Its bytes. Checksums are left out: nothing on the way looks at them.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        for _ in 0..self.tags {
            bytes.extend([0x81, 0x00, 0x00, 0x01]);
        }
        let tcp_bytes = 20 + self.tcp_options;
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let header = 20 + self.ip_options;
                bytes.extend([0x08, 0x00, 0x40 | (header / 4) as u8, 0]);
                bytes.extend(((header + tcp_bytes) as u16).to_be_bytes());
                bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
                // No-operations (RFC 791 §3.1).
                bytes.resize(bytes.len() + self.ip_options, 1);
            }
            (from, to) => {
                bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                bytes.extend((tcp_bytes as u16).to_be_bytes());
                bytes.extend([6, 64]);
                for address in [from, to] {
                    bytes.extend(match address {
                        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                        IpAddr::V6(v6) => v6.octets(),
                    });
                }
            }
        }
        bytes.extend(self.from.port().to_be_bytes());
        bytes.extend(self.to.port().to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend([(tcp_bytes / 4 * 16) as u8, self.flags]);
        bytes.extend([0xff, 0xff, 0, 0, 0, 0]);
        bytes.resize(bytes.len() + self.tcp_options, 1);
        bytes
    }
}
