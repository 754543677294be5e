//! What everything that makes something else of a route's responses declares, whoever has made it:
//! the adapters here, plugins, ICAP services. Operators read it in the status.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use crate::live::Route;

/// What an adapter says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Declaration {
    /// What it is called.
    pub(crate) name: Cow<'static, str>,
    /// When it works.
    pub(crate) stage: Stage,
    /// Which responses it takes; empty: all.
    pub(crate) takes: Vec<String>,
    /// What of a request decides about what it makes; empty: it makes the same for everybody.
    pub(crate) key: Vec<String>,
    /// Where it works, and how long that takes.
    pub(crate) cost: Cost,
    /// Whether it works while a response comes, rather than on the whole.
    pub(crate) streams: bool,
}

/// When an adapter works; in the order in which a response passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// Once, before a response is stored.
    Fill,
    /// On what is stored, once for all whom the result fits; where it streams, also on what is not
    /// stored.
    Variant,
    /// On the way to each client.
    Delivery,
}

/// What an adapter costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "paid_by", rename_all = "lowercase")]
pub(crate) enum Cost {
    /// Time of helpers that nobody else wants: about so much for each byte, and so long at most
    /// for a request that waits for it.
    Helpers { ns_per_byte: u64, wait_ms: u64 },
    /// Time of the worker: so much for a request, as far as that has been measured.
    Worker { mean_ns: Option<u64> },
    /// The request's time, while somebody else is asked: so long at most for each piece.
    Service { timeout_ms: u64 },
}

impl Cost {
    pub(crate) fn helpers(ns_per_byte: u64, wait: Duration) -> Cost {
        Cost::Helpers { ns_per_byte, wait_ms: milliseconds(wait) }
    }

    pub(crate) fn service(timeout: Duration) -> Cost {
        Cost::Service { timeout_ms: milliseconds(timeout) }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whoever makes something else of responses.
pub(crate) trait Declares {
    /// What it says of itself; `None` if it lets them be after all.
    fn declaration(&self) -> Option<Declaration>;
}

/// What a route's adapters declare, in the order in which they work.
pub(crate) fn of(route: &Route) -> Vec<Declaration> {
    let chain = route.chain.load();
    let services = route.icap.iter().filter_map(|icap| icap.declaration());
    let plugins = chain.links.iter().filter_map(Declares::declaration);
    let own = route.offers.iter().flat_map(|offers| offers.declarations());
    let mut all: Vec<Declaration> = services.chain(plugins).chain(own).collect();
    all.sort_by_key(|one| one.stage);
    all
}
