//! Upstream groups: their servers, how one is chosen, and how their health is known.

use std::path::PathBuf;
use std::time::Duration;

/// An `upstream` block: servers that hold the same content.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Name in configuration, metrics and logs.
    pub name: String,
    /// The group's servers, at least one.
    pub servers: Vec<UpstreamServer>,
    /// How a server is chosen.
    pub balance: Balance,
    /// Protocol spoken to the servers.
    pub protocol: UpstreamProtocol,
    /// Idle connections kept per server and worker; 0 closes after each request.
    pub keep_alive: usize,
    /// How long an idle connection is kept.
    pub keep_alive_timeout: Duration,
    /// Limit on establishing a connection, TLS included.
    pub connect_timeout: Duration,
    /// From the request's last byte to the response head.
    pub first_byte_timeout: Duration,
    /// Between two reads of a response body.
    pub idle_timeout: Duration,
    /// Further attempts after a failed one, on another server where there is one.
    pub retries: u32,
    /// Requests in flight per server, over all workers; 0 means no limit.
    pub max_requests: usize,
    /// Requests in flight to the group; others wait by class.
    pub concurrency: Concurrency,
    /// Active health checks, if any.
    pub health_check: Option<HealthCheck>,
    /// Passive health: a server that fails too often rests for a while.
    pub passive: Passive,
    /// TLS settings, used by servers with an `https` URL.
    pub tls: UpstreamTls,
}

impl Upstream {
    /// A group with default settings.
    pub fn new(name: String, servers: Vec<UpstreamServer>) -> Self {
        Upstream {
            name,
            servers,
            balance: Balance::RoundRobin,
            protocol: UpstreamProtocol::Auto,
            keep_alive: 64,
            keep_alive_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            retries: 1,
            max_requests: 0,
            concurrency: Concurrency::Auto,
            health_check: None,
            passive: Passive::default(),
            tls: UpstreamTls::default(),
        }
    }
}

/// How many requests an upstream group may have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Concurrency {
    /// As many as it serves without delay, by measurement.
    #[default]
    Auto,
    /// So many.
    Fixed(u32),
    /// Any number.
    Unlimited,
}

/// One server of an upstream group.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamServer {
    /// `true` for `https://…`.
    pub tls: bool,
    /// Where to connect.
    pub target: Target,
    /// Host and optional port as written: the Host sent if the group rewrites it, and the SNI name.
    pub authority: String,
    /// Relative share of requests, 1 and up.
    pub weight: u32,
}

/// Where an upstream server is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A name or address and a port, resolved when connecting.
    Host(String, u16),
    /// A Unix-domain socket.
    Unix(PathBuf),
}

/// How a server of an upstream group is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// The one with the fewest requests in flight per weight.
    LeastConnections,
    /// The less loaded of two drawn at random.
    TwoChoices,
    /// Consistent hashing of a key, so that a key stays with its server.
    Hash(HashKey),
}

/// What consistent hashing hashes.
#[derive(Clone, Debug, PartialEq)]
pub enum HashKey {
    /// Path and query.
    Path,
    /// The client's address.
    Client,
    /// A request header's value (name in lower case).
    Header(String),
    /// A cookie's value.
    Cookie(String),
}

/// Protocol spoken to an upstream's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, and HTTP/2 where TLS negotiates it.
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only (prior knowledge without TLS).
    Http2,
}

/// Active health checks of an upstream group.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthCheck {
    /// Path and query of the probe.
    pub path: String,
    /// Time between two probes of a server.
    pub interval: Duration,
    /// Limit on one probe.
    pub timeout: Duration,
    /// Successes in a row that bring a server back.
    pub healthy: u32,
    /// Failures in a row that take a server out.
    pub unhealthy: u32,
    /// Status codes that count as success, inclusive.
    pub status: (u16, u16),
}

/// Passive health of an upstream's servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Passive {
    /// Failures within `window` that eject a server; 0 switches ejection off.
    pub failures: u32,
    /// Time over which failures are counted.
    pub window: Duration,
    /// How long an ejected server rests.
    pub eject: Duration,
}

/// TLS to an upstream's servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTls {
    /// Name for SNI and verification; default: the server's host.
    pub server_name: Option<String>,
    /// PEM file of trusted roots; default: the system's.
    pub ca: Option<PathBuf>,
    /// Accept any certificate. For tests only; said in the log at start.
    pub insecure: bool,
}

impl Default for Passive {
    fn default() -> Self {
        Passive { failures: 3, window: Duration::from_secs(10), eject: Duration::from_secs(10) }
    }
}
