//! Work beside the serving: the bounded line in which it waits, and threads that yield to those who
//! serve. Adaptation uses both, for jobs of its helpers and for streams; the plugin host uses the
//! threads.
//!
//! Knows nothing of the work: a [`Line`] keeps what it is given in order, and refuses what is too
//! much; who does it, who waits for its end and what is said of a refusal is up to its users.

mod line;
mod queue;
mod thread;

pub use line::{Inside, Line, Locked, Refused};
pub use queue::Rank;
pub use thread::{NICE, begin, begin_threads_with, begin_yielding, yield_to_others};
