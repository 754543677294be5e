//! The server's state as JSON: what `weir status` shows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use weir_origin::upstream::GroupStatus;

use super::guard::{self, GuardStatus};
use crate::Server;
use crate::adapt::GroupStatus as CgroupStatus;
use crate::adapt::declared::{self, Declaration};
use crate::live::{Live, Route};
use crate::metrics::CacheResult;

/// The server at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    version: &'static str,
    pid: u32,
    uptime_s: u64,
    draining: bool,
    workers: usize,
    config_generation: u64,
    listening: Vec<String>,
    connections: Connections,
    cache: CacheStatus,
    routes: Vec<RouteStatus>,
    adapters: Vec<AdapterStatus>,
    /// The control group of helpers, if there is one.
    cgroup: Option<CgroupStatus>,
    upstreams: Vec<GroupStatus>,
    guard: GuardStatus,
}

#[derive(Debug, Serialize)]
struct Connections {
    open: usize,
    accepted: u64,
    refused: u64,
    limit: usize,
}

#[derive(Debug, Serialize)]
struct CacheStatus {
    objects: u64,
    bytes: u64,
    limit_bytes: u64,
    arena_bytes: u64,
    arena_limit_bytes: u64,
    hits: u64,
    misses: u64,
    stale: u64,
    evictions: u64,
}

#[derive(Debug, Serialize)]
struct RouteStatus {
    site: String,
    route: String,
    requests: u64,
    errors: u64,
    hits: u64,
    body_bytes: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

/// What works on a route's responses, in order.
#[derive(Debug, Serialize)]
struct AdapterStatus {
    site: String,
    route: String,
    #[serde(flatten)]
    declared: Declaration,
}

/// Takes the state.
pub(super) fn status(server: &Server) -> Status {
    let shared = server.shared();
    let live = shared.live.load();
    let stats = shared.cache.stats();
    let mut upstreams: Vec<GroupStatus> =
        live.groups.values().map(|upstream| upstream.group.status()).collect();
    upstreams.sort_by(|a, b| a.name.cmp(&b.name));
    Status {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        uptime_s: shared.started.elapsed().as_secs(),
        draining: shared.is_draining(),
        workers: server.worker_count(),
        config_generation: live.generation,
        listening: server
            .listening()
            .into_iter()
            .map(|(address, local)| local.map_or(address.to_string(), |local| local.to_string()))
            .collect(),
        connections: Connections {
            open: shared.connections.open.load(Relaxed),
            accepted: shared.connections.accepted.load(Relaxed),
            refused: shared.connections.refused.load(Relaxed),
            limit: live.config.server.limits.connections,
        },
        cache: CacheStatus {
            objects: stats.objects,
            bytes: stats.bytes,
            limit_bytes: stats.limit_bytes,
            arena_bytes: shared.arena.used(),
            arena_limit_bytes: shared.arena.limit(),
            hits: stats.hits,
            misses: stats.misses,
            stale: stats.stale,
            evictions: stats.evictions,
        },
        routes: routes(server),
        adapters: adapters(&live),
        cgroup: shared.adaptation.group(),
        upstreams,
        guard: guard::status(server),
    }
}

fn adapters(live: &Live) -> Vec<AdapterStatus> {
    let routes = live.sites.iter().flat_map(|site| site.routes.iter());
    let of = |route: &Arc<Route>| {
        let row = |declared| AdapterStatus {
            site: route.site.name.clone(),
            route: route.metrics.route.clone(),
            declared,
        };
        declared::of(route).into_iter().map(row).collect::<Vec<_>>()
    };
    routes.flat_map(of).collect()
}

fn routes(server: &Server) -> Vec<RouteStatus> {
    let mut rows = Vec::new();
    for route in server.shared().metrics.all() {
        let requests = route.requests();
        let sum = |filter: &dyn Fn(&str, CacheResult) -> bool| {
            requests.iter().filter(|(s, c, _)| filter(s, *c)).map(|(_, _, n)| n).sum()
        };
        let duration = route.duration();
        rows.push(RouteStatus {
            requests: sum(&|_, _| true),
            errors: sum(&|status, _| status.starts_with('5')),
            hits: sum(&|_, cache| cache == CacheResult::Hit),
            body_bytes: route.body_bytes(),
            p50_us: duration.quantile_us(0.5),
            p99_us: duration.quantile_us(0.99),
            site: route.site.clone(),
            route: route.route.clone(),
        });
    }
    rows
}
