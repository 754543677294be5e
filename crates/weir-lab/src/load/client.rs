//! One client: at most one connection, one request in flight. The engine tells it when its socket
//! is ready; it says whether a response is complete.
//!
//! Life of a request: `Idle → Sending → Head → Body → (Closing →) Idle`. `Closing` waits for the
//! server to end a connection that was for one request. A failure drops the connection and leaves
//! the client `Idle`. A refusal goes the same way as any other response, if the plan expects one.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with,
};

use super::chunks::Chunks;
use super::response::{Framing, Head, parse_head};
use super::{Asks, Expect, Plan};

/// A response head longer than this is an error.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// Bodies up to this size are read together with the head, in one call.
const READ_WHOLE_MAX: usize = 16 << 10;
/// For larger bodies the first read takes the head and little more; what the kernel then still
/// holds is discarded without a copy, so that the generator does not become the bottleneck.
const HEAD_READ_SIZE: usize = 2 << 10;
/// One response in so many is compared byte by byte, besides the first on each kept connection.
const COMPARE_EVERY: u64 = 64;

/// What all clients share.
pub(super) struct Shared<'a> {
    pub(super) plan: &'a Plan,
    /// By group; empty where each request is another one.
    pub(super) requests: Vec<Vec<u8>>,
    /// Requests so far, by group, where each is another one.
    pub(super) asked: Vec<u64>,
    pub(super) epoll: OwnedFd,
    pub(super) buffer: Vec<u8>,
}

/// Whether the client has to wait for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Blocked,
    Complete,
    /// Answered with another status.
    Refused(u16),
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other side reset, refused or closed the connection before it answered.
    Reset(String),
    /// The system gave up on connecting.
    TimedOut(String),
    /// Anything else, such as a wrong answer.
    Wrong(String),
}

impl Failure {
    fn of(call: &str, errno: Errno) -> Failure {
        let reason = format!("{call}: {errno}");
        match errno {
            Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE => Failure::Reset(reason),
            Errno::TIMEDOUT => Failure::TimedOut(reason),
            _ => Failure::Wrong(reason),
        }
    }

    pub(super) fn reason(self) -> String {
        match self {
            Failure::Reset(reason) | Failure::TimedOut(reason) | Failure::Wrong(reason) => reason,
        }
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure::Wrong(reason)
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Failure {
        Failure::Wrong(reason.to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Sending,
    Head,
    Body,
    Closing,
}

pub(super) struct Client {
    index: u64,
    pub(super) group: usize,
    source: Option<IpAddr>,
    socket: Option<OwnedFd>,
    interest: EventFlags,
    phase: Phase,
    /// The request, if it is not that of the whole group.
    request: Vec<u8>,
    expect: Expect,
    sent: usize,
    head: Vec<u8>,
    received: usize,
    /// Bytes of the body that is being received, unless it comes in chunks.
    length: usize,
    chunks: Option<Chunks>,
    /// The response's head has the group's mark.
    pub(super) is_marked: bool,
    /// Another status than 200.
    refused: Option<u16>,
    /// The server said it will close after this response.
    closes: bool,
    /// Compare this response's body.
    compare: bool,
    pub(super) serial: u64,
    /// From when the latency of the request counts.
    pub(super) since: Instant,
    pub(super) connections: u64,
    pub(super) bodies_compared: u64,
}

impl Client {
    pub(super) fn new(index: usize, group: usize, source: Option<IpAddr>) -> Client {
        Client {
            index: index as u64,
            group,
            source,
            socket: None,
            interest: EventFlags::empty(),
            phase: Phase::Idle,
            request: Vec::new(),
            expect: Expect::Any,
            sent: 0,
            head: Vec::new(),
            received: 0,
            length: 0,
            chunks: None,
            is_marked: false,
            refused: None,
            closes: false,
            compare: false,
            serial: 0,
            since: Instant::now(),
            connections: 0,
            bodies_compared: 0,
        }
    }

    /// Starts the next request, on a new connection if there is none.
    pub(super) fn begin(&mut self, since: Instant, shared: &mut Shared) -> Result<Step, Failure> {
        debug_assert_eq!(self.phase, Phase::Idle);
        self.since = since;
        self.sent = 0;
        self.received = 0;
        self.refused = None;
        self.head.clear();
        self.chunks = None;
        self.compare = self.serial.is_multiple_of(COMPARE_EVERY);
        self.serial += 1;
        self.ask(shared);
        if self.socket.is_none() {
            self.compare |= shared.plan.persistent;
            self.open(shared)?;
        }
        self.phase = Phase::Sending;
        self.advance(shared)
    }

    /// Decides what to ask for.
    fn ask(&mut self, shared: &mut Shared) {
        let plan = shared.plan;
        match &plan.groups[self.group].asks {
            Asks::Same(ask) => self.expect = ask.expect.clone(),
            Asks::Each(catalogue) => {
                let number = &mut shared.asked[self.group];
                let ask = catalogue.ask(*number);
                *number += 1;
                self.request = ask.render(plan.server, plan.persistent);
                self.expect = ask.expect;
            }
        }
    }

    /// Bytes of content of the response so far.
    pub(super) fn content_size(&self) -> usize {
        self.chunks.map_or(self.received, |chunks| chunks.content)
    }

    /// Goes on after an event, as far as it gets without waiting.
    pub(super) fn advance(&mut self, shared: &mut Shared) -> Result<Step, Failure> {
        loop {
            let progress = match self.phase {
                Phase::Idle if shared.plan.refusals.is_some() => {
                    // Who refuses may close a kept connection.
                    self.reset();
                    return Ok(Step::Blocked);
                }
                Phase::Idle => Err("bytes nobody asked for, or a close, between requests".into()),
                Phase::Sending => self.send(shared),
                Phase::Head => self.receive_head(shared),
                Phase::Body => self.receive_body(shared),
                Phase::Closing => self.receive_close(),
            };
            match progress {
                Ok(true) if self.phase == Phase::Idle => {
                    return Ok(self.refused.map_or(Step::Complete, Step::Refused));
                }
                Ok(true) => {}
                Ok(false) => return Ok(Step::Blocked),
                Err(failure) => {
                    self.reset();
                    return Err(failure);
                }
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Gives the request up. Says whether there was a connection to send it on.
    pub(super) fn give_up(&mut self) -> bool {
        let connected = self.phase != Phase::Sending || self.sent > 0;
        self.reset();
        connected
    }

    fn reset(&mut self) {
        self.socket = None;
        self.interest = EventFlags::empty();
        self.phase = Phase::Idle;
    }

    fn open(&mut self, shared: &Shared) -> Result<(), Failure> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let family = match shared.plan.server {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|errno| Failure::of("socket", errno))?;
        if let Some(source) = self.source {
            bind(&socket, &SocketAddr::new(source, 0))
                .map_err(|errno| Failure::of("bind", errno))?;
        }
        match connect(&socket, &shared.plan.server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(Failure::of("connect", errno)),
        }
        self.connections += 1;
        self.socket = Some(socket);
        self.interest = EventFlags::empty();
        Ok(())
    }

    /// Makes epoll watch for `wanted`, if it does not already.
    fn watch(&mut self, wanted: EventFlags, shared: &Shared) -> Result<(), Failure> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.interest == wanted {
            return Ok(());
        }
        let data = EventData::new_u64(self.index);
        let done = if self.interest.is_empty() {
            epoll::add(&shared.epoll, socket, data, wanted)
        } else {
            epoll::modify(&shared.epoll, socket, data, wanted)
        };
        self.interest = wanted;
        done.map_err(|errno| Failure::of("epoll", errno))
    }

    /// `Ok(true)`: the phase is done. `Ok(false)`: the socket has to become ready first.
    fn send(&mut self, shared: &Shared) -> Result<bool, Failure> {
        let shared_request = &shared.requests[self.group];
        let request = if shared_request.is_empty() { &self.request } else { shared_request };
        let Some(socket) = &self.socket else { return Err("no connection".into()) };
        // Right after a connect on loopback the handshake is already done more often than not.
        match send(socket, &request[self.sent..], SendFlags::NOSIGNAL) {
            Ok(count) => self.sent += count,
            Err(Errno::AGAIN | Errno::NOTCONN | Errno::INTR) => {}
            Err(errno) => return Err(Failure::of("send", errno)),
        }
        let is_sent = self.sent == request.len();
        if !is_sent {
            self.watch(EventFlags::OUT, shared)?;
            return Ok(false);
        }
        self.watch(EventFlags::IN, shared)?;
        self.phase = Phase::Head;
        // The answer cannot be there yet: go to epoll rather than fail in recv.
        Ok(false)
    }

    fn receive_head(&mut self, shared: &mut Shared) -> Result<bool, Failure> {
        // What may come in chunks must be read.
        let is_small = self.expect.len().is_none_or(|length| length <= READ_WHOLE_MAX);
        let whole = self.compare || is_small;
        let size = if whole { shared.buffer.len() } else { HEAD_READ_SIZE };
        let Some(count) = self.receive(&mut shared.buffer[..size], RecvFlags::empty())? else {
            return Ok(false);
        };
        if count == 0 {
            let reason = "connection closed before the response's head";
            return Err(Failure::Reset(reason.to_owned()));
        }
        // Usually the head arrives in one piece and needs no copy.
        let fresh = &shared.buffer[..count];
        let (head, body_start) = if self.head.is_empty() {
            let head = parse_head(fresh)?;
            (head, head.map_or(0, |head| head.len))
        } else {
            let before = self.head.len();
            self.head.extend_from_slice(fresh);
            let head = parse_head(&self.head)?;
            (head, head.map_or(0, |head| head.len.saturating_sub(before)))
        };
        let Some(head) = head else {
            if self.head.is_empty() {
                self.head.extend_from_slice(fresh);
            }
            let short = self.head.len() < HEAD_SIZE_MAX;
            return if short { Ok(true) } else { Err("endless response head".into()) };
        };
        let text = if self.head.is_empty() { fresh } else { &self.head };
        let mark = shared.plan.groups[self.group].mark;
        self.is_marked = mark
            .is_some_and(|mark| memchr::memmem::find(&text[..head.len], mark.as_bytes()).is_some());
        if !self.take_head(head, shared.plan)? {
            return Ok(true);
        }
        self.phase = Phase::Body;
        let body = body_start..count;
        self.take_body(body.len(), Some(&shared.buffer[body]))?;
        self.finish_body()
    }

    /// Checks a head. Says whether there is a body to be received.
    fn take_head(&mut self, head: Head, plan: &Plan) -> Result<bool, Failure> {
        self.closes = head.closes;
        match (head.framing, self.expect.len()) {
            _ if head.status != 200 && plan.refusals.is_none() => {
                return Err(format!("status {}, expected 200", head.status).into());
            }
            (Framing::Length(length), _) if head.status != 200 => {
                self.length = length;
                self.compare = false;
                self.refused = Some(head.status);
            }
            _ if head.status != 200 => {
                // The end of its body does not matter.
                self.reset();
                self.refused = Some(head.status);
                return Ok(false);
            }
            (Framing::Length(length), Some(expected)) if length == expected => {
                self.length = length;
            }
            (Framing::Length(length), None) => {
                self.length = length;
                self.compare = false;
            }
            (Framing::Chunked, None) => {
                self.chunks = Some(Chunks::default());
                self.compare = false;
            }
            (other, Some(expected)) => {
                let reason = format!("body framed by {other:?}, expected Length({expected})");
                return Err(reason.into());
            }
            (other, None) => return Err(format!("body framed by {other:?}").into()),
        }
        Ok(true)
    }

    fn receive_body(&mut self, shared: &mut Shared) -> Result<bool, Failure> {
        let expected = self.length;
        let is_read = self.compare || self.chunks.is_some();
        let size = match self.chunks {
            Some(_) => shared.buffer.len(),
            None => (expected - self.received).min(shared.buffer.len()),
        };
        // On TCP, MSG_TRUNC takes the bytes off the socket without copying them (tcp(7)).
        let flags = if is_read { RecvFlags::empty() } else { RecvFlags::TRUNC };
        let Some(count) = self.receive(&mut shared.buffer[..size], flags)? else {
            return Ok(false);
        };
        if count == 0 {
            let of = if self.chunks.is_some() { "some".to_owned() } else { expected.to_string() };
            return Err(format!("body ended after {} of {of} bytes", self.received).into());
        }
        let bytes = is_read.then(|| &shared.buffer[..count]);
        self.take_body(count, bytes)?;
        self.finish_body()
    }

    /// Accounts `count` bytes of body; `bytes` are they, where they were read.
    fn take_body(&mut self, count: usize, bytes: Option<&[u8]>) -> Result<(), Failure> {
        let end = self.received + count;
        if let (Some(chunks), Some(bytes)) = (&mut self.chunks, bytes) {
            self.received = end;
            return Ok(chunks.feed(bytes)?);
        }
        if end > self.length {
            return Err(format!("body longer than its {} bytes", self.length).into());
        }
        if let (true, Some(bytes), Expect::Body(expect)) = (self.compare, bytes, &self.expect)
            && *bytes != expect[self.received..end]
        {
            return Err(format!("body differs within bytes {}..{end}", self.received).into());
        }
        self.received = end;
        Ok(())
    }

    fn finish_body(&mut self) -> Result<bool, Failure> {
        let is_whole = match &self.chunks {
            Some(chunks) => chunks.is_done(),
            None => self.received == self.length,
        };
        if !is_whole {
            return Ok(true);
        }
        self.bodies_compared += u64::from(self.compare);
        if self.refused.is_some() && self.closes {
            // Some servers linger before they close; their clients would seem to ask less often.
            self.reset();
            return Ok(true);
        }
        self.phase = if self.closes { Phase::Closing } else { Phase::Idle };
        Ok(true)
    }

    fn receive_close(&mut self) -> Result<bool, Failure> {
        match self.receive(&mut [0; 1], RecvFlags::empty())? {
            None => Ok(false),
            Some(0) => {
                self.reset();
                Ok(true)
            }
            Some(_) => Err("bytes after the end of the body".into()),
        }
    }

    /// `None` when there is nothing to read now.
    fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, Failure> {
        let Some(socket) = &self.socket else { return Err("no connection".into()) };
        match recv(socket, buffer, flags) {
            Ok((_, count)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(Failure::of("receive", errno)),
        }
    }
}
