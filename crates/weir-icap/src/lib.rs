//! A client of the Internet Content Adaptation Protocol (ICAP/1.0, RFC 3507): a service elsewhere
//! is shown requests (REQMOD) and responses (RESPMOD), and says that they may stay as they are,
//! what is to go on in their place, or what the client is answered instead.
//!
//! Content is shown as it comes. With a preview (§4.5) the service sees its first bytes and may be
//! content with those; what it then wants is sent while its answer is already read. What was sent
//! is kept up to [`KEPT_BYTES_MAX`], so that nothing is lost if the service has no answer. What it
//! answers is read as it comes, up to [`AHEAD_BYTES_MAX`] before whoever reads it.
//!
//! Knows neither routes nor the cache; what happens when a service fails is its caller's to decide.

mod ahead;
mod answering;
mod chunked;
mod error;
mod exchange;
mod head;
mod message;
mod options;
mod pool;
mod preview;
mod pump;
mod reading;
mod service;
mod wire;

pub use ahead::{AHEAD_BYTES_MAX, PACE_BYTES_PER_S};
pub use error::IcapError;
pub use exchange::{Failed, Modified};
pub use message::Shown;
pub use preview::KEPT_BYTES_MAX;
pub use reading::{Answer, read_answer};
pub use service::{Address, Service, Settings};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// Why content could not be read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Content of a message, on its way to a service or back.
pub type Content = UnsyncBoxBody<Bytes, BoxError>;
