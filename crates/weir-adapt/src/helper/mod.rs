//! The helper's side: a process that does what it is told, one job at a time, and may do nothing
//! else.

mod sandbox;
mod tried;

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::fs::SealFlags;
use weir_arena::Window;

use crate::adapters::{self, Adapted};
use crate::job::Piece;
use crate::wire::{
    self, BEHIND_BYTES_MAX, End, Heard, MESSAGE_BYTES_MAX, Order, Place, Report, Work,
};

pub use sandbox::Confinement;
pub use tried::follow_packet;

/// What keeps a result from being changed, by whoever.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Parts of the input that are read, not mapped: for so few bytes a mapping costs more.
const READ_BYTES_MAX: u64 = 64 << 10;

/// How long the end of a job waits for those of the others that came with it: they were taken for
/// quick ones.
const REPORT_AFTER: Duration = Duration::from_millis(5);

/// Works for the server at the other end of `socket` until that is gone.
///
/// # Errors
/// What the system says about the socket, or about giving up what a helper may not have.
pub fn run(socket: &OwnedFd, confinement: &Confinement) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let arena = match wire::receive(socket, &mut buffer)? {
        Some(Heard { message: Order::Begin, fd: Some(arena), .. }) => File::from(arena),
        _ => return Err(invalid("expected an arena to work on")),
    };
    let lacks = sandbox::enter(confinement)?;
    wire::send(socket, &Report::Ready { lacks }, &[], None)?;
    let mut file = None;
    while let Some(heard) = wire::receive(socket, &mut buffer)? {
        let Order::Work(works) = heard.message else {
            return Err(invalid("expected work"));
        };
        file = heard.fd.map(File::from).or(file);
        let mut behind = heard.rest;
        let mut done = Done::new(socket);
        for work in &works {
            let (end, result) = end_of(work, &arena, &mut behind, &mut file)?;
            done.add(end, &result)?;
        }
        done.send()?;
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Ends of jobs that have not been reported yet.
struct Done<'a> {
    socket: &'a OwnedFd,
    ends: Vec<End>,
    rest: Vec<u8>,
    since: Instant,
}

impl Done<'_> {
    fn new(socket: &OwnedFd) -> Done<'_> {
        Done { socket, ends: Vec::new(), rest: Vec::new(), since: Instant::now() }
    }

    fn add(&mut self, end: End, result: &[u8]) -> io::Result<()> {
        if self.rest.len() + result.len() > BEHIND_BYTES_MAX || self.since.elapsed() > REPORT_AFTER
        {
            self.send()?;
        }
        self.ends.push(end);
        self.rest.extend_from_slice(result);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.ends.is_empty() {
            let report = Report::Done(mem::take(&mut self.ends));
            wire::send(self.socket, &report, &self.rest, None)?;
            self.rest.clear();
            self.since = Instant::now();
        }
        Ok(())
    }
}

/// Does a job. Takes what it is given of `behind`.
///
/// # Errors
/// If it was not given so much: then nobody knows what belongs to the next one.
fn end_of(
    work: &Work,
    arena: &File,
    behind: &mut &[u8],
    file: &mut Option<File>,
) -> io::Result<(End, Vec<u8>)> {
    let input = parts(&work.input, behind)?;
    let tables = parts(&work.tables, behind)?;
    // An adapter that panics has its own job to answer for, and no other.
    let worked = catch_unwind(AssertUnwindSafe(|| {
        let (input, tables) = (open_all(arena, &input)?, open_all(arena, &tables)?);
        adapt(&input, &tables, work).and_then(|adapted| hand(adapted, file))
    }));
    let failed = |what: String| (End::Failed { what }, Vec::new());
    Ok(match worked {
        Ok(Ok(end)) => end,
        Ok(Err(error)) => failed(error.to_string()),
        Err(_) => failed("a panic".to_owned()),
    })
}

fn adapt(input: &[Part<'_>], tables: &[Part<'_>], work: &Work) -> io::Result<Adapted> {
    let tables: Vec<&[u8]> = tables.iter().map(|part| &**part).collect();
    let mut joined: Vec<u8> = Vec::new();
    let bytes: &[u8] = match input {
        [one] => one,
        many => {
            many.iter().for_each(|part| joined.extend_from_slice(part));
            &joined
        }
    };
    adapters::adapt(bytes, &tables, &work.recipe, &work.limits).map_err(io::Error::other)
}

/// What is said of a result, and what is sent behind that. A large one is written to the file.
fn hand(adapted: Adapted, file: &mut Option<File>) -> io::Result<(End, Vec<u8>)> {
    let (bytes, detail) = match adapted {
        Adapted::Made(bytes, detail) => (bytes, detail),
        Adapted::Original(why) => return Ok((End::Original { why }, Vec::new())),
    };
    let len = bytes.len() as u64;
    if bytes.len() <= BEHIND_BYTES_MAX {
        return Ok((End::Made { place: Place::Behind { len }, detail }, bytes));
    }
    let Some(mut file) = file.take() else { return Ok((End::NoFile, Vec::new())) };
    file.write_all(&bytes)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok((End::Made { place: Place::File { len }, detail }, Vec::new()))
}

/// A piece, with the bytes that were behind the order.
enum Told<'a> {
    Stored { offset: u64, len: u64 },
    Behind(&'a [u8]),
}

fn parts<'a>(pieces: &[Piece], behind: &mut &'a [u8]) -> io::Result<Vec<Told<'a>>> {
    let told = |piece: &Piece| match *piece {
        Piece::Stored { offset, len } => Ok(Told::Stored { offset, len }),
        Piece::Behind { len } => {
            let len = usize::try_from(len).map_err(io::Error::other)?;
            let split = behind.split_at_checked(len).ok_or_else(|| invalid("less than was said"));
            let (bytes, rest) = split?;
            *behind = rest;
            Ok(Told::Behind(bytes))
        }
    };
    pieces.iter().map(told).collect()
}

/// A part of the input, wherever it lies.
enum Part<'a> {
    Window(Window),
    Read(Vec<u8>),
    Behind(&'a [u8]),
}

impl Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Window(window) => window,
            Part::Read(bytes) => bytes,
            Part::Behind(bytes) => bytes,
        }
    }
}

fn open_all<'a>(arena: &File, told: &[Told<'a>]) -> io::Result<Vec<Part<'a>>> {
    let open = |told: &Told<'a>| match *told {
        Told::Behind(bytes) => Ok(Part::Behind(bytes)),
        Told::Stored { offset, len } if len <= READ_BYTES_MAX => {
            let mut bytes = vec![0; len as usize];
            arena.read_exact_at(&mut bytes, offset)?;
            Ok(Part::Read(bytes))
        }
        Told::Stored { offset, len } => {
            let len = usize::try_from(len).map_err(io::Error::other)?;
            Window::map(arena, offset, len).map(Part::Window)
        }
    };
    told.iter().map(open).collect()
}
