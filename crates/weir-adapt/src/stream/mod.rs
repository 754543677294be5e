//! Content adapted while it comes, for responses that are not stored: piece by piece, with what was
//! made so far handed on whenever nothing more is there, so that events and slow pages arrive at
//! once.
//!
//! The work is done on threads of its own, of lower priority than those that serve: a worker hands
//! a piece over and takes its coded form back, so that a hit never waits for it. How many streams
//! there are at a time is limited, and each has one piece under way at most, so that what waits is
//! limited too.

mod chain;
mod decoder;
mod encoder;
mod page;
mod threads;

pub use chain::Chain;
pub use threads::{Coder, Coders, Gone, StreamStats, Work};
