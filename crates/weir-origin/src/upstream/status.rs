//! A group's state for the admin API and metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use super::Group;
use super::pool::Pool;
use super::server::Server;
use crate::error::ErrorKind;

/// A group at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupStatus {
    /// The group's name.
    pub name: String,
    /// Its servers, in configuration order.
    pub servers: Vec<ServerStatus>,
    /// Retries that the retry budget allows now.
    pub retries_left: u32,
}

/// A server at one moment; counters since the group was made, over all workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerStatus {
    /// The server's address, as logs name it.
    pub server: String,
    /// Gets requests: neither down nor ejected.
    pub healthy: bool,
    /// Taken out by active checks.
    pub down: bool,
    /// Milliseconds that passive health still keeps it out.
    pub ejected_ms: Option<u64>,
    /// Requests (and tunnels) in flight.
    pub in_flight: usize,
    /// Connections open, idle ones and tunnels included.
    pub connections: usize,
    /// Connections that wait for a request.
    pub idle: usize,
    /// Attempts at this server.
    pub requests: u64,
    /// Connections made.
    pub connects: u64,
    /// Attempts here that failed and were made again, here or elsewhere.
    pub retries: u64,
    /// Failed attempts and bodies by [`ErrorKind`], those that occurred.
    pub failures: BTreeMap<&'static str, u64>,
    /// Microseconds to the response head, summed over the successful attempts.
    pub latency_us: u64,
}

pub(super) fn snapshot(group: &Group) -> GroupStatus {
    let servers = group.servers.iter().enumerate();
    GroupStatus {
        name: group.config.name.clone(),
        servers: servers.map(|(index, server)| of_server(group, index, server)).collect(),
        retries_left: group.budget.left(),
    }
}

fn of_server(group: &Group, index: usize, server: &Server) -> ServerStatus {
    let pools = || group.workers.iter().map(move |worker| &worker.pools[index]);
    let sum = |count: fn(&Pool) -> u64| pools().map(count).sum::<u64>();
    let failures = ErrorKind::ALL.into_iter().filter_map(|kind| {
        let count = pools().map(|pool| pool.stats.failures[kind as usize].load(Relaxed)).sum();
        (count > 0).then_some((kind.as_str(), count))
    });
    ServerStatus {
        server: server.name.to_string(),
        healthy: server.is_available(),
        down: server.is_down(),
        ejected_ms: server.ejected_for().map(|rest| rest.as_millis() as u64),
        in_flight: server.in_flight(),
        connections: pools().map(|pool| pool.open.load(Relaxed)).sum(),
        idle: pools().map(Pool::idle_count).sum(),
        requests: sum(|pool| pool.stats.requests.load(Relaxed)),
        connects: sum(|pool| pool.stats.connects.load(Relaxed)),
        retries: sum(|pool| pool.stats.retries.load(Relaxed)),
        failures: failures.collect(),
        latency_us: sum(|pool| pool.stats.latency_us.load(Relaxed)),
    }
}
