//! Every limit of the cache, in one place, with how it was chosen.

/// Bodies up to this many bytes are kept on the heap, longer ones in arena extents. Up to about
/// 8 KiB copying into the socket costs no more than sendfile (ARCHITECTURE.md, "Decisions").
pub const HEAP_BODY_BYTES_MAX: usize = 8 << 10;

/// First extent of a body whose length was not declared.
pub const CHAIN_FIRST_BYTES: usize = 64 << 10;

/// Largest extent of a body whose length was not declared; extents double up to it.
pub const CHAIN_LAST_BYTES: usize = 1 << 20;

/// How far a fill that is not stored may run ahead of its slowest reader.
pub const STREAM_AHEAD_BYTES_MAX: u64 = 1 << 20;

/// Variants of one key; the oldest is forgotten when another comes.
pub const VARIANTS_PER_KEY_MAX: usize = 64;

/// Fills of one key that run at the same time under their own collapse; a request beyond goes to
/// the source without being collapsed. The same number as variants.
pub const FLIGHTS_PER_KEY_MAX: usize = VARIANTS_PER_KEY_MAX;

/// How long requests for a key pass uncollapsed after its response could not be stored, unless one
/// of them can be.
pub const PASS_LIFETIME_MS: u64 = 10_000;

/// Remembered passes per shard: 64 shards of 1,024 marks of 24 bytes are 1.5 MiB.
pub const PASSES_PER_SHARD_MAX: usize = 1024;

/// Shards of the index. Sixteen times the cores of a common server, so that two workers seldom
/// want the same lock.
pub const SHARDS: usize = 64;

/// What an object is charged beside its own bytes: the object, its place in index and queue, and
/// 384 bytes for its annex.
pub const OBJECT_OVERHEAD_BYTES: u64 = 1152;

/// What a stored field is charged beside the bytes of its name and value.
pub const FIELD_OVERHEAD_BYTES: u64 = 96;

/// Objects evicted to make room for one reservation in the arena before the fill gives up. Each has
/// more than 8 KiB there, so this is 32 MiB and more, the largest object of most caches.
pub const ARENA_VICTIMS_MAX: usize = 4096;

/// Items looked at in the search for a victim of a certain kind. Large objects, which are what is
/// searched for, stand near the front with GDSF.
pub const VICTIM_SCAN_MAX: usize = 4096;

/// Objects whose priority is corrected in one search for a victim; then the first in the queue
/// goes. It bounds the time under the queue's lock (about 0.2 µs a correction).
pub const PROMOTIONS_PER_VICTIM_MAX: usize = 256;

/// Heuristic freshness: the share of the time since Last-Modified (RFC 9111 §4.2.2 suggests 10 %).
pub const HEURISTIC_PERCENT: u64 = 10;

/// Heuristic freshness never passes a day (§4.2.2, and §5.5's old warning threshold).
pub const HEURISTIC_MS_MAX: u64 = 24 * 3600 * 1000;
