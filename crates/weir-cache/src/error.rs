//! What can go wrong with storing and filling. None of it fails a response by itself: a response
//! that cannot be stored is sent all the same, one that is torn is torn for its readers too.

use std::sync::Arc;

/// Errors of the cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The body is larger than the cache stores.
    #[error("a body of {len_bytes} bytes is not stored: the largest object is {max_bytes} bytes")]
    TooLarge {
        /// The body's length.
        len_bytes: u64,
        /// The largest that is stored.
        max_bytes: u64,
    },
    /// The arena is full, and evicting did not help.
    #[error("no arena room for {wanted_bytes} bytes, although everything evictable was evicted")]
    Full {
        /// Bytes asked for.
        wanted_bytes: u64,
    },
    /// The body ended before its declared length.
    #[error("body ended after {got_bytes} of {declared_bytes} declared bytes")]
    Shorter {
        /// Length that was declared.
        declared_bytes: u64,
        /// Length that came.
        got_bytes: u64,
    },
    /// The body went on beyond its declared length.
    #[error("body goes on after its {declared_bytes} declared bytes")]
    Longer {
        /// Length that was declared.
        declared_bytes: u64,
    },
    /// The source failed while the body was coming.
    #[error("the source failed: {0}")]
    Source(Arc<str>),
    /// The writer went away without ending the body.
    #[error("the fill was abandoned before its body ended")]
    Abandoned,
    /// Nobody reads a body that is not stored.
    #[error("the body is not stored and its last reader has left")]
    NoReaders,
    /// The reader came after the beginning of an unstored body was given up.
    #[error("the beginning of this body is gone; ask the source")]
    TooLate,
}
