//! Where a forward proxy may connect to. A name is judged twice: by itself and its port before
//! anything is resolved ([`Egress::judge_name`]), and by each address that it turns out to have
//! ([`Egress::judge_address`]). What is connected to is the very address that was judged, so that a
//! name which means something else at the next question (DNS rebinding) gains nothing.
//!
//! Addresses that are not public are refused unless the configuration opens their range, and the
//! server's own listeners always. How an address is written makes no difference: whatever the
//! resolver makes of it is judged.

mod special;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use weir_config::{Destination, Forward, ForwardRule, Prefix};

/// The rules of one forward proxy.
#[derive(Clone, Debug)]
pub struct Egress {
    rules: Vec<ForwardRule>,
    ports: Vec<(u16, u16)>,
    private: Vec<Prefix>,
    /// Where the server itself listens.
    own: Vec<SocketAddr>,
    /// There are `allow` lines: what none of them is about is denied.
    is_closed: bool,
}

/// What a name has been found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Allowed, if its addresses are not denied.
    Allowed,
    /// Allowed if one of its addresses is.
    IfAddress,
}

/// Why a destination is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Denied {
    /// A `deny` line has it, or no `allow` line.
    Host,
    /// The port is none that may be asked for.
    Port,
    /// A `deny` line has the address, or no `allow` line.
    Address,
    /// The address is not public, and no `private` line opens its range.
    Private,
    /// The server itself listens there.
    Own,
}

impl Denied {
    /// Every reason.
    pub const ALL: [Denied; 5] =
        [Denied::Host, Denied::Port, Denied::Address, Denied::Private, Denied::Own];

    /// The reason in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Denied::Host => "host",
            Denied::Port => "port",
            Denied::Address => "address",
            Denied::Private => "private",
            Denied::Own => "own",
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denied::Host => "this host is not allowed",
            Denied::Port => "this port is not allowed",
            Denied::Address => "the host's address is not allowed",
            Denied::Private => "the host's address is not public",
            Denied::Own => "the host's address is this server's own",
        })
    }
}

impl std::error::Error for Denied {}

impl Egress {
    /// The rules of `settings` for tunnels, which may lead to other ports than requests.
    pub fn of_tunnels(settings: &Forward, own: Vec<SocketAddr>) -> Egress {
        Egress { ports: settings.connect.ports.clone(), ..Egress::new(settings, own) }
    }

    /// The rules of `settings` for requests, for a server that listens at `own`.
    pub fn new(settings: &Forward, own: Vec<SocketAddr>) -> Egress {
        Egress {
            rules: settings.rules.clone(),
            ports: settings.ports.clone(),
            private: settings.private.clone(),
            own,
            is_closed: settings.rules.iter().any(|rule| rule.allows),
        }
    }

    /// Judges a host in its one form (lower case, IPv6 addresses in brackets) and a port.
    ///
    /// # Errors
    /// Why it is refused whatever its addresses are.
    pub fn judge_name(&self, name: &str, port: u16) -> Result<Named, Denied> {
        if !self.ports.iter().any(|(first, last)| (first..=last).contains(&&port)) {
            return Err(Denied::Port);
        }
        let named = |allows| {
            let is = |rule: &ForwardRule| rule.allows == allows && rule.names(name, port);
            self.rules.iter().any(is)
        };
        if named(false) {
            return Err(Denied::Host);
        }
        if !self.is_closed || named(true) {
            return Ok(Named::Allowed);
        }
        let is_address = |destination: &Destination| matches!(destination, Destination::Prefix(_));
        let by_address = |rule: &ForwardRule| rule.destinations.iter().any(is_address);
        match self.rules.iter().any(|rule| rule.allows && by_address(rule)) {
            true => Ok(Named::IfAddress),
            false => Err(Denied::Host),
        }
    }

    /// Judges one of the addresses of a name that was found to be `named`.
    ///
    /// # Errors
    /// Why nothing may connect to it.
    pub fn judge_address(&self, named: Named, address: SocketAddr) -> Result<(), Denied> {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        if self.is_own(ip, port) {
            return Err(Denied::Own);
        }
        // An address that carries another one is what is behind it, too.
        let faces = [Some(ip), special::carried(ip)];
        let mut faces = faces.into_iter().flatten();
        let covers = |allows, ip| {
            let is = |rule: &ForwardRule| rule.allows == allows && rule.covers(ip, port);
            self.rules.iter().any(is)
        };
        if faces.clone().any(|face| covers(false, face)) {
            return Err(Denied::Address);
        }
        if named == Named::IfAddress && !covers(true, ip) {
            return Err(Denied::Address);
        }
        let is_open = |face| self.private.iter().any(|prefix| prefix.contains(face));
        match is_open(ip) || faces.all(|face| special::is_public(face) || is_open(face)) {
            true => Ok(()),
            false => Err(Denied::Private),
        }
    }

    /// The addresses of a name that may be connected to.
    ///
    /// # Errors
    /// Why there are none; [`Denied::Host`] and [`Denied::Port`] if it is not to do with addresses.
    pub fn choose(
        &self,
        name: &str,
        port: u16,
        addresses: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, Denied> {
        let named = self.judge_name(name, port)?;
        let mut denied = Denied::Address;
        let mut chosen = Vec::new();
        for address in addresses {
            match self.judge_address(named, *address) {
                // What is connected to is what was judged.
                Ok(()) => chosen.push(SocketAddr::new(address.ip().to_canonical(), port)),
                Err(why) => denied = why,
            }
        }
        if chosen.is_empty() { Err(denied) } else { Ok(chosen) }
    }

    /// Whether a connection, just made, has led back to the server itself. On its own machine all
    /// addresses lead to what listens on any of them.
    pub(crate) fn is_back(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let is = |own: &SocketAddr| own.port() == peer.port() && own.ip().is_unspecified();
        local.ip() == peer.ip() && self.own.iter().any(is)
    }

    fn is_own(&self, ip: IpAddr, port: u16) -> bool {
        let is = |own: &SocketAddr| {
            let same = own.ip().to_canonical() == ip
                || ip.is_unspecified()
                || (own.ip().is_unspecified() && ip.is_loopback());
            own.port() == port && same
        };
        self.own.iter().any(is)
    }
}

/// Whether a host is a number in disguise: its last part is one, and yet it is no IPv4 address as
/// everybody writes them. Resolvers take `127.1`, `0x7f000001` and `2130706433` for addresses, and
/// others do not, so that whoever judges the name and whoever connects may mean two things
/// (the WHATWG's URL Standard, section 3.5, refuses or converts them; here they are refused).
pub fn is_disguised_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = match last.strip_prefix("0x") {
        Some(digits) => is_hex(digits),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    };
    is_number && name.parse::<std::net::Ipv4Addr>().is_err()
}

#[cfg(test)]
mod tests;
