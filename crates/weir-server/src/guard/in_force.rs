//! Rules that come while the server runs: they hold until the next reload, which returns to those
//! of the configuration.

use std::sync::Arc;
use std::time::SystemTime;

use weir_config::{self as config, Config};

use super::{Guard, kernel};

/// What the rules in force were made of.
pub(crate) struct InForce {
    /// The `guard` block, with the rules that are in force.
    pub(crate) guard: config::Guard,
    /// When rules were last set that are not those of the configuration.
    pub(crate) set_at: Option<SystemTime>,
}

impl InForce {
    pub(super) fn of_configuration(guard: &config::Guard) -> InForce {
        InForce { guard: guard.clone(), set_at: None }
    }

    /// Says so if rules that were set at run time end.
    pub(super) fn give_way(&self, to: &config::Guard) {
        if self.set_at.is_some() && self.guard.rules != to.rules {
            tracing::warn!("rules set at run time are gone: those of the configuration hold again");
        }
    }
}

impl Guard {
    /// What the rules in force were made of.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// A configuration in force with its rules, those set at run time included.
    pub(crate) fn config(&self, live: &Config) -> Config {
        Config { guard: self.in_force.load().guard.clone(), ..live.clone() }
    }

    /// Other rules than the configuration has, until the next reload: those of `config`, which is
    /// as it was `before` in all else. Whether it takes a reload with them to have listeners with
    /// which the kernel can do its part.
    pub(crate) fn set_rules(&self, before: &Config, config: &Config) -> bool {
        let had_kernel = self.kernel().is_some();
        self.swap(config);
        self.note_set(config);
        let others = kernel::queues(before) != kernel::queues(config);
        self.kernel().is_some() && (!had_kernel || others)
    }

    /// Notes that a configuration's rules are not those that it was loaded with.
    pub(crate) fn note_set(&self, config: &Config) {
        let guard = config.guard.clone();
        self.in_force.store(Arc::new(InForce { guard, set_at: Some(SystemTime::now()) }));
    }
}
