//! Every limit of this crate, and how it was chosen.

/// Rules in the kernel at a time, old and new ones of a reload together: each has 128 bytes of
/// the shared state.
pub const RULES_MAX: usize = 4096;

/// Classes; the configuration knows at most 8.
pub const CLASSES_MAX: usize = 8;

/// Workers that are steered to.
pub const WORKERS_MAX: usize = 1024;

/// Groups of listeners, one for each address: each has a steering program and an array of sockets.
pub const GROUPS_MAX: usize = 1024;

/// Instructions of a program. The kernel takes a million, but looks at each in every way that it
/// can be reached: 1,000 rules with a source and a bucket each are 45,000 instructions, and load in
/// 1.5 seconds.
pub const INSTRUCTIONS_MAX: usize = 1 << 16;

/// Instructions where one must not jump farther than 16 bits say (before Linux 6.6).
pub const INSTRUCTIONS_NEAR_MAX: usize = 1 << 15;

/// Ranges of destination addresses or of ports of one rule; they are compared one by one.
pub const INLINE_RANGES_MAX: usize = 64;

/// Boundaries between source ranges that are compared by instructions; more are put into a table.
/// Measured where branches are known from the packet before: 65 boundaries decide in 52 ns, by the
/// table in 59; 2,000 in 38 and 41, but take 4,000 instructions and 50 ms to load. Fewer in tests,
/// so that random rules meet both.
pub const TREE_BOUNDARIES_MAX: usize = if cfg!(test) { 64 } else { 256 };

/// Boundaries in a table. 100,000 ranges have 200,000; each takes 12 bytes, IPv6 24.
pub const BOUNDARIES_MAX: usize = 1 << 20;

/// Distinct sets of rules that source addresses select.
pub const SETS_MAX: usize = 1 << 14;

/// Entries of a bucket of the hash table, which share a cache line.
pub const WAYS: usize = 4;

/// Buckets by source or prefix that are kept in the kernel at most: 16 bytes each.
pub const KEYS_MAX: usize = 1 << 24;

/// The least, so that tables have more than one line.
pub const KEYS_MIN: usize = 1 << 6;

/// Sources that are policed at a time; beyond, the one whose time is up first is let go.
pub const PENALTIES_MAX: usize = 1 << 14;

/// Rules with one bucket for all that get back what a connection took which a later one drops: the
/// first of those that it meets.
pub const GIVEN_BACK_MAX: usize = 4;

/// Times that a bucket is tried again when another processor was faster. With two processors, a
/// second attempt fails once in some thousands of packets.
pub const BUCKET_ATTEMPTS: usize = 4;

/// The longest time a bucket reckons with, about 73 years: sums of two of them and of the time
/// since the machine started stay within 63 bits.
pub const TIME_NS_MAX: u64 = 1 << 61;

/// Instructions of a classic program (BPF_MAXINSNS).
pub const CLASSIC_INSTRUCTIONS_MAX: usize = 4096;

/// What the verifier may say; of more, the beginning is lost.
pub const LOG_BYTES_MAX: usize = 1 << 20;

/// Lines of that which an error shows: the last ones name the instruction and the reason.
pub const LOG_LINES_SHOWN: usize = 12;
