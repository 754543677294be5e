//! A forward proxy as the pipeline uses it: who may use it and where to, and the origins that were
//! asked lately, each with its connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use weir_config::{
    self as config, Address, Concurrency, Config, Destination, Target, UpstreamServer,
};
use weir_guard::Classes;
use weir_net::NetError;
use weir_net::tls::Authority;
use weir_origin::egress::Denied;
use weir_origin::error::OriginError;
use weir_origin::names::Names;
use weir_origin::upstream::{Group, Way};

use super::Surroundings;
use super::users::{self, AllUsers, Users};
use crate::error::StartError;
use crate::upstream::Upstream;

/// Origins that are remembered with their connections. One that was not asked for the longest time
/// leaves when another comes; what is in flight with it goes on.
const ORIGINS_MAX: usize = 1024;

/// How long before an authority's end the log says so: to have every client trust another takes
/// weeks.
const AUTHORITY_ENDS_SOON: Duration = Duration::from_secs(45 * 24 * 3600);

/// Where a request to a forward proxy goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) tls: bool,
    /// In its one form; IPv6 addresses in brackets.
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A route with `forward`.
pub(crate) struct ForwardProxy {
    pub(crate) settings: config::Forward,
    /// One of whom clients must be.
    pub(crate) users: Option<Arc<Users>>,
    /// Who speaks for hosts that are inspected.
    authority: Option<Authority>,
    way: Way,
    origins: Mutex<HashMap<Origin, Known>>,
    workers: usize,
    config: Arc<Config>,
    classes: Arc<Classes>,
    overloaded: Arc<AtomicUsize>,
}

struct Known {
    upstream: Arc<Upstream>,
    asked: Instant,
}

impl Origin {
    /// The origin as it stands in URLs, and in keys of the cache.
    pub(crate) fn key(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}:{}", self.name, self.port)
    }

    /// The origin as its `Host` field has it.
    pub(crate) fn authority(&self) -> String {
        let default = if self.tls { 443 } else { 80 };
        match self.port == default {
            true => self.name.clone(),
            false => format!("{}:{}", self.name, self.port),
        }
    }
}

impl ForwardProxy {
    /// Reads what verifies origins. `users` are those that were read.
    ///
    /// # Errors
    /// The file of roots that cannot be used.
    pub(super) fn build(
        settings: &config::Forward,
        config: &Arc<Config>,
        users: &AllUsers,
        around: &Surroundings<'_>,
    ) -> Result<ForwardProxy, StartError> {
        let named = settings.users.as_ref();
        Ok(ForwardProxy {
            way: way(settings, config, &around.registry.forward.names)?,
            users: named.and_then(|named| users.get(&named.file)).cloned(),
            authority: authority(settings)?,
            settings: settings.clone(),
            origins: Mutex::default(),
            workers: around.workers,
            config: Arc::clone(config),
            classes: Arc::clone(around.classes),
            overloaded: Arc::clone(around.overloaded),
        })
    }

    /// Whether a client may use it.
    pub(crate) fn is_for(&self, client: Option<IpAddr>) -> bool {
        let from = &self.settings.from;
        // Who comes by a Unix socket has no address: the file system says who may.
        client.is_none_or(|ip| from.is_empty() || from.iter().any(|prefix| prefix.contains(ip)))
    }

    /// Judges an origin by its name and port.
    ///
    /// # Errors
    /// Why nobody may ask it.
    pub(crate) fn judge(&self, origin: &Origin) -> Result<(), Denied> {
        self.way.egress().judge_name(&origin.name, origin.port).map(drop)
    }

    /// The same for a tunnel.
    ///
    /// # Errors
    /// As [`ForwardProxy::judge`].
    pub(crate) fn judge_tunnel(&self, to: &Origin) -> Result<(), Denied> {
        self.way.tunnels().judge_name(&to.name, to.port).map(drop)
    }

    /// The TLS settings to answer a tunnel's client with, if the host is one that is inspected.
    ///
    /// # Errors
    /// If no certificate can be made for it.
    pub(crate) fn inspects(&self, to: &Origin) -> Result<Option<Arc<ServerConfig>>, NetError> {
        let is_for = self.settings.inspect.as_ref().is_some_and(|hosts| hosts.is_for(&to.name));
        match self.authority.as_ref().filter(|_| is_for) {
            Some(authority) => authority.settings_for(&to.name).map(Some),
            None => Ok(None),
        }
    }

    /// Connects a tunnel.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) async fn tunnel(&self, to: &Origin) -> Result<TcpStream, OriginError> {
        self.way.tunnel(&to.name, to.port, self.settings.connect_timeout).await
    }

    /// An origin, with its connections.
    ///
    /// # Errors
    /// If it has no name that TLS knows.
    pub(crate) fn upstream(&self, origin: &Origin) -> Result<Arc<Upstream>, OriginError> {
        let now = Instant::now();
        if let Some(known) = self.origins.lock().get_mut(origin) {
            known.asked = now;
            return Ok(Arc::clone(&known.upstream));
        }
        let group = Group::toward(&self.describe(origin), self.workers, &self.way)?;
        let (guard, classes) = (&self.config.guard, &self.classes);
        let upstream = Upstream::new(group, guard, classes, &self.overloaded);
        let mut origins = self.origins.lock();
        if origins.len() >= ORIGINS_MAX {
            let oldest = origins.iter().min_by_key(|(_, known)| known.asked);
            let oldest = oldest.map(|(origin, _)| origin.clone());
            oldest.and_then(|oldest| origins.remove(&oldest));
        }
        // Another worker may have been faster.
        let known = origins.entry(origin.clone()).or_insert(Known { upstream, asked: now });
        Ok(Arc::clone(&known.upstream))
    }

    fn describe(&self, origin: &Origin) -> config::Upstream {
        let settings = &self.settings;
        let server = UpstreamServer {
            tls: origin.tls,
            target: Target::Host(origin.name.trim_matches(['[', ']']).to_owned(), origin.port),
            authority: format!("{}:{}", origin.name, origin.port),
            weight: 1,
        };
        config::Upstream {
            connect_timeout: settings.connect_timeout,
            first_byte_timeout: settings.first_byte_timeout,
            idle_timeout: settings.idle_timeout,
            // What others can take is theirs to say; a slow one is no overload of this server.
            concurrency: Concurrency::Unlimited,
            ..config::Upstream::new(origin.key(), vec![server])
        }
    }
}

fn authority(settings: &config::Forward) -> Result<Option<Authority>, StartError> {
    let Some(inspect) = &settings.inspect else { return Ok(None) };
    // A name below a domain, to try whether it is one that the authority may speak for.
    let name = |host: &Destination| host.to_string().replace('*', "www");
    let hosts: Vec<String> = inspect.hosts.iter().map(name).collect();
    let authority = Authority::load(&inspect.ca, &inspect.key, &hosts, SystemTime::now())?;
    if authority.lasts() < AUTHORITY_ENDS_SOON {
        let (ca, days) = (inspect.ca.display(), authority.lasts().as_secs() / (24 * 3600));
        tracing::warn!(%ca, days, "an authority ends soon, and with it what it is for");
    }
    Ok(Some(authority))
}

fn way(settings: &config::Forward, config: &Config, names: &Arc<Names>) -> Result<Way, StartError> {
    Way::new(settings, own_addresses(config), names)
        .map_err(|source| StartError::Upstream { name: "forward".to_owned(), source })
}

/// Reads what the forward proxies of a configuration need, for nothing but their errors.
///
/// # Errors
/// The first file that cannot be used.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    for route in routes {
        if let config::Source::Forward(settings) = &route.source {
            way(settings, config, &Arc::default())?;
            authority(settings)?;
        }
    }
    users::build(config, None).map(drop)
}

/// Where the server itself listens, as far as the configuration says it.
fn own_addresses(config: &Config) -> Vec<SocketAddr> {
    let listeners = config.sites.iter().flat_map(|site| &site.listeners);
    let addresses = listeners.map(|listener| &listener.address).chain(&config.server.admin);
    let tcp = |address: &Address| match address {
        Address::Tcp(address) if address.port() != 0 => Some(*address),
        Address::Tcp(_) | Address::Unix(_) => None,
    };
    addresses.filter_map(tcp).collect()
}
