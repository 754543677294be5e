//! A connection on its way through a plugin: when it is made, its bytes both ways, its end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use weir_config::OnFailure;

use crate::body::BodyBuffer;
use crate::exchange::{Action, Exchange, Facts, Phase};
use crate::failure::{Failure, FailureKind};
use crate::generation::Generation;
use crate::limits::{HELD_BYTES_MAX, PAUSE_MAX};
use crate::stream::Stream;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client.
    Downstream,
    /// To the client.
    Upstream,
}

/// The connection ends here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cut {
    /// The plugin wants it so.
    #[error("a plugin closed the connection")]
    Closed,
    /// The plugin failed, and the connection cannot go on without it.
    #[error("a plugin failed: {0}")]
    Failed(Failure),
}

/// A plugin on a connection.
pub struct Tap {
    stream: Stream,
    /// It failed, and the connection goes on without it.
    is_out: bool,
    /// Bytes that it holds back, by way.
    held: [usize; 2],
}

impl Way {
    fn index(self) -> usize {
        self as usize
    }

    fn phase(self) -> Phase {
        match self {
            Way::Downstream => Phase::Downstream,
            Way::Upstream => Phase::Upstream,
        }
    }

    fn buffer(self, exchange: &mut Exchange) -> &mut BodyBuffer {
        match self {
            Way::Downstream => &mut exchange.request_body,
            Way::Upstream => &mut exchange.response_body,
        }
    }
}

impl Tap {
    /// Shows a new connection, and waits while the plugin holds it. `None` if the plugin has no
    /// hook for connections, or has failed and may.
    ///
    /// # Errors
    /// If the connection must not be.
    pub async fn open(
        generation: &Arc<Generation>,
        worker: usize,
        facts: Facts,
    ) -> Result<Option<Tap>, Cut> {
        let hooks = generation.hooks();
        if ![Phase::Connection, Phase::Downstream, Phase::Upstream].iter().any(|p| hooks.has(*p)) {
            return Ok(None);
        }
        let may_fail = generation.on_failure() == OnFailure::Pass;
        let shown = async {
            let stream = Stream::open(generation, worker, facts).await?;
            stream.connection().await.map(|wishes| (stream, wishes))
        };
        match shown.await {
            Ok((_, wishes)) if wishes.close || wishes.answer.is_some() => Err(Cut::Closed),
            Ok((stream, _)) => Ok(Some(Tap { stream, is_out: false, held: [0; 2] })),
            Err(_) if may_fail => Ok(None),
            Err(failure) => Err(Cut::Failed(failure)),
        }
    }

    /// Whether the plugin looks at the connection's bytes.
    pub fn sees_bytes(&self) -> bool {
        let hooks = self.stream.hooks();
        hooks.has(Phase::Downstream) || hooks.has(Phase::Upstream)
    }

    /// Shows bytes; what may go on comes back.
    ///
    /// # Errors
    /// If the connection must end.
    pub async fn show(&mut self, way: Way, piece: Bytes, end: bool) -> Result<Vec<Bytes>, Cut> {
        if self.is_out || !self.stream.hooks().has(way.phase()) {
            return Ok(vec![piece]);
        }
        if self.held[way.index()] + piece.len() > HELD_BYTES_MAX {
            let message = format!("it holds back more than {HELD_BYTES_MAX} bytes of a connection");
            return Err(Cut::Failed(Failure::new(FailureKind::Overflow, message)));
        }
        let (original, len) = (piece.clone(), piece.len());
        let put = move |exchange: &mut Exchange| way.buffer(exchange).push(piece);
        let take = move |exchange: &mut Exchange, action| match action {
            Action::Continue => Taken::all(way, exchange),
            Action::Pause => Taken { closes: exchange.wishes.close, pieces: None },
        };
        match self.stream.hook(way.phase(), end, len, put, take).wait().await {
            Ok((_, taken)) => self.settle(way, len, taken),
            Err(_) if self.may_go_on_without(way) => {
                self.is_out = true;
                Ok(vec![original])
            }
            Err(failure) => Err(Cut::Failed(failure)),
        }
    }

    fn may_go_on_without(&self, way: Way) -> bool {
        // What it holds back is lost with it.
        let holds_nothing = self.held[way.index()] == 0;
        holds_nothing && self.stream.generation().on_failure() == OnFailure::Pass
    }

    fn settle(&mut self, way: Way, len: usize, taken: Taken) -> Result<Vec<Bytes>, Cut> {
        if taken.closes {
            return Err(Cut::Closed);
        }
        match taken.pieces {
            Some(pieces) => {
                self.held[way.index()] = 0;
                Ok(pieces)
            }
            None => {
                self.held[way.index()] += len;
                Ok(Vec::new())
            }
        }
    }

    /// Hears when the plugin lets something go.
    pub fn ear(&self) -> Ear {
        Ear { stream: self.stream.clone(), heard: self.stream.signal().heard() }
    }

    /// What the plugin has let go since.
    ///
    /// # Errors
    /// If the connection must end.
    pub async fn take_released(&mut self, way: Way) -> Result<Vec<Bytes>, Cut> {
        let looked = self.stream.look(move |exchange| {
            match std::mem::take(&mut exchange.is_released[way.index()]) {
                true => Taken::all(way, exchange),
                false => Taken { closes: exchange.wishes.close, pieces: None },
            }
        });
        match looked.wait().await {
            Ok(taken) => self.settle(way, 0, taken),
            Err(_) if self.may_go_on_without(way) => Ok(Vec::new()),
            Err(failure) => Err(Cut::Failed(failure)),
        }
    }

    /// The connection ended, at the other end's wish or here.
    pub async fn closed(&mut self, way: Way, by_peer: bool) {
        let phase = match way {
            Way::Downstream => Phase::DownstreamClosed,
            Way::Upstream => Phase::UpstreamClosed,
        };
        if !self.is_out && self.stream.hooks().has(phase) {
            // A failure was counted where it happened; there is nothing left to protect.
            let _ = self.stream.hook(phase, by_peer, 0, |_| (), |_, _| ()).wait().await;
        }
    }
}

/// Hears what a plugin tells, whoever is calling it meanwhile.
pub struct Ear {
    stream: Stream,
    heard: u64,
}

impl Ear {
    /// Waits for the plugin to let something go. All ears of a connection belong to one task.
    pub fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.signal().poll_told(&mut self.heard, cx)
    }
}

/// What was taken out of the exchange.
struct Taken {
    closes: bool,
    pieces: Option<Vec<Bytes>>,
}

impl Taken {
    fn all(way: Way, exchange: &mut Exchange) -> Taken {
        let closes = exchange.wishes.close;
        Taken { closes, pieces: Some(way.buffer(exchange).take()) }
    }
}

impl Stream {
    /// Shows a new connection.
    async fn connection(&self) -> Result<crate::exchange::Wishes, Failure> {
        if !self.generation().is_bound() {
            return self.consult(Phase::Connection, |_| ()).await.map(|released| released.wishes);
        }
        if !self.has(Phase::Connection) {
            return Ok(Default::default());
        }
        let mut heard = self.signal().heard();
        let take = |exchange: &mut Exchange, action| match action {
            Action::Continue => Some(std::mem::take(&mut exchange.wishes)),
            Action::Pause => None,
        };
        let shown = self.hook(Phase::Connection, false, 0, |_| (), take).wait().await?;
        if let (_, Some(wishes)) = shown {
            return Ok(wishes);
        }
        let told = async {
            loop {
                poll_fn(|cx| self.signal().poll_told(&mut heard, cx)).await;
                let looked = self.look(|exchange| {
                    let goes_on = !exchange.is_paused || exchange.wishes.close;
                    goes_on.then(|| std::mem::take(&mut exchange.wishes))
                });
                if let Some(wishes) = looked.wait().await? {
                    return Ok(wishes);
                }
            }
        };
        let patience: Duration = PAUSE_MAX;
        tokio::time::timeout(patience, told).await.unwrap_or_else(|_| {
            let message = format!("held a connection for {} s", patience.as_secs());
            Err(Failure::new(FailureKind::Stalled, message))
        })
    }
}
