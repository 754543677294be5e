//! The fast lane: an HTTP/1 connection without hyper, as long as it asks for hits in plain words.
//! The first request that is anything else goes to hyper with the connection, unread; see
//! [`crate::connection`] for when the connection comes back.
//!
//! A connection that waits here for its next request holds no buffer: what arrives is read onto
//! the stack and answered before the turn is over.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use weir_net::Stream;

use crate::connection::Connection;
use crate::pipeline::fast::{self, Hit};

/// Bytes read at once: longer than an ordinary head.
const READ_BYTES: usize = 4096;

/// Pieces given to one write.
const SLICES_MAX: usize = 16;

/// What became of the connection.
pub(crate) enum Lane {
    /// It has ended.
    Ended,
    /// Somebody else must read what the client says next.
    HandedOver {
        /// It has been of use meanwhile.
        has_answered: bool,
    },
}

/// Serves hits until something else is asked for.
pub(crate) async fn serve(stream: &mut Stream, connection: &Arc<Connection>) -> Lane {
    let mut has_answered = false;
    loop {
        let last = match poll_fn(|cx| read_and_answer(stream, connection, cx)).await {
            Ok(Step::Sent { last }) => last,
            Ok(Step::Sending(mut response)) => {
                if poll_fn(|cx| response.poll_send(stream, cx)).await.is_err() {
                    return Lane::Ended;
                }
                response.hit.last
            }
            Ok(Step::Other) => return Lane::HandedOver { has_answered },
            Ok(Step::End) | Err(_) => return Lane::Ended,
        };
        if last {
            // A client that has gone needs no goodbye.
            let _ = stream.shutdown().await;
            return Lane::Ended;
        }
        has_answered = true;
    }
}

enum Step {
    /// A response was sent.
    Sent {
        /// The connection's last.
        last: bool,
    },
    /// The client takes its time.
    Sending(Box<Response>),
    /// A request that is not for the fast lane; it was put back.
    Other,
    /// The client has ended the connection.
    End,
}

fn read_and_answer(
    stream: &mut Stream,
    connection: &Arc<Connection>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Step>> {
    let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
    let mut bytes = ReadBuf::uninit(&mut bytes);
    ready!(Pin::new(&mut *stream).poll_read(cx, &mut bytes))?;
    let bytes = bytes.filled();
    if bytes.is_empty() {
        return Poll::Ready(Ok(Step::End));
    }
    let Some(hit) = fast::answer(connection, bytes) else {
        stream.unread(bytes.to_vec());
        return Poll::Ready(Ok(Step::Other));
    };
    if hit.request_len < bytes.len() {
        stream.unread(bytes[hit.request_len..].to_vec());
    }
    if hit.last {
        connection.socket.set_last();
    }
    let mut response = Response { hit, sent: 0 };
    Poll::Ready(match response.poll_send(stream, cx) {
        Poll::Ready(Ok(())) => Ok(Step::Sent { last: response.hit.last }),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(Step::Sending(Box::new(response))),
    })
}

/// A response on its way.
struct Response {
    hit: Hit,
    /// Bytes that the socket has taken.
    sent: usize,
}

impl Response {
    fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Hit { record, head, object, .. } = &mut self.hit;
        let body = object.body();
        let total = head.len() + body.len() as usize;
        while self.sent < total {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let pieces = std::iter::once(&head[..]).chain(body.chunks().iter().map(|c| &c[..]));
            let count = fill(&mut slices, pieces, self.sent);
            let stream = Pin::new(&mut *stream);
            self.sent += ready!(stream.poll_write_vectored(cx, &slices[..count]))?;
            record.body_bytes = self.sent.saturating_sub(head.len()) as u64;
        }
        record.complete = true;
        Poll::Ready(Ok(()))
    }
}

/// Fills `slices` with what follows the first `skip` bytes of `pieces`; returns how many it took.
fn fill<'a>(
    slices: &mut [IoSlice<'a>],
    pieces: impl Iterator<Item = &'a [u8]>,
    mut skip: usize,
) -> usize {
    let mut count = 0;
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        if count == slices.len() {
            break;
        }
        slices[count] = IoSlice::new(&piece[skip..]);
        count += 1;
        skip = 0;
    }
    count
}
