//! A root directory and the search below it: which file, directory or redirect a path stands for.
//!
//! The root's descriptor is opened anew every [`RESOLVE_INTERVAL`], so that a deployment that
//! points a symlink in the root's path elsewhere (`/srv/app/current/public`) takes effect by
//! itself.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use weir_http::negotiate::Coding;

use super::beneath::Method;
use super::coding::{self, Accepted};
use super::facts::{Facts, Kind, since_epoch_ns};
use super::listing::Directory;
use super::open_file::OpenFile;
use super::path::RelativePath;
use super::{FilesError, RESOLVE_INTERVAL, window};

/// A directory whose files are served. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FileRoot {
    inner: Arc<Inner>,
}

/// What a path below a root stands for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "lives for one lookup; a box would cost it more")]
pub enum Found {
    /// A regular file, open for reading.
    File(OpenFile),
    /// A directory asked for without its trailing slash: redirect there, or relative links break.
    Redirect,
    /// A directory without an index file, where listing is switched on.
    Listing(Directory),
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    index: Vec<String>,
    listing: bool,
    precompressed: bool,
    method: Method,
    directory: Mutex<Opened>,
    told_of_window: AtomicBool,
}

/// The outcome of the latest opening of the root. A failure is not kept: the next request tries.
#[derive(Debug)]
struct Opened {
    directory: Option<Arc<OwnedFd>>,
    at_ns: i128,
}

/// Everything that decides which file answers, kept by stamps to ask the same question again.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) path: RelativePath,
    pub(super) trailing_slash: bool,
    pub(super) accepted: Accepted,
}

impl FileRoot {
    /// Opens the directory.
    ///
    /// # Errors
    /// [`FilesError::Root`] with its path, if it is missing, no directory or closed to this user.
    pub fn open(config: &weir_config::Files) -> Result<FileRoot, FilesError> {
        let path = &config.root;
        let directory = open_root(path)
            .map_err(|errno| FilesError::Root { path: path.clone(), source: errno.into() })?;
        let method = Method::detect(directory.as_fd());
        if method == Method::Walk {
            tracing::warn!(
                root = %path.display(),
                "openat2 is not available: symlinks below this root are refused"
            );
        }
        Ok(FileRoot::new(config, directory, method))
    }

    pub(super) fn new(config: &weir_config::Files, directory: OwnedFd, method: Method) -> FileRoot {
        FileRoot {
            inner: Arc::new(Inner {
                path: config.root.clone(),
                index: config.index.clone(),
                listing: config.listing,
                precompressed: config.precompressed,
                method,
                directory: Mutex::new(Opened {
                    directory: Some(Arc::new(directory)),
                    at_ns: since_epoch_ns(SystemTime::now()),
                }),
                told_of_window: AtomicBool::new(false),
            }),
        }
    }

    /// Finds what a path stands for. `path` is percent-decoded and relative, without a slash at
    /// either end (as `weir_http::path` makes it); the empty path is the root itself. `now` is the
    /// wall clock; a reading a little old is safe.
    ///
    /// # Errors
    /// Every [`FilesError`] of a lookup; [`FilesError::status`] has the answer for the client.
    pub fn resolve(
        &self,
        path: &[u8],
        trailing_slash: bool,
        accepted: Accepted,
        now: SystemTime,
    ) -> Result<Found, FilesError> {
        let path = RelativePath::parse(path)?;
        self.find(&Query { path, trailing_slash, accepted }, now)
    }

    pub(super) fn find(&self, query: &Query, now: SystemTime) -> Result<Found, FilesError> {
        let directory = self.directory(now)?;
        let (kind, facts) = self.probe(&directory, &query.path)?;
        match kind {
            Kind::Regular if query.trailing_slash => Err(FilesError::NotFound),
            Kind::Regular => {
                self.open_best(&directory, query, query.path.clone(), facts, now).map(Found::File)
            }
            Kind::Directory if !query.trailing_slash && !query.path.is_root() => {
                Ok(Found::Redirect)
            }
            Kind::Directory => self.find_in_directory(&directory, query, now),
            Kind::Other => Err(FilesError::NotFound),
        }
    }

    fn find_in_directory(
        &self,
        directory: &Arc<OwnedFd>,
        query: &Query,
        now: SystemTime,
    ) -> Result<Found, FilesError> {
        for name in &self.inner.index {
            let path = query.path.child(name.as_bytes());
            match self.probe(directory, &path) {
                Ok((Kind::Regular, facts)) => {
                    return self.open_best(directory, query, path, facts, now).map(Found::File);
                }
                Ok(_) | Err(FilesError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.inner.listing {
            return Err(FilesError::NotFound);
        }
        Ok(Found::Listing(Directory::new(self.clone(), Arc::clone(directory), query.path.clone())))
    }

    /// Opens the file at `path`, or the sibling the client likes best.
    fn open_best(
        &self,
        directory: &OwnedFd,
        query: &Query,
        path: RelativePath,
        facts: Facts,
        now: SystemTime,
    ) -> Result<OpenFile, FilesError> {
        let siblings = self.siblings(directory, &path, &facts);
        let vary = siblings.iter().any(Option::is_some);
        let found = |file, facts, coding| {
            OpenFile::new(self.clone(), query.clone(), path.clone(), file, facts, coding, vary, now)
        };
        for coding in query.accepted.iter().filter(|coding| siblings.contains(&Some(*coding))) {
            // A sibling that vanished or is closed to us is no reason to refuse the original.
            if let Ok((file, facts)) =
                self.open_regular(directory, &path.with_suffix(coding.suffix()))
            {
                if coding == Coding::Zstd && window::is_too_wide(&file) {
                    self.tell_of_window(&path);
                    continue;
                }
                return Ok(found(file, facts, Some(coding)));
            }
        }
        let (file, facts) = self.open_regular(directory, &path)?;
        Ok(found(file, facts, None))
    }

    /// Says once that there are siblings which clients could not decode.
    fn tell_of_window(&self, path: &RelativePath) {
        if !self.inner.told_of_window.swap(true, Relaxed) {
            let file = self.inner.path.join(OsStr::from_bytes(path.as_bytes()));
            tracing::warn!(
                file = %file.display(),
                "its .zst sibling has a window above 8 MiB: browsers refuse such, and it is not sent"
            );
        }
    }

    /// The codings in which `path` is stored beside itself.
    fn siblings(
        &self,
        directory: &OwnedFd,
        path: &RelativePath,
        original: &Facts,
    ) -> [Option<Coding>; coding::SIBLINGS.len()] {
        coding::SIBLINGS.map(|coding| {
            if !self.inner.precompressed {
                return None;
            }
            let sibling = path.with_suffix(coding.suffix());
            let (kind, facts) = self.probe(directory, &sibling).ok()?;
            (kind == Kind::Regular && coding::stands_in(&facts, original)).then_some(coding)
        })
    }

    /// Opens a path below `at`, which is this root's directory.
    pub(super) fn open_below(
        &self,
        at: &OwnedFd,
        path: &RelativePath,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        self.inner.method.open(at.as_fd(), path.as_bytes(), flags)
    }

    /// Looks without opening: a real open of a pipe or device is already an act upon it.
    fn probe(&self, at: &OwnedFd, path: &RelativePath) -> Result<(Kind, Facts), FilesError> {
        let stat = self
            .open_below(at, path, OFlags::PATH)
            .and_then(rustix::fs::fstat)
            .map_err(|errno| self.error(errno, path))?;
        Ok((Kind::of(&stat), Facts::new(&stat)))
    }

    /// Opens a regular file. NONBLOCK and NOCTTY matter only if the name was swapped for a pipe or
    /// terminal since the probe.
    fn open_regular(
        &self,
        at: &OwnedFd,
        path: &RelativePath,
    ) -> Result<(OwnedFd, Facts), FilesError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let error = |errno| self.error(errno, path);
        let file = self.open_below(at, path, flags).map_err(error)?;
        let stat = rustix::fs::fstat(&file).map_err(error)?;
        match Kind::of(&stat) {
            Kind::Regular => Ok((file, Facts::new(&stat))),
            Kind::Directory | Kind::Other => Err(FilesError::NotFound),
        }
    }

    /// The root's descriptor, opened anew when the last opening is too long ago.
    fn directory(&self, now: SystemTime) -> Result<Arc<OwnedFd>, FilesError> {
        let now_ns = since_epoch_ns(now);
        let mut opened = self.inner.directory.lock();
        if let Some(directory) = &opened.directory
            && (now_ns - opened.at_ns).unsigned_abs() < RESOLVE_INTERVAL.as_nanos()
        {
            return Ok(Arc::clone(directory));
        }
        match open_root(&self.inner.path) {
            Ok(directory) => {
                let directory = Arc::new(directory);
                *opened = Opened { directory: Some(Arc::clone(&directory)), at_ns: now_ns };
                Ok(directory)
            }
            Err(errno) => {
                let error = FilesError::from_errno(errno, || self.inner.path.clone());
                // One that cannot be opened for lack of descriptors may be there all the same.
                let is_lost = !matches!(error, FilesError::Unavailable { .. });
                if is_lost && opened.directory.take().is_some() {
                    let error = io::Error::from(errno);
                    tracing::error!(root = %self.inner.path.display(), %error, "files root lost");
                }
                Err(error)
            }
        }
    }

    pub(super) fn error(&self, errno: Errno, path: &RelativePath) -> FilesError {
        FilesError::from_errno(errno, || self.full_path(path))
    }

    /// A path below the root, for messages.
    pub(super) fn full_path(&self, path: &RelativePath) -> PathBuf {
        self.inner.path.join(OsStr::from_bytes(path.as_bytes()))
    }
}

/// The root itself is the operator's word: symlinks in its path are followed wherever they lead.
fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}
