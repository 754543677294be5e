//! The helper's side: a process that does what it is told, one job at a time, and may do nothing
//! else.

mod sandbox;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::SealFlags;
use weir_arena::Window;

use crate::adapters::{self, Adapted};
use crate::job::{Limits, Piece, Recipe};
use crate::wire::{self, BESIDE_BYTES_MAX, Heard, MESSAGE_BYTES_MAX, Order, Place, Report};

pub use sandbox::Confinement;

/// What keeps a result from being changed, by whoever.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Parts of the input that are read, not mapped: for so few bytes a mapping costs more.
const READ_BYTES_MAX: u64 = 64 << 10;

/// Works for the server at the other end of `socket` until that is gone.
///
/// # Errors
/// What the system says about the socket, or about giving up what a helper may not have.
pub fn run(socket: &OwnedFd, confinement: &Confinement) -> io::Result<()> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let arena = match wire::receive(socket, &mut buffer)? {
        Some(Heard { message: Order::Begin, fd: Some(arena), .. }) => File::from(arena),
        _ => return Err(invalid("expected an arena to work on")),
    };
    let lacks = sandbox::enter(confinement)?;
    wire::send(socket, &Report::Ready { lacks }, &[], None)?;
    let mut file = None;
    while let Some(heard) = wire::receive(socket, &mut buffer)? {
        let Order::Work { input, tables, recipe, limits } = heard.message else {
            return Err(invalid("expected work"));
        };
        file = heard.fd.map(File::from).or(file);
        // An adapter that panics has its own job to answer for, and no other.
        let worked = catch_unwind(AssertUnwindSafe(|| {
            work(&arena, (&input, &tables), &recipe, &limits).and_then(|made| hand(made, &mut file))
        }));
        let failed = |what: String| (Report::Failed { what }, Vec::new());
        let (report, rest) = worked
            .unwrap_or_else(|_| Err(io::Error::other("a panic")))
            .unwrap_or_else(|error| failed(error.to_string()));
        wire::send(socket, &report, &rest, None)?;
    }
    Ok(())
}

fn work<'a>(
    arena: &File,
    (input, tables): (&'a [Piece], &'a [Piece]),
    recipe: &Recipe,
    limits: &Limits,
) -> io::Result<Adapted> {
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
    adapters::adapt(bytes, &tables, recipe, limits).map_err(io::Error::other)
}

/// What is said of a result, and what is sent behind that. A large one is written to the file.
fn hand(adapted: Adapted, file: &mut Option<File>) -> io::Result<(Report, Vec<u8>)> {
    match adapted {
        Adapted::Original(why) => Ok((Report::Original { why }, Vec::new())),
        Adapted::Made(bytes, detail) if bytes.len() <= BESIDE_BYTES_MAX => {
            Ok((Report::Made { place: Place::Behind, detail }, bytes))
        }
        Adapted::Made(bytes, detail) => {
            let mut file = file.take().ok_or_else(|| io::Error::other("there is no file"))?;
            file.write_all(&bytes)?;
            rustix::fs::fcntl_add_seals(&file, SEALS)?;
            let place = Place::File { len: bytes.len() as u64 };
            Ok((Report::Made { place, detail }, Vec::new()))
        }
    }
}

/// A part of the input, wherever it lies.
enum Part<'a> {
    Window(Window),
    Read(Vec<u8>),
    Inline(&'a [u8]),
}

impl std::ops::Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Window(window) => window,
            Part::Read(bytes) => bytes,
            Part::Inline(bytes) => bytes,
        }
    }
}

fn open<'a>(arena: &File, piece: &'a Piece) -> io::Result<Part<'a>> {
    match piece {
        Piece::Inline(bytes) => Ok(Part::Inline(bytes)),
        Piece::Stored { offset, len } if *len <= READ_BYTES_MAX => {
            let mut bytes = vec![0; *len as usize];
            arena.read_exact_at(&mut bytes, *offset)?;
            Ok(Part::Read(bytes))
        }
        Piece::Stored { offset, len } => {
            let len = usize::try_from(*len).map_err(io::Error::other)?;
            Window::map(arena, *offset, len).map(Part::Window)
        }
    }
}
