//! What plugins cost, how they fail, and the metrics that they define themselves.

use weir_plugin::{Metered, MetricReading, State};

use super::render::{Page, seconds};
use crate::shared::Shared;

/// Renders the part of the page that is about plugins.
pub(super) fn plugins(page: &mut Page, shared: &Shared) {
    let all = shared.plugins.metered();
    counters(page, &all);
    calls(page, &all);
    states(page, &all);
    defined(page, &all);
}

fn counters(page: &mut Page, all: &[Metered]) {
    type Value = fn(&Metered) -> u64;
    let families: [(&str, &str, Value); 4] = [
        ("weir_plugin_calls_total", "Calls into the plugin.", |m| m.totals.stats.calls),
        ("weir_plugin_streams_total", "Requests that passed the plugin.", |m| {
            m.totals.stats.streams
        }),
        (
            "weir_plugin_broken_requests_total",
            "Requests in the plugin that ended without a whole response.",
            |m| m.totals.stats.broken,
        ),
        ("weir_plugin_rests_total", "Quarantines that began.", |m| m.totals.rests),
    ];
    for (name, help, value) in families {
        page.family(name, "counter", help);
        for metered in all {
            page.sample(name, &[("plugin", metered.plugin.name())], value(metered));
        }
    }
    let name = "weir_plugin_failures_total";
    page.family(name, "counter", "Failures of the plugin, by kind.");
    for metered in all {
        for (kind, count) in &metered.totals.stats.failures {
            let labels = [("plugin", metered.plugin.name()), ("kind", kind.as_str())];
            page.sample(name, &labels, count);
        }
    }
}

fn calls(page: &mut Page, all: &[Metered]) {
    let name = "weir_plugin_call_seconds";
    page.family(name, "histogram", "How long calls took: one in 16, and all over bodies.");
    for metered in all {
        let stats = &metered.totals.stats;
        let mut cumulative = 0;
        let buckets = stats.buckets.iter().map(|&(bound_ns, count)| {
            cumulative += count;
            (bound_ns.map(seconds), cumulative)
        });
        let labels = [("plugin", metered.plugin.name())];
        page.histogram(name, &labels, buckets, seconds(stats.timed_ns), stats.timed);
    }
}

fn states(page: &mut Page, all: &[Metered]) {
    page.family("weir_plugin_state", "gauge", "1 for the state that the plugin is in.");
    for metered in all {
        for state in State::ALL {
            let labels = [("plugin", metered.plugin.name()), ("state", state.as_str())];
            page.sample("weir_plugin_state", &labels, u8::from(metered.state == state));
        }
    }
    let name = "weir_plugin_generation";
    page.family(name, "gauge", "Number of the generation in force; 0 if there is none.");
    for metered in all {
        page.sample(name, &[("plugin", metered.plugin.name())], metered.generation);
    }
    let name = "weir_plugin_memory_bytes";
    page.family(name, "gauge", "Memory of the plugin's instances that no call is running in.");
    for metered in all {
        page.sample(name, &[("plugin", metered.plugin.name())], metered.memory_bytes);
    }
}

/// The metrics that plugins define: one family for each kind, their names in a label, since they
/// may have characters that names of metrics may not.
fn defined(page: &mut Page, all: &[Metered]) {
    let mut readings = Vec::new();
    for metered in all {
        metered.plugin.metrics().each(|name, reading| {
            readings.push((metered.plugin.name(), name.to_owned(), reading));
        });
    }
    let counter = "weir_plugin_counter_total";
    page.family(counter, "counter", "Counters that plugins define, by name.");
    for (plugin, name, reading) in &readings {
        if let MetricReading::Counter(value) = reading {
            page.sample(counter, &[("plugin", plugin), ("name", name)], value);
        }
    }
    let gauge = "weir_plugin_gauge";
    page.family(gauge, "gauge", "Gauges that plugins define, by name.");
    for (plugin, name, reading) in &readings {
        if let MetricReading::Gauge(value) = reading {
            page.sample(gauge, &[("plugin", plugin), ("name", name)], value);
        }
    }
    let family = "weir_plugin_histogram";
    page.family(family, "histogram", "Histograms that plugins define, by name.");
    for (plugin, name, reading) in &readings {
        if let MetricReading::Histogram { buckets, sum, count } = reading {
            let bound = |bound: u64| (bound != u64::MAX).then(|| bound.to_string());
            let buckets = buckets.iter().map(|&(upper, below)| (bound(upper), below));
            let labels = [("plugin", *plugin), ("name", name)];
            page.histogram(family, &labels, buckets, sum.to_string(), *count);
        }
    }
}
