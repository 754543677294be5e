//! An exchange whose request is still being sent when its response begins. A client may send all
//! of its request before it reads, and as long as it does not read nobody polls the response: a
//! task goes on with both.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::{Failure, Http1};
use crate::error::ErrorKind;
use crate::upstream::Group;

/// A frame, or `None` for the end; a channel that closes without either was cut.
type Message = Result<Option<Frame<Bytes>>, Failure>;

/// The response's side. Dropping it ends the exchange.
pub(in super::super) struct Relay {
    frames: mpsc::Receiver<Message>,
    /// The length of what is still to come, if it is known.
    left: Option<u64>,
    /// Everything has come; the task may go on to send the rest of the request.
    ended: bool,
    task: AbortHandle,
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.ended {
            self.task.abort();
        }
    }
}

impl Relay {
    /// Starts the task. It puts the connection back to those of `worker` and `server`.
    pub(in super::super) fn start(
        conn: Box<Http1>,
        group: &Arc<Group>,
        worker: usize,
        server: usize,
    ) -> Relay {
        let (sender, frames) = mpsc::channel(1);
        let left = conn.body_left();
        let group = Arc::clone(group);
        let task = tokio::spawn(async move {
            let Some(conn) = run(conn, sender, group.config.keep_alive_timeout).await else {
                return;
            };
            group.put_back(worker, server, conn);
        });
        Relay { frames, left, ended: false, task: task.abort_handle() }
    }

    pub(in super::super) fn left(&self) -> Option<u64> {
        if self.ended { Some(0) } else { self.left }
    }

    pub(in super::super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.frames.poll_recv(cx)) {
            Some(Ok(Some(frame))) => {
                if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
                    *left = left.saturating_sub(data.len() as u64);
                }
                self.ended = self.left == Some(0);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Ok(None)) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Some(Err(failure)) => Poll::Ready(Some(Err(failure))),
            None => {
                let cause = "the task that reads the response is gone";
                Poll::Ready(Some(Err(Failure::new(ErrorKind::Truncated, cause))))
            }
        }
    }
}

/// Passes the response on and sends the rest of the request; the connection if both came to an
/// end. A request that its server does not take after its answer is given up after `limit`.
async fn run(
    mut conn: Box<Http1>,
    sender: mpsc::Sender<Message>,
    limit: Duration,
) -> Option<Box<Http1>> {
    loop {
        let mut place = pin!(sender.reserve());
        let place = poll_fn(|cx| {
            if let Err(failure) = conn.poll_send(cx) {
                return Poll::Ready(Err(failure));
            }
            place.as_mut().poll(cx).map(Ok)
        });
        let place = match place.await {
            Ok(place) => place.ok()?,
            Err(failure) => {
                // The last word; if it finds no place nobody hears it.
                let _ = sender.send(Err(failure)).await;
                return None;
            }
        };
        match poll_fn(|cx| conn.poll_body(cx)).await {
            Some(Ok(frame)) => place.send(Ok(Some(frame))),
            Some(Err(failure)) => {
                place.send(Err(failure));
                return None;
            }
            None => {
                place.send(Ok(None));
                break;
            }
        }
        if conn.is_done() {
            break;
        }
    }
    drop(sender);
    let sent = tokio::time::timeout(limit, poll_fn(|cx| conn.poll_rest(cx))).await;
    sent.is_ok_and(|sent| sent).then_some(conn)
}
