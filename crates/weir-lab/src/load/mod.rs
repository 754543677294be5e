//! The load generator: one thread, one epoll, any number of clients. It runs on the calling thread
//! so that the caller decides the core, and calls back at both ends of the measured window so that
//! CPU time is read exactly there.
//!
//! Closed loop: each client sends its next request when the last response is complete. Open loop:
//! requests are due at a fixed rate whatever the server does, and latency counts from the moment a
//! request was due, so a stall is seen by all the requests it delays.

pub mod blocking;
mod client;
mod engine;
mod response;
pub mod wrk;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use engine::run;
pub use response::{Framing, Head, parse_head};

use crate::histogram::Histogram;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the contender listens.
    pub server: SocketAddr,
    /// Path and query of every request.
    pub target: String,
    /// What every body must be.
    pub expect: Arc<[u8]>,
    /// Concurrent clients, each with one connection at a time.
    pub clients: usize,
    /// Keep connections, or open one for each request and wait for the server to close it.
    pub persistent: bool,
    /// Load before the window opens.
    pub warm_up: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Requests per second, due at equal distances; `None` is a closed loop.
    pub rate_per_second: Option<f64>,
}

impl Plan {
    /// The request, the same for every contender: the small set of fields a simple client sends.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let connection = if self.persistent { "" } else { "Connection: close\r\n" };
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir-lab\r\nAccept: */*\r\n{connection}\r\n",
            self.target, self.server
        )
        .into_bytes()
    }
}

/// What happened within the window.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Responses that were complete and correct.
    pub requests: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Responses or connections that failed.
    pub errors: u64,
    /// The first failure, in words.
    pub first_error: Option<String>,
    /// Bodies that were compared byte by byte; the others by status and length.
    pub bodies_compared: u64,
    /// Connections opened.
    pub connections: u64,
    /// The window's real length.
    pub elapsed: Duration,
    /// Nanoseconds per request: open loop from the due time, closed loop from the send.
    pub latency_ns: Histogram,
}

/// An end of the measured window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The window opens: what completes from now on counts.
    Opens,
    /// The window closes.
    Closes,
}
