//! All counters in Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::UNIX_EPOCH;

use weir_net::Reaped;

use super::histogram::BOUNDS_US;
use super::{adapt, forward, guard, icap, plugins};
use crate::body_budget::BODY_BUDGET_BYTES;
use crate::shared::{Connections, Shared};

/// The media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders the page.
pub(crate) fn render(shared: &Shared) -> String {
    let mut page = Page::default();
    server(&mut page, shared);
    routes(&mut page, shared);
    connections(&mut page, shared);
    bodies(&mut page, shared);
    cache(&mut page, shared);
    upstreams(&mut page, shared);
    forward::forward(&mut page, shared);
    guard::guard(&mut page, shared);
    adapt::adapt(&mut page, shared);
    icap::icap(&mut page, shared);
    plugins::plugins(&mut page, shared);
    page.0
}

fn server(page: &mut Page, shared: &Shared) {
    let live = shared.live.load();
    let started = shared.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    page.family("weir_build_info", "gauge", "The running version.");
    page.sample("weir_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.single(
        "weir_start_time_seconds",
        "gauge",
        "When the server started, in seconds since the Unix epoch.",
        started.as_secs(),
    );
    page.single(
        "weir_config_generation",
        "gauge",
        "Number of the configuration in force; counts up with every reload.",
        live.generation,
    );
    page.single(
        "weir_config_reloads_total",
        "counter",
        "Configurations taken.",
        shared.reloads.load(Relaxed),
    );
    page.single(
        "weir_config_reload_failures_total",
        "counter",
        "Configurations refused; the one before stayed in force.",
        shared.reload_failures.load(Relaxed),
    );
    page.family(
        "weir_access_log_dropped_total",
        "counter",
        "Access records lost because the log took them too slowly.",
    );
    for log in &live.logs {
        let path = log.path().display().to_string();
        page.sample("weir_access_log_dropped_total", &[("path", &path)], log.dropped());
    }
}

fn routes(page: &mut Page, shared: &Shared) {
    let all = shared.metrics.all();
    page.family(
        "weir_requests_total",
        "counter",
        "Requests by site, route, status and what the cache had to do with the response.",
    );
    for route in &all {
        for (status, cache, count) in route.requests() {
            let labels = [
                ("site", route.site.as_str()),
                ("route", &route.route),
                ("status", status),
                ("cache", cache.as_str()),
            ];
            page.sample("weir_requests_total", &labels, count);
        }
    }
    page.family(
        "weir_fast_lane_requests_total",
        "counter",
        "Requests served on the fast lane: GET and HEAD of HTTP/1.1 without content.",
    );
    for route in &all {
        let labels = [("site", route.site.as_str()), ("route", &route.route)];
        page.sample("weir_fast_lane_requests_total", &labels, route.fast());
    }
    page.family(
        "weir_response_body_bytes_total",
        "counter",
        "Bytes of response bodies handed over, without framing.",
    );
    for route in &all {
        let labels = [("site", route.site.as_str()), ("route", &route.route)];
        page.sample("weir_response_body_bytes_total", &labels, route.body_bytes());
    }
    page.family(
        "weir_request_duration_seconds",
        "histogram",
        "From the request's head to the end of the response's body.",
    );
    for route in &all {
        let duration = route.duration();
        if duration.count() == 0 {
            continue;
        }
        let mut cumulative = 0;
        for (i, count) in duration.buckets.iter().enumerate() {
            cumulative += count;
            let bound = BOUNDS_US.get(i).map_or("+Inf".to_owned(), |us| seconds(us * 1000));
            let labels = [("site", route.site.as_str()), ("route", &route.route), ("le", &bound)];
            page.sample("weir_request_duration_seconds_bucket", &labels, cumulative);
        }
        let labels = [("site", route.site.as_str()), ("route", &route.route)];
        page.sample("weir_request_duration_seconds_sum", &labels, seconds(duration.sum_ns));
        page.sample("weir_request_duration_seconds_count", &labels, cumulative);
    }
}

fn connections(page: &mut Page, shared: &Shared) {
    let connections = &shared.connections;
    page.single(
        "weir_connections_open",
        "gauge",
        "Client connections open now.",
        connections.open.load(Relaxed),
    );
    let counters = [
        ("weir_connections_accepted_total", "Client connections accepted.", &connections.accepted),
        (
            "weir_connections_refused_total",
            "Client connections beyond the limit, answered with 503.",
            &connections.refused,
        ),
        (
            "weir_accept_errors_total",
            "Failures to accept, for lack of descriptors or memory.",
            &connections.accept_errors,
        ),
        (
            "weir_malformed_requests_total",
            "Requests whose head could not be parsed.",
            &connections.malformed,
        ),
        (
            "weir_tls_handshake_failures_total",
            "TLS handshakes that failed.",
            &connections.tls_failures,
        ),
        (
            "weir_streams_stalled_total",
            "HTTP/2 streams reset because the client did not take the response.",
            &connections.stalled_streams,
        ),
    ];
    for (name, help, counter) in counters {
        page.single(name, "counter", help, counter.load(Relaxed));
    }
    page.family(
        "weir_connections_reaped_total",
        "counter",
        "Connections ended by the server because the client was idle or slow.",
    );
    for reason in Reaped::ALL {
        let count = connections.reaped[reason as usize - 1].load(Relaxed);
        page.sample("weir_connections_reaped_total", &[("reason", reason.as_str())], count);
    }
}

fn bodies(page: &mut Page, shared: &Shared) {
    let name = "weir_request_bodies_refused_total";
    page.family(name, "counter", "Requests refused for the size or the pace of their content.");
    let Connections { large_bodies, slow_bodies, .. } = &shared.connections;
    for (reason, count) in [("too-large", large_bodies), ("too-slow", slow_bodies)] {
        page.sample(name, &[("reason", reason)], count.load(Relaxed));
    }
    let bodies = &shared.bodies;
    let name = "weir_body_buffer_bytes";
    page.single(name, "gauge", "Content held until its upstream is asked.", bodies.held_bytes());
    let name = "weir_body_buffer_limit_bytes";
    page.single(name, "gauge", "Most of it.", BODY_BUDGET_BYTES);
    let name = "weir_body_buffer_spent_total";
    let help = "Requests whose content was not gathered, or not as far, since nothing was left.";
    page.single(name, "counter", help, bodies.times_spent());
}

fn cache(page: &mut Page, shared: &Shared) {
    let stats = shared.cache.stats();
    page.single("weir_arena_bytes", "gauge", "Bytes of shared pages in use.", shared.arena.used());
    page.single(
        "weir_arena_limit_bytes",
        "gauge",
        "Most bytes of shared pages.",
        shared.arena.limit(),
    );
    let gauges = [
        ("weir_cache_objects", "Stored responses.", stats.objects),
        ("weir_cache_bytes", "Bytes charged to stored responses.", stats.bytes),
        ("weir_cache_limit_bytes", "Most bytes of stored responses.", stats.limit_bytes),
        ("weir_cache_flights", "Fills and validations in progress.", stats.flights),
    ];
    for (name, help, value) in gauges {
        page.single(name, "gauge", help, value);
    }
    let counters = [
        ("hits", "Look-ups that found a response to send.", stats.hits),
        ("stale", "Look-ups that found a response to validate.", stats.stale),
        ("misses", "Look-ups that found nothing.", stats.misses),
        ("passes", "Look-ups of keys whose responses are not stored.", stats.passes),
        ("inserts", "Responses stored.", stats.inserts),
        ("evictions", "Responses evicted to make room.", stats.evictions),
        ("evicted_bytes", "Bytes of evicted responses.", stats.evicted_bytes),
        ("purged", "Responses removed by purges.", stats.purged),
        ("too_large", "Responses too large to be stored.", stats.too_large),
        ("arena_full", "Reservations of shared pages that failed.", stats.arena_full),
        ("fills", "Fills begun.", stats.fills),
        ("fills_failed", "Fills that failed.", stats.fills_failed),
        ("fills_streamed", "Fills that outgrew the cache.", stats.fills_streamed),
        ("collapsed", "Requests that joined another's fill.", stats.collapsed),
    ];
    for (name, help, value) in counters {
        page.single(&format!("weir_cache_{name}_total"), "counter", help, value);
    }
}

fn upstreams(page: &mut Page, shared: &Shared) {
    let live = shared.live.load();
    let mut groups: Vec<_> = live.groups.values().map(|upstream| upstream.group.status()).collect();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    let servers =
        || groups.iter().flat_map(|group| group.servers.iter().map(|s| (group.name.as_str(), s)));
    page.family("weir_upstream_healthy", "gauge", "1 while the server gets requests.");
    for (upstream, server) in servers() {
        let labels = [("upstream", upstream), ("server", &server.server)];
        page.sample("weir_upstream_healthy", &labels, u8::from(server.healthy));
    }
    type Value = fn(&weir_origin::upstream::ServerStatus) -> u64;
    let families: [(&str, &str, &str, Value); 6] = [
        ("weir_upstream_in_flight", "gauge", "Requests in flight.", |s| s.in_flight as u64),
        ("weir_upstream_connections", "gauge", "Connections open.", |s| s.connections as u64),
        ("weir_upstream_idle_connections", "gauge", "Connections waiting.", |s| s.idle as u64),
        ("weir_upstream_requests_total", "counter", "Attempts at the server.", |s| s.requests),
        ("weir_upstream_connects_total", "counter", "Connections made.", |s| s.connects),
        ("weir_upstream_retries_total", "counter", "Attempts made again.", |s| s.retries),
    ];
    for (name, kind, help, value) in families {
        page.family(name, kind, help);
        for (upstream, server) in servers() {
            let labels = [("upstream", upstream), ("server", &server.server)];
            page.sample(name, &labels, value(server));
        }
    }
    page.family("weir_upstream_failures_total", "counter", "Failed attempts and bodies.");
    for (upstream, server) in servers() {
        for (kind, count) in &server.failures {
            let labels = [("upstream", upstream), ("server", &server.server), ("kind", kind)];
            page.sample("weir_upstream_failures_total", &labels, count);
        }
    }
    let sum = "weir_upstream_response_head_seconds_total";
    page.family(sum, "counter", "Time to the response head, summed over successful attempts.");
    for (upstream, server) in servers() {
        let labels = [("upstream", upstream), ("server", &server.server)];
        page.sample(sum, &labels, seconds(server.latency_us * 1000));
    }
}

pub(super) fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The text so far. Writing to a `String` cannot fail.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if i == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' | '"' => self.0.extend(['\\', c]),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// `buckets` count what is not above their bound; the last has none.
    pub(super) fn histogram(
        &mut self,
        family: &str,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (Option<String>, u64)>,
        sum: String,
        count: u64,
    ) {
        for (bound, below) in buckets {
            let bound = bound.unwrap_or_else(|| "+Inf".to_owned());
            let with_bound = [labels, &[("le", &*bound)]].concat();
            self.sample(&format!("{family}_bucket"), &with_bound, below);
        }
        self.sample(&format!("{family}_sum"), labels, sum);
        self.sample(&format!("{family}_count"), labels, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("a", &[("x", "q\"b\\n\nz"), ("y", "")], 1);
        assert_eq!(page.0, "a{x=\"q\\\"b\\\\n\\nz\",y=\"\"} 1\n");
    }

    #[test]
    fn seconds_are_decimal() {
        for (ns, expected) in [(0, "0"), (25_000, "0.000025"), (10_000_000_000, "10")] {
            assert_eq!(seconds(ns), expected);
        }
    }
}
