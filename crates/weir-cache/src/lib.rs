//! Freshness and storage: what RFC 9111 says about a response, and where responses are kept. No
//! I/O, no clock (time is a parameter, in milliseconds since the Unix epoch), no knowledge of where
//! responses come from.
//!
//! # The life of a request in the cache
//!
//! 1. [`Cache::lookup`] under a [`KeyRef`]: a hit ends here.
//! 2. [`Cache::collapse`]: one request becomes the [`Lead`], others [`Follow`] it.
//! 3. The leader asks the source and hands the answer to [`policy::admit`]. What may not be stored
//!    is a [`Lead::pass`], which leaves a [`Mark`]; a 304 goes through [`policy::freshen`] to
//!    [`Lead::refreshed`]. Under a mark every request asks the source for itself, and the first
//!    whose answer may be stored becomes a lead by [`Cache::lead_after_all`].
//! 4. [`Lead::start`] opens a fill. Its [`FillWriter`] puts the body into shared memory, where
//!    [`FillReader`]s find it as it comes; at its end it becomes an [`Object`] of the index.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, Method, StatusCode};
//! use weir_cache::policy::{Exchange, Rules, admit};
//! use weir_cache::{Cache, Collapse, KeyRef, Lookup, RequestDirectives, Settings, Started};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let settings = Settings {
//!     memory_bytes: 1 << 20,
//!     object_bytes_max: 1 << 17,
//!     policy: Default::default(),
//! };
//! let cache = Cache::new(settings, weir_arena::Arena::new(1 << 21)?);
//! let key = KeyRef { scope: 0, authority: "shop.example", path_and_query: "/" };
//! let (request, now_ms) = (HeaderMap::new(), 1_000);
//! let directives = RequestDirectives::of(&request);
//! assert!(matches!(cache.lookup(&key, &request, &directives, now_ms), Lookup::Miss));
//!
//! let Collapse::Lead(lead) = cache.collapse(&key, &request, &directives, now_ms) else {
//!     panic!()
//! };
//! let mut response = HeaderMap::new();
//! response.insert("cache-control", HeaderValue::from_static("max-age=60"));
//! let exchange = Exchange {
//!     method: &Method::GET,
//!     request: &request,
//!     status: StatusCode::OK,
//!     response: &response,
//!     request_time_ms: now_ms,
//!     response_time_ms: now_ms,
//! };
//! match admit(&exchange, &Rules::default()) {
//!     Err(_reason) => lead.pass(now_ms),
//!     Ok(head) => {
//!         if let Started::Fill { mut writer, mut reader } = lead.start(head, Some(5)) {
//!             writer.write("hello".into()).await?;
//!             assert_eq!(reader.chunk().await.unwrap()?, "hello");
//!             writer.finish(None)?;
//!         }
//!     }
//! }
//! assert!(matches!(cache.lookup(&key, &request, &directives, now_ms), Lookup::Fresh(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use object::{Annex, Head, Object, SourceStamp, Stamp};
pub use policy::{Freshness, RequestDirectives};
pub use selectors::Selectors;
pub use store::{Cache, Lookup, Mark, PurgeMode, Settings, Stale, Stats};

#[cfg(test)]
mod test_support;
