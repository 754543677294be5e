//! The fast lane: an HTTP/1.1 connection without hyper, as long as its requests are GETs and HEADs
//! without content. The first request that is anything else, or that is not plainly well-formed,
//! goes to hyper with the connection, unread; see [`crate::connection`] for when it comes back.
//!
//! A connection that waits here for its next request holds no buffer: what arrives is read onto
//! the stack. A plain hit is answered before the turn is over.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use weir_http::head::{self, Room};
use weir_net::Stream;

use crate::body::ReplyBody;
use crate::connection::{Connection, Reply};
use crate::outgoing::{Outgoing, fill, poll_write_some};
use crate::pipeline::fast::{self, Fast, Hit};
use crate::pipeline::{self, Seen};

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

/// Serves the connection until it ends or something else is asked for.
pub(crate) async fn serve(stream: &mut Stream, connection: &Arc<Connection>) -> Lane {
    let mut has_answered = false;
    loop {
        let answered = match poll_fn(|cx| read(stream, connection, cx)).await {
            Ok(Step::Sent { last }) => Ok(last),
            Ok(Step::Sending(hit)) => send_hit(stream, hit).await,
            // Boxed, so that a connection that waits is small.
            Ok(Step::Asked(asked)) => Box::pin(answer(stream, connection, asked)).await,
            Ok(Step::Other) => return Lane::HandedOver { has_answered },
            Ok(Step::End) => return Lane::Ended,
            Err(error) => Err(error),
        };
        match answered {
            Ok(false) => {
                if !has_answered {
                    connection.worker.shared.guard.spare(connection);
                }
                has_answered = true;
                // Whoever sends requests without a pause lets others have their turn.
                tokio::task::consume_budget().await;
            }
            Ok(true) => {
                // A client that has gone needs no goodbye.
                let _ = stream.shutdown().await;
                return Lane::Ended;
            }
            Err(cause) => {
                tracing::debug!(client = ?connection.client, %cause, "connection ended");
                return Lane::Ended;
            }
        }
    }
}

/// What a read has led to.
enum Step {
    /// A hit was sent.
    Sent {
        /// The connection's last response.
        last: bool,
    },
    /// A hit whose client takes its time.
    Sending(Box<Hit>),
    /// A request that took, or takes, the full way through the pipeline.
    Asked(Box<Asked>),
    /// A request that is not for the fast lane; it was put back.
    Other,
    /// The client has ended the connection.
    End,
}

/// A request that the pipeline is answering.
struct Asked {
    reply: Reply,
    is_head: bool,
    last: bool,
}

fn read(
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
    let (size_max, count_max) = connection.worker.head_limits;
    let mut room = Room::new();
    let Some(head) = head::parse(bytes, &mut room, size_max, count_max) else {
        stream.unread(bytes.to_vec());
        return Poll::Ready(Ok(Step::Other));
    };
    let mut seen = Seen::default();
    let mut answer = fast::answer(connection, &head, bytes, &mut seen);
    if answer.is_some() {
        put_back(stream, &bytes[head.len..]);
    }
    // A hit is sent from where it was made: it is too large to be moved for nothing.
    if let Some(Fast::Hit(hit)) = &mut answer
        && let Poll::Ready(sent) = begin_hit(stream, connection, hit, cx)
    {
        return Poll::Ready(sent.map(|()| Step::Sent { last: hit.last }));
    }
    match answer {
        Some(Fast::Hit(hit)) => return Poll::Ready(Ok(Step::Sending(Box::new(hit)))),
        Some(Fast::Reply(reply)) => {
            let (is_head, last) = (head.is_head, head.closes);
            return Poll::Ready(Ok(Step::Asked(Box::new(Asked { reply, is_head, last }))));
        }
        None => {}
    }
    let Some(parts) = head.to_parts() else {
        stream.unread(bytes.to_vec());
        return Poll::Ready(Ok(Step::Other));
    };
    put_back(stream, &bytes[head.len..]);
    let (is_head, last) = (head.is_head, head.closes);
    let reply = pipeline::serve(connection, parts, None, seen);
    Poll::Ready(Ok(Step::Asked(Box::new(Asked { reply, is_head, last }))))
}

/// What follows a request is the next one.
fn put_back(stream: &mut Stream, rest: &[u8]) {
    if !rest.is_empty() {
        stream.unread(rest.to_vec());
    }
}

/// Waits for the pipeline's response, and sends it. Tells whether it was the connection's last.
async fn answer(
    stream: &mut Stream,
    connection: &Connection,
    asked: Box<Asked>,
) -> io::Result<bool> {
    let Asked { reply, is_head, last } = *asked;
    let response = wait(stream, reply).await?;
    let last = last || connection.worker.shared.is_draining();
    Outgoing::new(response, is_head, last).send(stream).await
}

/// Waits for a response as long as its client does.
async fn wait(stream: &mut Stream, reply: Reply) -> io::Result<Response<ReplyBody>> {
    let mut reply = pin!(reply);
    poll_fn(|cx| {
        if let Poll::Ready(response) = reply.as_mut().poll(cx) {
            return Poll::Ready(response.map_err(|never: Infallible| match never {}));
        }
        stream.poll_ahead(cx).map(Err)
    })
    .await
}

fn begin_hit(
    stream: &mut Stream,
    connection: &Connection,
    hit: &mut Hit,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if hit.last {
        connection.socket.set_last();
    }
    hit.poll_send(stream, cx)
}

async fn send_hit(stream: &mut Stream, mut hit: Box<Hit>) -> io::Result<bool> {
    poll_fn(|cx| hit.poll_send(stream, cx)).await?;
    Ok(hit.last)
}

impl Hit {
    fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Hit { record, head, object, sent, .. } = self;
        let body = object.body();
        let total = head.len() + body.len() as usize;
        while *sent < total {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let pieces = std::iter::once(&head[..]).chain(body.chunks().iter().map(|c| &c[..]));
            let count = fill(&mut slices, pieces, *sent);
            *sent += ready!(poll_write_some(stream, &slices[..count], cx))?;
            record.body_bytes = sent.saturating_sub(head.len()) as u64;
        }
        record.complete = true;
        Poll::Ready(Ok(()))
    }
}
