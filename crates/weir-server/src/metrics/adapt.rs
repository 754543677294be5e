//! Adaptation: what has become of jobs and helpers.

use super::render::Page;
use std::sync::atomic::Ordering::Relaxed;

use weir_adapt::stream::StreamStats;

use crate::adapt::{Counts, Pictures};
use crate::shared::Shared;

/// Renders the part of the page that is about adaptation.
pub(super) fn adapt(page: &mut Page, shared: &Shared) {
    let stats = shared.adaptation.stats();
    let name = "weir_adapt_jobs_total";
    page.family(name, "counter", "Variants that were asked for, by what became of it.");
    let results = [
        ("made", stats.made),
        ("original", stats.original),
        ("failed", stats.failed),
        ("refused", stats.refused),
        ("shared", stats.shared),
    ];
    for (result, count) in results {
        page.sample(name, &[("result", result)], count);
    }
    let single = [
        ("weir_adapt_jobs_waiting", "gauge", "Jobs that wait for a helper.", stats.waiting),
        ("weir_adapt_orders_total", "counter", "Orders to helpers.", stats.orders),
        ("weir_adapt_helpers_started_total", "counter", "Helper processes.", stats.started),
        (
            "weir_adapt_helpers_died_total",
            "counter",
            "Helpers that died of a job, or took too long for it.",
            stats.died,
        ),
        (
            "weir_adapt_helpers_outside_total",
            "counter",
            "Helpers that could not be put in their cgroup.",
            shared.adaptation.group().map_or(0, |group| group.outside),
        ),
        (
            "weir_adapt_input_bytes_total",
            "counter",
            "Bytes of originals that variants were made from.",
            stats.bytes_in,
        ),
        (
            "weir_adapt_output_bytes_total",
            "counter",
            "Bytes of variants that were made.",
            stats.bytes_out,
        ),
    ];
    for (name, kind, help, value) in single {
        page.single(name, kind, help, value);
    }
    streams(page, &shared.adaptation.streams());
    let drafts = shared.metrics.pages.drafts.load(Relaxed);
    let help = "Variants of which a draft was made first.";
    page.single("weir_adapt_drafts_total", "counter", help, drafts);
    let kept = shared.metrics.pages.kept.load(Relaxed);
    let help = "Variants that were made while they were sent.";
    page.single("weir_adapt_streams_kept_total", "counter", help, kept);
    pages(page, &shared.metrics.pages);
    pictures(page, &shared.metrics.pictures);
    let name = "weir_adapt_busy_seconds_total";
    page.family(name, "counter", "Time that helpers were at work.");
    page.sample(name, &[], stats.busy_us as f64 / 1e6);
}

fn streams(page: &mut Page, stats: &StreamStats) {
    let single = [
        (
            "weir_adapt_streams",
            "gauge",
            "Responses that are compressed or changed while they are sent.",
            stats.open as u64,
        ),
        (
            "weir_adapt_streams_total",
            "counter",
            "Responses compressed or changed while they were sent.",
            stats.begun,
        ),
        (
            "weir_adapt_streams_refused_total",
            "counter",
            "Responses sent as they were, since there were too many streams.",
            stats.refused,
        ),
        ("weir_adapt_streams_input_bytes_total", "counter", "Bytes that went in.", stats.bytes_in),
        (
            "weir_adapt_streams_output_bytes_total",
            "counter",
            "Bytes that came out.",
            stats.bytes_out,
        ),
    ];
    for (name, kind, help, value) in single {
        page.single(name, kind, help, value);
    }
}

fn pages(page: &mut Page, counts: &Counts) {
    let name = "weir_ads_requests_total";
    page.family(name, "counter", "Requests that lists of ads answered, by what was sent.");
    for (result, count) in [("blocked", &counts.blocked), ("redirected", &counts.redirected)] {
        page.sample(name, &[("result", result)], count.load(Relaxed));
    }
    let single = [
        ("weir_html_pages_total", "Pages that were changed.", &counts.rewritten),
        (
            "weir_html_partial_total",
            "Pages that were changed in part, since they took too much memory.",
            &counts.partial,
        ),
        (
            "weir_ads_hidden_total",
            "Elements that were taken out of pages by lists of ads.",
            &counts.hidden,
        ),
    ];
    for (name, help, count) in single {
        page.single(name, "counter", help, count.load(Relaxed));
    }
}

fn pictures(page: &mut Page, counts: &Pictures) {
    let name = "weir_image_made_total";
    page.family(name, "counter", "Pictures that were made, by format.");
    for (format, count) in counts.made() {
        page.sample(name, &[("format", format)], count);
    }
    let name = "weir_image_kept_total";
    page.family(name, "counter", "Pictures of which the original is sent, by why.");
    for (reason, count) in counts.kept() {
        page.sample(name, &[("reason", reason)], count);
    }
    page.single(
        "weir_image_saved_bytes_total",
        "counter",
        "Bytes that pictures are smaller than their originals.",
        counts.saved_bytes(),
    );
}
