//! What can go wrong with files, and the status each case deserves.

use std::io;
use std::path::PathBuf;

use http::StatusCode;
use rustix::io::Errno;

/// Why a file was not found, opened, read or listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The root cannot be opened.
    #[error("files root {}: {source}; expected a directory this user may open", .path.display())]
    Root {
        /// The root as configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing to serve under this name: missing, outside the root, a dot file or no regular file.
    #[error("no such file")]
    NotFound,
    /// The file exists and this process may not read it.
    #[error("{}: permission denied", .path.display())]
    Forbidden {
        /// Path of the file.
        path: PathBuf,
    },
    /// Descriptors or memory are exhausted; the same request may succeed later.
    #[error("{}: out of descriptors or memory: {source}", .path.display())]
    Unavailable {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file was edited or truncated between its opening and the end of the read.
    #[error("{}: changed while it was read", .path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
    },
    /// Whoever took the bytes of a read refused them.
    #[error("{}: its bytes could not be stored: {source}", .path.display())]
    Destination {
        /// Path of the file.
        path: PathBuf,
        /// What the destination said.
        source: io::Error,
    },
    /// The disk or the file system failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FilesError {
    /// The status a client gets.
    pub fn status(&self) -> StatusCode {
        match self {
            FilesError::NotFound => StatusCode::NOT_FOUND,
            FilesError::Forbidden { .. } => StatusCode::FORBIDDEN,
            FilesError::Unavailable { .. } | FilesError::Changed { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            FilesError::Root { .. } | FilesError::Destination { .. } | FilesError::Io { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Sorts a system error met at a path. What an operator must see is logged here, once.
    pub(super) fn from_errno(errno: Errno, path: impl FnOnce() -> PathBuf) -> FilesError {
        match errno {
            // EXDEV and ELOOP: the path leads out of the root. ENXIO and ENODEV: a socket or a
            // device without a driver, which no client needs to tell from a missing file.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV => FilesError::NotFound,
            Errno::ACCESS | Errno::PERM => FilesError::Forbidden { path: path() },
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                let (path, source) = (path(), io::Error::from(errno));
                tracing::warn!(path = %path.display(), error = %source, "cannot open file");
                FilesError::Unavailable { path, source }
            }
            _ => {
                let (path, source) = (path(), io::Error::from(errno));
                tracing::error!(path = %path.display(), error = %source, "file system failed");
                FilesError::Io { path, source }
            }
        }
    }
}
