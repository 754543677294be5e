//! Connections that plugins see. Where they look at the bytes, these take a detour: from the client
//! through the plugins to HTTP, and back.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Mutex;
use weir_config::At;
use weir_plugin::{Cut, Ear, Facts, Tap, Way};

use crate::chain::Chain;
use crate::connection::{self, Connection};

/// Bytes read at once, and held between the plugins and HTTP each way.
const PIECE_BYTES: usize = 64 << 10;

/// The plugins of a connection.
pub(crate) struct Taps(Vec<Tap>);

/// Shows a new connection to the plugins of its listener. `None` if it must end.
pub(crate) async fn open(connection: &Connection, chain: &Chain) -> Option<Taps> {
    let mut taps = Vec::new();
    for link in &chain.links {
        let Some(generation) = link.pick() else { continue };
        let about = connection.about_connection(At::Delivery);
        let facts = Facts { about, started: std::time::Instant::now(), bag: None };
        match Tap::open(&generation, connection.worker.index, facts).await {
            Ok(tap) => taps.extend(tap),
            Err(cause) => {
                ended(connection, &cause);
                return None;
            }
        }
    }
    Some(Taps(taps))
}

impl Taps {
    /// Whether a plugin looks at the bytes.
    pub(crate) fn see_bytes(&self) -> bool {
        self.0.iter().any(Tap::sees_bytes)
    }

    /// Serves HTTP/1.1 through the plugins, until the connection ends.
    pub(crate) async fn serve<S>(self, stream: S, connection: Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (near, far) = tokio::io::duplex(PIECE_BYTES);
        let (from_client, to_client) = split(stream);
        let (from_server, to_server) = split(far);
        let taps = Mutex::new(self.0);
        let mut from = pin!(pass(&taps, Way::Downstream, from_client, to_server));
        let mut to = pin!(pass(&taps, Way::Upstream, from_server, to_client));
        let mut http = pin!(connection::serve_bytes(near, Arc::clone(&connection)));
        let mut by_peer = false;
        let mut is_served = false;
        let end = loop {
            tokio::select! {
                // HTTP has ended the connection, and all that it said has left.
                end = &mut to => break end,
                end = &mut from, if !by_peer => match end {
                    // What was asked is still answered.
                    Ok(()) => by_peer = true,
                    failed => break failed,
                },
                () = &mut http, if !is_served => is_served = true,
            }
        };
        for tap in &mut *taps.lock().await {
            tap.closed(Way::Downstream, by_peer).await;
            tap.closed(Way::Upstream, false).await;
        }
        if let Err(cause) = end {
            ended(&connection, &cause);
        }
    }
}

/// Tells that a connection was ended; the cause as a text, whose lines are escaped.
fn ended(connection: &Connection, cause: &dyn std::error::Error) {
    let cause = cause.to_string();
    tracing::debug!(client = ?connection.client, cause, "connection ended");
}

/// Passes bytes on, one way.
///
/// # Errors
/// What ended the connection, unless it was its end.
async fn pass(
    taps: &Mutex<Vec<Tap>>,
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut ears: Vec<Ear> = taps.lock().await.iter().map(Tap::ear).collect();
    let mut room = BytesMut::with_capacity(PIECE_BYTES);
    let mut has_ended = false;
    while !has_ended {
        let pieces = tokio::select! {
            read = from.read_buf(&mut room) => {
                has_ended = read? == 0;
                let piece = room.split().freeze();
                room.reserve(PIECE_BYTES);
                show(&mut taps.lock().await, 0, way, vec![piece], has_ended).await?
            }
            index = told(&mut ears) => {
                let mut taps = taps.lock().await;
                let released = taps[index].take_released(way).await.map_err(cut)?;
                show(&mut taps, index + 1, way, released, false).await?
            }
        };
        for piece in pieces {
            to.write_all(&piece).await?;
        }
        to.flush().await?;
    }
    to.shutdown().await
}

/// Shows pieces to the plugins from one on, in order.
async fn show(
    taps: &mut [Tap],
    first: usize,
    way: Way,
    mut pieces: Vec<Bytes>,
    end: bool,
) -> io::Result<Vec<Bytes>> {
    for tap in taps.iter_mut().skip(first) {
        let mut passed = Vec::new();
        for piece in pieces.drain(..) {
            passed.extend(tap.show(way, piece, end).await.map_err(cut)?);
        }
        pieces = passed;
    }
    Ok(pieces)
}

/// Waits until a plugin tells something; which.
async fn told(ears: &mut [Ear]) -> usize {
    poll_fn(|cx| {
        let told = ears.iter_mut().position(|ear| ear.poll_told(cx).is_ready());
        told.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

fn cut(cause: Cut) -> io::Error {
    io::Error::other(cause)
}
