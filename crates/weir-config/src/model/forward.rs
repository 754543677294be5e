//! What a forward proxy lets through: who may use it, and where to.

use std::path::PathBuf;
use std::time::Duration;

use crate::prefix::Prefix;

/// `forward` in a route: requests go wherever they name, if that is allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// Clients that may use it; none given means any that can connect.
    pub from: Vec<Prefix>,
    /// Users, one of whom a client must be; default: anybody.
    pub users: Option<ForwardUsers>,
    /// `allow` and `deny` lines in file order.
    pub rules: Vec<ForwardRule>,
    /// Ports that may be asked for, each from the first to the last.
    pub ports: Vec<(u16, u16)>,
    /// Ranges of addresses that may be connected to although they are not public.
    pub private: Vec<Prefix>,
    /// Limit on establishing a connection, resolution and TLS included.
    pub connect_timeout: Duration,
    /// From the request's last byte to the response head.
    pub first_byte_timeout: Duration,
    /// Between two reads of a response body.
    pub idle_timeout: Duration,
    /// What CONNECT may open.
    pub connect: ForwardConnect,
    /// Hosts whose TLS is opened, if any.
    pub inspect: Option<ForwardInspect>,
    /// Roots that origins with `https` are verified by; default: the operating system's.
    pub ca: Option<PathBuf>,
}

/// `users` in a `forward` block: clients have passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardUsers {
    /// The file of names and hashes.
    pub file: PathBuf,
    /// What clients are told that they are asked for.
    pub realm: String,
    /// They may send them where others can read them.
    pub cleartext: bool,
}

/// `connect` in a `forward` block: tunnels.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardConnect {
    /// Ports that they may lead to, each from the first to the last; none given means no tunnels.
    pub ports: Vec<(u16, u16)>,
    /// How long a tunnel may be silent.
    pub idle: Duration,
    /// Bytes of a tunnel, both ways together; default: any number.
    pub bytes: Option<u64>,
    /// Tunnels that may be open at a time.
    pub open: usize,
}

impl Default for ForwardConnect {
    fn default() -> Self {
        let idle = Duration::from_secs(300);
        ForwardConnect { ports: vec![(443, 443)], idle, bytes: None, open: 10_000 }
    }
}

/// `inspect` in a `forward` block: tunnels to these hosts are opened, and what passes is served as
/// requests are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardInspect {
    /// By name: never by address, and never any.
    pub hosts: Vec<Destination>,
    /// The authority's certificate.
    pub ca: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl ForwardInspect {
    /// Whether it is for a host, in lower case.
    pub fn is_for(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.names(name))
    }
}

/// An `allow` or `deny` line: one or more destinations, at any port or at some.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardRule {
    /// `allow`.
    pub allows: bool,
    /// What it is about, at least one.
    pub destinations: Vec<Destination>,
    /// At these ports only, from the first to the last.
    pub ports: Option<(u16, u16)>,
}

/// Where a request goes, by name or by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// `*`: anywhere.
    Any,
    /// A host name in lower case.
    Host(String),
    /// `*.example`: all names that end with this, kept with the dot.
    Suffix(String),
    /// Addresses, whatever name led to them.
    Prefix(Prefix),
}

impl Destination {
    fn names(&self, name: &str) -> bool {
        match self {
            Destination::Any => true,
            Destination::Host(host) => host == name,
            Destination::Suffix(suffix) => name.len() > suffix.len() && name.ends_with(&**suffix),
            Destination::Prefix(_) => false,
        }
    }
}

impl std::fmt::Display for Destination {
    /// As configuration writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Destination::Any => f.write_str("*"),
            Destination::Host(name) => f.write_str(name),
            Destination::Suffix(suffix) => write!(f, "*{suffix}"),
            Destination::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

impl ForwardRule {
    /// Whether a name (in lower case) and a port are what it is about. Prefixes are about
    /// addresses, which a name does not tell.
    pub fn names(&self, name: &str, port: u16) -> bool {
        self.has_port(port) && self.destinations.iter().any(|destination| destination.names(name))
    }

    /// Whether it is about an address and a port.
    pub fn covers(&self, address: std::net::IpAddr, port: u16) -> bool {
        let is = |destination: &Destination| match destination {
            Destination::Prefix(prefix) => prefix.contains(address),
            _ => false,
        };
        self.has_port(port) && self.destinations.iter().any(is)
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.is_none_or(|(first, last)| (first..=last).contains(&port))
    }
}
