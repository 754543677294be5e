//! The threads that streams are worked on by.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use tokio::sync::oneshot;
use weir_work::{Line, Rank, Refused};

use super::Chain;
use crate::adapters::AdaptError;

/// What is to be done for a stream.
#[derive(Debug)]
pub enum Work {
    /// Work on a piece.
    Piece(Bytes),
    /// Work on the last piece, and end the stream unless there is more work left of that.
    Last(Bytes),
    /// Go on with what has come.
    GoOn,
    /// Hand over what there is.
    Flush,
    /// End it.
    Finish,
}

/// The threads that streams are worked on by; clones are the same. They end with the last one.
#[derive(Clone)]
pub struct Coders {
    shared: Arc<Shared>,
    _end: Arc<End>,
}

struct Shared {
    threads: usize,
    streams_max: usize,
    /// Pieces that wait, and how many threads there are.
    line: Line<Job, usize>,
    open: AtomicUsize,
    begun: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

struct Job {
    chain: Box<Chain>,
    work: Work,
    done: oneshot::Sender<Done>,
}

/// What has become of a piece: the stream, and what it has made of it.
type Done = Result<(Box<Chain>, Vec<u8>), AdaptError>;

/// Ends the threads.
struct End(Arc<Shared>);

/// What streams there are, and were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Streams now.
    pub open: usize,
    /// Streams since the start.
    pub begun: u64,
    /// Streams that found no place.
    pub refused: u64,
    /// Bytes that went in.
    pub bytes_in: u64,
    /// Bytes that came out.
    pub bytes_out: u64,
}

/// A stream.
pub struct Coder {
    shared: Arc<Shared>,
    /// Present unless work is under way, or failed.
    chain: Option<Box<Chain>>,
    under_way: Option<oneshot::Receiver<Done>>,
}

/// The stream cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Gone {
    /// What came cannot be adapted.
    #[error("adapted while it comes: {0}")]
    Adapt(#[from] AdaptError),
    /// The server ends.
    #[error("adapted while it comes: the server ends")]
    Ended,
}

impl Coders {
    /// So many threads, started as they are needed, for so many streams at a time.
    #[must_use]
    pub fn new(threads: usize, streams_max: usize) -> Coders {
        let shared = Arc::new(Shared {
            threads: threads.max(1),
            streams_max,
            // A stream has one piece under way.
            line: Line::new(streams_max, 0),
            open: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
        });
        Coders { _end: Arc::new(End(Arc::clone(&shared))), shared }
    }

    /// Begins a stream, if there is a place for one.
    pub fn begin(&self, chain: Chain) -> Option<Coder> {
        let most = self.shared.streams_max;
        let place = self
            .shared
            .open
            .fetch_update(Relaxed, Relaxed, |open| (open < most).then_some(open + 1));
        // Gives its place back when it is dropped, also here.
        let coder = place.ok().map(|_| Coder {
            shared: Arc::clone(&self.shared),
            chain: Some(Box::new(chain)),
            under_way: None,
        });
        let count = if coder.is_some() { &self.shared.begun } else { &self.shared.refused };
        count.fetch_add(1, Relaxed);
        coder
    }

    /// Whether there may be streams at all.
    #[must_use]
    pub fn are_on(&self) -> bool {
        self.shared.streams_max > 0
    }

    /// What streams there are, and were.
    #[must_use]
    pub fn stats(&self) -> StreamStats {
        let Shared { open, begun, refused, bytes_in, bytes_out, .. } = &*self.shared;
        StreamStats {
            open: open.load(Relaxed),
            begun: begun.load(Relaxed),
            refused: refused.load(Relaxed),
            bytes_in: bytes_in.load(Relaxed),
            bytes_out: bytes_out.load(Relaxed),
        }
    }
}

impl Coder {
    /// Hands work over. There must be none under way, and the stream must not be at its end.
    pub fn start(&mut self, work: Work) {
        let Some(chain) = self.chain.take() else { return };
        if let Work::Piece(piece) | Work::Last(piece) = &work {
            self.shared.bytes_in.fetch_add(piece.len() as u64, Relaxed);
        }
        let (done, under_way) = oneshot::channel();
        self.under_way = Some(under_way);
        self.shared.put(Job { chain, work, done });
    }

    /// Whether there is work left of what has come.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| chain.has_more())
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.chain.as_ref().is_some_and(|chain| chain.is_finished())
    }

    /// What has become of a page, once it has ended.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.chain.as_ref()?.detail()
    }

    /// Whether work is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some()
    }

    /// Waits for the work that is under way, and returns what came of it.
    ///
    /// # Errors
    /// If the stream cannot go on.
    pub fn poll_done(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Vec<u8>, Gone>> {
        let Some(under_way) = &mut self.under_way else {
            return std::task::Poll::Ready(Err(Gone::Ended));
        };
        let done = std::task::ready!(std::pin::Pin::new(under_way).poll(cx));
        self.under_way = None;
        let (chain, coded) = done.map_err(|_| Gone::Ended)??;
        self.chain = Some(chain);
        self.shared.bytes_out.fetch_add(coded.len() as u64, Relaxed);
        std::task::Poll::Ready(Ok(coded))
    }
}

impl Drop for Coder {
    fn drop(&mut self) {
        // Before its place is given away: what waits of it is known to be in vain then.
        self.under_way = None;
        self.shared.open.fetch_sub(1, Relaxed);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let waited = self.0.line.lock().close();
        drop(waited);
    }
}

impl Shared {
    fn put(self: &Arc<Shared>, job: Job) {
        let mut line = self.line.lock();
        let pushed = line.push(job, Rank::Awaited).or_else(|refused| match refused {
            Refused::Full(job) => {
                // Of some of them the client is gone: there is a place for each that is not.
                line.retain(|job| !job.done.is_closed());
                line.push(job, Rank::Awaited)
            }
            closed => Err(closed),
        });
        if pushed.is_err() {
            return;
        }
        // One more thread as long as jobs find all others busy, or perhaps so.
        if line.beside < self.threads && line.waiting() > line.beside.saturating_sub(1) {
            let shared = Arc::clone(self);
            let name = format!("stream-{}", line.beside);
            let thread = std::thread::Builder::new().name(name);
            match thread.spawn(move || shared.work()) {
                Ok(_) => line.beside += 1,
                // Those that there are do it; without any the stream ends.
                Err(cause) if line.beside == 0 => {
                    tracing::error!(%cause, "no thread that adapts streams");
                    line.retain(|_| false);
                }
                Err(_) => {}
            }
        }
    }

    fn work(&self) {
        // Where workers take all there is, each of these threads gets a tenth of what one of those
        // gets, so that streams slow down and do not stand still.
        weir_work::begin_yielding();
        while let Some(Job { mut chain, work, done }) = self.line.next() {
            if done.is_closed() {
                // The client is gone.
                continue;
            }
            let _ = done.send(guarded(|| {
                let made = match work {
                    Work::Piece(piece) => chain.code(piece),
                    Work::Last(piece) => chain.code_last(piece),
                    Work::GoOn => chain.go_on(),
                    Work::Flush => chain.flush(),
                    Work::Finish => chain.finish(),
                };
                made.map(|made| (chain, made))
            }));
        }
    }
}

/// A stream that panics has its own response to answer for, and not its thread.
fn guarded<T>(work: impl FnOnce() -> Result<T, AdaptError>) -> Result<T, AdaptError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(AdaptError::Codec { what: "stream", cause: "a panic".to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;

    use super::*;
    use crate::adapters::compress::{Coding, Compress};
    use crate::job::Step;

    fn gzip() -> Chain {
        let step = Step::Compress(Compress { coding: Coding::Gzip, level: 4 });
        Chain::new(&[step], &[]).unwrap()
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = guarded::<()>(|| panic!("on purpose")).unwrap_err();
        assert_eq!(error.to_string(), "stream: a panic");
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
    }

    #[tokio::test]
    async fn streams_are_coded_beside_each_other() {
        let coders = Coders::new(2, 16);
        let streams = (0..16).map(|number| {
            let mut coder = coders.begin(gzip()).unwrap();
            async move {
                let mut coded = Vec::new();
                for piece in 0..20 {
                    coder.start(Work::Piece(format!("{number}.{piece} ").into()));
                    coded.extend(poll_fn(|cx| coder.poll_done(cx)).await.unwrap());
                    coder.start(Work::Flush);
                    coded.extend(poll_fn(|cx| coder.poll_done(cx)).await.unwrap());
                }
                coder.start(Work::Finish);
                coded.extend(poll_fn(|cx| coder.poll_done(cx)).await.unwrap());
                (number, coded)
            }
        });
        let tasks: Vec<_> = streams.map(tokio::spawn).collect();
        assert!(coders.begin(gzip()).is_none(), "there were 16 places");
        for task in tasks {
            let (number, coded) = task.await.unwrap();
            let mut text = String::new();
            flate2::read::GzDecoder::new(&coded[..]).read_to_string(&mut text).unwrap();
            let expect: String = (0..20).map(|piece| format!("{number}.{piece} ")).collect();
            assert_eq!(text, expect);
        }
        let stats = coders.stats();
        assert_eq!((stats.open, stats.begun, stats.refused), (0, 16, 1));
        assert!(stats.bytes_in > 0 && stats.bytes_out > 0);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_takes_no_place_in_the_line() {
        let coders = Coders::new(1, 2);
        let piece = || Work::Piece(vec![0; 1 << 20].into());
        let mut first = coders.begin(gzip()).unwrap();
        first.start(piece());
        for _ in 0..20 {
            let mut coder = coders.begin(gzip()).unwrap();
            coder.start(piece());
            assert!(coders.shared.line.lock().waiting() <= 2);
        }
        assert!(!poll_fn(|cx| first.poll_done(cx)).await.unwrap().is_empty());
        let mut last = coders.begin(gzip()).unwrap();
        last.start(piece());
        drop(coders);
        // Done or not, it ends.
        drop(poll_fn(|cx| last.poll_done(cx)).await);
    }

    #[tokio::test]
    async fn a_stream_that_nobody_waits_for_gives_its_place_back() {
        let coders = Coders::new(1, 1);
        let mut coder = coders.begin(gzip()).unwrap();
        coder.start(Work::Piece(vec![0; 1 << 20].into()));
        drop(coder);
        let mut again = coders.begin(gzip()).unwrap();
        again.start(Work::Finish);
        assert!(!poll_fn(|cx| again.poll_done(cx)).await.unwrap().is_empty());
    }
}
