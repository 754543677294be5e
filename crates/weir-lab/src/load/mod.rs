//! The load generator: one thread, one epoll, any number of clients. It runs on the calling thread
//! so that the caller decides the core, and calls back at both ends of the measured window so that
//! CPU time is read exactly there.
//!
//! Closed loop: each client sends its next request when the last response is complete. Open loop:
//! requests are due at a rate whatever the server does, and latency counts from the moment a
//! request was due, so a stall is seen by all the requests it delays.
//!
//! Where refusals are expected ([`Patience`]), they are counted and not taken for failures.

mod arrivals;
mod ask;
pub mod blocking;
mod chunks;
mod client;
mod engine;
mod response;
mod timers;
pub mod wrk;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub use ask::{Ask, Asks, Catalogue, Expect};
pub use engine::{run, run_one};
pub use response::{Framing, Head, parse_head};

use crate::histogram::Histogram;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the contender listens.
    pub server: SocketAddr,
    /// Keep connections, or open one for each request and wait for the server to close it.
    pub persistent: bool,
    /// Load before the window opens.
    pub warm_up: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Who asks for what, at the same time.
    pub groups: Vec<Group>,
    /// How refused clients behave. `None`: any answer but 200 is a failure, and too many failures
    /// end the run.
    pub refusals: Option<Patience>,
}

/// Clients of one kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// What results call it.
    pub name: &'static str,
    /// What they ask for.
    pub asks: Asks,
    /// Responses whose head has this text are counted apart.
    pub mark: Option<&'static str>,
    /// Clients, each with one connection at a time and one request under way: in an open loop the
    /// most that may be outstanding.
    pub clients: usize,
    /// When they ask.
    pub arrivals: Arrivals,
    /// Where they connect from, one client after the other; the system's choice if there are none.
    pub sources: Vec<Ipv4Addr>,
}

/// When requests are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// A client's next request when it has the last response.
    Closed,
    /// So many per second, at equal distances.
    Even(f64),
    /// So many per second, independent of each other.
    Poisson(f64),
}

/// What clients do that are refused, or not answered at all.
///
/// A SYN that is dropped is sent again by the client's kernel after a second. A client in a closed
/// loop that is told of its refusal pauses for as long, so that no way to refuse has the advantage
/// that its clients ask less often. In an open loop nobody asks twice.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Time from sending a request, or the first SYN, to giving up.
    pub wait: Duration,
    /// Time from a refusal to the next request of a client in a closed loop.
    pub pause: Duration,
}

/// What happened to a group within the window.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Responses that were complete and correct.
    pub requests: u64,
    /// Those of them whose head has the group's mark.
    pub marked: u64,
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
    /// Requests begun.
    pub begun: u64,
    /// Answers with another status than 200, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Connections that the other side reset, refused or closed without an answer.
    pub resets: u64,
    /// Connections given up before they were open.
    pub connect_timeouts: u64,
    /// Requests given up later.
    pub timeouts: u64,
    /// Requests that were due when as many as may be were outstanding. Where refusals are expected
    /// they are never sent.
    pub unsent: u64,
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
