//! Bytes between two connections, as they are, until both sides have ended, nothing has moved for
//! too long, or there were too many.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};

/// Bytes buffered in each direction.
const BUFFER_BYTES: usize = 16 << 10;

/// What a tunnel may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How long it may be silent.
    pub(super) idle: Option<Duration>,
    /// Bytes both ways together.
    pub(super) bytes: Option<u64>,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides have.
    Whole,
    /// Nothing has moved for too long.
    Idle,
    /// All bytes that may pass have.
    Bytes,
    /// A connection broke.
    Broken,
}

impl End {
    pub(crate) const ALL: [End; 4] = [End::Whole, End::Idle, End::Bytes, End::Broken];

    /// In metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            End::Whole => "whole",
            End::Idle => "idle",
            End::Bytes => "bytes",
            End::Broken => "broken",
        }
    }
}

/// What has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) from_client: u64,
    pub(super) to_client: u64,
}

/// What both directions know of each other.
struct Account {
    began: Instant,
    /// When something has moved, in milliseconds since then.
    moved_ms: AtomicU64,
    /// Bytes that may still pass.
    left: AtomicU64,
}

impl Account {
    fn note(&self) {
        self.moved_ms.store(self.began.elapsed().as_millis() as u64, Relaxed);
    }
}

/// Joins two connections. An end on one side is passed on, and the other may go on.
pub(super) async fn relay<C, O>(client: C, origin: O, limits: Limits) -> (Passed, End)
where
    C: AsyncRead + AsyncWrite + Unpin,
    O: AsyncRead + AsyncWrite + Unpin,
{
    let left = AtomicU64::new(limits.bytes.unwrap_or(u64::MAX));
    let account = Account { began: Instant::now(), moved_ms: AtomicU64::new(0), left };
    let (from_client, to_client) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut client_reads, mut client_takes) = split(client);
    let (mut origin_reads, mut origin_takes) = split(origin);
    let out = pump(&mut client_reads, &mut origin_takes, &account, &from_client);
    let back = pump(&mut origin_reads, &mut client_takes, &account, &to_client);
    let end = tokio::select! {
        ends = async { tokio::try_join!(out, back) } => match ends {
            Ok(_) => End::Whole,
            Err(_) if account.left.load(Relaxed) == 0 => End::Bytes,
            Err(cause) => {
                tracing::debug!(%cause, "tunnel broken");
                End::Broken
            }
        },
        () = silence(&account, limits.idle) => End::Idle,
    };
    (Passed { from_client: from_client.into_inner(), to_client: to_client.into_inner() }, end)
}

/// Passes one direction on, to its end.
async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    account: &Account,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        account.note();
        if count == 0 {
            // Whoever has gone needs no end.
            let _ = to.shutdown().await;
            return Ok(());
        }
        let left = account.left.load(Relaxed);
        let allowed = left.min(count as u64);
        account.left.store(left - allowed, Relaxed);
        to.write_all(&buffer[..allowed as usize]).await?;
        to.flush().await?;
        account.note();
        passed.fetch_add(allowed, Relaxed);
        if account.left.load(Relaxed) == 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
    }
}

/// Ready when nothing has moved for `idle`.
async fn silence(account: &Account, idle: Option<Duration>) {
    let Some(idle) = idle else { return pending().await };
    loop {
        let moved = Duration::from_millis(account.moved_ms.load(Relaxed));
        let until = account.began + moved + idle;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use tokio::io::duplex;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const LIMITS: Limits = Limits { idle: Some(IDLE), bytes: None };

    #[tokio::test(start_paused = true)]
    async fn an_end_is_passed_on_and_the_other_side_goes_on() {
        let ((mut client, near), (far, mut origin)) = (duplex(64), duplex(64));
        let relaying = relay(near, far, LIMITS);
        let talking = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut asked = Vec::new();
            origin.read_to_end(&mut asked).await.unwrap();
            tokio::time::sleep(IDLE / 2).await;
            origin.write_all(b"answer").await.unwrap();
            drop(origin);
            let mut answered = Vec::new();
            client.read_to_end(&mut answered).await.unwrap();
            (asked, answered)
        };
        let ((passed, end), (asked, answered)) = tokio::join!(relaying, talking);
        assert_eq!((asked.as_slice(), answered.as_slice()), (&b"question"[..], &b"answer"[..]));
        assert_eq!(passed, Passed { from_client: 8, to_client: 6 });
        assert_eq!(end, End::Whole);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_whoever_takes_nothing_is_silent() {
        let ((mut client, near), (far, _origin)) = (duplex(64), duplex(64));
        let began = Instant::now();
        let talking = async {
            tokio::time::sleep(IDLE / 2).await;
            // The origin takes none of it beyond what is between.
            let _ = client.write_all(&[0; 100_000]).await;
        };
        tokio::select! {
            (passed, end) = relay(near, far, LIMITS) => {
                assert_eq!((passed.to_client, end), (0, End::Idle));
                assert_eq!(began.elapsed(), IDLE * 3 / 2);
            }
            () = talking => panic!("all of it was taken"),
        }
    }

    #[tokio::test]
    async fn no_more_bytes_pass_than_may() {
        let ((mut client, near), (far, mut origin)) = (duplex(64), duplex(64));
        let limits = Limits { bytes: Some(10), idle: None };
        let talking = async {
            client.write_all(b"0123456789abc").await.unwrap();
            let mut taken = Vec::new();
            origin.read_to_end(&mut taken).await.unwrap();
            taken
        };
        let ((passed, end), taken) = tokio::join!(relay(near, far, limits), talking);
        assert_eq!(taken, b"0123456789");
        assert_eq!((passed.from_client, end), (10, End::Bytes));
    }
}
