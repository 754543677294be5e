//! Connections to a service: how many there may be, and those that wait for their next message.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::ahead::Room;
use crate::error::IcapError;
use crate::service::Address;
use crate::wire::{Incoming, within};

/// How long a connection may wait for its next message: less than most services wait.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A service's connections. Those that wait belong to a worker, whose event loop knows them; with
/// those in use they are no more than there may be.
pub(crate) struct Pool {
    places: Arc<Places>,
    pub(crate) room: Arc<Room>,
    idle: Box<[Idle]>,
}

/// Places for connections, as many as there may be.
struct Places {
    free: Arc<Semaphore>,
    /// How many there may be.
    limit: Mutex<usize>,
    /// Those beyond that, which go when they are given back.
    excess: AtomicUsize,
}

/// The one that waits for the longest time comes first.
type Idle = Arc<Mutex<VecDeque<(TcpStream, Instant)>>>;

/// A connection in use.
pub(crate) struct Line {
    pub(crate) incoming: Incoming,
    pub(crate) place: Place,
    pub(crate) to: OwnedWriteHalf,
    /// It has served a message before: the service may have closed it since.
    pub(crate) is_used: bool,
}

/// What is given back with a connection.
pub(crate) struct Place {
    /// For what comes back by it.
    pub(crate) room: Arc<Room>,
    idle: Idle,
    places: Arc<Places>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    fn new(limit: usize) -> Places {
        let free = Arc::new(Semaphore::new(limit));
        Places { free, limit: Mutex::new(limit), excess: AtomicUsize::new(0) }
    }

    fn set_limit(&self, limit: usize) {
        let mut before = self.limit.lock();
        if limit < *before {
            let less = *before - limit;
            self.excess.fetch_add(less - self.free.forget_permits(less), Relaxed);
        }
        for _ in *before..limit {
            if !self.take_excess() {
                self.free.add_permits(1);
            }
        }
        *before = limit;
    }

    /// Takes one of those that are too many.
    fn take_excess(&self) -> bool {
        self.excess.fetch_update(Relaxed, Relaxed, |excess| excess.checked_sub(1)).is_ok()
    }
}

impl Pool {
    pub(crate) fn new(connections: usize, workers: usize) -> Pool {
        Pool {
            places: Arc::new(Places::new(connections)),
            room: Arc::default(),
            idle: (0..workers.max(1)).map(|_| Idle::default()).collect(),
        }
    }

    /// A connection to `address`: one that waits, unless it is to be `fresh`, or a new one.
    pub(crate) async fn line(
        &self,
        worker: usize,
        address: &Address,
        fresh: bool,
        limit: Duration,
    ) -> Result<Line, IcapError> {
        let permit = timeout(limit, Arc::clone(&self.places.free).acquire_owned()).await;
        // Nobody closes the semaphore.
        let permit = permit.ok().and_then(Result::ok).ok_or(IcapError::Busy(limit))?;
        let idle = Arc::clone(&self.idle[worker % self.idle.len()]);
        let (room, places) = (Arc::clone(&self.room), Arc::clone(&self.places));
        let place = Place { room, idle: Arc::clone(&idle), places, permit: Some(permit) };
        let waiting = if fresh { None } else { take(&idle) };
        let is_used = waiting.is_some();
        let stream = match waiting {
            Some(stream) => stream,
            None => {
                self.make_room();
                let connecting = TcpStream::connect((address.host.as_str(), address.port));
                let connect = async { connecting.await.map_err(IcapError::Connect) };
                let stream = within(limit, connect).await?;
                // Without it heads wait for acknowledgements; if it fails they do.
                let _ = stream.set_nodelay(true);
                stream
            }
        };
        let (from, to) = stream.into_split();
        let incoming = Incoming { from, buffer: BytesMut::new() };
        Ok(Line { incoming, place, to, is_used })
    }

    /// Has no more than so many connections, once those beyond that have served.
    pub(crate) fn limit(&self, connections: usize) {
        self.places.set_limit(connections);
        self.make_room();
    }

    /// Closes connections that wait, of whichever worker, until there may be one more.
    fn make_room(&self) {
        let waiting = || self.idle.iter().map(|idle| idle.lock().len()).sum::<usize>();
        while waiting() > self.places.free.available_permits() {
            let longest = self.idle.iter().max_by_key(|idle| idle.lock().len());
            // Another may have been faster.
            let Some(_closed) = longest.and_then(|idle| idle.lock().pop_front()) else { return };
        }
    }
}

/// A connection that waits and that its service has not closed.
fn take(idle: &Idle) -> Option<TcpStream> {
    loop {
        let (stream, since) = idle.lock().pop_back()?;
        let is_silent = stream
            .try_read(&mut [0; 1])
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        if is_silent && since.elapsed() < IDLE_MAX {
            return Some(stream);
        }
    }
}

impl Place {
    /// Keeps a connection for the next message, if nothing is left over on it.
    pub(crate) fn give_back(self, incoming: Incoming, to: OwnedWriteHalf) {
        let Ok(stream) = incoming.from.reunite(to) else { return };
        if !incoming.buffer.is_empty() {
            return;
        }
        let mut idle = self.idle.lock();
        while idle.pop_front_if(|(_, since)| since.elapsed() >= IDLE_MAX).is_some() {}
        idle.push_back((stream, Instant::now()));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take_if(|_| self.places.take_excess()) {
            permit.forget();
        }
    }
}
