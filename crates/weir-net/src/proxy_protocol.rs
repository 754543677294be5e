//! The PROXY protocol, versions 1 and 2, receiving side: from bytes to the addresses a proxy in
//! front of Weir speaks for. Whether to expect it and whom to believe is the listener's business.
//!
//! Written here because the libraries for it either accept what the specification does not
//! (signs and leading zeros in ports, over-long lines) or cannot tell a line that is still arriving
//! from a bad one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest version 1 line, line break included (specification, section 2.1).
pub const V1_SIZE_MAX: usize = 107;

/// Longest version 2 header accepted. The specification promises receivers at most 536 bytes
/// (section 2.2), but senders put TLS details and cloud tags into it; 4 KiB holds what is seen in
/// practice and bounds what an unauthenticated peer can make us keep.
pub const V2_SIZE_MAX: usize = 4096;

/// First bytes of version 2, chosen to be no other protocol's.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family, length.
const V2_PREFIX_SIZE: usize = 16;

/// Two socket paths of 108 bytes.
const UNIX_ADDRESSES_SIZE: usize = 216;

const V1_START: &[u8] = b"PROXY ";

/// What the bytes received so far hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A header may be arriving. Call again when this many bytes are there in all; no valid header
    /// ends before.
    Incomplete {
        /// Bytes needed, counted from the header's first.
        at_least: usize,
    },
    /// A whole header.
    Complete {
        /// Whom the connection is for; `None` if the proxy speaks for itself (`LOCAL`, as health
        /// checks do) or does not know or say so in IP addresses (`UNKNOWN`, Unix sockets).
        addresses: Option<Addresses>,
        /// Bytes the header took; what follows is the client's.
        consumed: usize,
    },
}

/// The two ends of the connection that a proxy accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// The address the client connected to.
    pub destination: SocketAddr,
}

/// Why the bytes are no PROXY header. The connection must be closed: what follows cannot be
/// trusted to be the client's (specification, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Neither version's first bytes.
    #[error("no PROXY protocol header; expected “PROXY ” or the signature of version 2")]
    Signature,
    /// No line break within the permitted length.
    #[error("PROXY line without CRLF in its first {V1_SIZE_MAX} bytes")]
    LineTooLong,
    /// A carriage return without a line feed, or a line feed alone.
    #[error("PROXY line not ended by CRLF")]
    LineEnd,
    /// Not TCP4, TCP6 or UNKNOWN, or not the four fields they need.
    #[error("PROXY line is not “PROXY TCP4|TCP6 SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT”")]
    Fields,
    /// An address that is not one of the announced family.
    #[error("PROXY line with an address that is not one of its family")]
    Address,
    /// Not a decimal number up to 65535 without sign or leading zeros.
    #[error("PROXY line with a port that is not a plain number from 0 to 65535")]
    Port,
    /// Version not 2, or command neither LOCAL nor PROXY.
    #[error("PROXY header with version and command 0x{0:02x}; expected 0x20 or 0x21")]
    Command(u8),
    /// An address family or transport that the specification does not name.
    #[error("PROXY header with unknown family and transport 0x{0:02x}")]
    Family(u8),
    /// More than [`V2_SIZE_MAX`].
    #[error("PROXY header of {0} bytes; at most {V2_SIZE_MAX} are accepted")]
    TooLong(usize),
    /// Too short for the addresses it announces.
    #[error("PROXY header too short for its addresses")]
    AddressesTruncated,
    /// An extension field (TLV) that runs past the header's end.
    #[error("PROXY header with an extension field that runs past its end")]
    ExtensionTruncated,
}

/// Looks for a header at the start of `received`. Never reads past the header's own end.
///
/// # Errors
/// [`Invalid`], as soon as no continuation could make the bytes a header.
pub fn parse(received: &[u8]) -> Result<Parsed, Invalid> {
    match received.first() {
        None => Ok(Parsed::Incomplete { at_least: b"PROXY UNKNOWN\r\n".len() }),
        Some(b'P') => parse_v1(received),
        Some(b'\r') => parse_v2(received),
        Some(_) => Err(Invalid::Signature),
    }
}

fn parse_v1(received: &[u8]) -> Result<Parsed, Invalid> {
    expect_prefix(received, V1_START)?;
    let window = &received[..received.len().min(V1_SIZE_MAX)];
    // A control character cannot be part of any field, so the first one must be the line's end;
    // this also stops a stray LF early instead of waiting for 107 bytes.
    let Some(end) = window.iter().position(|b| b.is_ascii_control()) else {
        return match window.len() {
            V1_SIZE_MAX => Err(Invalid::LineTooLong),
            length => {
                let shortest = b"PROXY UNKNOWN\r\n".len();
                Ok(Parsed::Incomplete { at_least: shortest.max(length + 2).min(V1_SIZE_MAX) })
            }
        };
    };
    match window.get(end..end + 2) {
        Some(b"\r\n") => {}
        None if window[end] == b'\r' && end + 2 <= V1_SIZE_MAX => {
            return Ok(Parsed::Incomplete { at_least: end + 2 });
        }
        _ => return Err(Invalid::LineEnd),
    }
    let line = std::str::from_utf8(&window[V1_START.len()..end]).map_err(|_| Invalid::Fields)?;
    Ok(Parsed::Complete { addresses: v1_addresses(line)?, consumed: end + 2 })
}

/// `line` is what stands between `PROXY ` and the line break.
fn v1_addresses(line: &str) -> Result<Option<Addresses>, Invalid> {
    // What follows UNKNOWN is to be ignored (section 2.1).
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(None);
    }
    let mut fields = line.split(' ');
    let mut next = || fields.next().ok_or(Invalid::Fields);
    let (family, source, destination) = (next()?, next()?, next()?);
    let (source_port, destination_port) = (v1_port(next()?)?, v1_port(next()?)?);
    if fields.next().is_some() {
        return Err(Invalid::Fields);
    }
    let address: fn(&str) -> Result<IpAddr, Invalid> = match family {
        "TCP4" => v1_address::<Ipv4Addr>,
        "TCP6" => v1_address::<Ipv6Addr>,
        _ => return Err(Invalid::Fields),
    };
    Ok(Some(Addresses {
        source: SocketAddr::new(address(source)?, source_port),
        destination: SocketAddr::new(address(destination)?, destination_port),
    }))
}

fn v1_address<T: FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, Invalid> {
    text.parse::<T>().map(Into::into).map_err(|_| Invalid::Address)
}

fn v1_port(text: &str) -> Result<u16, Invalid> {
    let plain = text == "0" || text.bytes().next().is_some_and(|b| matches!(b, b'1'..=b'9'));
    if plain { text.parse().map_err(|_| Invalid::Port) } else { Err(Invalid::Port) }
}

fn parse_v2(received: &[u8]) -> Result<Parsed, Invalid> {
    expect_prefix(received, V2_SIGNATURE)?;
    if let Some(&command) = received.get(12)
        && !matches!(command, 0x20 | 0x21)
    {
        return Err(Invalid::Command(command));
    }
    let Some(prefix) = received.get(..V2_PREFIX_SIZE) else {
        return Ok(Parsed::Incomplete { at_least: V2_PREFIX_SIZE });
    };
    let is_local = prefix[12] == 0x20;
    let consumed = V2_PREFIX_SIZE + usize::from(u16::from_be_bytes([prefix[14], prefix[15]]));
    if consumed > V2_SIZE_MAX {
        return Err(Invalid::TooLong(consumed));
    }
    let Some(payload) = received.get(V2_PREFIX_SIZE..consumed) else {
        return Ok(Parsed::Incomplete { at_least: consumed });
    };
    if is_local {
        // The rest, family included, is to be discarded unread (section 2.2).
        return Ok(Parsed::Complete { addresses: None, consumed });
    }
    let (addresses, extensions) = v2_addresses(prefix[13], payload)?;
    check_extensions(extensions)?;
    Ok(Parsed::Complete { addresses, consumed })
}

/// The addresses, and the extension fields after them.
fn v2_addresses(family: u8, payload: &[u8]) -> Result<(Option<Addresses>, &[u8]), Invalid> {
    let size = match family {
        // Unspecified: what follows has no known layout, so it is skipped whole.
        0x00 => return Ok((None, &[])),
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => UNIX_ADDRESSES_SIZE,
        other => return Err(Invalid::Family(other)),
    };
    let (block, extensions) = payload.split_at_checked(size).ok_or(Invalid::AddressesTruncated)?;
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    let addresses = match *block {
        [s0, s1, s2, s3, d0, d1, d2, d3, _, _, _, _] => Some((
            SocketAddr::from(([s0, s1, s2, s3], port(8))),
            SocketAddr::from(([d0, d1, d2, d3], port(10))),
        )),
        _ if size == 36 => Some((
            SocketAddr::from((v6_octets(&block[..16]), port(32))),
            SocketAddr::from((v6_octets(&block[16..32]), port(34))),
        )),
        _ => None,
    };
    let addresses = addresses.map(|(source, destination)| Addresses { source, destination });
    Ok((addresses, extensions))
}

fn v6_octets(bytes: &[u8]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    octets
}

/// Type, two bytes of length, value, again and again: nothing in them is used, but a sender that
/// cannot count is not believed in the rest either.
fn check_extensions(mut rest: &[u8]) -> Result<(), Invalid> {
    while !rest.is_empty() {
        let &[_, high, low, ref after @ ..] = rest else {
            return Err(Invalid::ExtensionTruncated);
        };
        let size = usize::from(u16::from_be_bytes([high, low]));
        rest = after.get(size..).ok_or(Invalid::ExtensionTruncated)?;
    }
    Ok(())
}

/// Whether `received` begins with `prefix` or is the beginning of it.
fn expect_prefix(received: &[u8], prefix: &[u8]) -> Result<(), Invalid> {
    let length = received.len().min(prefix.len());
    if received[..length] == prefix[..length] { Ok(()) } else { Err(Invalid::Signature) }
}

#[cfg(test)]
#[path = "proxy_protocol_tests.rs"]
mod tests;
