//! What host functions return: proxy-wasm's `proxy_status_t`.

use crate::memory::OutOfBounds;

/// A status other than OK. SDKs panic on one that the specification does not list for a call, so
/// each call returns only its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    NotFound = 1,
    BadArgument = 2,
    ParseFailure = 4,
    InvalidMemoryAccess = 6,
    Empty = 7,
    CasMismatch = 8,
    InternalFailure = 10,
}

/// Why a host function did not do what it was asked.
pub(crate) enum Stop {
    /// The plugin is told.
    Status(Status),
    /// Its allocator did not return: the whole call ends.
    Trap(wasmtime::Error),
}

/// What host functions return.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

impl From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Status(status)
    }
}

impl From<OutOfBounds> for Stop {
    fn from(_: OutOfBounds) -> Stop {
        Stop::Status(Status::InvalidMemoryAccess)
    }
}

/// As the plugin sees it.
pub(crate) fn returned(outcome: Outcome) -> wasmtime::Result<u32> {
    match outcome {
        Ok(()) => Ok(0),
        Err(Stop::Status(status)) => Ok(status as u32),
        Err(Stop::Trap(error)) => Err(error),
    }
}
