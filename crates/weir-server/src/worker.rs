//! A worker: one thread, one event loop, its own listeners and connections. Nothing here waits for
//! another worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioTimer;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;
use weir_config::Limits;
use weir_net::{ConnectionTable, Listener, Reaped, TICK, Timeouts};

use crate::accept::{self, CLOSING_ACCEPT, Queues};
use crate::error::StartError;
use crate::guard;
use crate::live::ListenerSites;
use crate::shared::Shared;
use crate::stall::StreamExecutor;
use crate::turn;

/// How long connections that are idle when a stop begins may still bring one request: whoever
/// has just sent one is answered.
const LAME_DUCK: Duration = Duration::from_millis(500);

/// HTTP/2: connections whose client does not answer a ping in time are closed.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// HTTP/2: bytes buffered for writing per stream; what is written goes out of shared pages.
const HTTP2_SEND_BUFFER_BYTES: usize = 256 << 10;

/// What a worker's tasks share.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<ConnectionTable>,
    pub(crate) http1: http1::Builder,
    /// The longest request head, in bytes, and the most fields it may have.
    pub(crate) head_limits: (usize, usize),
    pub(crate) http2: http2::Builder<StreamExecutor>,
    /// Turns true when a graceful stop begins.
    pub(crate) drain: watch::Sender<bool>,
}

/// What a worker can be told.
pub(crate) enum Command {
    /// Accept connections from this listener.
    Listen {
        /// One for each class, the one that goes first in front; or one for all.
        descriptors: Vec<OwnedFd>,
        number: usize,
        local: Option<SocketAddr>,
    },
    /// Stop accepting from this listener; what it has accepted goes on.
    Unlisten { number: usize },
    /// Finish what is in flight and end, at the latest at this time.
    Drain { deadline: Instant },
}

/// A running worker, as the server holds it.
pub(crate) struct Handle {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// Taken by whoever waits for its end.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

/// A worker's event loop, before the worker runs.
///
/// # Errors
/// If the system gives none.
pub(crate) fn event_loop() -> Result<Runtime, StartError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|source| StartError::Thread { what: "a worker", source })
}

/// Gives up what it takes to change rules in the kernel: the control thread does that, which reads
/// nothing that clients send, and no other.
pub fn forgo_privileges() {
    if let Err(cause) = weir_kernel::privilege::forgo() {
        tracing::warn!(%cause, "a thread keeps privileges that it does not need");
    }
}

/// Starts a worker's thread.
///
/// # Errors
/// If the system gives no thread.
pub(crate) fn start(
    index: usize,
    shared: &Arc<Shared>,
    runtime: Runtime,
) -> Result<Handle, StartError> {
    let (commands, received) = mpsc::unbounded_channel();
    let worker = Arc::new(Worker::new(index, Arc::clone(shared)));
    let thread = std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            forgo_privileges();
            weir_plugin::enter_place(index);
            runtime.block_on(run(worker, received));
        })
        .map_err(|source| StartError::Thread { what: "a worker", source })?;
    Ok(Handle { commands, thread: Mutex::new(Some(thread)) })
}

impl Worker {
    fn new(index: usize, shared: Arc<Shared>) -> Worker {
        let limits = shared.live.load().config.server.limits.clone();
        Worker {
            index,
            table: Arc::new(ConnectionTable::new()),
            http1: http1_builder(&limits),
            head_limits: (limits.header_size, limits.header_count),
            http2: http2_builder(&limits, StreamExecutor::new(Arc::clone(&shared))),
            drain: watch::Sender::new(false),
            shared,
        }
    }

    /// The sites behind a listener as configured now.
    pub(crate) fn listener(&self, number: usize) -> Option<Arc<ListenerSites>> {
        self.shared.live.load().listeners.get(number).cloned().flatten()
    }

    /// Ends the connection that has been idle longest. `false` if none is idle.
    pub(crate) fn make_room(&self) -> bool {
        let made = self.table.evict_idle();
        if made {
            self.count_reaped(Reaped::Evicted);
        }
        made
    }

    fn count_reaped(&self, reason: Reaped) {
        self.shared.connections.reaped[reason as usize - 1].fetch_add(1, Relaxed);
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(limits.header_size);
    // hyper's own buffer must hold the largest head; it does not start below 8 KiB.
    builder.max_buf_size(limits.header_size.max(8192) + 4096);
    if limits.header_count != HYPER_HEADERS_MAX {
        builder.max_headers(limits.header_count);
    }
    builder
}

/// hyper's default, for which it needs no allocation.
const HYPER_HEADERS_MAX: usize = 100;

fn http2_builder(limits: &Limits, executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams)
        .max_header_list_size(u32::try_from(limits.header_size).unwrap_or(u32::MAX))
        .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
        .adaptive_window(true)
        .keep_alive_interval(HTTP2_PING_INTERVAL)
        .keep_alive_timeout(HTTP2_PING_TIMEOUT);
    builder
}

async fn run(worker: Arc<Worker>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut accepting: Vec<(usize, watch::Sender<bool>)> = Vec::new();
    tokio::spawn(turn::keep(worker.index));
    tokio::spawn(guard::probe(Arc::clone(&worker)));
    let sweeper = tokio::spawn(sweep(Arc::clone(&worker))).abort_handle();
    let deadline = loop {
        match commands.recv().await {
            Some(Command::Listen { descriptors, number, local }) => {
                let listeners: io::Result<Vec<_>> =
                    descriptors.into_iter().map(Listener::new).collect();
                match listeners {
                    Ok(listeners) => {
                        let stop = watch::Sender::new(false);
                        let stopped = stop.subscribe();
                        accepting.push((number, stop));
                        let queues = Queues { listeners, number, local };
                        tokio::spawn(accept::accept(Arc::clone(&worker), queues, stopped));
                    }
                    Err(cause) => tracing::error!(%cause, "cannot register a listener"),
                }
            }
            Some(Command::Unlisten { number }) => {
                accepting.retain(|(known, stop)| *known != number || stop.send(true).is_err());
            }
            Some(Command::Drain { deadline }) => break deadline,
            None => break Instant::now(),
        }
    };
    for (_, stop) in &accepting {
        // A task that is gone needs no telling.
        let _ = stop.send(true);
    }
    drain(&worker, deadline, &sweeper).await;
}

/// Ends when no connection is left or the deadline has passed.
async fn drain(worker: &Worker, deadline: Instant, sweeper: &AbortHandle) {
    worker.drain.send_replace(true);
    let lame_duck_end = (Instant::now() + LAME_DUCK).min(deadline);
    let mut closed_idle = false;
    tokio::time::sleep(CLOSING_ACCEPT * 2).await;
    while !worker.table.is_empty() && Instant::now() < deadline {
        if closed_idle || Instant::now() >= lame_duck_end {
            worker.table.close_idle();
            closed_idle = true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sweeper.abort();
    let left = worker.table.len();
    if left > 0 {
        worker.table.reset_sending();
        tracing::warn!(
            worker = worker.index,
            connections = left,
            "drain timeout: closing the rest"
        );
    }
}

/// Ends connections that outstay a timeout.
async fn sweep(worker: Arc<Worker>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut nudges_left = 0;
    loop {
        tick.tick().await;
        let limits = worker.shared.live.load().config.server.limits.clone();
        let timeouts = Timeouts {
            idle: limits.idle_timeout,
            header: limits.header_timeout,
            body: limits.body_timeout,
            send: limits.send_timeout,
        };
        let rest = worker.table.sweep(&timeouts, |socket, reason| {
            worker.count_reaped(reason);
            tracing::debug!(client = ?socket.peer(), reason = reason.as_str(), "connection ended");
        });
        if rest > 0 {
            nudges_left = ALLOCATOR_NUDGES;
        } else if nudges_left > 0 {
            nudges_left -= 1;
            nudge_allocator();
        }
    }
}

/// Sweeps after connections went to rest in which the allocator is nudged: its delay of a second
/// before it gives memory back, and some more.
const ALLOCATOR_NUDGES: u32 = 15;

/// The allocator gives free memory back to the system when it next takes or returns a large block.
/// A server whose connections have just gone to rest may have no such occasion for hours: measured
/// with 8,000 idle connections, 21 KB each without this and 3 KB with it.
fn nudge_allocator() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
}
