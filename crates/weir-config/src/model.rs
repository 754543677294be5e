//! The typed configuration: what the rest of Weir sees. Everything here is validated; a value that
//! exists is a value that may be used without a further check.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::prefix::Prefix;

/// A whole configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Settings of the process: the `server` block.
    pub server: Server,
    /// Settings of the shared cache: the `cache` block.
    pub cache: Cache,
    /// Upstream groups by name. `proxy "http://…"` makes an anonymous group named by its URL.
    pub upstreams: Vec<Upstream>,
    /// Sites in file order.
    pub sites: Vec<Site>,
}

/// The `server` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Worker threads; `None` means one per core (`workers "auto"`).
    pub workers: Option<usize>,
    /// Where the admin API listens; `None` switches it off (`admin "off"`).
    pub admin: Option<Address>,
    /// User (name or number) to become after the sockets are bound.
    pub user: Option<String>,
    /// Group (name or number) to become; default: the user's own group.
    pub group: Option<String>,
    /// Reload by itself when the configuration file changes.
    pub watch: bool,
    /// How long a graceful stop waits for requests in flight.
    pub drain_timeout: Duration,
    /// Peers whose Forwarded and X-Forwarded-* fields are believed and added to.
    pub trusted_proxies: Vec<Prefix>,
    /// Limits that hold for every connection.
    pub limits: Limits,
}

/// The `server { limits … }` block. A limit exists for everything a client can make grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Open client connections, over all workers.
    pub connections: usize,
    /// Bytes of a request head (request line and header fields).
    pub header_size: usize,
    /// Number of header fields in a request.
    pub header_count: usize,
    /// Bytes of a request body; a route may set its own.
    pub body_size: u64,
    /// From the first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// Between two reads of a request body.
    pub body_timeout: Duration,
    /// Between two writes that make progress while a response is pending.
    pub send_timeout: Duration,
    /// How long a keep-alive connection may wait for its next request.
    pub idle_timeout: Duration,
    /// Concurrent streams of one HTTP/2 connection.
    pub http2_streams: u32,
}

/// The `cache` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// Bytes of bodies and heads that may be stored.
    pub memory: u64,
    /// Largest object that is stored, in bytes. Default: an eighth of `memory`.
    pub object_max: u64,
    /// What to evict first.
    pub policy: Policy,
}

/// Eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Greedy-Dual-Size-Frequency: keeps small, often used objects (the default).
    Gdsf,
    /// Least recently used.
    Lru,
}

/// A TCP or Unix-domain address to listen on or connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// `ip:port`
    Tcp(SocketAddr),
    /// `unix:/path`
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    /// As configuration writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

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
            health_check: None,
            passive: Passive::default(),
            tls: UpstreamTls::default(),
        }
    }
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

/// A `site` block: names, listeners and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Host names served, lower case; `*.example` is a wildcard, `*` any name. The first is the
    /// site's name in logs and metrics.
    pub names: Vec<String>,
    /// Where the site listens.
    pub listeners: Vec<Listener>,
    /// Certificates for the site's TLS listeners.
    pub certificates: Vec<Certificate>,
    /// Access log, if any.
    pub access_log: Option<AccessLog>,
    /// Routes; the most specific path wins, whatever the order.
    pub routes: Vec<Route>,
}

/// One `listen` line.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Where to listen.
    pub address: Address,
    /// TLS, if any.
    pub tls: Option<ListenerTls>,
    /// Expect a PROXY protocol header (v1 or v2) on every connection.
    pub proxy_protocol: bool,
}

/// Where a TLS listener's certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerTls {
    /// `tls="auto"`: from the `certificate` lines, chosen by server name.
    Files,
    /// `tls="self-signed"`: made at start for the site's names; for development.
    SelfSigned,
}

/// A `certificate` line: PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// Certificate chain, leaf first.
    pub chain: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Where access records go.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// A file's path, or `-` for standard output.
    pub path: PathBuf,
    /// Form of a record.
    pub format: LogFormat,
}

/// Form of an access record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Apache's combined format.
    Combined,
}

/// A `route` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Path pattern: exact (`/about`) or prefix (`/images/*`).
    pub pattern: Pattern,
    /// What answers.
    pub source: Source,
    /// Cache settings.
    pub cache: RouteCache,
    /// Edits of the response head, in order.
    pub response_headers: Vec<HeaderEdit>,
    /// Edits of the head sent to the origin, in order.
    pub request_headers: Vec<HeaderEdit>,
    /// Bytes of a request body; default: the server's limit.
    pub body_size: Option<u64>,
}

/// A path pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Matches this path only.
    Exact(String),
    /// Matches every path that starts with this one; `/images/*` is kept as `/images/`.
    Prefix(String),
}

/// What answers a route's requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Files under a directory.
    Files(Files),
    /// An upstream group, by name.
    Proxy(Proxy),
    /// A redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// Target; `{path}`, `{query}`, `{host}` and `{uri}` (path and query) are filled in.
        location: String,
    },
    /// A fixed answer.
    Respond {
        /// Status code.
        status: u16,
        /// Body, sent as it is.
        body: String,
        /// Media type of the body.
        content_type: String,
    },
}

/// `files "/srv/www"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Files {
    /// The directory; nothing outside it is ever served.
    pub root: PathBuf,
    /// Names tried for a directory, in order.
    pub index: Vec<String>,
    /// List directories that have no index file.
    pub listing: bool,
    /// Serve `x.br`, `x.zst`, `x.gz` in place of `x` where the client accepts it.
    pub precompressed: bool,
    /// Remove the route's prefix from the path before looking for the file.
    pub strip_prefix: bool,
    /// `Cache-Control` for the files, e.g. `public, max-age=3600`.
    pub cache_control: Option<String>,
}

/// `proxy "http://10.0.0.5:8080"` or `proxy "name"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Name of the upstream group in [`Config::upstreams`].
    pub upstream: String,
    /// Remove the route's prefix from the path.
    pub strip_prefix: bool,
    /// Path put before the request's (from the URL's path), without a trailing slash.
    pub path_prefix: String,
    /// Host sent to the origin: the client's (default), or the upstream server's.
    pub host: HostHeader,
}

/// Which Host an origin sees.
#[derive(Clone, Debug, PartialEq)]
pub enum HostHeader {
    /// The client's own.
    Client,
    /// The upstream server's authority.
    Upstream,
    /// This one.
    Fixed(String),
}

/// `cache …` in a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteCache {
    /// `false` for `cache off`: nothing is looked up or stored.
    pub enabled: bool,
    /// Freshness lifetime that replaces the origin's (`cache ttl="10m"`).
    pub ttl: Option<Duration>,
    /// Freshness lifetime for responses without one of their own; RFC 9111 heuristics otherwise.
    pub default_ttl: Option<Duration>,
    /// May answer stale while revalidating in the background, when the origin does not say.
    pub stale_while_revalidate: Option<Duration>,
    /// May answer stale when the origin fails, when the origin does not say.
    pub stale_if_error: Option<Duration>,
    /// How long a request waits for another's fill before it goes to the origin itself.
    pub collapse_timeout: Duration,
}

/// One edit of a header section. Field names are in lower case.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderEdit {
    /// Replace every value of the field.
    Set(String, String),
    /// Add a value.
    Add(String, String),
    /// Remove the field.
    Remove(String),
}

impl Default for Server {
    fn default() -> Self {
        Server {
            workers: None,
            admin: Some(Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 9900)))),
            user: None,
            group: None,
            watch: false,
            drain_timeout: Duration::from_secs(30),
            trusted_proxies: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 65_536,
            header_size: 32 << 10,
            header_count: 100,
            body_size: 64 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            http2_streams: 128,
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Cache { memory: 256 << 20, object_max: 32 << 20, policy: Policy::Gdsf }
    }
}

impl Default for Passive {
    fn default() -> Self {
        Passive { failures: 3, window: Duration::from_secs(10), eject: Duration::from_secs(10) }
    }
}

impl Default for RouteCache {
    fn default() -> Self {
        RouteCache {
            enabled: true,
            ttl: None,
            default_ttl: None,
            stale_while_revalidate: None,
            stale_if_error: None,
            collapse_timeout: Duration::from_secs(5),
        }
    }
}
