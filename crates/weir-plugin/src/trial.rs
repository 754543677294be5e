//! Looks after canaries, once a second: promotes those that did well, and takes back those that did
//! not.

use std::sync::Arc;

use crate::canary::{Evidence, Verdict, judge};
use crate::plugin::Plugin;
use crate::registry::Inner;

impl Inner {
    /// Decides about every trial that can be decided; tells whether there are any left. Runs on the
    /// thread that deploys.
    pub(crate) fn look_after_canaries(self: &Arc<Self>) -> bool {
        let mut any_left = false;
        let mut any_changed = false;
        for plugin in self.plugins() {
            match self.verdict(&plugin) {
                None => {}
                Some(Verdict::Wait) => any_left = true,
                Some(Verdict::Promote) => {
                    self.promote(&plugin);
                    any_changed = true;
                }
                Some(Verdict::RollBack(reason)) => {
                    self.take_back(&plugin, &reason);
                    any_changed = true;
                }
            }
        }
        if any_changed {
            // On a thread of its own: a listener may wait for somebody who waits for this one.
            let inner = Arc::clone(self);
            let told =
                std::thread::Builder::new().name("plugin-change".to_owned()).spawn(move || {
                    weir_work::begin();
                    inner.tell();
                });
            if let Err(cause) = told {
                tracing::error!(%cause, "no thread to tell routes of a promoted plugin");
            }
        }
        any_left
    }

    fn verdict(&self, plugin: &Plugin) -> Option<Verdict> {
        let (canary, _) = plugin.canary()?;
        let active = plugin.active();
        let book = plugin.book.lock();
        let trial = book.trial.as_ref()?;
        let old = active.as_ref().map(|active| trial.counted_by(Some(active)));
        Some(judge(&Evidence {
            new: &canary.stats(),
            old: old.as_ref(),
            is_resting: canary.is_resting(),
            is_over: trial.began.elapsed() >= trial.duration,
        }))
    }

    fn promote(&self, plugin: &Arc<Plugin>) {
        let record = plugin.book.lock().trial.as_ref().map(|trial| trial.record.clone());
        let Some(record) = record else { return };
        let page = self.page_after(plugin, &record);
        let generation = record.generation;
        // It did well, so it serves; until this is written, a restart would find the one before.
        self.save_or_owe(&[(plugin.name(), Some(&page))]);
        plugin.promote(page, format!("generation {generation} was promoted"));
        tracing::info!(plugin = plugin.name(), generation, "canary promoted");
    }

    fn take_back(&self, plugin: &Arc<Plugin>, reason: &str) {
        let generation = plugin.canary().map_or(0, |(canary, _)| canary.number());
        tracing::warn!(plugin = plugin.name(), generation, reason, "canary rolled back");
        plugin.end_trial(format!("generation {generation} was rolled back: {reason}"));
        if plugin.active().is_none() {
            self.forget(plugin.name());
        }
    }
}
