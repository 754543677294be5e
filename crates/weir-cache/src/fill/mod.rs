//! Fills: one request leads to the source, others that come meanwhile follow; the body is read
//! while it is being written, and outlives the client that started it.
//!
//! # Life of a flight
//!
//! | state    | entered by                          | joined by         | ends by                    |
//! |----------|-------------------------------------|-------------------|----------------------------|
//! | pending  | [`Cache::collapse`](crate::Cache::collapse) → `Lead` | every like request | `start`, or an outcome |
//! | filling  | `Lead::start` → `FillWriter`        | selected requests | `finish`, `fail`, drop     |
//! | streaming| the body outgrows what is stored    | nobody            | `finish`, `fail`, drop, last reader gone |
//! | landed   | an outcome, or `finish`             | nobody: it is out of the table | –             |
//!
//! A flight may also begin with the answer: nobody waited for that, since one before it could not
//! be stored ([`Cache::lead_after_all`](crate::Cache::lead_after_all)).
//!
//! A purge takes a flight out of the table, so that nobody joins it, and forbids it to store.
//!
//! Outcomes: `refreshed`, `complete`, `release` (followers get an object), `pass` (followers go to
//! the source themselves), `fail` or drop (followers get the failure).

mod collapse;
mod flights;
mod lead;
mod reader;
mod shared;
mod writer;

pub use collapse::{Collapse, Failure, Follow, Outcome};
pub(crate) use flights::Flights;
pub use lead::{Lead, Started};
pub use reader::FillReader;
pub use shared::Fill;
pub use writer::{FillWriter, Finished, NotStored};

#[cfg(test)]
mod collapse_tests;
#[cfg(test)]
mod fill_tests;
