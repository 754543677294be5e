//! Lingering close: a response that is sent while the client is still sending must not be destroyed
//! by the reset that closing a socket with unread input causes (RFC 9112 §9.6).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, ReadBuf};

use crate::stream::Stream;

/// Bytes read and thrown away before the connection is closed anyway.
const LINGER_BYTES_MAX: usize = 256 << 10;

/// Ends the output and reads until the client ends its own, or sends too much. The worker's table
/// ends clients that do neither (idle timeout).
pub(crate) fn poll_linger(stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
    // Repeated after each wait; the second call does nothing.
    stream.socket().set_linger();
    let _ = rustix::net::shutdown(stream.socket(), Shutdown::Write);
    let mut scrap = [0u8; 8192];
    while stream.thrown_away < LINGER_BYTES_MAX {
        let mut buf = ReadBuf::new(&mut scrap);
        match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                stream.thrown_away += buf.filled().len();
            }
            Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(()),
        }
    }
    Poll::Ready(())
}

/// A client that closed or reset its connection is no error of the server.
pub fn is_client_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}
