//! Opening a path below a directory such that the kernel, not string handling, guarantees that the
//! result lies below it.
//!
//! `openat2` with RESOLVE_BENEATH follows symlinks as long as no step leaves the directory. An
//! absolute symlink counts as leaving, even one that points back inside; so does `..` above the
//! directory. Where `openat2` is missing (Linux before 5.6) or filtered (seccomp), the path is
//! walked name by name and symlinks are refused altogether.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// `openat2` reports EAGAIN when a rename or mount anywhere raced with a `..` on its way.
const RACE_ATTEMPTS_MAX: u32 = 8;

/// How a path is kept below its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `openat2`: symlinks followed inside.
    Openat2,
    /// One `openat` a name: symlinks refused.
    Walk,
}

impl Method {
    /// The better method that this kernel and its filters let us use.
    pub(super) fn detect(directory: BorrowedFd<'_>) -> Method {
        match openat2(directory, b".", OFlags::PATH) {
            Err(Errno::NOSYS | Errno::PERM) => Method::Walk,
            // Any other error will show again, with its own handling, at the first file.
            _ => Method::Openat2,
        }
    }

    /// Opens `path`, which is relative and has no `..`; the empty path is `directory` itself.
    pub(super) fn open(
        self,
        directory: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        match self {
            Method::Openat2 => openat2(directory, path, flags),
            Method::Walk => walk(directory, path, flags),
        }
    }
}

fn openat2(directory: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        match rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
        {
            Err(Errno::AGAIN) if attempts < RACE_ATTEMPTS_MAX => attempts += 1,
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The path's length bounds the loop.
fn walk(directory: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut names = path.split(|&byte| byte == b'/').peekable();
    let mut parent: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        // Callers never pass it; followed here it would leave the directory.
        if name == b".." {
            return Err(Errno::XDEV);
        }
        let at = parent.as_ref().map_or(directory, |parent| parent.as_fd());
        let last = names.peek().is_none();
        let how = if last { flags } else { OFlags::PATH | OFlags::DIRECTORY };
        let how = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(at, name, how, Mode::empty())?;
        if last {
            return Ok(opened);
        }
        parent = Some(opened);
    }
    Err(Errno::NOENT)
}
