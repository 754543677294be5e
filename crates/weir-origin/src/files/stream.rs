//! A file's bytes as a stream, for bodies too large to store: read ahead by at most
//! [`PIECES_IN_FLIGHT_MAX`] pieces on the runtime's blocking threads, and only as fast as the
//! consumer takes them.
//!
//! Each piece is handed out only after an `fstat` showed the file as it was when it was found, so a
//! body is never a mixture of two states and never padded: an edit or truncation on the way ends
//! the stream with an error, and with it the connection. Growth alone is taken for what it nearly
//! always is, a log that is being written: the range asked for is unaffected.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::facts::Facts;
use super::open_file::read_exactly;
use super::{PIECE_BYTES, PIECES_IN_FLIGHT_MAX};

/// A range of a file, in pieces of [`PIECE_BYTES`]. Also an HTTP body of known length. Must be
/// polled within a tokio runtime. After an error it ends.
#[derive(Debug)]
pub struct FileStream {
    file: Arc<OwnedFd>,
    /// For messages.
    path: PathBuf,
    facts: Facts,
    /// Bytes whose reading has not begun.
    unread: Range<u64>,
    /// Bytes not handed out yet.
    remaining: u64,
    in_flight: VecDeque<JoinHandle<io::Result<Bytes>>>,
}

impl FileStream {
    pub(super) fn new(
        file: Arc<OwnedFd>,
        path: PathBuf,
        facts: Facts,
        range: Range<u64>,
    ) -> FileStream {
        FileStream {
            file,
            path,
            facts,
            remaining: range.end - range.start,
            unread: range,
            in_flight: VecDeque::with_capacity(PIECES_IN_FLIGHT_MAX),
        }
    }

    /// Bytes still to come.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    fn read_ahead(&mut self) {
        while self.in_flight.len() < PIECES_IN_FLIGHT_MAX && !self.unread.is_empty() {
            let start = self.unread.start;
            let wanted = (self.unread.end - start).min(PIECE_BYTES as u64) as usize;
            self.unread.start += wanted as u64;
            let (file, facts) = (Arc::clone(&self.file), self.facts);
            self.in_flight.push_back(tokio::task::spawn_blocking(move || {
                read_verified(&file, &facts, start, wanted)
            }));
        }
    }

    fn stop(&mut self) {
        for piece in self.in_flight.drain(..) {
            // Takes back what no thread has begun; a read under way ends by itself.
            piece.abort();
        }
        self.unread.start = self.unread.end;
        self.remaining = 0;
    }
}

impl Stream for FileStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.read_ahead();
        let Some(next) = this.in_flight.front_mut() else {
            return Poll::Ready(None);
        };
        let piece = ready!(Pin::new(next).poll(context)).unwrap_or_else(|lost| Err(lost.into()));
        this.in_flight.pop_front();
        match &piece {
            Ok(bytes) => this.remaining -= bytes.len() as u64,
            Err(_) => this.stop(),
        }
        let at_path =
            |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", this.path.display()));
        Poll::Ready(Some(piece.map_err(at_path)))
    }
}

impl Body for FileStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_next(context).map(|next| next.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Longer than a write takes from the new time to the new size, if it only appends.
const APPEND_TAKES: Duration = Duration::from_millis(2);

/// Reads a piece of the file as it was found. A truncation is told as one whether it came before
/// the piece was read or just after.
fn read_verified(file: &OwnedFd, facts: &Facts, from: u64, wanted: usize) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(wanted);
    let whole = read_exactly(file.as_fd(), &mut piece, from, wanted)?;
    let mut now = Facts::new(&rustix::fs::fstat(file)?);
    if whole && now.size == facts.size && !facts.same_content(&now) {
        // A write that appends shows its time before its size.
        std::thread::sleep(APPEND_TAKES);
        now = Facts::new(&rustix::fs::fstat(file)?);
    }
    if !whole || now.size < facts.size {
        let text = format!("file has {} of {} bytes; it was truncated", now.size, facts.size);
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    if now.size > facts.size || facts.same_content(&now) {
        return Ok(piece.into());
    }
    Err(io::Error::other("file was edited while it was sent"))
}
