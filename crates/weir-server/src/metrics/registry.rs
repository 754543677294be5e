//! All counters by site and route. A route that survives a reload keeps its counters; one that
//! disappears keeps its row, as scrapers expect of counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{ForwardCounts, RouteMetrics};
use crate::adapt::{Counts, Pictures};

/// Routes remembered, counting those of past configurations. Later ones share one row.
const ROUTES_MAX: usize = 10_000;

/// The table of all route counters.
#[derive(Debug)]
pub(crate) struct Registry {
    workers: usize,
    routes: Mutex<BTreeMap<(String, String), Arc<RouteMetrics>>>,
    /// Requests that reached no route: malformed, for an unknown host.
    pub(crate) unrouted: Arc<RouteMetrics>,
    /// What becomes of pages, and of requests that lists of ads block.
    pub(crate) pages: Arc<Counts>,
    /// What becomes of pictures.
    pub(crate) pictures: Arc<Pictures>,
    /// What becomes of requests to forward proxies.
    pub(crate) forward: ForwardCounts,
}

impl Registry {
    pub(crate) fn new(workers: usize) -> Registry {
        Registry {
            workers,
            routes: Mutex::new(BTreeMap::new()),
            unrouted: Arc::new(RouteMetrics::new("", "", workers)),
            pages: Arc::default(),
            pictures: Arc::default(),
            forward: ForwardCounts::default(),
        }
    }

    /// The counters of a route, made on first use.
    pub(crate) fn route(&self, site: &str, route: &str) -> Arc<RouteMetrics> {
        let mut routes = self.routes.lock();
        let key = (site.to_owned(), route.to_owned());
        if let Some(metrics) = routes.get(&key) {
            return Arc::clone(metrics);
        }
        if routes.len() >= ROUTES_MAX {
            return Arc::clone(&self.unrouted);
        }
        let metrics = Arc::new(RouteMetrics::new(site, route, self.workers));
        routes.insert(key, Arc::clone(&metrics));
        metrics
    }

    /// Every row, the unrouted one last.
    pub(crate) fn all(&self) -> Vec<Arc<RouteMetrics>> {
        let mut all: Vec<_> = self.routes.lock().values().cloned().collect();
        all.push(Arc::clone(&self.unrouted));
        all
    }
}
