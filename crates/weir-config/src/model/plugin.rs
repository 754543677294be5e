//! Plugins: where they come from, and the policy that each is held to. Policies are kept with what
//! is deployed at run time too, so they can be serialised; times are then whole milliseconds.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The `plugins` block: what all plugins share.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugins {
    /// Directory that keeps deployments across restarts; without it they end with the process.
    pub store: Option<PathBuf>,
    /// Low-priority threads for calls that run long, 1 and up.
    pub long_threads: usize,
}

/// A `plugin` block.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// Name in routes, metrics, logs and the admin API; see [`crate::is_plugin_name`].
    pub name: String,
    /// The module: Wasm, or WAT text.
    pub source: PathBuf,
    /// What the plugin is configured with: any text, JSON by custom. `config-file` is read by
    /// [`crate::load`] only; [`crate::parse`] leaves this empty for it.
    pub config: String,
    /// Configuration of the virtual machine, which proxy-wasm passes beside `config`.
    pub vm_config: String,
    /// What a proxy-wasm module registers by; its name if there is none.
    pub root_id: Option<String>,
    /// What the plugin may use, and what happens when it fails.
    pub policy: PluginPolicy,
}

/// What a plugin may use, and what happens when it fails. The default is that of a `plugin` block
/// that says nothing of it, and of a plugin deployed without one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginPolicy {
    /// CPU time of one call.
    #[serde(rename = "cpu_ms", with = "millis")]
    pub cpu: Duration,
    /// Bytes of memory of one instance.
    pub memory: u64,
    /// Elements of all tables of one instance.
    pub tables: u32,
    /// Calls expected to take longer than this leave the worker.
    #[serde(rename = "long_ms", with = "millis")]
    pub long: Duration,
    /// Lines a second that the plugin may log.
    pub log_per_s: u32,
    /// What becomes of a request on which the plugin fails.
    pub on_failure: OnFailure,
    /// When a plugin that fails is left out for a while.
    pub quarantine: Quarantine,
    /// What the plugin may touch.
    pub allow: Allow,
}

/// What becomes of a request on which a plugin fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It goes on as if the plugin were not there.
    #[default]
    Pass,
    /// It fails.
    Fail,
}

/// `quarantine …` of a plugin: one that fails too often is left out for a while, longer each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quarantine {
    /// Failures within `window` that begin it, 1 and up.
    pub failures: u32,
    /// Time over which failures are counted.
    #[serde(rename = "window_ms", with = "millis")]
    pub window: Duration,
    /// How long the first quarantine lasts.
    #[serde(rename = "back_off_ms", with = "millis")]
    pub back_off: Duration,
    /// What the doubling of `back_off` ends at; not less than `back_off`.
    #[serde(rename = "back_off_max_ms", with = "millis")]
    pub back_off_max: Duration,
}

/// `allow { … }` of a plugin: what it may touch beside heads and its own shared data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allow {
    /// Upstream groups that it may call. The file's names exist in
    /// [`Config::upstreams`](crate::Config::upstreams).
    pub upstreams: Names,
    /// Shared data and queues of others.
    pub shared: Names,
    /// Bodies of requests.
    pub request_body: bool,
    /// Bodies of responses.
    pub response_body: bool,
    /// Stored content: query, read, inject, expire, purge.
    pub cache: bool,
    /// Lines in the server's log.
    pub log: bool,
    /// Environment variables that it sees, by unique names.
    pub environment: Vec<(String, String)>,
}

/// All names, or some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Names {
    /// `"*"`: every one.
    All,
    /// Only these.
    These(Vec<String>),
}

/// A `use` line of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The plugin's name. It need not be in the file: it may be deployed at run time.
    pub plugin: String,
    /// Where the plugin sees the response.
    pub at: At,
}

/// Where a plugin of a route sees responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum At {
    /// On the way to each client, stored or not.
    #[default]
    Delivery,
    /// Once, as the source answers, before it is stored.
    Fill,
}

impl Names {
    /// Whether a name is one of them.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::These(names) => names.iter().any(|known| known == name),
        }
    }
}

impl Default for Names {
    /// None.
    fn default() -> Self {
        Names::These(Vec::new())
    }
}

impl Default for Plugins {
    fn default() -> Self {
        Plugins { store: None, long_threads: 2 }
    }
}

impl Default for PluginPolicy {
    fn default() -> Self {
        PluginPolicy {
            cpu: Duration::from_millis(50),
            memory: 64 << 20,
            tables: 100_000,
            long: Duration::from_millis(1),
            log_per_s: 100,
            on_failure: OnFailure::default(),
            quarantine: Quarantine::default(),
            allow: Allow::default(),
        }
    }
}

impl Default for Quarantine {
    fn default() -> Self {
        Quarantine {
            failures: 5,
            window: Duration::from_secs(10),
            back_off: Duration::from_secs(1),
            back_off_max: Duration::from_secs(300),
        }
    }
}

impl Default for Allow {
    fn default() -> Self {
        Allow {
            upstreams: Names::default(),
            shared: Names::default(),
            request_body: true,
            response_body: true,
            cache: false,
            log: true,
            environment: Vec::new(),
        }
    }
}

/// Times as whole milliseconds, which is what a configuration can say.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
