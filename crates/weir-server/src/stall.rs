//! HTTP/2 streams whose client takes nothing. hyper waits for a stream's window for ever, so every
//! stream runs under a watch that drops it, and thereby resets it, when bytes that were handed over
//! do not move for the send timeout. A socket that takes nothing is the connection table's matter.
//! Streams that are tunnels are dropped, too, when their tunnel breaks: hyper would end them as if
//! all had been said.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body::{BodyError, ReplyBody};
use crate::shared::Shared;

/// A last piece up to this size ends its stream at once, which spares small responses a frame and
/// a turn. What a client can make the server hold unwatched is this much for each of its streams.
const TAIL_BYTES_UNWATCHED: usize = 16 << 10;

tokio::task_local! {
    /// The progress of the stream whose task this is.
    static PROGRESS: Arc<Progress>;
}

/// Runs the streams of HTTP/2 connections, each under a watch.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    shared: Arc<Shared>,
}

impl StreamExecutor {
    pub(crate) fn new(shared: Arc<Shared>) -> StreamExecutor {
        StreamExecutor { shared }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let shared = Arc::clone(&self.shared);
        // What sends a tunnel's bytes is begun by the stream that asked for it.
        let broken = PROGRESS.try_with(|asking| asking.tunnel.lock().take()).ok().flatten();
        tokio::spawn(async move {
            let limit = || shared.live.load().config.server.limits.send_timeout;
            let sending = async {
                if watch(stream, limit).await.is_err() {
                    shared.connections.stalled_streams.fetch_add(1, Relaxed);
                    tracing::debug!(reason = "slow-read", "HTTP/2 stream reset");
                }
            };
            match broken {
                None => sending.await,
                Some(broken) => tokio::select! {
                    biased;
                    Ok(()) = broken => tracing::debug!("HTTP/2 tunnel reset"),
                    () = sending => {}
                },
            }
        });
    }
}

/// Resets a tunnel's stream with the tunnel's own end of it (RFC 9113 §8.5); which error it says is
/// not Weir's to choose: CANCEL. Without a word it ends as its bytes do.
pub(crate) struct Breaker(oneshot::Sender<()>);

impl Breaker {
    /// For the stream whose task this is, which is about to be told that it is a tunnel; `None`
    /// elsewhere.
    pub(crate) fn new() -> Option<Breaker> {
        let (breaker, broken) = oneshot::channel();
        let told = PROGRESS.try_with(|asking| *asking.tunnel.lock() = Some(broken));
        told.is_ok().then_some(Breaker(breaker))
    }

    /// The tunnel is broken.
    pub(crate) fn reset(self) {
        // A stream that is over needs no reset.
        let _ = self.0.send(());
    }
}

/// The client took nothing for too long.
#[derive(Debug, PartialEq, Eq)]
struct Stalled;

/// Runs a stream to its end, or until nothing of what it handed over has moved for `limit`.
async fn watch(
    stream: impl Future<Output = ()>,
    limit: impl Fn() -> Duration,
) -> Result<(), Stalled> {
    let progress = Arc::new(Progress::new());
    let mut stream = pin!(PROGRESS.scope(Arc::clone(&progress), stream));
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while let Some(since) = progress.waiting_since() {
            let deadline = since + limit();
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            ready!(timer.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(Err(Stalled));
            }
            // Bytes have moved since the timer was set.
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    })
    .await
}

/// How far the bytes of one stream have come.
struct Progress {
    under: Mutex<Under>,
    /// Says that the tunnel which the stream has become is broken; for whoever sends its bytes.
    tunnel: Mutex<Option<oneshot::Receiver<()>>>,
}

struct Under {
    /// Bytes handed over and not written yet.
    way_bytes: usize,
    /// When some of them last moved.
    moved_at: Instant,
    /// Who waits for the last of them.
    waker: Option<Waker>,
}

impl Progress {
    fn new() -> Progress {
        let under = Under { way_bytes: 0, moved_at: Instant::now(), waker: None };
        Progress { under: Mutex::new(under), tunnel: Mutex::new(None) }
    }

    fn handed_over(&self, bytes: usize) {
        let mut under = self.under.lock();
        if under.way_bytes == 0 {
            under.moved_at = Instant::now();
        }
        under.way_bytes += bytes;
    }

    fn moved(&self, bytes: usize) {
        let mut under = self.under.lock();
        under.way_bytes = under.way_bytes.saturating_sub(bytes);
        under.moved_at = Instant::now();
        let waker = if under.way_bytes == 0 { under.waker.take() } else { None };
        drop(under);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when nothing is under way.
    fn poll_all_moved(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut under = self.under.lock();
        if under.way_bytes == 0 {
            return Poll::Ready(());
        }
        under.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Since when what is under way has not moved; `None` if nothing is.
    fn waiting_since(&self) -> Option<Instant> {
        let under = self.under.lock();
        (under.way_bytes > 0).then_some(under.moved_at)
    }
}

/// A part of a response's body that tells when it is written.
pub(crate) struct Piece {
    bytes: Bytes,
    progress: Arc<Progress>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.progress.moved(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.progress.moved(self.bytes.len());
        }
    }
}

/// A response's body whose pieces are watched, and which ends when the client has taken the last.
pub(crate) struct WatchedBody {
    body: ReplyBody,
    progress: Arc<Progress>,
    /// The last piece is handed over, and its end is waited for.
    is_end_awaited: bool,
}

impl WatchedBody {
    /// To be called in a stream's task.
    pub(crate) fn new(body: ReplyBody) -> WatchedBody {
        let progress = PROGRESS.try_with(Arc::clone);
        // Elsewhere nobody watches, and all else is as it should be.
        let progress = progress.unwrap_or_else(|_| Arc::new(Progress::new()));
        WatchedBody { body, progress, is_end_awaited: false }
    }
}

impl Body for WatchedBody {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        if self.is_end_awaited {
            ready!(self.progress.poll_all_moved(cx));
            self.is_end_awaited = false;
        }
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? else {
            return Poll::Ready(None);
        };
        if let Some(data) = frame.data_ref() {
            self.progress.handed_over(data.len());
            self.is_end_awaited = data.len() > TAIL_BYTES_UNWATCHED && self.body.is_end_stream();
        }
        let progress = Arc::clone(&self.progress);
        Poll::Ready(Some(Ok(frame.map_data(|bytes| Piece { bytes, progress }))))
    }

    fn is_end_stream(&self) -> bool {
        !self.is_end_awaited && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if self.is_end_awaited && self.progress.waiting_since().is_some() {
            self.body.cut_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);

    fn piece(bytes: &'static [u8]) -> Piece {
        let progress = PROGRESS.with(Arc::clone);
        progress.handed_over(bytes.len());
        Piece { bytes: Bytes::from_static(bytes), progress }
    }

    #[tokio::test]
    async fn a_stream_is_ended_when_nothing_moves() {
        let began = Instant::now();
        let stream = async {
            let mut piece = piece(b"abcdef");
            for _ in 0..5 {
                tokio::time::sleep(LIMIT / 2).await;
                piece.advance(1);
            }
            pending::<()>().await;
        };
        assert_eq!(watch(stream, || LIMIT).await, Err(Stalled));
        let elapsed = began.elapsed();
        assert!(elapsed > LIMIT * 3, "{elapsed:?}: bytes that moved did not count");
    }

    #[tokio::test]
    async fn a_stream_with_nothing_to_take_may_wait() {
        let stream = async {
            drop(piece(b"abc"));
            tokio::time::sleep(LIMIT * 3).await;
        };
        assert_eq!(timeout(LIMIT * 20, watch(stream, || LIMIT)).await, Ok(Ok(())));
    }

    #[tokio::test]
    async fn whoever_waits_for_the_last_byte_is_woken() {
        let progress = Arc::new(Progress::new());
        progress.handed_over(3);
        let mut piece =
            Piece { bytes: Bytes::from_static(b"abc"), progress: Arc::clone(&progress) };
        let waiting = tokio::spawn(async move {
            poll_fn(|cx| progress.poll_all_moved(cx)).await;
        });
        tokio::task::yield_now().await;
        piece.advance(2);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(piece);
        timeout(LIMIT * 20, waiting).await.unwrap().unwrap();
    }
}
