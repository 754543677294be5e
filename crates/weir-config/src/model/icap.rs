//! ICAP services: the `icap` blocks.

use std::fmt;
use std::time::Duration;

use super::OnFailure;

/// An `icap` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icap {
    /// What routes, metrics and logs call it.
    pub name: String,
    /// Who sees requests.
    pub reqmod: Option<IcapUrl>,
    /// Who sees responses.
    pub respmod: Option<IcapUrl>,
    /// How long a service may stand still.
    pub timeout: Duration,
    /// Connections at a time to each of the two.
    pub connections: usize,
    /// Tell them the client's address.
    pub client_address: bool,
    /// What becomes of a message to which there is no answer.
    pub on_failure: OnFailure,
}

/// `icap://host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcapUrl {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path, with the slash, and query.
    pub path: String,
}

impl fmt::Display for IcapUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IcapUrl { host, port, path } = self;
        match host.contains(':') {
            true => write!(f, "icap://[{host}]:{port}{path}"),
            false => write!(f, "icap://{host}:{port}{path}"),
        }
    }
}
