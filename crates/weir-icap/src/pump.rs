//! Content on its way to a service, while its answer is already awaited.

use std::time::Duration;

use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::chunked;
use crate::error::IcapError;
use crate::preview::Held;
use crate::wire::write_all;

/// A task that sends what is left of a message's content. Dropped, it stops.
pub(crate) struct Pump {
    task: JoinHandle<Pumped>,
    stop: oneshot::Sender<()>,
}

/// What has become of it.
pub(crate) struct Pumped {
    pub(crate) to: OwnedWriteHalf,
    pub(crate) held: Box<Held>,
    /// Whether all was sent.
    pub(crate) result: Result<(), Stopped>,
}

/// Why not all was sent.
pub(crate) enum Stopped {
    /// It was told to stop.
    Told,
    Failed(IcapError),
}

impl Pump {
    pub(crate) fn start(to: OwnedWriteHalf, held: Box<Held>, limit: Duration) -> Pump {
        let (stop, stopped) = oneshot::channel();
        Pump { task: tokio::spawn(run(to, held, limit, stopped)), stop }
    }

    /// Waits until it ends. `None`: the server itself ends.
    pub(crate) async fn ended(&mut self) -> Option<Pumped> {
        (&mut self.task).await.ok()
    }

    /// Ends it.
    pub(crate) async fn stop(self) -> Option<Pumped> {
        drop(self.stop);
        self.task.await.ok()
    }
}

async fn run(
    mut to: OwnedWriteHalf,
    mut held: Box<Held>,
    limit: Duration,
    mut stopped: oneshot::Receiver<()>,
) -> Pumped {
    let result = loop {
        let piece = tokio::select! {
            biased;
            _ = &mut stopped => break Err(Stopped::Told),
            piece = held.next() => piece,
        };
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => break Err(Stopped::Failed(error)),
        };
        let is_end = piece.is_none();
        let write = async {
            match piece {
                Some(piece) => write_all(&mut to, chunked::around(piece), limit).await,
                None => write_all(&mut to, chunked::END, limit).await,
            }
        };
        let written = tokio::select! {
            biased;
            _ = &mut stopped => break Err(Stopped::Told),
            written = write => written,
        };
        match written {
            Ok(()) if is_end => break Ok(()),
            Ok(()) => {}
            Err(error) => break Err(Stopped::Failed(error)),
        }
    };
    Pumped { to, held, result }
}
