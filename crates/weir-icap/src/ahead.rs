//! What a service has sent and its reader has not taken yet. A connection to the service is dear,
//! and readers are clients, some of them slow: so a part of an answer may lie here, mostly all of
//! it, and for the rest whoever reads has to go on at a least pace.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use crate::BoxError;
use crate::error::IcapError;

/// Bytes of an answer for which there is always room.
const OWN_BYTES: usize = 64 << 10;
/// Bytes of an answer that may lie here beyond them, if there is room.
pub const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Bytes of all answers of a service that may.
const ROOM_BYTES: usize = 64 << 20;
/// Bytes that a piece takes besides its own.
const PIECE_BYTES: usize = 128;
/// Bytes a second that a reader takes at least as long as a connection waits for him; he may stand
/// still, or be behind, for the service's time-out.
pub const PACE_BYTES_PER_S: u64 = 8 << 10;

/// Where answers of one service lie.
pub(crate) struct Room {
    bytes: Arc<Semaphore>,
    /// Readers that were given up.
    slow: AtomicU64,
}

impl Default for Room {
    fn default() -> Room {
        Room { bytes: Arc::new(Semaphore::new(ROOM_BYTES)), slow: AtomicU64::new(0) }
    }
}

impl Room {
    /// How many readers were given up.
    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Relaxed)
    }
}

/// The end of an answer that the service fills.
pub(crate) struct Sender {
    pieces: mpsc::UnboundedSender<Result<Piece, BoxError>>,
    room: Arc<Room>,
    own: Arc<Semaphore>,
    lent: Arc<Semaphore>,
    read: Arc<Progress>,
    /// How long a reader may stand still.
    respite: Duration,
    /// How much longer he is waited for: what he reads adds to it, up to the respite.
    patience: Duration,
    /// Bytes of his that have.
    counted: u64,
}

/// The end that is read.
pub(crate) struct Reader {
    pieces: mpsc::UnboundedReceiver<Result<Piece, BoxError>>,
    read: Arc<Progress>,
}

/// How far a reader has come.
#[derive(Default)]
struct Progress {
    bytes: AtomicU64,
    moved: Notify,
}

struct Piece {
    bytes: Bytes,
    room: Taken,
}

/// What a piece has of the room, for as long as it lies there.
enum Taken {
    Own { _own: OwnedSemaphorePermit },
    Lent { _lent: OwnedSemaphorePermit, _room: OwnedSemaphorePermit },
}

/// Why there is no use in sending more.
pub(crate) enum Unread {
    /// The reader has gone.
    Gone,
    /// He is too slow, and was told so.
    Slow,
}

/// The two ends of an answer.
pub(crate) fn answer(room: &Arc<Room>, respite: Duration) -> (Sender, Reader) {
    let (pieces, received) = mpsc::unbounded_channel();
    let read = Arc::<Progress>::default();
    let reader = Reader { pieces: received, read: Arc::clone(&read) };
    let sender = Sender {
        pieces,
        room: Arc::clone(room),
        own: Arc::new(Semaphore::new(OWN_BYTES)),
        lent: Arc::new(Semaphore::new(AHEAD_BYTES_MAX)),
        read,
        respite,
        patience: respite,
        counted: 0,
    };
    (sender, reader)
}

impl Sender {
    /// Passes a piece on when there is room for it.
    ///
    /// # Errors
    /// Why nobody reads it.
    pub(crate) async fn send(&mut self, bytes: Bytes) -> Result<(), Unread> {
        let room = self.room_for(bytes.len()).await?;
        self.pieces.send(Ok(Piece { bytes, room })).map_err(|_| Unread::Gone)
    }

    /// The answer breaks off.
    pub(crate) fn abort(self, error: IcapError) {
        // Whoever has gone needs no error.
        let _ = self.pieces.send(Err(error.into()));
    }

    async fn room_for(&mut self, len: usize) -> Result<Taken, Unread> {
        // One that is larger than all there is takes all there is.
        let bytes = (len + PIECE_BYTES).min(OWN_BYTES) as u32;
        let mut since = Instant::now();
        loop {
            self.spend(since.elapsed());
            since = Instant::now();
            if let Some(taken) = self.take_room(bytes) {
                return Ok(taken);
            }
            if self.patience.is_zero() {
                self.room.slow.fetch_add(1, Relaxed);
                let _ = self.pieces.send(Err(IcapError::SlowReader.into()));
                return Err(Unread::Slow);
            }
            tokio::select! {
                () = self.pieces.closed() => return Err(Unread::Gone),
                () = self.read.moved.notified() => {}
                () = sleep(self.patience) => {}
            }
        }
    }

    fn take_room(&self, bytes: u32) -> Option<Taken> {
        if let Ok(own) = Arc::clone(&self.own).try_acquire_many_owned(bytes) {
            return Some(Taken::Own { _own: own });
        }
        let lent = Arc::clone(&self.lent).try_acquire_many_owned(bytes);
        let room = Arc::clone(&self.room.bytes).try_acquire_many_owned(bytes);
        let (lent, room) = (lent.ok()?, room.ok()?);
        Some(Taken::Lent { _lent: lent, _room: room })
    }

    /// He has been waited for, and has read meanwhile.
    fn spend(&mut self, waited: Duration) {
        let read = self.read.bytes.load(Relaxed);
        let earned_ms = (read - self.counted).saturating_mul(1000) / PACE_BYTES_PER_S;
        self.counted = read;
        let patience = self.patience.saturating_sub(waited) + Duration::from_millis(earned_ms);
        self.patience = patience.min(self.respite);
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(piece) = ready!(self.pieces.poll_recv(cx)).transpose()? else {
            return Poll::Ready(None);
        };
        let Piece { bytes, room } = piece;
        drop(room);
        self.read.bytes.fetch_add(bytes.len() as u64, Relaxed);
        self.read.moved.notify_one();
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use http_body_util::BodyExt;

    use super::*;

    const PIECE: usize = 16 << 10;
    const RESPITE: Duration = Duration::from_secs(10);

    async fn fill(sender: &mut Sender, pieces: usize) -> Result<(), Unread> {
        for _ in 0..pieces {
            sender.send(Bytes::from(vec![0; PIECE])).await?;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_ordinary_size_waits_for_nobody() {
        let room = Arc::default();
        let began = Instant::now();
        let (mut sender, reader) = answer(&room, RESPITE);
        assert!(fill(&mut sender, 60).await.is_ok());
        drop(sender);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(reader.collect().await.unwrap().to_bytes().len(), 60 * PIECE);
        assert_eq!(room.bytes.available_permits(), ROOM_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_nothing_is_given_up() {
        let room = Arc::default();
        let began = Instant::now();
        let (mut sender, mut reader) = answer(&room, RESPITE);
        assert!(matches!(fill(&mut sender, 1000).await, Err(Unread::Slow)));
        let waited = began.elapsed();
        assert!((RESPITE..RESPITE * 2).contains(&waited), "{waited:?}");
        assert_eq!(room.slow(), 1);
        drop(sender);
        let mut read = 0;
        let broken = loop {
            match reader.frame().await.unwrap() {
                Ok(frame) => read += frame.into_data().unwrap().len(),
                Err(error) => break error,
            }
        };
        assert!((AHEAD_BYTES_MAX..AHEAD_BYTES_MAX + OWN_BYTES).contains(&read), "{read}");
        assert!(broken.to_string().contains("too slowly"), "{broken}");
        assert_eq!(room.bytes.available_permits(), ROOM_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_goes_on_at_the_pace_gets_it_all() {
        let room = Arc::default();
        for (bytes_per_s, gets_it) in [(PACE_BYTES_PER_S * 2, true), (PACE_BYTES_PER_S / 4, false)]
        {
            let (mut sender, mut reader) = answer(&room, RESPITE);
            let reading = tokio::spawn(async move {
                while let Some(frame) = reader.frame().await {
                    let Ok(frame) = frame else { return };
                    let len = frame.into_data().unwrap().len() as u64;
                    sleep(Duration::from_millis(len * 1000 / bytes_per_s)).await;
                }
            });
            assert_eq!(fill(&mut sender, 300).await.is_ok(), gets_it, "{bytes_per_s}");
            drop(sender);
            reading.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_room_leaves_every_answer_something() {
        let room: Arc<Room> = Arc::default();
        let full = Arc::clone(&room.bytes).try_acquire_many_owned(ROOM_BYTES as u32).unwrap();
        let (mut sender, reader) = answer(&room, RESPITE);
        let reading = tokio::spawn(reader.collect());
        assert!(fill(&mut sender, 100).await.is_ok());
        drop((sender, full));
        assert_eq!(reading.await.unwrap().unwrap().to_bytes().len(), 100 * PIECE);
    }
}
