//! One type for every kind of connection to a server.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection, with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// What an HTTP/2 connection's task and its users both see.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Streams in use, and the server's last word on how many there may be.
    pub(super) streams: AtomicUsize,
    pub(super) streams_max: AtomicUsize,
}

/// Counts a connection as open for as long as it lives.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Open {
    /// `None` when `max` are open already.
    pub(super) fn reserve(count: &Arc<AtomicUsize>, max: usize) -> Option<Open> {
        if count.fetch_add(1, Relaxed) >= max {
            count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Open(Arc::clone(count)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The stream that hyper reads and writes.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    _open: Open,
}

impl Wire {
    pub(super) fn new(stream: Stream, open: Open) -> Self {
        Wire { stream, _open: open }
    }
}

/// Calls the same method on whichever socket it is.
macro_rules! each {
    ($enum:ident, $value:expr, [$($variant:ident),*], $stream:ident => $call:expr) => {
        match $value { $($enum::$variant($stream) => $call),* }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(Socket, self.get_mut(), [Tcp, Unix], s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(Socket, self.get_mut(), [Tcp, Unix], s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(Socket, self.get_mut(), [Tcp, Unix], s => Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Socket, self.get_mut(), [Tcp, Unix], s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Socket, self.get_mut(), [Tcp, Unix], s => Pin::new(s).poll_shutdown(cx))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(Stream, self.get_mut(), [Plain, Tls], s => Pin::new(s).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(Stream, self.get_mut(), [Plain, Tls], s => Pin::new(s).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(Stream, self.get_mut(), [Plain, Tls], s => Pin::new(s).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        each!(Stream, self, [Plain, Tls], s => s.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Stream, self.get_mut(), [Plain, Tls], s => Pin::new(s).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(Stream, self.get_mut(), [Plain, Tls], s => Pin::new(s).poll_shutdown(cx))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connections_are_counted_up_to_a_limit() {
        let count = Arc::new(AtomicUsize::new(0));
        let one = Open::reserve(&count, 2);
        let two = Open::reserve(&count, 2);
        assert!(one.is_some() && two.is_some());
        assert!(Open::reserve(&count, 2).is_none());
        drop(one);
        assert!(Open::reserve(&count, 2).is_some());
        drop(two);
        assert_eq!(count.load(Relaxed), 0);
    }
}
