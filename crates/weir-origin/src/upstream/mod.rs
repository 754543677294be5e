//! Reverse-proxy upstreams: a group of servers with the same content, how one is chosen, kept
//! connections, timeouts, retries and health. Knows nothing of caching, and leaves the meaning of
//! requests (forwarding fields, Via, hop-by-hop removal) to others.
//!
//! The path of a request: `send` chooses a server (`balance`), `exchange` finds or makes a
//! connection (`pool`, `connect`, `dial`, `tls`), sends the head in the connection's form (`head`)
//! and waits for the response's head; the body (`response`) gives the connection back. HTTP/1.1 is
//! spoken by `http1`, HTTP/2 by hyper.
//!
//! What is sent again, and when (RFC 9110, section 9.2.2), within `retries` and the retry budget:
//!
//! | failure                                   | same request again                             |
//! |-------------------------------------------|------------------------------------------------|
//! | no connection                             | always: nothing was sent                       |
//! | kept connection found dead, nothing written | always, on a new connection, not counted     |
//! | closed without a byte of a response       | idempotent methods whose body is in memory     |
//! | HTTP/2: refused, or above GOAWAY's last   | any method whose body is in memory             |
//! | no response in time                       | the same, if another server is available       |
//! | anything after a response's first byte    | never                                          |

mod balance;
mod connect;
mod dial;
mod exchange;
mod extra;
mod head;
mod http1;
mod limits;
mod peer;
mod pool;
mod probe;
mod request;
mod response;
mod retry;
mod server;
mod status;
mod stream;
mod timer;
mod tls;
mod way;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::{Request, Response};
use weir_config::{Balance, HashKey, Upstream};

use self::balance::Turns;
use self::connect::Connector;
use self::dial::Resolved;
use self::head::Job;
use self::http1::Http1;
use self::pool::Pool;
use self::retry::RetryBudget;
use self::server::Server;
use crate::error::{ErrorKind, OriginError};

pub use self::extra::Extra;
pub use self::head::HostPolicy;
pub use self::http1::TunnelStream;
pub use self::peer::{Peer, PeerTls};
pub use self::request::RequestBody;
pub use self::response::{MadeBody, ResponseBody, Tunnel};
pub use self::status::{GroupStatus, ServerStatus};
pub use self::way::Way;

/// What sending needs to know beside the request itself.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The client's address: hashed where the group says so, or where its key is absent.
    pub client: Option<IpAddr>,
    /// Whose name the server sees in Host.
    pub host: HostPolicy,
    /// What the request says beside its own fields.
    pub extra: Extra,
}

/// An upstream group in use.
pub struct Group {
    config: Upstream,
    servers: Vec<Server>,
    /// By server.
    resolved: Vec<Resolved>,
    workers: Vec<Worker>,
    connector: Connector,
    budget: RetryBudget,
}

/// What one worker keeps for itself; on its own cache lines, for no other worker writes it.
#[derive(Default)]
#[repr(align(128))]
struct Worker {
    turns: Turns,
    /// By server.
    pools: Vec<Pool>,
}

/// A request's place at a server, counted until it is dropped.
struct Slot {
    group: Arc<Group>,
    server: usize,
}

impl Group {
    /// Makes a group for `workers` workers. Reads the CA file, if one is named; connects nowhere.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the file or the name that cannot be used.
    pub fn new(config: &Upstream, workers: usize) -> Result<Arc<Group>, OriginError> {
        Group::with(config, workers, Connector::new(config)?)
    }

    /// The same for servers that a client has named: it connects only where `way` leads, and
    /// verifies them as that says.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the name that cannot be used.
    pub fn toward(config: &Upstream, workers: usize, way: &Way) -> Result<Arc<Group>, OriginError> {
        Group::with(config, workers, Connector::by(config, way)?)
    }

    fn with(
        config: &Upstream,
        workers: usize,
        connector: Connector,
    ) -> Result<Arc<Group>, OriginError> {
        let epoch = Instant::now();
        let servers = config
            .servers
            .iter()
            .map(|server| Server::new(server, &config.tls, &config.passive, epoch))
            .collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            let cause = "an upstream needs at least one server";
            return Err(OriginError::new(ErrorKind::Config, &*config.name, cause));
        }
        let worker = || Worker {
            turns: Turns::default(),
            pools: servers.iter().map(|_| Pool::default()).collect(),
        };
        Ok(Arc::new(Group {
            connector,
            resolved: servers.iter().map(|_| Resolved::default()).collect(),
            workers: (0..workers.max(1)).map(|_| worker()).collect(),
            servers,
            budget: RetryBudget::new(),
            config: config.clone(),
        }))
    }

    /// The settings it was made from, so that a reload can keep a group that did not change.
    pub fn config(&self) -> &Upstream {
        &self.config
    }

    /// Sends `request` to one of the servers and waits for the response's head. `worker` is the
    /// calling worker's number: connections stay on the runtime that made them, so one worker is
    /// always called on one runtime (with I/O and time enabled).
    ///
    /// `Expect` is not forwarded: a body is taken from the client when the server's connection
    /// can take it, which is when the client's side sends 100 (Continue). 1xx responses other
    /// than 101 are absorbed. A 101 carries hyper's upgrade and a [`Tunnel`] in its extensions.
    ///
    /// # Errors
    /// The last attempt's error; its status says what to tell the client.
    pub async fn send(
        self: &Arc<Self>,
        worker: usize,
        request: Request<RequestBody>,
        choice: Choice,
    ) -> Result<Response<ResponseBody>, OriginError> {
        let worker = worker % self.workers.len();
        self.budget.earn();
        let balance = &self.config.balance;
        let Choice { client, host, extra } = choice;
        let mut job = Job::new(request, host, extra, &self.config.name)?;
        if let Balance::Hash(HashKey::Header(_)) = balance {
            // It may be one of the extra fields.
            job.join_extra();
        }
        let key = job.parts().map_or(0, |head| balance::key(balance, head, client));
        let mut tried = Vec::new();
        let mut failure = None;
        loop {
            let Some(slot) = self.choose(worker, key, &tried) else {
                return Err(failure.unwrap_or_else(|| self.overloaded()));
            };
            let index = slot.server;
            let started = Instant::now();
            let error = match exchange::exchange(slot, worker, &mut job).await {
                Ok(response) => {
                    let latency_us = started.elapsed().as_micros() as u64;
                    self.pool(worker, index).stats.latency_us.fetch_add(latency_us, Relaxed);
                    return Ok(response);
                }
                Err(error) => error,
            };
            self.failed(worker, index, &error);
            tried.push(index);
            if !self.may_try_again(&error, &job, &tried) {
                return Err(error);
            }
            self.pool(worker, index).stats.retries.fetch_add(1, Relaxed);
            failure = Some(error);
        }
    }

    /// Starts the active health checks, if the group has any, on the current runtime. They end
    /// with the group.
    pub fn spawn_health_checks(self: &Arc<Self>) {
        probe::spawn(self);
    }

    /// How the group is doing now.
    pub fn status(&self) -> GroupStatus {
        status::snapshot(self)
    }

    fn may_try_again(&self, error: &OriginError, job: &Job, tried: &[usize]) -> bool {
        if !error.may_retry()
            || error.kind() == ErrorKind::Denied
            || !job.is_whole()
            || tried.len() > self.config.retries as usize
        {
            return false;
        }
        // To ask the same server again would only wait as long again or meet the same limit.
        let needs_other = matches!(
            error.kind(),
            ErrorKind::FirstByteTimeout
                | ErrorKind::ConnectTimeout
                | ErrorKind::Overloaded
                | ErrorKind::Resolve
        );
        let is_other =
            |(index, server): (usize, &Server)| !tried.contains(&index) && server.is_available();
        if needs_other && !self.servers.iter().enumerate().any(is_other) {
            return false;
        }
        self.budget.spend()
    }

    /// A server for the next attempt: available, not tried and not at its limit; one tried before
    /// rather than none. `None` if all are at their limits.
    fn choose(self: &Arc<Self>, worker: usize, key: u64, tried: &[usize]) -> Option<Slot> {
        let turns = &self.workers[worker].turns;
        let panic = !self.servers.iter().any(Server::is_available);
        let mut full = Vec::new();
        let mut pick = |again: bool| loop {
            let eligible = |index: usize, server: &Server| {
                (panic || server.is_available())
                    && (again || !tried.contains(&index))
                    && !full.contains(&index)
            };
            let index = balance::pick(&self.config.balance, &self.servers, turns, key, eligible)?;
            if self.servers[index].enter(self.config.max_requests) {
                return Some(index);
            }
            full.push(index);
        };
        let mut index = pick(false);
        if index.is_none() && !tried.is_empty() {
            index = pick(true);
        }
        index.map(|server| Slot { group: Arc::clone(self), server })
    }

    fn overloaded(&self) -> OriginError {
        let cause = format!("every server has {} requests in flight", self.config.max_requests);
        OriginError::new(ErrorKind::Overloaded, &*self.config.name, cause)
    }

    /// Takes note of a failure: counters, passive health, log.
    fn failed(&self, worker: usize, index: usize, error: &OriginError) {
        let kind = error.kind();
        self.pool(worker, index).stats.failures[kind as usize].fetch_add(1, Relaxed);
        let server = &self.servers[index];
        let upstream = &*self.config.name;
        if !kind.is_servers_fault() {
            tracing::debug!(upstream, %error, "request failed");
            return;
        }
        match server.may_warn() {
            Some(unsaid) => tracing::warn!(upstream, %error, unsaid, "upstream server failed"),
            None => tracing::debug!(upstream, %error, "upstream server failed"),
        }
        let is_other = |other: &Server| !std::ptr::eq(other, server) && other.is_available();
        if server.is_worn_out_by_failure()
            && server.is_available()
            && self.servers.iter().any(is_other)
        {
            server.eject();
            let rest = self.config.passive.eject;
            tracing::warn!(upstream, server = &*server.name, ?rest, "upstream server ejected");
        }
    }

    fn pool(&self, worker: usize, server: usize) -> &Pool {
        &self.workers[worker].pools[server]
    }

    fn put_back(self: &Arc<Self>, worker: usize, server: usize, conn: Box<Http1>) {
        if self.pool(worker, server).put_back(conn, self.config.keep_alive) {
            self.start_sweeper(worker, server);
        }
    }

    /// Closes idle connections in time, and soon when their servers have. One task per pool, only
    /// while the pool has any.
    fn start_sweeper(self: &Arc<Self>, worker: usize, server: usize) {
        /// Spares a sweep for each of many connections that end close together.
        const PAUSE_MIN: Duration = Duration::from_millis(10);
        let limit = self.config.keep_alive_timeout;
        let stirred = self.pool(worker, server).stirred();
        let group = Arc::downgrade(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            // The last response of a runtime that is shutting down: so is the connection.
            return;
        };
        runtime.spawn(async move {
            let mut pause = limit;
            loop {
                tokio::time::sleep(PAUSE_MIN).await;
                // Whichever comes first.
                let _ = tokio::time::timeout(pause, stirred.notified()).await;
                let Some(group) = group.upgrade() else { return };
                let Some(next) = group.pool(worker, server).sweep(limit) else { return };
                pause = next.saturating_duration_since(tokio::time::Instant::now());
            }
        });
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("config", &self.config).finish_non_exhaustive()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.group.servers[self.server].name).finish()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.group.servers[self.server].leave();
    }
}
