//! A client's socket and what the worker must know to judge whether the client is still alive:
//! plain relaxed stores on the hot path, read a few times a second by [`crate::ConnectionTable`].

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, sockopt};

use crate::rest::Rest;
use crate::table::Clock;

/// Bytes that may wait unsent when a streamed body's next piece is fetched: enough to keep the
/// connection busy until it comes, little enough that the send buffer takes it whole.
const UNSENT_BYTES: u32 = 16 << 10;

/// Silence in a tunnel after which the kernel asks whether the client is there. Below the minutes
/// after which routers forget a connection.
const TUNNEL_SILENCE: Duration = Duration::from_secs(60);

/// Time between two such questions; after nine without an answer (tcp(7)) the client is gone.
const TUNNEL_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// What a connection is doing, as far as timeouts are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No byte of the next request has arrived.
    Idle = 0,
    /// A request head has begun to arrive.
    Head = 1,
    /// At least one request is being served.
    Busy = 2,
    /// The bytes belong to a tunnel; only write progress is watched.
    Tunnel = 3,
    /// The output is ended; input is thrown away until the client ends it.
    Linger = 4,
}

/// One connection's socket, its addresses and its activity. Owned by the stream and, for reaping,
/// by the worker's table until the stream is dropped.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    clock: Arc<Clock>,
    phase: AtomicU8,
    /// Requests being served; more than one only in HTTP/2.
    in_flight: AtomicU32,
    /// The connection speaks HTTP/2, where bytes between requests are not a request head.
    multiplexed: AtomicBool,
    /// The client was told that an idle HTTP/2 connection ends.
    leaving: AtomicBool,
    /// The bytes are TLS records, so that nothing may be written but by TLS.
    encrypted: AtomicBool,
    /// A request was answered before its body was read to the end.
    body_left: AtomicBool,
    /// Tick at which the phase began.
    phase_since: AtomicU32,
    /// Tick at which a write first found the send buffer full; 0 while writes make progress.
    write_blocked_since: AtomicU32,
    /// Tick at which somebody began to wait for request body bytes; 0 while nobody does.
    body_awaited_since: AtomicU32,
    /// Set when the worker ended the connection, with the reason for the log.
    reaped: AtomicU8,
    rest: Rest,
    /// Whether a read that would have to wait may be put off; see [`Deferral`].
    deferral: AtomicU8,
    /// See [`Socket::limit_unsent`].
    unsent_limited: AtomicBool,
    /// What is written next is followed by nothing but the end of the connection.
    last: AtomicBool,
}

/// Whether the stream's user promises to poll again before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Deferral {
    /// No promise: who has to wait registers with the event loop.
    Off = 0,
    /// A promise, not used yet.
    On = 1,
    /// A read was put off.
    Deferred = 2,
}

impl Socket {
    pub(crate) fn new(
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        clock: Arc<Clock>,
    ) -> Socket {
        let now = clock.tick();
        Socket {
            fd,
            peer,
            local,
            clock,
            phase: AtomicU8::new(Phase::Idle as u8),
            in_flight: AtomicU32::new(0),
            multiplexed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            encrypted: AtomicBool::new(false),
            body_left: AtomicBool::new(false),
            phase_since: AtomicU32::new(now),
            write_blocked_since: AtomicU32::new(0),
            body_awaited_since: AtomicU32::new(0),
            reaped: AtomicU8::new(0),
            rest: Rest::default(),
            deferral: AtomicU8::new(Deferral::Off as u8),
            last: AtomicBool::new(false),
            unsent_limited: AtomicBool::new(false),
        }
    }

    /// The client's address; `None` for Unix-domain sockets.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// The address the client connected to; `None` for Unix-domain sockets.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// What the connection is doing.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Tunnel,
            _ => Phase::Linger,
        }
    }

    /// Declares the connection HTTP/2.
    pub fn set_multiplexed(&self) {
        self.multiplexed.store(true, Relaxed);
        self.enter(Phase::Idle);
    }

    /// Whether the connection is HTTP/2.
    pub fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Relaxed)
    }

    /// Declares the connection encrypted.
    pub fn set_encrypted(&self) {
        self.encrypted.store(true, Relaxed);
    }

    /// Declares the connection a tunnel. Tunnels may be silent for long, so that the kernel asks
    /// whether the client is still there.
    pub fn set_tunnel(&self) {
        // Who served HTTP has gone, and would not poll again what was put off.
        self.forbid_deferral();
        self.enter(Phase::Tunnel);
        // Unix-domain sockets know at once when their peer goes.
        let _ = sockopt::set_socket_keepalive(&self.fd, true);
        let _ = sockopt::set_tcp_keepidle(&self.fd, TUNNEL_SILENCE);
        let _ = sockopt::set_tcp_keepintvl(&self.fd, TUNNEL_PROBE_INTERVAL);
    }

    /// A request's head is complete and it is being served.
    #[inline]
    pub fn request_started(&self) {
        self.in_flight.store(self.in_flight.load(Relaxed) + 1, Relaxed);
        self.enter(Phase::Busy);
    }

    /// A request's response has been handed over completely.
    #[inline]
    pub fn request_finished(&self) {
        let left = self.in_flight.load(Relaxed).saturating_sub(1);
        self.in_flight.store(left, Relaxed);
        if left == 0 && self.phase() == Phase::Busy {
            self.enter(Phase::Idle);
        }
    }

    /// A request was answered although its body is still arriving: closing must linger.
    pub fn set_body_left(&self) {
        self.body_left.store(true, Relaxed);
    }

    /// Whether closing is to reset the connection: the client would take a mere end for that of a
    /// whole response.
    pub fn reset_on_close(&self, resets: bool) {
        // Fails only for sockets that are gone.
        let _ = sockopt::set_socket_linger(&self.fd, resets.then_some(Duration::ZERO));
    }

    /// Somebody waits for bytes of a request body (`true`), or got some (`false`).
    #[inline]
    pub fn await_body(&self, waiting: bool) {
        note(&self.body_awaited_since, waiting, &self.clock);
    }

    #[inline]
    pub(crate) fn bytes_read(&self) {
        if self.phase.load(Relaxed) == Phase::Idle as u8 && !self.multiplexed.load(Relaxed) {
            self.enter(Phase::Head);
            self.rest.end();
        }
    }

    /// Promises that the stream is polled again, after [`Socket::take_deferred`], before the task
    /// that polls it sleeps.
    pub fn allow_deferral(&self) {
        self.deferral.store(Deferral::On as u8, Relaxed);
    }

    /// Ends the promise; tells whether a read was put off, so that the stream must be polled again.
    pub fn take_deferred(&self) -> bool {
        self.deferral.load(Relaxed) == Deferral::Deferred as u8
            && self.deferral.swap(Deferral::Off as u8, Relaxed) == Deferral::Deferred as u8
    }

    /// Takes the promise back, before anybody polls the stream who has not made it.
    pub fn forbid_deferral(&self) {
        self.deferral.store(Deferral::Off as u8, Relaxed);
    }

    pub(crate) fn defer_read(&self) -> bool {
        let allowed = self.deferral.load(Relaxed) != Deferral::Off as u8;
        if allowed {
            self.deferral.store(Deferral::Deferred as u8, Relaxed);
        }
        allowed
    }

    /// Declares that the response about to be written is at hand in full and the connection's
    /// last. Its end then travels with the end of the connection: one packet less.
    pub fn set_last(&self) {
        self.last.store(true, Relaxed);
    }

    pub(crate) fn is_last(&self) -> bool {
        self.last.load(Relaxed) && !self.is_encrypted()
    }

    /// Ready when the connection has been idle for so long that whoever serves it should let go of
    /// buffers and wait for the next bytes with nothing but the stream, or in HTTP/2 say good-bye
    /// and close. Always polled by one task.
    #[inline]
    pub fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.rest.poll(cx)
    }

    /// Asks for rest, if there is nothing that the stream's user could still have to write.
    pub(crate) fn ask_to_rest(&self) -> bool {
        let idle = self.phase() == Phase::Idle && !self.multiplexed.load(Relaxed);
        let asks = idle && self.write_blocked_since.load(Relaxed) == 0;
        if asks {
            self.rest.ask();
        }
        asks
    }

    /// Asks whoever serves an HTTP/2 connection to tell the client that it ends (RFC 9113 §6.8).
    /// `false` if that is not for this connection, or was asked before.
    pub(crate) fn ask_to_leave(&self) -> bool {
        let asks = self.is_multiplexed() && !self.leaving.swap(true, Relaxed);
        if asks {
            self.enter(Phase::Idle);
            self.rest.ask();
        }
        asks
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// From now on room to write is there only while less than [`UNSENT_BYTES`] wait to be sent.
    pub(crate) fn limit_unsent(&self) {
        if !self.unsent_limited.swap(true, Relaxed) {
            // Unix-domain sockets know no such limit; their buffers are small.
            let _ = socket2::SockRef::from(&self.fd).set_tcp_notsent_lowat(UNSENT_BYTES);
        }
    }

    /// Whether there is room to write. If not, the event loop will hear when there is.
    pub(crate) fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A failed connection has room: writing tells what is wrong.
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
    }

    #[inline]
    pub(crate) fn write_blocked(&self, blocked: bool) {
        note(&self.write_blocked_since, blocked, &self.clock);
    }

    pub(crate) fn has_body_left(&self) -> bool {
        self.body_left.load(Relaxed)
    }

    pub(crate) fn set_linger(&self) {
        if self.phase() != Phase::Linger {
            self.enter(Phase::Linger);
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted.load(Relaxed)
    }

    /// Whether nothing is being served, received or sent. A response that has been handed over may
    /// still wait for room in the send buffer, or for the event loop to tell that there is some.
    pub fn is_idle(&self) -> bool {
        self.phase() == Phase::Idle && self.write_blocked_since() == 0
    }

    /// Whether bytes have arrived that nobody has read yet.
    pub(crate) fn has_input(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.fd, &mut [0u8; 1][..], flags).is_ok_and(|(count, _)| count > 0)
    }

    /// Lets the stream see the end of input once it has read what already arrived.
    pub(crate) fn close_read(&self) {
        // The peer may have gone already: nothing is left to do then.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Read);
    }

    pub(crate) fn phase_since(&self) -> u32 {
        self.phase_since.load(Relaxed)
    }

    pub(crate) fn write_blocked_since(&self) -> u32 {
        self.write_blocked_since.load(Relaxed)
    }

    pub(crate) fn body_awaited_since(&self) -> u32 {
        self.body_awaited_since.load(Relaxed)
    }

    /// Ends the connection in both directions; the stream sees its end at the next read or write.
    pub(crate) fn close(&self, code: u8) {
        self.reaped.store(code, Relaxed);
        // The peer may have gone already: nothing is left to do then.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    pub(crate) fn reaped(&self) -> u8 {
        self.reaped.load(Relaxed)
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.phase_since.store(self.clock.tick(), Relaxed);
    }
}

/// Keeps the first tick of a state in `since`, 0 outside of it.
#[inline]
fn note(since: &AtomicU32, in_state: bool, clock: &Clock) {
    match (in_state, since.load(Relaxed)) {
        (true, 0) => since.store(clock.tick(), Relaxed),
        (false, 1..) => since.store(0, Relaxed),
        _ => {}
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
