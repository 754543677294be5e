//! Adaptation: turning a stored response into the variant that fits a client, in helper processes
//! that use only the processor time that nobody else wants.
//!
//! [`Pool`] is the server's side: a bounded queue before helpers, which are the same program
//! started again, at the lowest priority and without access to anything ([`helper::run`]). A
//! [`Job`] names stored bytes where they lie, in shared memory, and a [`Recipe`]; what comes back,
//! unless it is small, lies in a sealed memfd, which becomes stored bytes as it is. Knows no
//! requests and no cache.

pub mod adapters;
pub mod ads;
pub mod cgroup;
mod cost;
pub mod helper;
mod job;
mod pool;
pub mod stream;
mod wire;

pub use cost::DEAR;
pub use job::{Job, Limits, Made, Outcome, Piece, Recipe, Step};
pub use pool::{Judged, Pool, PoolSettings, Refused, Stats, judge_packet};
