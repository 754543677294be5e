//! Freshness and storage: what RFC 9111 says about a response, and where responses are kept. No
//! I/O, no clock (time is a parameter, in milliseconds since the Unix epoch), no knowledge of where
//! responses come from.
//!
//! # The life of a request in the cache
//!
//! 1. [`Cache::lookup`] under a [`KeyRef`]: a hit ends here.
//! 2. [`Cache::collapse`]: one request becomes the [`Lead`], others [`Follow`] it.
//! 3. The leader asks the source and hands the answer to [`policy::admit`]. What may not be stored
//!    is a [`Lead::pass`]; a 304 goes through [`policy::freshen`] to [`Lead::refreshed`].
//! 4. [`Lead::start`] opens a fill. Its [`FillWriter`] puts the body into shared memory, where
//!    [`FillReader`]s find it as it comes; at its end it becomes an [`Object`] of the index.

pub mod eviction;
pub mod limits;
pub mod policy;

mod body;
mod error;
mod fill;
mod key;
mod object;
mod selectors;
mod store;

pub use body::{Body, Destination};
pub use error::CacheError;
pub use fill::{
    Collapse, Failure, Fill, FillReader, FillWriter, Finished, Follow, Lead, NotStored, Outcome,
    Started,
};
pub use key::{Key, KeyRef};
pub use object::{Head, Object, SourceStamp, Stamp};
pub use policy::{Freshness, RequestDirectives};
pub use selectors::Selectors;
pub use store::{Cache, Lookup, PurgeMode, Settings, Stale, Stats};

#[cfg(test)]
mod test_support;
