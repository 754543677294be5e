//! Limits on everything a plugin could make grow. What operators may want to change is in the
//! configuration instead (`limits` of a plugin).

use std::time::Duration;

/// Bytes of a module. Go's are the largest that are in use: a few megabytes.
pub const MODULE_BYTES_MAX: usize = 64 << 20;

/// Stack of the code of a plugin, in bytes. Threads that run plugins have 2 MiB.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// How often the watch looks for calls that take long.
pub(crate) const WATCH_PERIOD: Duration = Duration::from_millis(5);

/// How often it looks while one does.
pub(crate) const WATCH_PERIOD_BUSY: Duration = Duration::from_millis(1);

/// Tables that a module may have.
pub(crate) const TABLES_MAX: usize = 16;

/// Bytes of a body that a paused plugin may hold back, and of an answer to a call.
pub const HELD_BYTES_MAX: usize = 16 << 20;

/// Calls in flight for one instance.
pub(crate) const CALLS_MAX: usize = 256;

/// Requests that one instance may have open at once.
pub(crate) const EXCHANGES_MAX: usize = 65_536;

/// Longest time a call may take, if the plugin names a longer one.
pub(crate) const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(300);

/// CPU time that a plugin may take to start and configure itself. It does so on a thread of its
/// own, at low priority when it is deployed.
pub(crate) const START_CPU_MAX: Duration = Duration::from_secs(10);

/// How long a plugin may hold a request back without a word.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long a request waits for a plugin whose instance is being replaced.
pub(crate) const REPLACEMENT_WAIT: Duration = Duration::from_secs(1);

/// Bytes of a body that are shown while its head is held back.
pub(crate) const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Bytes of a body that are shown to a plugin at once: what fits the processor's second cache, so
/// that a copy into the sandbox costs little.
pub const PIECE_BYTES_MAX: usize = 256 << 10;

/// Properties that the plugins of one request may set, and bytes of their paths and values.
pub(crate) const BAG_MAX: usize = 64;
pub(crate) const BAG_BYTES_MAX: usize = 64 << 10;

/// Fields of one section that a plugin may make. Clients may send a hundred.
pub(crate) const FIELDS_MAX: usize = 1024;

/// Contexts whose end a proxy-wasm plugin has put off; then the oldest end.
pub(crate) const PENDING_DONE_MAX: usize = 1024;

/// gRPC calls and streams in flight for one instance.
pub(crate) const GRPC_MAX: usize = 256;

/// Bytes of one gRPC message either way, and messages that wait to be sent on a stream.
pub(crate) const GRPC_MESSAGE_BYTES_MAX: usize = 4 << 20;
pub(crate) const GRPC_WAITING_MAX: usize = 64;

/// Shared data of one name: entries, bytes of a key, of a value, and of all of them.
pub(crate) const DATA_ENTRIES_MAX: usize = 65_536;
pub(crate) const DATA_KEY_BYTES_MAX: usize = 1 << 10;
pub(crate) const DATA_VALUE_BYTES_MAX: usize = 1 << 20;
pub(crate) const DATA_BYTES_MAX: usize = 64 << 20;

/// Shared queues: queues of one name, items of a queue, bytes of an item and of all items.
pub(crate) const QUEUES_MAX: usize = 256;
pub(crate) const QUEUE_ITEMS_MAX: usize = 65_536;
pub(crate) const QUEUE_ITEM_BYTES_MAX: usize = 1 << 20;
pub(crate) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Names under which there may be shared data or queues: plugins, and what they share beside.
pub(crate) const SPACES_MAX: usize = 4096;

/// Metrics that one plugin may define, and bytes of a name.
pub(crate) const METRICS_MAX: usize = 1024;
pub(crate) const METRIC_NAME_BYTES_MAX: usize = 256;

/// Random bytes that WASI gives at once.
pub(crate) const RANDOM_BYTES_MAX: usize = 1 << 20;

/// Bytes of a line of output that are kept until its end comes.
pub(crate) const OUTPUT_LINE_BYTES_MAX: usize = 8192;

/// Plugins of one process.
pub const PLUGINS_MAX: usize = 1000;

/// Deployments that are made at once, and that wait for it: each holds a module in memory.
pub(crate) const DEPLOYMENTS_MAX: usize = 4;
pub(crate) const DEPLOYMENTS_WAITING_MAX: usize = 8;

/// Bytes of a module that is compiled beside a large one. Those in Rust and C are smaller, those in
/// Go are not.
pub(crate) const MODULE_SMALL_BYTES: usize = 512 << 10;

/// Threads that compile one module: each may take some hundred megabytes for the worst function
/// that is let through.
pub(crate) const COMPILER_THREADS_MAX: usize = 4;

/// How often a deployment is made again because the plugin changed meanwhile.
pub(crate) const ROUNDS_MAX: usize = 5;

/// Deployments before the one in force that a rollback can go back to.
pub const HISTORY_MAX: usize = 5;

/// How often canaries are looked at.
pub(crate) const CANARY_PERIOD: Duration = Duration::from_secs(1);

/// Longest time that a canary may be given.
pub(crate) const CANARY_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Bytes of a file of compiled code: a module's grows to a few times its size.
pub(crate) const CODE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of the store's manifest: every plugin with a configuration of the largest size, thrice
/// over.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a plugin's verdict: a word that rules of overload control are written for.
pub const VERDICT_BYTES_MAX: usize = 256;
