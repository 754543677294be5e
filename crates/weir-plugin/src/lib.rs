//! The plugin host: sandboxed code of operators, run on every request at the cost of a function
//! call. A plugin is a WebAssembly module that speaks proxy-wasm or Weir's own interface; this
//! crate checks, compiles, instantiates, limits and watches it, and replaces it while requests run.
//!
//! It must not know the pipeline: what plugins see and change is an exchange
//! ([`RequestHead`], [`ResponseHead`], bodies), and what the server does for them is [`Services`].

mod at_once;
mod body;
mod call;
mod canary;
mod check;
mod configured;
mod consult;
mod cost;
mod cpu;
mod deploy;
mod deployer;
mod effort;
mod engine;
mod exchange;
mod exchanges;
mod failure;
mod flow;
mod generation;
mod hooks;
mod host;
mod instance;
mod keeper;
pub mod limits;
mod log;
mod machinery;
mod make;
mod memory;
mod module;
mod own;
mod passed;
mod place;
mod plugin;
mod policy;
mod problem;
mod properties;
mod proxy_wasm;
mod quarantine;
mod record;
mod registry;
mod routes;
mod running;
mod services;
mod shared;
mod side;
mod signal;
mod stats;
mod store;
mod stream;
mod tally;
mod tap;
#[cfg(test)]
mod test_support;
mod timer;
mod trial;
mod views;
mod wasi;
mod workshop;

pub use at_once::{AtOnce, Glance};
pub use body::BodyBuffer;
pub use configured::{Prepared, inspect};
pub use deploy::{CanaryPlan, Deployed, Deployment};
pub use engine::Engine;
pub use exchange::{
    About, Action, Answer, CacheWish, Facts, Lend, Lent, RequestHead, ResponseHead, StoredFacts,
    Want, Wishes,
};
pub use failure::{Failure, FailureKind};
pub use generation::Generation;
pub use hooks::Hooks;
pub use module::{Abi, Compiled, Digest, ModuleError, ProxyWasmVersion};
pub use passed::{Content, FlowError, Passed};
pub use place::Threads;
pub use plugin::{Plugin, Totals};
pub use policy::PolicyEdits;
pub use problem::PluginError;
pub use properties::{Bag, NoProperties, Properties, Value};
pub use record::{Attachment, Code};
pub use registry::{Metered, Plugins};
pub use services::{CallBody, Calling, ContentError, Injection, Services, StoredResponse};
pub use shared::{Commons, MetricKind, MetricReading, PluginMetrics};
pub use stats::Stats;
pub use stream::{LateEnd, Stream, enter_place};
pub use tap::{Cut, Ear, Tap, Way};
pub use views::{CanaryView, Counted, Details, HistoryEntry, State, Summary};
