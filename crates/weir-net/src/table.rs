//! A worker's open connections, and the rules by which clients that hold them without using them
//! lose them. One sweep a tick costs a few loads per connection; requests pay no timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;

use crate::socket::{Phase, Socket};

/// Time between two sweeps, and the resolution of every timeout enforced here.
pub const TICK: Duration = Duration::from_millis(100);

/// A connection that has been idle for a second gives up its buffers; most that are used again at
/// all are used again within it, and keep theirs.
const REST_AFTER_TICKS: u32 = 10;

/// How long a closed connection may go on sending, and how long a client that was told of the end
/// may take to agree; as long as nginx's lingering_timeout.
const LINGER: Duration = Duration::from_secs(5);

/// Sent to a client whose request head does not arrive (RFC 9110 §15.5.9).
const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A coarse clock: ticks since the worker started, never 0.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU32);

impl Clock {
    /// A clock at its first tick.
    pub(crate) fn new() -> Clock {
        Clock(AtomicU32::new(1))
    }

    pub(crate) fn tick(&self) -> u32 {
        self.0.load(Relaxed)
    }

    fn advance(&self) -> u32 {
        // After 13 years of ticks the clock stands still instead of wrapping to "never".
        let next = self.0.load(Relaxed).saturating_add(1);
        self.0.store(next, Relaxed);
        next
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// How long a connection may stay in each state.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// Without a request in flight.
    pub idle: Duration,
    /// From the first byte of a request head to its last.
    pub header: Duration,
    /// Between two reads of a request body that is being waited for.
    pub body: Duration,
    /// Between two writes that make progress while there is something to write.
    pub send: Duration,
}

/// Why a connection was ended by the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reaped {
    /// No request came.
    Idle = 1,
    /// A request head was not finished in time.
    SlowHead = 2,
    /// A request body did not arrive.
    SlowBody = 3,
    /// The client did not take the response.
    SlowRead = 4,
    /// Room was needed for a new connection.
    Evicted = 5,
}

impl Reaped {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reaped::Idle => "idle",
            Reaped::SlowHead => "slow-head",
            Reaped::SlowBody => "slow-body",
            Reaped::SlowRead => "slow-read",
            Reaped::Evicted => "evicted",
        }
    }

    /// Every reason, for metrics.
    pub const ALL: [Reaped; 5] =
        [Reaped::Idle, Reaped::SlowHead, Reaped::SlowBody, Reaped::SlowRead, Reaped::Evicted];
}

/// A worker's connections.
#[derive(Debug)]
pub struct ConnectionTable {
    clock: Arc<Clock>,
    sockets: Mutex<Slab<Arc<Socket>>>,
}

impl ConnectionTable {
    /// An empty table.
    pub fn new() -> ConnectionTable {
        ConnectionTable { clock: Arc::new(Clock::new()), sockets: Mutex::new(Slab::new()) }
    }

    /// Open connections.
    pub fn len(&self) -> usize {
        self.sockets.lock().len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Advances the clock by one [`TICK`] and ends connections that outstayed a timeout. Calls
    /// `reaped` for each. Returns how many were asked to rest.
    pub fn sweep(&self, timeouts: &Timeouts, mut reaped: impl FnMut(&Socket, Reaped)) -> usize {
        let mut asked = 0;
        let now = self.clock.advance();
        for (_, socket) in self.sockets.lock().iter() {
            if socket.reaped() != 0 {
                continue;
            }
            if let Some(reason) = overdue(socket, now, timeouts) {
                // Counted when it was asked to leave.
                let is_known = reason == Reaped::Idle && socket.is_leaving();
                if reason != Reaped::Idle || !socket.ask_to_leave() {
                    end(socket, reason);
                }
                if !is_known {
                    reaped(socket, reason);
                }
            } else if now.saturating_sub(socket.phase_since()) == REST_AFTER_TICKS {
                asked += usize::from(socket.ask_to_rest());
            }
        }
        asked
    }

    /// Ends the connection that has been idle longest, to make room. `false` if none is idle: one
    /// whose next request has reached the kernel is not.
    pub fn evict_idle(&self) -> bool {
        let sockets = self.sockets.lock();
        let mut longest: Option<&Arc<Socket>> = None;
        for (_, socket) in sockets.iter() {
            let idle = socket.reaped() == 0 && socket.is_idle();
            let longer = longest.is_none_or(|other| socket.phase_since() < other.phase_since());
            // The kernel is asked last, and only about those that would be chosen.
            if idle && longer && !socket.has_input() {
                longest = Some(socket);
            }
        }
        if let Some(socket) = longest {
            end(socket, Reaped::Evicted);
        }
        longest.is_some()
    }

    /// For a graceful stop: HTTP/1 connections without a request see the end of their input, but a
    /// request that has reached the kernel is still read and answered.
    pub fn close_idle(&self) {
        for (_, socket) in self.sockets.lock().iter() {
            if !socket.is_idle() || socket.is_multiplexed() {
                continue;
            }
            if !socket.is_encrypted() {
                socket.close_read();
            } else if !socket.has_input() {
                end(socket, Reaped::Idle);
            }
        }
    }

    /// For the end of a graceful stop: closing connections that are still sending will reset them.
    pub fn reset_sending(&self) {
        for (_, socket) in self.sockets.lock().iter() {
            if socket.write_blocked_since() != 0 {
                socket.reset_on_close(true);
            }
        }
    }

    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub(crate) fn insert(&self, socket: Arc<Socket>) -> usize {
        self.sockets.lock().insert(socket)
    }

    pub(crate) fn remove(&self, key: usize) {
        self.sockets.lock().remove(key);
    }
}

impl Default for ConnectionTable {
    fn default() -> Self {
        ConnectionTable::new()
    }
}

/// Which timeout a connection has outstayed at tick `now`, if any.
fn overdue(socket: &Socket, now: u32, timeouts: &Timeouts) -> Option<Reaped> {
    // One tick more than the limit: the first tick may have begun just before the state did.
    let past = |since: u32, limit: Duration| {
        since != 0 && u128::from(now.saturating_sub(since)) * TICK.as_millis() > limit.as_millis()
    };
    if past(socket.write_blocked_since(), timeouts.send) {
        return Some(Reaped::SlowRead);
    }
    let idle = if socket.is_leaving() { LINGER } else { timeouts.idle };
    match socket.phase() {
        Phase::Idle if past(socket.phase_since(), idle) && !socket.has_input() => {
            Some(Reaped::Idle)
        }
        Phase::Head if past(socket.phase_since(), timeouts.header) => Some(Reaped::SlowHead),
        Phase::Linger if past(socket.phase_since(), LINGER) => Some(Reaped::Idle),
        Phase::Busy if past(socket.body_awaited_since(), timeouts.body) => Some(Reaped::SlowBody),
        _ => None,
    }
}

fn end(socket: &Socket, reason: Reaped) {
    if reason == Reaped::SlowHead && !socket.is_encrypted() {
        // Nothing else is being written in this phase. If it does not fit, it is not worth waiting.
        let _ = rustix::net::send(socket, REQUEST_TIMEOUT, rustix::net::SendFlags::DONTWAIT);
    }
    if reason == Reaped::SlowRead {
        // What waits in the kernel is given up with it: an end behind it would look like a good
        // one.
        socket.reset_on_close(true);
    }
    socket.close(reason as u8);
}
