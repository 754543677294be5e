//! One helper process, as its foreman sees it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use weir_arena::Arena;

use super::PoolSettings;
use crate::job::{Job, Piece};
use crate::wire::{self, MESSAGE_BYTES_MAX, Order, Place, Report};

/// How long a helper may take to begin.
const BEGIN: Duration = Duration::from_secs(10);

/// How many times a job's time it may take by the clock.
const STARVED: u32 = 30;

/// How often one that has time left is looked at, at most.
const LOOK: Duration = Duration::from_millis(100);

/// A helper that has begun.
pub(super) struct Helper {
    child: Child,
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// For a result; the helper has it, too.
    file: Option<OwnedFd>,
    /// What the kernel says of the time that it has run.
    times: Option<File>,
}

/// The end of a job, as a helper says it.
pub(super) struct Said {
    pub(super) report: Report,
    /// What was behind the report.
    pub(super) rest: Bytes,
    /// Where the result is, if it is in a file.
    pub(super) file: Option<OwnedFd>,
}

impl Helper {
    /// Starts a helper that reads what is stored in `arena`.
    ///
    /// # Errors
    /// What the system says; `TimedOut` or `UnexpectedEof` if the helper does not begin.
    pub(super) fn start(settings: &PoolSettings, arena: &Arena) -> io::Result<Helper> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let child = Command::new(&settings.program)
            .args(&settings.arguments)
            .env_clear()
            // Otherwise it has a gigabyte in store before its memory is limited.
            .env("MIMALLOC_DISALLOW_ARENA_ALLOC", "1")
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let times = File::open(format!("/proc/{}/schedstat", child.id())).ok();
        let buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut helper = Helper { child, socket: ours, buffer, file: None, times };
        let arena = arena.reading_end()?;
        wire::send(&helper.socket, &Order::Begin, &[], Some(arena.as_fd()))?;
        match helper.hear(BEGIN)? {
            (Report::Ready { lacks }, _) => {
                if !lacks.is_empty() {
                    tracing::debug!(?lacks, "a helper could not be confined by");
                }
                Ok(helper)
            }
            (report, _) => Err(unexpected(&report)),
        }
    }

    /// Has it do a job.
    ///
    /// # Errors
    /// `TimedOut` if it takes too long, `UnexpectedEof` if it died; then it must not be used again.
    pub(super) fn work(&mut self, job: &Job, arena: &Arena) -> io::Result<Said> {
        let input = job.input.iter().map(|part| piece(part, arena)).collect();
        let tables = job.tables.iter().map(|part| piece(part, arena)).collect();
        let order = Order::Work { input, tables, recipe: job.recipe.clone(), limits: job.limits };
        match &self.file {
            Some(_) => wire::send(&self.socket, &order, &[], None)?,
            None => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let file = rustix::fs::memfd_create("weir-variant", flags)?;
                wire::send(&self.socket, &order, &[], Some(file.as_fd()))?;
                self.file = Some(file);
            }
        }
        let (report, rest) = self.end_of(job)?;
        // A job that failed may have begun to write.
        let is_used = match report {
            Report::Made { place: Place::Behind, .. } | Report::Original { .. } => false,
            Report::Made { place: Place::File { .. }, .. } | Report::Failed { .. } => true,
            Report::Ready { .. } => return Err(unexpected(&report)),
        };
        let file = if is_used { self.file.take() } else { None };
        Ok(Said { report, rest, file })
    }

    /// What it says when it has done with a job.
    fn end_of(&mut self, job: &Job) -> io::Result<(Report, Bytes)> {
        let (began, used) = (Instant::now(), self.cpu());
        // One that nobody lets run takes longer, and is not to blame for it.
        let most = job.limits.time * STARVED;
        let mut patience = job.limits.time;
        loop {
            match self.hear(patience) {
                Ok(heard) => return Ok(heard),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let ran = self.cpu().zip(used).map(|(now, used)| now.saturating_sub(used));
                    // What the kernel does not tell counts as run.
                    let left =
                        ran.map_or(Duration::ZERO, |ran| job.limits.time.saturating_sub(ran));
                    if left.is_zero() || began.elapsed() >= most {
                        return Err(error);
                    }
                    patience = left.max(LOOK);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Time that it has run.
    fn cpu(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let len = self.times.as_ref()?.read_at(&mut text, 0).ok()?;
        let ran = text[..len].split(|byte| *byte == b' ').next()?;
        std::str::from_utf8(ran).ok()?.parse().ok().map(Duration::from_nanos)
    }

    /// Waits for a report, and what is behind it.
    fn hear(&mut self, patience: Duration) -> io::Result<(Report, Bytes)> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let heard = wire::receive(&self.socket, &mut self.buffer)?;
        let heard = heard.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((heard.message, Bytes::copy_from_slice(heard.rest)))
    }
}

impl Drop for Helper {
    /// A helper without a server has nothing to live for.
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn piece(part: &Bytes, arena: &Arena) -> Piece {
    match arena.offset_of(part) {
        Some(offset) => Piece::Stored { offset, len: part.len() as u64 },
        None => Piece::Inline(part.to_vec()),
    }
}

fn unexpected(report: &Report) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected: {report:?}"))
}
