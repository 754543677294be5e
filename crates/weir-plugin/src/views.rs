//! Plugins as the admin API and `weir plugin` show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use weir_config::PluginPolicy;

use crate::generation::Generation;
use crate::plugin::{Plugin, SHARE_WHOLE};
use crate::record::{Code, From, Record};
use crate::registry::Inner;
use crate::stats::Stats;

/// What a plugin is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In force.
    Active,
    /// Another generation is on trial.
    Canary,
    /// In quarantine.
    Resting,
    /// It could not be brought back after a restart.
    Broken,
}

impl State {
    /// Every state, for metrics.
    pub const ALL: [State; 4] = [State::Active, State::Canary, State::Resting, State::Broken];

    /// As metrics and the admin API write it.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Canary => "canary",
            State::Resting => "resting",
            State::Broken => "broken",
        }
    }

    pub(crate) fn of(active: Option<&Generation>, on_trial: bool) -> State {
        match (active.is_some_and(Generation::is_resting), on_trial) {
            (true, _) if active.is_some_and(|a| a.why_broken().is_some()) => State::Broken,
            (true, _) => State::Resting,
            (false, true) => State::Canary,
            (false, false) => State::Active,
        }
    }
}

/// A plugin in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// The generation in force; `None` while the first one is on trial.
    pub generation: Option<u64>,
    /// SHA-256 of its module.
    pub digest: Option<String>,
    /// The interface that it speaks.
    pub abi: Option<String>,
    /// Bytes of its module.
    pub module_bytes: Option<usize>,
    /// Bytes of memory of its instances.
    pub memory_bytes: usize,
    /// Where it runs, for people.
    pub routes: Vec<String>,
    /// Those among them that the configuration does not have any more, for people.
    pub missing_routes: Vec<String>,
    /// Whether the configuration has a block of this name.
    pub configured: bool,
    /// Whether what is in force was deployed at run time.
    pub deployed: bool,
    /// Whether it will be there after a restart.
    pub kept: bool,
    /// When it was deployed, in milliseconds since the Unix epoch.
    pub deployed_unix_ms: Option<u64>,
    /// What the generation in force has counted.
    #[serde(flatten)]
    pub counted: Counted,
    /// Quarantines in a row.
    pub rests: u32,
    /// Why it has no instance, if it could not be brought back after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// The generation on trial.
    pub canary: Option<CanaryView>,
}

/// Counters of a generation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counted {
    /// Calls into the plugin.
    pub calls: u64,
    /// Requests that passed it.
    pub streams: u64,
    /// Responses that went through it.
    pub responses: u64,
    /// Those with a status of 5xx.
    pub errors: u64,
    /// Failures by kind, without those that did not happen.
    pub failures: BTreeMap<&'static str, u64>,
    /// Mean of the timed calls, in nanoseconds.
    pub mean_ns: Option<u64>,
    /// Half of the timed calls took at most this, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// So did 99 of 100.
    pub p99_ns: Option<u64>,
}

/// A generation on trial.
#[derive(Clone, Debug, Serialize)]
pub struct CanaryView {
    /// Its number.
    pub generation: u64,
    /// SHA-256 of its module.
    pub digest: String,
    /// Percentage of the requests that it gets.
    pub share_percent: f64,
    /// Milliseconds until it is decided.
    pub remaining_ms: u64,
    /// What it has counted.
    #[serde(flatten)]
    pub counted: Counted,
}

/// A plugin with all that is known of it.
#[derive(Clone, Debug, Serialize)]
pub struct Details {
    /// As in a list.
    #[serde(flatten)]
    pub summary: Summary,
    /// What it is configured with.
    pub config: String,
    /// proxy-wasm's configuration of the virtual machine.
    pub vm_config: String,
    /// What a proxy-wasm module registers by.
    pub root_id: String,
    /// What it may use.
    pub policy: PluginPolicy,
    /// How its code was had.
    pub code: Code,
    /// Generations that were replaced and still have requests.
    pub draining: usize,
    /// How the last trial ended.
    pub last_canary: Option<String>,
    /// Earlier deployments that a rollback can go back to, the last one first.
    pub history: Vec<HistoryEntry>,
}

/// An earlier deployment.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryEntry {
    /// Its generation.
    pub generation: u64,
    /// SHA-256 of its module.
    pub digest: String,
    /// The interface that it speaks.
    pub abi: String,
    /// When it was deployed, in milliseconds since the Unix epoch.
    pub deployed_unix_ms: u64,
}

impl Counted {
    fn of(stats: &Stats) -> Counted {
        let happened = stats.failures.iter().filter(|(_, count)| *count > 0);
        Counted {
            calls: stats.calls,
            streams: stats.streams,
            responses: stats.responses,
            errors: stats.errors,
            failures: happened.map(|(kind, count)| (kind.as_str(), *count)).collect(),
            mean_ns: stats.mean_ns(),
            p50_ns: stats.quantile_ns(0.5),
            p99_ns: stats.quantile_ns(0.99),
        }
    }
}

impl Inner {
    pub(crate) fn summary(&self, plugin: &Arc<Plugin>) -> Summary {
        let routes = self.known_routes();
        let active = plugin.active();
        let canary = canary(plugin);
        let book = plugin.book.lock();
        let record = book.page.active.as_ref();
        let shown = record.or(book.trial.as_ref().map(|trial| &trial.record));
        let stats = active.as_ref().map(|active| active.stats()).unwrap_or_default();
        Summary {
            name: plugin.name().to_owned(),
            state: State::of(active.as_deref(), canary.is_some()),
            generation: record.map(|record| record.generation),
            digest: record.map(|record| record.digest.clone()),
            abi: record.map(|record| record.abi.clone()),
            module_bytes: record.map(|record| record.bytes),
            memory_bytes: active.as_ref().map_or(0, |active| active.memory_bytes()),
            routes: shown.map(|r| routes.places(plugin.name(), r)).unwrap_or_default(),
            missing_routes: shown.map(|r| routes.missing(plugin.name(), r)).unwrap_or_default(),
            configured: book.page.configured.is_some(),
            deployed: shown.is_some_and(|record| record.from == From::Deployment),
            kept: record.is_some() && self.is_kept(),
            deployed_unix_ms: record.map(|record| record.deployed_unix_ms),
            counted: Counted::of(&stats),
            rests: active.as_ref().map_or(0, |active| active.rests()),
            broken: active.as_ref().and_then(|active| active.why_broken()).map(str::to_owned),
            canary,
        }
    }

    /// Says where plugins were deployed that do not run there: a configuration has come that has
    /// these routes no more.
    pub(crate) fn warn_of_missing_routes(&self) {
        let routes = self.known_routes();
        for plugin in self.plugins() {
            let book = plugin.book.lock();
            let Some(record) = &book.page.active else { continue };
            for route in routes.missing(plugin.name(), record) {
                let generation = record.generation;
                tracing::warn!(
                    plugin = plugin.name(),
                    generation,
                    route,
                    "a plugin was deployed on a route that the configuration does not have any \
                     more; it does not run there"
                );
            }
        }
    }

    pub(crate) fn details(&self, plugin: &Arc<Plugin>) -> Details {
        let summary = self.summary(plugin);
        let mut book = plugin.book.lock();
        let draining = book.draining();
        let shown = book.page.active.clone().or(book.trial.as_ref().map(|t| t.record.clone()));
        let (config, vm_config, root_id, policy, code) = match shown {
            Some(Record { config, vm_config, root_id, policy, code, .. }) => {
                (config, vm_config, root_id, policy, code)
            }
            None => Default::default(),
        };
        let history = book.page.history.iter().rev().map(|record| HistoryEntry {
            generation: record.generation,
            digest: record.digest.clone(),
            abi: record.abi.clone(),
            deployed_unix_ms: record.deployed_unix_ms,
        });
        Details {
            config,
            vm_config,
            root_id: root_id.unwrap_or_else(|| plugin.name().to_owned()),
            policy,
            code,
            draining,
            last_canary: book.last_trial.clone(),
            history: history.collect(),
            summary,
        }
    }
}

fn canary(plugin: &Plugin) -> Option<CanaryView> {
    let (generation, share) = plugin.canary()?;
    let book = plugin.book.lock();
    let trial = book.trial.as_ref()?;
    let remaining = trial.duration.saturating_sub(trial.began.elapsed());
    Some(CanaryView {
        generation: trial.record.generation,
        digest: trial.record.digest.clone(),
        share_percent: f64::from(share) * 100.0 / f64::from(SHARE_WHOLE),
        remaining_ms: remaining.as_millis() as u64,
        counted: Counted::of(&generation.stats()),
    })
}
