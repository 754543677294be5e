//! Forward proxies: what was asked of them, and what they refused.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_origin::egress::Denied;

use super::render::Page;
use crate::shared::Shared;

/// What has become of requests since the start.
#[derive(Debug, Default)]
pub(crate) struct ForwardCounts {
    pub(crate) requests: AtomicU64,
    /// Clients that may not use the proxy.
    pub(crate) strangers: AtomicU64,
    denied: [AtomicU64; Denied::ALL.len()],
}

impl ForwardCounts {
    /// Counts a destination that was refused.
    pub(crate) fn deny(&self, why: Denied) {
        let at = Denied::ALL.iter().position(|known| *known == why);
        if let Some(count) = at.and_then(|at| self.denied.get(at)) {
            count.fetch_add(1, Relaxed);
        }
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
    page.sample(name, &[("reason", "client")], counts.strangers.load(Relaxed));
    for (why, count) in Denied::ALL.into_iter().zip(&counts.denied) {
        page.sample(name, &[("reason", why.as_str())], count.load(Relaxed));
    }
}
