//! The application of the G experiments: every page costs it the time of one of a fixed number of
//! servers, and it wastes time when more are asked for at once ([`Station`]). That time is waited
//! for and not computed, so that the core which the generator uses too is left alone.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot::{self, Sender};

use crate::documents::document;
use crate::error::{Doing, Result};
use crate::station::Station;

/// Bytes of every page.
pub const PAGE_SIZE: usize = 8 << 10;
/// A request head longer than this ends the connection.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// How long the clock waits if there is nothing to wait for.
const IDLE: Duration = Duration::from_secs(3_600);

/// How much the application can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Pages that it makes at a time without loss.
    pub servers: usize,
    /// Time for one of them.
    pub work: Duration,
}

impl Capacity {
    /// Pages per second, at best.
    #[must_use]
    pub fn pages_per_s(&self) -> f64 {
        self.servers as f64 / self.work.as_secs_f64()
    }
}

/// Path of a page; all cost the same.
#[must_use]
pub fn target(name: &str) -> String {
    format!("/page/{name}")
}

/// Answers every request on a Unix socket with a page, until an error ends it.
///
/// # Errors
/// When the socket cannot be bound, or there is no event loop.
pub fn serve(path: &Path, capacity: Capacity) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing(|| "making an event loop".to_owned())?;
    let kitchen = Arc::new(Kitchen::new(capacity));
    let clock = Arc::clone(&kitchen);
    thread::spawn(move || clock.run());
    runtime.block_on(async {
        let listener = UnixListener::bind(path).doing(|| path.display().to_string())?;
        let page: Arc<[u8]> = page().into();
        loop {
            let (stream, _) = listener.accept().await.doing(|| "accepting".to_owned())?;
            let (kitchen, page) = (Arc::clone(&kitchen), Arc::clone(&page));
            tokio::spawn(async move {
                // A connection that fails ends; there is nobody to tell.
                let _ = converse(stream, &kitchen, &page).await;
            });
        }
    })
}

/// A response.
fn page() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nServer: app\r\nContent-Type: text/html\r\nCache-Control: no-store\r\n\
         Content-Length: {PAGE_SIZE}\r\n\r\n"
    );
    [head.into_bytes(), document(PAGE_SIZE)].concat()
}

/// One request after the other, on a kept connection. Requests have no bodies.
async fn converse(mut stream: UnixStream, kitchen: &Kitchen, page: &[u8]) -> std::io::Result<()> {
    let mut input = Vec::with_capacity(4 << 10);
    loop {
        let Some(end) = memchr::memmem::find(&input, b"\r\n\r\n") else {
            if input.len() > HEAD_SIZE_MAX || stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
        input.drain(..end + 4);
        kitchen.wait_for_page().await;
        stream.write_all(page).await?;
        if head.contains("\r\nconnection: close") || head.contains(" http/1.0\r\n") {
            return Ok(());
        }
    }
}

/// The station, and the thread that waits for it: to the tenth of a millisecond, where the event
/// loop's timers know milliseconds.
struct Kitchen {
    station: Mutex<Station<Sender<()>>>,
    changed: Condvar,
    start: Instant,
}

impl Kitchen {
    fn new(capacity: Capacity) -> Kitchen {
        let work_ns = capacity.work.as_nanos() as u64;
        let station = Mutex::new(Station::new(capacity.servers, work_ns));
        Kitchen { station, changed: Condvar::new(), start: Instant::now() }
    }

    async fn wait_for_page(&self) {
        let (done, wait) = oneshot::channel();
        self.lock().arrive(self.now_ns(), done);
        self.changed.notify_one();
        // The clock drops nobody.
        let _ = wait.await;
    }

    fn run(&self) {
        let mut station = self.lock();
        loop {
            while let Some(done) = station.take_done(self.now_ns()) {
                // Who has gone away meanwhile has cost the same.
                let _ = done.send(());
            }
            let due_ns = station.next_due();
            let wait = due_ns
                .map_or(IDLE, |due_ns| Duration::from_nanos(due_ns.saturating_sub(self.now_ns())));
            let waited = self.changed.wait_timeout(station, wait);
            station = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Station<Sender<()>>> {
        self.station.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
