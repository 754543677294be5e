//! ICAP services: what has become of the messages they were shown.

use super::render::Page;
use crate::icap::Outcome;
use crate::shared::Shared;

/// Renders the part of the page that is about ICAP services.
pub(super) fn icap(page: &mut Page, shared: &Shared) {
    let live = shared.live.load();
    let mut services: Vec<_> = live.icap.values().collect();
    services.sort_by(|a, b| a.config.name.cmp(&b.config.name));
    let name = "weir_icap_messages_total";
    page.family(name, "counter", "Messages that ICAP services were shown, by what became of them.");
    for icap in &services {
        for (method, watched) in icap.watched() {
            for outcome in Outcome::ALL {
                let service = ("service", icap.config.name.as_str());
                let labels = [service, ("method", method), ("result", outcome.as_str())];
                page.sample(name, &labels, watched.counted(outcome));
            }
        }
    }
    let name = "weir_icap_wait_seconds_total";
    page.family(name, "counter", "Time that messages waited for an answer to begin.");
    for icap in &services {
        for (method, watched) in icap.watched() {
            let labels = [("service", icap.config.name.as_str()), ("method", method)];
            page.sample(name, &labels, watched.waited_s());
        }
    }
    let name = "weir_icap_slow_readers_total";
    page.family(name, "counter", "Answers that broke off because they were taken too slowly.");
    for icap in &services {
        for (method, watched) in icap.watched() {
            let labels = [("service", icap.config.name.as_str()), ("method", method)];
            page.sample(name, &labels, watched.service.slow_readers());
        }
    }
}
