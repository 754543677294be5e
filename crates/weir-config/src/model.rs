//! The typed configuration: what the rest of Weir sees. Everything here is validated; a value that
//! exists is a value that may be used without a further check.

mod adapt;
mod addresses;
mod doubts;
mod forward;
mod guard;
mod html;
mod icap;
mod image;
mod plugin;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::prefix::Prefix;

pub use adapt::*;
pub(crate) use addresses::Parts;
pub use addresses::{AddressRange, AddressSet};
pub use forward::*;
pub use guard::*;
pub use html::*;
pub use icap::*;
pub use image::*;
pub use plugin::*;
pub use upstream::*;

/// A whole configuration file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Settings of the process: the `server` block.
    pub server: Server,
    /// Settings of the shared cache: the `cache` block.
    pub cache: Cache,
    /// Upstream groups by name. `proxy "http://…"` makes an anonymous group named by its URL.
    pub upstreams: Vec<Upstream>,
    /// What all plugins share: the `plugins` block.
    pub plugin_settings: Plugins,
    /// Plugins in file order, by unique names. More may be deployed at run time.
    pub plugins: Vec<Plugin>,
    /// Overload control: the `guard` block.
    pub guard: Guard,
    /// Helper processes: the `adapt` block.
    pub adapt: Adapt,
    /// ICAP services in file order, by unique names.
    pub icap: Vec<Icap>,
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
    /// Keep what it takes to change rules in the kernel when becoming that user.
    pub keep_bpf: bool,
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
    /// Bytes of a request body that are gathered before an upstream is asked; 0 for none. A route
    /// may set its own.
    pub body_buffer: u64,
    /// Bytes a second that a request body must bring while an upstream waits for it; 0 for any. A
    /// route may set its own.
    pub body_min_rate: u64,
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
    /// Plugins that see the connections to the site's listeners, by name, in order.
    pub plugins: Vec<String>,
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
    /// Bytes of a request body that are gathered first; default: as the server does.
    pub body_buffer: Option<u64>,
    /// Bytes a second that a request body must bring; default: the server's.
    pub body_min_rate: Option<u64>,
    /// Plugins that see the route's requests and responses, in order.
    pub plugins: Vec<Use>,
    /// What is made of its responses.
    pub adapt: RouteAdapt,
    /// The ICAP service that sees its requests and responses, by name.
    pub icap: Option<String>,
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
    /// Whatever host a request names: a forward proxy.
    Forward(Box<Forward>),
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
            keep_bpf: false,
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
            body_buffer: 64 << 10,
            body_min_rate: 1 << 10,
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
