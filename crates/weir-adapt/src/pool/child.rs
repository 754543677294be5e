//! One helper process, as its foreman sees it.

use std::fs::File;
use std::io;
use std::mem;
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
use crate::wire::{self, End, Heard, MESSAGE_BYTES_MAX, Order, Report, Work};

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
    /// A job that failed may have begun to write.
    is_spoilt: bool,
    /// What the kernel says of the time that it has run.
    times: Option<File>,
}

/// What a helper says of jobs.
pub(super) struct Said<'a> {
    pub(super) ends: Vec<End>,
    /// Small results, one after the other.
    pub(super) rest: &'a [u8],
    /// Where a large one is.
    pub(super) file: &'a mut Option<OwnedFd>,
}

/// Jobs that a helper was told, and how long it may take for each of them.
pub(super) struct AtWork {
    time: Duration,
    began: Instant,
    /// Time that it had run by then.
    used: Option<Duration>,
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
            // It says what it has to say by its socket: the log is the server's.
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(cgroup) = &settings.cgroup {
            cgroup.take(child.id());
        }
        let times = File::open(format!("/proc/{}/schedstat", child.id())).ok();
        let buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut helper =
            Helper { child, socket: ours, buffer, file: None, is_spoilt: false, times };
        let arena = arena.reading_end()?;
        wire::send(&helper.socket, &Order::Begin, &[], Some(arena.as_fd()))?;
        helper.wait(BEGIN)?;
        match wire::receive(&helper.socket, &mut helper.buffer)? {
            Some(Heard { message: Report::Ready { lacks }, .. }) => {
                if !lacks.is_empty() {
                    tracing::debug!(?lacks, "a helper could not be confined by");
                }
                Ok(helper)
            }
            Some(heard) => Err(unexpected(&heard.message)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Tells it to do jobs.
    ///
    /// # Errors
    /// `InvalidInput` if they are too much for one order: then the helper knows nothing of it.
    /// What the system says otherwise; then it must not be used again.
    pub(super) fn begin(&mut self, jobs: &[&Job], arena: &Arena) -> io::Result<AtWork> {
        let mut behind = Vec::new();
        let mut pieces = |parts: &[Bytes]| -> Vec<Piece> {
            parts.iter().map(|part| piece(part, arena, &mut behind)).collect()
        };
        let mut works = Vec::with_capacity(jobs.len());
        for job in jobs {
            let (input, tables) = (pieces(&job.input), pieces(&job.tables));
            works.push(Work { input, tables, recipe: job.recipe.clone(), limits: job.limits });
        }
        let order = Order::Work(works);
        if mem::take(&mut self.is_spoilt) {
            self.file = None;
        }
        match &self.file {
            Some(_) => wire::send(&self.socket, &order, &behind, None)?,
            None => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let file = rustix::fs::memfd_create("weir-variant", flags)?;
                wire::send(&self.socket, &order, &behind, Some(file.as_fd()))?;
                self.file = Some(file);
            }
        }
        let time = jobs.iter().map(|job| job.limits.time).max().unwrap_or_default();
        Ok(AtWork { time, began: Instant::now(), used: self.cpu() })
    }

    /// Waits for the ends of jobs.
    ///
    /// # Errors
    /// `TimedOut` if it takes too long, `UnexpectedEof` if it died; then it must not be used again.
    pub(super) fn ends(&mut self, work: &AtWork) -> io::Result<Said<'_>> {
        // One that nobody lets run takes longer, and is not to blame for it.
        let most = work.time * STARVED;
        let mut patience = work.time;
        while let Err(error) = self.wait(patience) {
            if error.kind() != io::ErrorKind::TimedOut {
                return Err(error);
            }
            let ran = self.cpu().zip(work.used).map(|(now, used)| now.saturating_sub(used));
            // What the kernel does not tell counts as run.
            let left = ran.map_or(Duration::ZERO, |ran| work.time.saturating_sub(ran));
            if left.is_zero() || work.began.elapsed() >= most {
                return Err(error);
            }
            patience = left.max(LOOK);
        }
        match wire::receive(&self.socket, &mut self.buffer)? {
            Some(Heard { message: Report::Done(ends), rest, .. }) => {
                self.is_spoilt |= ends.iter().any(|end| matches!(end, End::Failed { .. }));
                Ok(Said { ends, rest, file: &mut self.file })
            }
            Some(heard) => Err(unexpected(&heard.message)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Time that it has run.
    fn cpu(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let len = self.times.as_ref()?.read_at(&mut text, 0).ok()?;
        let ran = text[..len].split(|byte| *byte == b' ').next()?;
        std::str::from_utf8(ran).ok()?.parse().ok().map(Duration::from_nanos)
    }

    /// Waits until there is a report, or none can come any more.
    fn wait(&self, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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

/// Bytes of a job that a helper cannot read where they are, and is told.
pub(super) fn told_with(job: &Job, arena: &Arena) -> usize {
    let parts = job.input.iter().chain(&job.tables);
    parts.filter(|part| arena.offset_of(part).is_none()).map(Bytes::len).sum()
}

fn piece(part: &Bytes, arena: &Arena, behind: &mut Vec<u8>) -> Piece {
    let len = part.len() as u64;
    match arena.offset_of(part) {
        Some(offset) => Piece::Stored { offset, len },
        None => {
            behind.extend_from_slice(part);
            Piece::Behind { len }
        }
    }
}

fn unexpected(report: &Report) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected: {report:?}"))
}
