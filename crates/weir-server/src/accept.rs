//! Accepting connections. Each class has a queue of its own in the kernel, so that a flood in one
//! does not fill another's; whoever waits in a higher one is let in before anybody in a lower, but
//! for the share that a lower one has.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_guard::TURN;
use weir_net::Listener;

use crate::connection::{self, Accepted};
use crate::worker::Worker;

/// Answer to a connection beyond the limit.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
    Retry-After: 1\r\nConnection: close\r\n\r\n";

/// Pause after accept failed for lack of descriptors or memory; connections in progress end
/// meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Handshakes that had begun when a listener was closed complete within this time.
pub(crate) const CLOSING_ACCEPT: Duration = Duration::from_millis(100);

/// Connections of the first class that are let in before those that were let in are served.
const TURN_FIRST: usize = 32;

/// The same of any other class: whoever comes to a higher one meanwhile waits no longer than these
/// take.
const TURN_OTHER: usize = 4;

/// One address's accept queues at one worker.
pub(crate) struct Queues {
    /// By class, the one that goes first in front; or one for all.
    pub(crate) listeners: Vec<Listener>,
    /// The address's number.
    pub(crate) number: usize,
    pub(crate) local: Option<SocketAddr>,
}

/// A connection of a class, as the kernel hands it over.
type Arrived = (usize, io::Result<(OwnedFd, Option<SocketAddr>)>);

/// Lets connections in until it is told to stop.
pub(crate) async fn accept(worker: Arc<Worker>, queues: Queues, mut stop: watch::Receiver<bool>) {
    let told = stop.clone();
    // Made once: it is asked only when there is nobody to accept.
    let mut stopped = std::pin::pin!(stop.wait_for(|&stop| stop));
    let mut standing = Standing::new(queues.listeners.len());
    let mut earned = Earned::new(queues.listeners.len());
    // Under overload there is always somebody to accept.
    while !*told.borrow() {
        let (class, arrived) = tokio::select! {
            biased;
            arrived = queues.next(|class| { standing.end(class); earned.end(class); }) => arrived,
            _ = &mut stopped => break,
        };
        match arrived {
            Ok((fd, peer)) => {
                queues.take(&worker, fd, peer);
                if queues.listeners.len() > 1 {
                    let (taken, is_waiting) = queues.take_turn(&worker, class);
                    standing.note(&worker, class, is_waiting);
                    queues.take_shares(&worker, class, taken, &mut earned);
                    // Whoever was let in is served before anybody else is.
                    tokio::task::yield_now().await;
                }
            }
            Err(cause) => pause_accepting(&worker, &cause).await,
        }
    }
    queues.close(&worker).await;
}

impl Queues {
    /// The next connection of the highest class in which somebody waits. Says of which classes
    /// nobody does, as far as it has looked.
    async fn next(&self, mut note_empty: impl FnMut(usize)) -> Arrived {
        if let [only] = &self.listeners[..] {
            return (0, only.accept().await);
        }
        poll_fn(|cx| {
            for (class, listener) in self.listeners.iter().enumerate() {
                match listener.poll_accept(cx) {
                    Poll::Ready(arrived) => return Poll::Ready((class, arrived)),
                    Poll::Pending => note_empty(class),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Lets in more of a class, as many as one turn may; how many there were with the first, and
    /// whether somebody may still wait.
    fn take_turn(&self, worker: &Arc<Worker>, class: usize) -> (usize, bool) {
        let most = if class == 0 { TURN_FIRST } else { TURN_OTHER };
        for taken in 1..most {
            match self.listeners[class].accept_waiting() {
                Some((fd, peer)) => self.take(worker, fd, peer),
                None => return (taken, false),
            }
        }
        (most, true)
    }

    /// So many of a class have been let in: lets in those of lower ones whose share that is.
    fn take_shares(&self, worker: &Arc<Worker>, class: usize, taken: usize, earned: &mut Earned) {
        let live = worker.shared.live.load();
        let classes = &live.config.guard.classes;
        if classes.len() != self.listeners.len() {
            return;
        }
        for (lower, listener) in self.listeners.iter().enumerate().skip(class + 1) {
            for _ in 0..earned.add(lower, classes[lower].share, taken) {
                match listener.accept_waiting() {
                    Some((fd, peer)) => self.take(worker, fd, peer),
                    None => {
                        earned.end(lower);
                        break;
                    }
                }
            }
        }
    }

    fn take(&self, worker: &Arc<Worker>, fd: OwnedFd, peer: Option<SocketAddr>) {
        let connections = &worker.shared.connections;
        let id = connections.accepted.fetch_add(1, Relaxed);
        let limit = worker.shared.live.load().config.server.limits.connections;
        if connections.open.fetch_add(1, Relaxed) >= limit && !worker.make_room() {
            connections.open.fetch_sub(1, Relaxed);
            connections.refused.fetch_add(1, Relaxed);
            // One try: a client that cannot take 90 bytes gets a closed connection.
            let _ = rustix::net::send(&fd, TOO_MANY, rustix::net::SendFlags::NOSIGNAL);
            return;
        }
        let accepted = Accepted { fd, peer, local: self.local, listener: self.number, id };
        tokio::spawn(connection::serve(Arc::clone(worker), accepted));
    }

    /// Whoever has begun to connect is still served. Whoever comes later is not let in: the server
    /// has seen to that.
    async fn close(&self, worker: &Arc<Worker>) {
        let until = tokio::time::Instant::now() + CLOSING_ACCEPT;
        while let Ok((_, Ok((fd, peer)))) = tokio::time::timeout_at(until, self.next(|_| ())).await
        {
            self.take(worker, fd, peer);
        }
    }
}

async fn pause_accepting(worker: &Worker, cause: &io::Error) {
    let errors = worker.shared.connections.accept_errors.fetch_add(1, Relaxed);
    // Said at the first and then every few seconds at this pace.
    if errors.is_multiple_of(100) {
        tracing::error!(%cause, "cannot accept connections; is the limit of open files too low?");
    }
    worker.make_room();
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// What each class's share has earned of a connection, in hundredths, while others were let in.
struct Earned(Vec<usize>);

impl Earned {
    fn new(classes: usize) -> Earned {
        Earned(vec![0; classes])
    }

    /// Nobody waits in a class's queue: nothing is saved up.
    fn end(&mut self, class: usize) {
        self.0[class] = 0;
    }

    /// So many of a higher class were let in: how many of this one are due.
    fn add(&mut self, class: usize, share: u8, taken: usize) -> usize {
        let (earned, whole) = (&mut self.0[class], TURN as usize);
        *earned += usize::from(share) * taken;
        let due = *earned / whole;
        *earned %= whole;
        due
    }
}

/// Since when each class's queue has not been empty.
struct Standing(Vec<Option<Instant>>);

impl Standing {
    fn new(classes: usize) -> Standing {
        Standing(vec![None; classes])
    }

    /// Nobody waits in a class's queue.
    fn end(&mut self, class: usize) {
        self.0[class] = None;
    }

    /// Whether somebody may wait in a class's queue still.
    fn note(&mut self, worker: &Worker, class: usize, is_waiting: bool) {
        if !is_waiting {
            self.end(class);
        } else if self.0[class].is_none() {
            self.0[class] = Some(Instant::now());
        }
        let guard = &worker.shared.guard;
        let load = guard.load(worker.index);
        let now = Instant::now();
        let longest = self.0.iter().flatten().map(|since| now.duration_since(*since)).max();
        load.queues_stand(guard.ns_at(now), longest.unwrap_or_default());
        load.touch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_those_who_were_let_in() {
        let mut earned = Earned::new(3);
        let due: Vec<usize> = (0..6).map(|_| earned.add(2, 5, 32)).collect();
        // 1.6 each.
        assert_eq!(due, [1, 2, 1, 2, 2, 1]);
        assert_eq!((earned.add(1, 0, 32), earned.add(1, 50, 1)), (0, 0));
        earned.end(1);
        assert_eq!((earned.add(1, 50, 1), earned.add(1, 50, 1)), (0, 1));
    }
}
