//! What goes wrong between Weir and an ICAP service.

use std::io;
use std::time::Duration;

use crate::BoxError;

/// Why a service has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IcapError {
    /// No connection.
    #[error("no connection to the ICAP service: {0}")]
    Connect(io::Error),
    /// All connections that it may have are in use.
    #[error("no connection to the ICAP service was free within {} ms", .0.as_millis())]
    Busy(Duration),
    /// It neither took nor sent anything for so long.
    #[error("the ICAP service stood still for {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The connection broke.
    #[error("the connection to the ICAP service broke: {0}")]
    Broken(io::Error),
    /// It ended before all was said.
    #[error("the ICAP service closed the connection before its answer was complete")]
    Closed,
    /// What it says is not ICAP, or not an answer to what it was asked.
    #[error("the ICAP service sent {0}")]
    Garbage(&'static str),
    /// It did not say what it wants a moment ago, and is not asked again yet.
    #[error("the ICAP service had no answer to OPTIONS a moment ago")]
    Silent,
    /// An answer that is none.
    #[error("the ICAP service answered {0}")]
    Status(u16),
    /// Whoever reads its answer does not get on.
    #[error("the ICAP service's answer is read too slowly")]
    SlowReader,
    /// What it was to be shown broke off.
    #[error("the content broke off: {0}")]
    Content(BoxError),
}
