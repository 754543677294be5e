//! HTTP semantics as plain functions: validation of requests, paths and hosts, conditional and
//! range requests, negotiation, cache directives, forwarding fields.
//!
//! Nothing here does I/O or reads a clock; time and bytes are parameters. Storage and freshness
//! decisions are `weir-cache`'s, message syntax on the wire is hyper's.

pub mod accept;
pub mod cache_control;
pub mod cache_status;
pub mod conditional;
pub mod content_type;
pub mod cookie;
pub mod date;
pub mod etag;
pub mod forward;
pub mod head;
pub mod host;
mod malformed;
pub mod negotiate;
pub mod path;

pub mod range;
pub mod request;
mod syntax;
pub mod vary;

pub use malformed::Malformed;
