//! Forward proxies: what was asked of them, and what they refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use weir_origin::egress::Denied;
use weir_origin::names::{Counts, Names};

use super::render::Page;
use super::{Registry, RouteMetrics};
use crate::connection::Connection;
use crate::live::Route;
use crate::pipeline::TunnelEnd;
use crate::shared::Shared;

/// What has become of requests since the start.
#[derive(Debug, Default)]
pub(crate) struct ForwardCounts {
    pub(crate) requests: AtomicU64,
    /// Who looks up what they name.
    pub(crate) names: Arc<Names>,
    refused: [AtomicU64; Refused::ALL.len()],
    /// Tunnels that are open now.
    open: AtomicUsize,
    /// Those that were, by how they ended.
    ended: [AtomicU64; TunnelEnd::ALL.len()],
    from_client: AtomicU64,
    to_client: AtomicU64,
}

/// Why a request or a tunnel was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Target,
    Client,
    Password,
    Guesses,
    Busy,
    Tunnels,
    Lookups,
    Origin(Denied),
}

impl Refused {
    const ALL: [Refused; 12] = [
        Refused::Target,
        Refused::Client,
        Refused::Password,
        Refused::Guesses,
        Refused::Busy,
        Refused::Tunnels,
        Refused::Lookups,
        Refused::Origin(Denied::Host),
        Refused::Origin(Denied::Port),
        Refused::Origin(Denied::Address),
        Refused::Origin(Denied::Private),
        Refused::Origin(Denied::Own),
    ];

    fn as_str(self) -> &'static str {
        match self {
            Refused::Target => "target",
            Refused::Client => "client",
            Refused::Password => "password",
            Refused::Guesses => "guesses",
            Refused::Busy => "busy",
            Refused::Tunnels => "tunnels",
            Refused::Lookups => "lookups",
            Refused::Origin(denied) => denied.as_str(),
        }
    }
}

/// A tunnel's place among those of its route that are open.
pub(crate) struct Tunnel {
    registry: Arc<Registry>,
    of_route: Arc<RouteMetrics>,
}

impl Tunnel {
    /// Takes a place; `None` if as many are taken as the proxy allows.
    pub(crate) fn begin(connection: &Connection, route: &Route) -> Option<Tunnel> {
        let limit = route.source.forward_proxy()?.settings.connect.open;
        let of_route = &route.metrics;
        let place = |open| (open < limit).then_some(open + 1);
        of_route.tunnels.fetch_update(Relaxed, Relaxed, place).ok()?;
        let registry = Arc::clone(&connection.worker.shared.metrics);
        registry.forward.open.fetch_add(1, Relaxed);
        Some(Tunnel { registry, of_route: Arc::clone(of_route) })
    }

    /// It has passed these bytes, and ended.
    pub(crate) fn end(self, end: TunnelEnd, from_client: u64, to_client: u64) {
        let counts = &self.registry.forward;
        counts.ended[end as usize].fetch_add(1, Relaxed);
        counts.from_client.fetch_add(from_client, Relaxed);
        counts.to_client.fetch_add(to_client, Relaxed);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.of_route.tunnels.fetch_sub(1, Relaxed);
        self.registry.forward.open.fetch_sub(1, Relaxed);
    }
}

impl ForwardCounts {
    /// Counts what was refused, and returns how often that was so before.
    pub(crate) fn refuse(&self, why: Refused) -> u64 {
        let at = Refused::ALL.iter().position(|known| *known == why);
        let count = at.and_then(|at| self.refused.get(at));
        count.map_or(0, |count| count.fetch_add(1, Relaxed))
    }
}

/// Renders the part of the page that is about forward proxies.
pub(super) fn forward(page: &mut Page, shared: &Shared) {
    let counts = &shared.metrics.forward;
    page.single(
        "weir_forward_requests_total",
        "counter",
        "Requests to forward proxies.",
        counts.requests.load(Relaxed),
    );
    let name = "weir_forward_denied_total";
    page.family(name, "counter", "Of them, those that were refused, by what was wrong.");
    for (why, count) in Refused::ALL.into_iter().zip(&counts.refused) {
        page.sample(name, &[("reason", why.as_str())], count.load(Relaxed));
    }
    lookups(page, counts.names.counts());
    let help = "Tunnels that are open.";
    page.single("weir_forward_tunnels", "gauge", help, counts.open.load(Relaxed));
    let name = "weir_forward_tunnels_total";
    page.family(name, "counter", "Tunnels that have ended, by how.");
    for (end, count) in TunnelEnd::ALL.into_iter().zip(&counts.ended) {
        page.sample(name, &[("end", end.as_str())], count.load(Relaxed));
    }
    let name = "weir_forward_tunnel_bytes_total";
    page.family(name, "counter", "Bytes that have passed tunnels that have ended.");
    for (direction, count) in [("in", &counts.from_client), ("out", &counts.to_client)] {
        page.sample(name, &[("direction", direction)], count.load(Relaxed));
    }
}

fn lookups(page: &mut Page, counts: Counts) {
    let help = "Names that forward proxies are looking up.";
    page.single("weir_forward_lookups", "gauge", help, counts.asked as u64);
    let name = "weir_forward_lookups_total";
    page.family(name, "counter", "What has become of questions for names.");
    for (result, count) in [
        ("found", counts.found),
        ("unresolved", counts.unresolved),
        ("joined", counts.joined),
        ("refused", counts.refused),
    ] {
        page.sample(name, &[("result", result)], count);
    }
}
