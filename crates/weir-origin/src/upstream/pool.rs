//! The connections of one worker to one server. Only that worker's thread uses it, so its lock is
//! never waited for.
//!
//! | connection | is kept                              | is closed                              |
//! |------------|--------------------------------------|----------------------------------------|
//! | HTTP/1.1   | last used first, up to `keep_alive`  | idle too long, or its exchange unfinished |
//! | HTTP/2     | shared, from its making              | idle too long, GOAWAY, ping unanswered |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::{Fresh, Http2, OpenCount, StreamPlace};
use super::http1::Http1;
use super::limits::{HTTP2_CONNECTIONS_MAX, WAITING_MAX};
use crate::error::ErrorKind;

/// A connection in use by one exchange.
pub(super) enum Conn {
    Http1(Box<Http1>),
    Http2(Http2, StreamPlace),
}

pub(super) struct Pool {
    idle: Mutex<Idle>,
    /// Held while a connection that may be shared is made, so that others wait for it.
    pub(super) gate: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    pub(super) open: OpenCount,
    pub(super) stats: Stats,
    /// Told when something happens on an idle HTTP/1.1 connection: its server closed it.
    stirring: Arc<Stirring>,
    /// Tells `stirring`.
    waker: Waker,
}

/// For the sweeper.
#[derive(Default)]
struct Stirring(Arc<Notify>);

impl Wake for Stirring {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

impl Default for Pool {
    fn default() -> Self {
        let stirring = Arc::new(Stirring::default());
        Pool {
            idle: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::default(),
            open: OpenCount::default(),
            stats: Stats::default(),
            waker: Waker::from(Arc::clone(&stirring)),
            stirring,
        }
    }
}

#[derive(Default)]
struct Idle {
    /// Oldest first.
    http1: Vec<Parked>,
    http2: Vec<Http2>,
    /// The server answered with HTTP/1.1 where HTTP/2 was offered: nothing to wait for.
    is_http1: bool,
    /// A task closes what is idle too long.
    swept: bool,
}

struct Parked {
    conn: Box<Http1>,
    since: Instant,
}

/// Counters of one worker and server.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) requests: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) latency_us: AtomicU64,
    pub(super) failures: [AtomicU64; ErrorKind::ALL.len()],
}

/// A request's place among those that wait for a connection to be made.
pub(super) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    /// An HTTP/1.1 connection that can take a request now, the most recently used first: the
    /// others may then grow old and be closed.
    pub(super) fn take_http1(&self, limit: Duration) -> Option<Conn> {
        self.idle.lock().take_http1(limit)
    }

    /// A place on a shared connection.
    pub(super) fn take_http2(&self) -> Option<Conn> {
        self.idle.lock().take_http2()
    }

    /// Puts back an HTTP/1.1 connection whose response is over; it closes if `keep` are idle
    /// already. `true` if a sweeper must be started.
    pub(super) fn put_back(&self, mut conn: Box<Http1>, keep: usize) -> bool {
        let mut idle = self.idle.lock();
        if idle.http1.len() >= keep {
            return false;
        }
        if !conn.is_fit(&self.waker) {
            return false;
        }
        idle.http1.push(Parked { conn, since: Instant::now() });
        !std::mem::replace(&mut idle.swept, true)
    }

    /// Takes note of a connection just made. `true` if a sweeper must be started.
    pub(super) fn adopt(&self, fresh: Fresh, keep: usize, http1_only: bool) -> (Conn, bool) {
        self.stats.connects.fetch_add(1, Relaxed);
        match fresh {
            Fresh::Http1(conn) => {
                if !http1_only {
                    self.idle.lock().is_http1 = true;
                }
                (Conn::Http1(conn), false)
            }
            Fresh::Http2(conn) => {
                let place = StreamPlace::take(&conn.link);
                if keep == 0 {
                    return (Conn::Http2(conn, place), false);
                }
                let mut idle = self.idle.lock();
                idle.is_http1 = false;
                idle.http2.push(conn.clone());
                let start = !std::mem::replace(&mut idle.swept, true);
                (Conn::Http2(conn, place), start)
            }
        }
    }

    /// Whether the server is known to speak HTTP/1.1 although more was offered.
    pub(super) fn is_http1(&self) -> bool {
        self.idle.lock().is_http1
    }

    /// Joins those who wait for a shared connection; `None` if they are too many.
    pub(super) fn wait(&self) -> Option<Waiting<'_>> {
        if self.waiting.fetch_add(1, Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Waiting(&self.waiting))
    }

    /// Closes what has been idle for `limit`; when to come again, or `None` if nothing is left.
    pub(super) fn sweep(&self, limit: Duration) -> Option<Instant> {
        let mut idle = self.idle.lock();
        let now = Instant::now();
        let old = idle.http1.partition_point(|parked| now - parked.since >= limit);
        idle.http1.drain(..old);
        idle.http1.retain_mut(|parked| parked.conn.is_fit(&self.waker));
        for conn in &mut idle.http2 {
            if conn.link.streams.load(Relaxed) > 0 {
                conn.used = now;
            }
        }
        idle.http2.retain(|conn| !conn.sender.is_closed() && now - conn.used < limit);
        let http1 = idle.http1.first().map(|parked| parked.since);
        let oldest = http1.into_iter().chain(idle.http2.iter().map(|conn| conn.used)).min();
        if oldest.is_none() {
            idle.swept = false;
            idle.http1.shrink_to_fit();
        }
        oldest.map(|since| since + limit)
    }

    /// Notified when [`Pool::sweep`] may find a connection closed.
    pub(super) fn stirred(&self) -> Arc<Notify> {
        Arc::clone(&self.stirring.0)
    }

    /// Connections that wait for a request.
    pub(super) fn idle_count(&self) -> usize {
        let idle = self.idle.lock();
        let unused = |conn: &&Http2| conn.link.streams.load(Relaxed) == 0;
        idle.http1.len() + idle.http2.iter().filter(unused).count()
    }
}

impl Idle {
    fn take_http2(&mut self) -> Option<Conn> {
        self.http2.retain(|conn| !conn.sender.is_closed());
        let full = self.http2.len() >= HTTP2_CONNECTIONS_MAX;
        let free =
            |conn: &&Http2| conn.link.streams.load(Relaxed) < conn.link.streams_max.load(Relaxed);
        let conn = match self.http2.iter().find(free) {
            Some(conn) => conn,
            // No more connections: wait for a stream on the least busy of them.
            None if full => self.http2.iter().min_by_key(|c| c.link.streams.load(Relaxed))?,
            None => return None,
        };
        let place = StreamPlace::take(&conn.link);
        Some(Conn::Http2(conn.clone(), place))
    }

    fn take_http1(&mut self, limit: Duration) -> Option<Conn> {
        while let Some(Parked { mut conn, since }) = self.http1.pop() {
            if since.elapsed() >= limit {
                // So are all before it.
                self.http1.clear();
                return None;
            }
            // Whoever waits for the response says who is to be woken.
            if conn.is_fit(Waker::noop()) {
                return Some(Conn::Http1(conn));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_for_a_connection_are_limited() {
        let pool = Pool::default();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map_while(|_| pool.wait()).collect();
        assert_eq!(waiting.len(), WAITING_MAX);
        assert!(pool.wait().is_none());
        waiting.pop();
        assert!(pool.wait().is_some());
    }
}
