//! The configuration as the pipeline uses it: names resolved, files opened, headers parsed. Built
//! once a (re)load and swapped whole; a request in flight keeps the one it started with.

mod edits;
mod forward;
mod proxy;
mod tls;
mod users;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use weir_cache::Cache;
use weir_config::{self as config, Address, Config, Pattern};
use weir_guard::Classes;
use weir_net::tls::CertStore;
use weir_origin::files::FileRoot;
use weir_origin::upstream::Group;
use weir_plugin::Plugins;

pub(crate) use self::edits::Edit;
use self::edits::{edits, header_value, status_code};
pub(crate) use self::forward::{ForwardProxy, Origin};
pub(crate) use self::proxy::{ProxySource, Toward};
use self::tls::{Tls, build_tls};
use self::users::AllUsers;
pub(crate) use self::users::{Asking, Word};
use crate::access_log::AccessLog;
use crate::adapt::{self, AdsLists, Blocking, Offers};
use crate::chain::Chain;
use crate::error::StartError;
use crate::icap::{self, Icap};
use crate::metrics::{Registry, RouteMetrics};
use crate::properties::RouteFacts;
use crate::router::{Hosts, Paths};
use crate::upstream::Upstream;
use crate::variants::Variants;

/// One loaded configuration.
pub(crate) struct Live {
    pub(crate) config: Arc<Config>,
    /// By listener number; see [`crate::Shared::listener_number`].
    pub(crate) listeners: Vec<Option<Arc<ListenerSites>>>,
    pub(crate) sites: Vec<Arc<Site>>,
    /// Upstreams by name.
    pub(crate) groups: HashMap<String, Arc<Upstream>>,
    /// ICAP services by name.
    pub(crate) icap: HashMap<String, Arc<Icap>>,
    users: AllUsers,
    pub(crate) logs: Vec<Arc<AccessLog>>,
    /// Counts up with every load.
    pub(crate) generation: u64,
}

/// What is reached through one listening address.
pub(crate) struct ListenerSites {
    pub(crate) proxy_protocol: bool,
    pub(crate) tls: Option<Tls>,
    pub(crate) hosts: Hosts<Arc<Site>>,
    /// Plugins that its sites have see its connections, by name.
    uses: Vec<String>,
    /// The same, as deployed at the moment.
    pub(crate) chain: ArcSwap<Chain>,
    /// Stands in for the site of requests that reach none. Its log is that of the first site here
    /// that has one.
    pub(crate) nobody: Arc<SiteInfo>,
}

/// A site: a name for logs and metrics, and its routes.
pub(crate) struct Site {
    pub(crate) info: Arc<SiteInfo>,
    pub(crate) routes: Paths<Arc<Route>>,
}

/// What a route knows of its site.
pub(crate) struct SiteInfo {
    pub(crate) name: String,
    /// All names, that one included.
    pub(crate) names: Vec<String>,
    pub(crate) log: Option<Arc<AccessLog>>,
}

/// A route, ready to serve.
pub(crate) struct Route {
    pub(crate) site: Arc<SiteInfo>,
    pub(crate) metrics: Arc<RouteMetrics>,
    /// The prefix, or the exact path.
    pub(crate) pattern: Pattern,
    pub(crate) source: Source,
    pub(crate) cache: config::RouteCache,
    /// The route's partition of the cache; the same after a reload that changes nothing about
    /// where its responses come from.
    pub(crate) scope: u64,
    /// What plugins may know of it.
    pub(crate) facts: Arc<RouteFacts>,
    /// Its plugins, as deployed at the moment.
    pub(crate) chain: ArcSwap<Chain>,
    /// The plugins that the configuration has it use.
    pub(crate) uses: Vec<config::Use>,
    /// The parts that plugins make of its cache.
    pub(crate) variants: Arc<Variants>,
    /// What it makes of its responses.
    pub(crate) offers: Option<Arc<Offers>>,
    /// Who is shown its requests and responses elsewhere.
    pub(crate) icap: Option<Arc<Icap>>,
    /// What it lets nobody ask for.
    pub(crate) blocking: Option<Blocking>,
    pub(crate) response_edits: Vec<Edit>,
    pub(crate) request_edits: Vec<Edit>,
    pub(crate) body_size_max: u64,
    /// Bytes of a request body that are gathered before an upstream is asked.
    pub(crate) body_buffer: u64,
    /// Bytes a second that it must bring while an upstream waits for it; 0 for any.
    pub(crate) body_min_rate: u64,
}

/// What answers.
pub(crate) enum Source {
    Files(FilesSource),
    Proxy(ProxySource),
    Redirect { status: StatusCode, location: String },
    Respond { status: StatusCode, body: Bytes, content_type: HeaderValue },
}

pub(crate) struct FilesSource {
    pub(crate) root: FileRoot,
    pub(crate) strip_prefix: bool,
    pub(crate) precompressed: bool,
    pub(crate) cache_control: Option<HeaderValue>,
}

/// What a load needs besides the configuration.
pub(crate) struct Surroundings<'a> {
    pub(crate) workers: usize,
    pub(crate) registry: &'a Registry,
    /// How many upstreams are overloaded.
    pub(crate) overloaded: &'a Arc<AtomicUsize>,
    /// The classes that the configuration has.
    pub(crate) classes: &'a Arc<Classes>,
    pub(crate) cache: &'a Cache,
    /// The number of a listening address, the same for the life of the process.
    pub(crate) listener_number: &'a dyn Fn(&Address) -> usize,
}

impl Source {
    /// Whether requests that go there cannot but wait.
    #[inline]
    pub(crate) fn is_overloaded(&self) -> bool {
        matches!(self, Source::Proxy(proxy) if proxy.is_overloaded())
    }

    /// The forward proxy, if it is one.
    #[inline]
    pub(crate) fn forward_proxy(&self) -> Option<&Arc<ForwardProxy>> {
        match self {
            Source::Proxy(proxy) => proxy.forward_proxy(),
            _ => None,
        }
    }
}

impl Live {
    /// Opens and resolves everything the configuration names. What did not change is taken over
    /// from `previous`, with its connections, health and certificates.
    ///
    /// # Errors
    /// The first thing that cannot be opened or parsed, by name.
    pub(crate) fn build(
        config: Arc<Config>,
        around: &Surroundings<'_>,
        previous: Option<&Live>,
    ) -> Result<Live, StartError> {
        let groups = build_groups(&config, around, previous)?;
        let logs = open_logs(&config, around.workers, previous)?;
        // What is stored outlives a reload, and must be found by a purge after it.
        let routes = previous.into_iter().flat_map(|live| live.sites.iter());
        let routes = routes.flat_map(|site| site.routes.iter());
        let variants = routes.map(|route| (route.scope, Arc::clone(&route.variants))).collect();
        let icap = icap::build(&config, around.workers, previous);
        let kept = Kept {
            variants,
            icap,
            lists: AdsLists::load(&config, around.cache)?,
            users: users::build(&config, previous)?,
        };
        let sites = config
            .sites
            .iter()
            .map(|site| build_site(site, &config, &groups, &logs, &kept, around).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let mut live = Live {
            listeners: Vec::new(),
            sites,
            groups,
            icap: kept.icap,
            users: kept.users,
            logs,
            generation: previous.map_or(1, |live| live.generation + 1),
            config,
        };
        live.listeners = live.build_listeners(around, previous)?;
        Ok(live)
    }

    /// Gives every route the plugins that are deployed now.
    pub(crate) fn link(&self, plugins: &Plugins) {
        let attachments = plugins.attachments();
        for listener in self.listeners.iter().flatten() {
            listener.chain.store(Arc::new(Chain::of_connections(plugins, &listener.uses)));
        }
        for site in &self.sites {
            for route in site.routes.iter() {
                let (uses, names) = (&route.uses, &site.info.names);
                let chain = Chain::new(plugins, uses, names, &route.pattern, &attachments);
                route.chain.store(Arc::new(chain));
            }
        }
    }

    fn build_listeners(
        &self,
        around: &Surroundings<'_>,
        previous: Option<&Live>,
    ) -> Result<Vec<Option<Arc<ListenerSites>>>, StartError> {
        let mut built: Vec<Option<Arc<ListenerSites>>> = Vec::new();
        for address in addresses(&self.config) {
            let mut hosts = Hosts::default();
            let (mut first, mut log) = (None, None);
            let mut uses: Vec<String> = Vec::new();
            for (site, runtime) in self.config.sites.iter().zip(&self.sites) {
                let Some(listener) = site.listeners.iter().find(|l| l.address == *address) else {
                    continue;
                };
                first = first.or(Some(listener));
                log = log.or_else(|| runtime.info.log.clone());
                let more = site.plugins.iter().filter(|name| !uses.contains(name));
                let more: Vec<String> = more.cloned().collect();
                uses.extend(more);
                for name in &site.names {
                    hosts.insert(name, Arc::clone(runtime));
                }
            }
            // `addresses` lists addresses of listeners, so there is a first one.
            let Some(listener) = first else { continue };
            let number = (around.listener_number)(address);
            let before = previous.and_then(|live| live.listeners.get(number)).cloned().flatten();
            let sites = ListenerSites {
                proxy_protocol: listener.proxy_protocol,
                tls: build_tls(&self.config, listener, before.as_deref())?,
                hosts,
                uses,
                chain: ArcSwap::default(),
                nobody: Arc::new(SiteInfo { name: String::new(), names: Vec::new(), log }),
            };
            if built.len() <= number {
                built.resize_with(number + 1, || None);
            }
            built[number] = Some(Arc::new(sites));
        }
        Ok(built)
    }

    /// The stand-in for the site of a request that reaches none.
    pub(crate) fn nobody(&self, listener: usize) -> Option<Arc<SiteInfo>> {
        let sites = self.listeners.get(listener)?.as_ref()?;
        Some(Arc::clone(&sites.nobody))
    }

    /// Keeps a listener that this configuration does not have any more, for the connections it
    /// accepted.
    pub(crate) fn keep_listener(&mut self, number: usize, previous: &Live) {
        let Some(sites) = previous.listeners.get(number).cloned().flatten() else { return };
        if self.listeners.len() <= number {
            self.listeners.resize_with(number + 1, || None);
        }
        self.listeners[number].get_or_insert(sites);
    }

    /// The certificate stores of all TLS listeners, for reloading what changed on disk.
    pub(crate) fn certificate_stores(&self) -> impl Iterator<Item = &Arc<CertStore>> {
        self.listeners.iter().flatten().filter_map(|l| l.tls.as_ref()).map(|tls| &tls.store)
    }
}

/// Every address that some site listens on, once.
pub(crate) fn addresses(config: &Config) -> Vec<&Address> {
    let mut all: Vec<&Address> =
        config.sites.iter().flat_map(|site| &site.listeners).map(|l| &l.address).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Looks into the certificates and upstreams that a configuration names.
///
/// # Errors
/// The first that cannot be used.
pub(crate) fn check_files(config: &Config) -> Result<(), StartError> {
    for listener in config.sites.iter().flat_map(|site| &site.listeners) {
        build_tls(config, listener, None)?;
    }
    adapt::check(config)?;
    forward::check(config)?;
    config.upstreams.iter().try_for_each(|upstream| build_group(upstream, 1).map(drop))
}

fn build_group(upstream: &config::Upstream, workers: usize) -> Result<Arc<Group>, StartError> {
    Group::new(upstream, workers)
        .map_err(|source| StartError::Upstream { name: upstream.name.clone(), source })
}

fn build_groups(
    config: &Config,
    around: &Surroundings<'_>,
    previous: Option<&Live>,
) -> Result<HashMap<String, Arc<Upstream>>, StartError> {
    let mut groups = HashMap::new();
    for upstream in &config.upstreams {
        let known = previous.and_then(|live| live.groups.get(&upstream.name));
        let gated = match known {
            Some(known) if known.group.config() == upstream => Arc::clone(known),
            _ => {
                let group = build_group(upstream, around.workers)?;
                group.spawn_health_checks();
                match known.filter(|known| known.group.config().servers == upstream.servers) {
                    Some(known) => known.with_group(group),
                    None => Upstream::new(group, &config.guard, around.classes, around.overloaded),
                }
            }
        };
        groups.insert(upstream.name.clone(), gated);
    }
    Ok(groups)
}

fn open_logs(
    config: &Config,
    workers: usize,
    previous: Option<&Live>,
) -> Result<Vec<Arc<AccessLog>>, StartError> {
    let mut logs: Vec<Arc<AccessLog>> = Vec::new();
    for wanted in config.sites.iter().filter_map(|site| site.access_log.as_ref()) {
        let same =
            |log: &&Arc<AccessLog>| log.path() == wanted.path && log.format() == wanted.format;
        if logs.iter().any(|log| same(&log)) {
            continue;
        }
        let kept = previous.and_then(|live| live.logs.iter().find(same)).cloned();
        let log = match kept {
            Some(log) => log,
            None => AccessLog::open(&wanted.path, wanted.format, workers)
                .map(Arc::new)
                .map_err(|source| StartError::AccessLog { path: wanted.path.clone(), source })?,
        };
        logs.push(log);
    }
    Ok(logs)
}

/// What routes are given that was there before them.
struct Kept {
    /// By the route's scope.
    variants: HashMap<u64, Arc<Variants>>,
    icap: HashMap<String, Arc<Icap>>,
    lists: AdsLists,
    users: AllUsers,
}

fn build_site(
    site: &config::Site,
    config: &Arc<Config>,
    groups: &HashMap<String, Arc<Upstream>>,
    logs: &[Arc<AccessLog>],
    kept: &Kept,
    around: &Surroundings<'_>,
) -> Result<Site, StartError> {
    let name = site.names.first().cloned().unwrap_or_default();
    let log = site.access_log.as_ref().and_then(|wanted| {
        logs.iter().find(|l| l.path() == wanted.path && l.format() == wanted.format).cloned()
    });
    let info = Arc::new(SiteInfo { name, names: site.names.clone(), log });
    let mut routes = Paths::default();
    for route in &site.routes {
        let built = build_route(route, &info, config, groups, kept, around)?;
        routes.insert(&route.pattern, Arc::new(built));
    }
    Ok(Site { info, routes })
}

fn build_route(
    route: &config::Route,
    site: &Arc<SiteInfo>,
    config: &Arc<Config>,
    groups: &HashMap<String, Arc<Upstream>>,
    kept: &Kept,
    around: &Surroundings<'_>,
) -> Result<Route, StartError> {
    let label = match &route.pattern {
        Pattern::Exact(path) => path.clone(),
        Pattern::Prefix(prefix) => format!("{prefix}*"),
    };
    let scope = scope(&site.name, route);
    let source = match &route.source {
        config::Source::Files(files) => Source::Files(FilesSource {
            root: FileRoot::open(files)?,
            strip_prefix: files.strip_prefix,
            precompressed: files.precompressed,
            cache_control: files.cache_control.as_deref().map(header_value).transpose()?,
        }),
        config::Source::Proxy(proxy) => Source::Proxy(ProxySource::build(proxy, groups, scope)?),
        config::Source::Forward(settings) => {
            let proxy = ForwardProxy::build(settings, config, &kept.users, around)?;
            Source::Proxy(ProxySource::forward(proxy, scope))
        }
        config::Source::Redirect { status, location } => {
            Source::Redirect { status: status_code(*status)?, location: location.clone() }
        }
        config::Source::Respond { status, body, content_type } => Source::Respond {
            status: status_code(*status)?,
            body: Bytes::from(body.clone()),
            content_type: header_value(content_type)?,
        },
    };
    let offers = Offers::new(&route.adapt, kept.lists.of(&route.adapt), &config.adapt.image)?;
    Ok(Route {
        site: Arc::clone(site),
        metrics: around.registry.route(&site.name, &label),
        pattern: route.pattern.clone(),
        source,
        cache: route.cache.clone(),
        scope,
        facts: Arc::new(RouteFacts {
            pattern: label.clone(),
            site: site.name.clone(),
            upstream: match &route.source {
                config::Source::Proxy(proxy) => Some(proxy.upstream.clone()),
                _ => None,
            },
        }),
        chain: ArcSwap::default(),
        uses: route.plugins.clone(),
        variants: kept.variants.get(&scope).cloned().unwrap_or_default(),
        icap: route.icap.as_ref().and_then(|name| kept.icap.get(name)).cloned(),
        offers: offers.map(Arc::new),
        blocking: Blocking::new(&route.adapt, &kept.lists),
        response_edits: edits(&route.response_headers)?,
        request_edits: edits(&route.request_headers)?,
        body_size_max: route.body_size.unwrap_or(config.server.limits.body_size),
        body_buffer: route.body_buffer.unwrap_or(config.server.limits.body_buffer),
        body_min_rate: route.body_min_rate.unwrap_or(config.server.limits.body_min_rate),
    })
}

/// The partition depends on what decides about a response's bytes, and on nothing else.
fn scope(site: &str, route: &config::Route) -> u64 {
    let mut hasher = DefaultHasher::new();
    site.hash(&mut hasher);
    route.pattern.hash(&mut hasher);
    if let Some(icap) = &route.icap {
        // What nobody has judged must not be sent as if it were.
        icap.hash(&mut hasher);
    }
    match &route.source {
        config::Source::Files(files) => {
            // Whatever else is set, the stored file's stamp knows it.
            (0, &files.root, files.strip_prefix, &files.index, &files.cache_control)
                .hash(&mut hasher);
        }
        config::Source::Proxy(proxy) => {
            let host = format!("{:?}", proxy.host);
            (1, &proxy.upstream, proxy.strip_prefix, &proxy.path_prefix, host).hash(&mut hasher);
            format!("{:?}", route.request_headers).hash(&mut hasher);
        }
        config::Source::Redirect { .. } | config::Source::Respond { .. } => 2.hash(&mut hasher),
        config::Source::Forward(forward) => {
            // What one may fetch, from an address that is judged only when it is fetched, is for
            // nobody who may not.
            let config::Forward { rules, private, ca, .. } = &**forward;
            (3, format!("{:?}", (&route.request_headers, rules, private, ca))).hash(&mut hasher);
        }
    }
    hasher.finish()
}
