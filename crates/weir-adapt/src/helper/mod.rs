//! The helper's side: a process that does what it is told, one job at a time, and may do nothing
//! else.

mod sandbox;

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::SealFlags;
use weir_arena::Window;

use crate::adapters::{self, Adapted};
use crate::job::{Limits, Piece, Recipe};
use crate::wire::{self, MESSAGE_BYTES_MAX, Order, Report};

pub use sandbox::Confinement;

/// What keeps a result from being changed, by whoever.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Works for the server at the other end of `socket` until that is gone.
///
/// # Errors
/// What the system says about the socket, or about giving up what a helper may not have.
pub fn run(socket: &OwnedFd, confinement: &Confinement) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let Some((Order::Begin, Some(arena))) = wire::receive(socket, &mut buffer)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected an arena to work on"));
    };
    let lacks = sandbox::enter(confinement)?;
    wire::send(socket, &Report::Ready { lacks }, None)?;
    while let Some((order, fd)) = wire::receive(socket, &mut buffer)? {
        let (Order::Work { input, tables, recipe, limits }, Some(result)) = (order, fd) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "expected work"));
        };
        // An adapter that panics has its own job to answer for, and no other.
        let worked = catch_unwind(AssertUnwindSafe(|| {
            work(&arena, (&input, &tables), &recipe, &limits, result).unwrap_or_else(failed)
        }));
        let report = worked.unwrap_or_else(|_| failed("a panic"));
        wire::send(socket, &report, None)?;
    }
    Ok(())
}

fn failed(what: impl ToString) -> Report {
    Report::Failed { what: what.to_string() }
}

fn work<'a>(
    arena: &OwnedFd,
    (input, tables): (&'a [Piece], &'a [Piece]),
    recipe: &Recipe,
    limits: &Limits,
    result: OwnedFd,
) -> io::Result<Report> {
    let open_all = |pieces: &'a [Piece]| -> io::Result<Vec<Part<'a>>> {
        pieces.iter().map(|piece| open(arena, piece)).collect()
    };
    let (windows, tables) = (open_all(input)?, open_all(tables)?);
    let tables: Vec<&[u8]> = tables.iter().map(|part| &**part).collect();
    let mut joined: Vec<u8> = Vec::new();
    let bytes: &[u8] = match &windows[..] {
        [one] => one,
        many => {
            many.iter().for_each(|part| joined.extend_from_slice(part));
            &joined
        }
    };
    match adapters::adapt(bytes, &tables, recipe, limits) {
        Ok(Adapted::Made(bytes, detail)) => {
            let mut file = std::fs::File::from(result);
            file.write_all(&bytes)?;
            rustix::fs::fcntl_add_seals(&file, SEALS)?;
            Ok(Report::Made { len: bytes.len() as u64, detail })
        }
        Ok(Adapted::Original(why)) => Ok(Report::Original { why }),
        Err(error) => Ok(failed(error)),
    }
}

/// A part of the input, wherever it lies.
enum Part<'a> {
    Window(Window),
    Inline(&'a [u8]),
}

impl std::ops::Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Window(window) => window,
            Part::Inline(bytes) => bytes,
        }
    }
}

fn open<'a>(arena: impl AsFd, piece: &'a Piece) -> io::Result<Part<'a>> {
    match piece {
        Piece::Inline(bytes) => Ok(Part::Inline(bytes)),
        Piece::Stored { offset, len } => {
            let len = usize::try_from(*len).map_err(io::Error::other)?;
            Window::map(arena, *offset, len).map(Part::Window)
        }
    }
}
