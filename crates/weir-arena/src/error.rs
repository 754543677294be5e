//! What can go wrong with an arena.

use std::io;

/// Errors of [`crate::Arena`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The reservation would pass the arena's limit; evict something and try again.
    #[error("arena full: {wanted_bytes} bytes wanted, {free_bytes} of {limit_bytes} free")]
    Full {
        /// Bytes asked for, rounded up to pages.
        wanted_bytes: u64,
        /// Bytes that are free now.
        free_bytes: u64,
        /// The arena's limit.
        limit_bytes: u64,
    },
    /// The operating system refused the memory behind the arena.
    #[error("cannot set up an arena of {limit_bytes} bytes: {step}: {source}")]
    Setup {
        /// The arena's limit.
        limit_bytes: u64,
        /// The system call that failed.
        step: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A file cannot become part of the arena.
    #[error("cannot adopt a file of {len_bytes} bytes: {why}")]
    NotAdopted {
        /// Bytes that were to be adopted.
        len_bytes: u64,
        /// What stands in the way.
        why: io::Error,
    },
}
