//! The end of what a client sends in a tunnel, told apart from a stream's reset.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client's side of a tunnel. hyper says of a stream that its client has reset with CANCEL or
/// NO_ERROR that it has ended, but a reset closes both directions (RFC 9113 §5.1), and of the other
/// one it says so.
pub(super) struct Client<S> {
    stream: S,
    /// Whoever watches the other direction has had his turn since the end.
    has_waited: bool,
}

impl<S> Client<S> {
    pub(super) fn new(stream: S) -> Client<S> {
        Client { stream, has_waited: false }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Client<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !self.has_waited {
            self.has_waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed),
            // It takes what it is sent, only not now.
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Client<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
