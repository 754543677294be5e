//! The stream under HTTP: a nonblocking socket that sends slices of an arena by sendfile, and that
//! is registered with the event loop only when it first has to wait.
//!
//! A connection that brings its request and takes its response without waiting costs no epoll_ctl:
//! with one connection per request that is two system calls fewer (see BENCHMARKS.md, S1).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::send::send_vectored;
use crate::socket::{Phase, Socket};
use crate::table::ConnectionTable;

/// Bytes that a client may say ahead of its turn before it is left waiting.
const AHEAD_BYTES: usize = 4096;

/// A client connection's bytes. Implements tokio's I/O traits, vectored writes included.
#[derive(Debug)]
pub struct Stream {
    /// Registered with the event loop; `None` until the first wait.
    registered: Option<AsyncFd<Arc<Socket>>>,
    socket: Arc<Socket>,
    table: Arc<ConnectionTable>,
    key: usize,
    /// Bytes that were read to find out the protocol and are read again by it.
    unread: Vec<u8>,
    unread_start: usize,
    /// The receive queue was empty after the last read: closing cannot cut off the response.
    drained: bool,
    /// Bytes read for nothing since the output was ended.
    pub(crate) thrown_away: usize,
}

impl Stream {
    /// Takes over a nonblocking socket and enters it into the worker's table.
    pub fn new(
        fd: OwnedFd,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        table: &Arc<ConnectionTable>,
    ) -> Stream {
        let socket = Arc::new(Socket::new(fd, peer, local, Arc::clone(table.clock())));
        let key = table.insert(Arc::clone(&socket));
        Stream {
            registered: None,
            socket,
            table: Arc::clone(table),
            key,
            unread: Vec::new(),
            unread_start: 0,
            drained: false,
            thrown_away: 0,
        }
    }

    /// The socket and its activity.
    pub fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Puts bytes back in front of what will be read next.
    pub fn unread(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(&self.unread[self.unread_start..]);
        self.unread = bytes;
        self.unread_start = 0;
    }

    /// Watches the client while something else is waited for: what it says meanwhile is kept to be
    /// read later, and never ready is what this is.
    ///
    /// # Errors
    /// `UnexpectedEof` when the client has ended its side, or what the socket says.
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.unread_start < self.unread.len() {
            // The next request is here. That its client has gone shows when it is answered.
            return Poll::Pending;
        }
        let mut ahead = [MaybeUninit::uninit(); AHEAD_BYTES];
        let mut ahead = ReadBuf::uninit(&mut ahead);
        match ready!(Pin::new(&mut *self).poll_read(cx, &mut ahead)) {
            Ok(()) if ahead.filled().is_empty() => Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Ok(()) => {
                self.unread(ahead.filled().to_vec());
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }

    /// Ready when the kernel has little left to send, so that a piece of some ten kilobytes will
    /// most likely be taken whole. Who asks before fetching the next piece of a body keeps none for
    /// a slow client: what that client has not taken lies in the kernel.
    ///
    /// # Errors
    /// What the event loop says.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.limit_unsent();
        if self.registered.is_none() {
            self.register()?;
        }
        let result = loop {
            let Some(registered) = &self.registered else { break Poll::Ready(Ok(())) };
            match registered.poll_write_ready(cx) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                // The event loop tells of changes; the kernel is asked whether it holds now, and
                // told by that to tell of the next.
                Poll::Ready(Ok(_)) if self.socket.has_room() => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(mut guard)) => guard.clear_ready(),
            }
        };
        self.socket.write_blocked(result.is_pending());
        result
    }

    /// Runs a nonblocking system call until it does not ask to wait.
    fn poll_call<R>(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut call: impl FnMut(&Socket) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        // What is written mostly fits into the send buffer: ask the kernel before the event loop.
        let mut try_first = self.registered.is_none() || matches!(direction, Direction::Write);
        loop {
            if try_first {
                match call(&self.socket) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => try_first = false,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    result => return Poll::Ready(result),
                }
            }
            let Some(registered) = &self.registered else {
                self.register()?;
                continue;
            };
            let mut guard = ready!(match direction {
                Direction::Read => registered.poll_read_ready(cx),
                Direction::Write => registered.poll_write_ready(cx),
            })?;
            match guard.try_io(|fd| call(fd.get_ref())) {
                Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn register(&mut self) -> io::Result<()> {
        // SAFETY: the socket's descriptor is open as long as the `Arc` that the `AsyncFd` holds,
        // and a `Socket` never changes its descriptor.
        let registered = unsafe { AsyncFd::register(Arc::clone(&self.socket)) };
        self.registered = Some(registered.map_err(io::Error::from)?);
        Ok(())
    }

    /// A read that did not fill its buffer emptied the queue: the next one waits for the event
    /// loop instead of asking the kernel in vain.
    fn short_read(&mut self, cx: &mut Context<'_>) {
        if let Some(registered) = &self.registered
            && let Poll::Ready(Ok(mut guard)) = registered.poll_read_ready(cx)
        {
            guard.clear_ready();
        }
    }

    fn poll_write_slices(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.poll_call(cx, Direction::Write, |socket| send_vectored(socket, slices));
        self.socket.write_blocked(result.is_pending());
        result
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread_start < this.unread.len() {
            let rest = &this.unread[this.unread_start..];
            let n = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..n]);
            this.unread_start += n;
            if this.unread_start == this.unread.len() {
                this.unread = Vec::new();
                this.unread_start = 0;
            }
            // What came behind the last request is the beginning of the next.
            this.socket.bytes_read();
            return Poll::Ready(Ok(()));
        }
        if this.drained && this.registered.is_none() {
            // There is nothing to read yet. HTTP asks only to hear of a client that leaves; if the
            // response is ready first and is the last one, nobody will ever wait.
            if this.socket.defer_read() {
                return Poll::Pending;
            }
            this.register()?;
        }
        let result = this.poll_call(cx, Direction::Read, |socket| {
            // SAFETY: `recv` only writes initialised bytes, and only their count is advanced.
            let unfilled = unsafe { buf.unfilled_mut() };
            let ((received, _), _) = rustix::net::recv(socket, unfilled, RecvFlags::empty())?;
            Ok(received.len())
        });
        let n = ready!(result)?;
        // SAFETY: `recv` has initialised the first `n` bytes of the unfilled part.
        unsafe { buf.assume_init(n) };
        buf.advance(n);
        this.drained = buf.remaining() > 0;
        if n > 0 {
            this.socket.bytes_read();
            if this.drained {
                this.short_read(cx);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The other side of a tunnel has ended its output; the client may go on with its own.
        if self.socket.phase() == Phase::Tunnel {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
            return Poll::Ready(Ok(()));
        }
        // Closing a drained socket sends FIN just as shutdown would, one system call later. One
        // with unread input would be reset, and the response with it (RFC 9112 §9.6): end the
        // output first, then read on until the client has seen it. Clients that multiplex send
        // frames of their own accord (a PING, a WINDOW_UPDATE): none of theirs is drained for good.
        if self.drained && !self.socket.has_body_left() && !self.socket.is_multiplexed() {
            return Poll::Ready(Ok(()));
        }
        ready!(crate::linger::poll_linger(&mut self, cx));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // First out of the event loop, while the descriptor is certainly open.
        self.registered = None;
        self.table.remove(self.key);
    }
}
