//! Sources of responses: files under a root, and upstream servers with their pools, health,
//! balancing and retries; and where a forward proxy may connect to. Knows nothing of the cache in
//! front of them.

pub mod egress;
pub mod error;
pub mod files;
pub mod names;
pub mod upstream;
