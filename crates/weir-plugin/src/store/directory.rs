//! A directory that is the server's own: whatever is in it was written by the server's user, or by
//! root, who could anyway. Files are reached through the directory's descriptor, so that another
//! directory put in its place changes nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::problem::PluginError;

/// Begins names of files that are being written.
const TEMPORARY: &str = ".new-";

const LOCK: &str = "lock";

/// Nobody but the owner.
const PRIVATE: Mode = Mode::from_raw_mode(0o700);
const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);

/// An open directory.
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
}

impl Directory {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// If others can write it, or it is none.
    pub(super) fn open_or_make(path: &Path) -> Result<Directory, PluginError> {
        let failed = |cause: Errno| store_error(path, io::Error::from(cause).to_string());
        match fs::mkdir(path, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(failed(cause)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Directory::checked(path.to_owned(), fd)
    }

    /// The same inside of this one.
    pub(super) fn sub(&self, name: &str) -> Result<Directory, PluginError> {
        let failed = |cause: Errno| self.failed(name, cause.into());
        match fs::mkdirat(&self.fd, name, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(failed(cause)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.fd, name, flags, Mode::empty()).map_err(failed)?;
        Directory::checked(self.path(name), fd)
    }

    fn checked(path: PathBuf, fd: OwnedFd) -> Result<Directory, PluginError> {
        let found = fs::fstat(&fd).map_err(|cause| store_error(&path, cause.to_string()))?;
        check_private(&found).map_err(|cause| store_error(&path, cause))?;
        Ok(Directory { path, fd })
    }

    /// Where a file of it is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Locks the directory for as long as the result lives.
    ///
    /// # Errors
    /// If another process has it locked.
    pub(super) fn lock(&self) -> Result<OwnedFd, PluginError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&self.fd, LOCK, flags, PRIVATE_FILE)
            .map_err(|cause| self.failed(LOCK, cause.into()))?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(lock),
            Err(Errno::WOULDBLOCK) => Err(store_error(
                &self.path,
                "another process uses it; every server needs a store of its own".to_owned(),
            )),
            Err(cause) => Err(self.failed(LOCK, cause.into())),
        }
    }

    /// Reads a file, if it is there.
    ///
    /// # Errors
    /// If others could have written it, it is larger than `bytes_max`, or cannot be read.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, PluginError> {
        // Not to wait for the other end of a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(self.failed(name, cause.into())),
        };
        let found = fs::fstat(&file).map_err(|cause| self.failed(name, cause.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.wrong(name, "it is no regular file"));
        }
        check_private(&found).map_err(|cause| self.wrong(name, &cause))?;
        let mut content =
            Vec::with_capacity(usize::try_from(found.st_size).unwrap_or(0).min(1 << 26));
        let read = file.take(bytes_max + 1).read_to_end(&mut content);
        read.map_err(|cause| self.failed(name, cause))?;
        match content.len() as u64 > bytes_max {
            true => Err(self.wrong(name, &format!("it is larger than {bytes_max} bytes"))),
            false => Ok(Some(content)),
        }
    }

    /// Writes a file so that it is there whole, or as it was, whatever happens meanwhile.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> Result<(), PluginError> {
        let temporary = format!("{TEMPORARY}{name}");
        let result = self.write_as(&temporary, name, content);
        if result.is_err() {
            // It may never have come to be.
            let _ = fs::unlinkat(&self.fd, &temporary, AtFlags::empty());
        }
        result.map_err(|cause| self.failed(name, cause))
    }

    fn write_as(&self, temporary: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(&self.fd, temporary, flags, PRIVATE_FILE)?);
        file.write_all(content)?;
        file.sync_all()?;
        fs::renameat(&self.fd, temporary, &self.fd, name)?;
        fs::fsync(&self.fd)?;
        Ok(())
    }

    /// Removes the files that are not to be kept. What cannot be removed stays.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::Dir::read_from(self.fd.as_fd()) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_kept =
                name.to_bytes().iter().all(|byte| *byte == b'.') || name.to_str().is_ok_and(&keep);
            if !is_kept {
                let _ = fs::unlinkat(&self.fd, name, AtFlags::empty());
            }
        }
    }
}

fn store_error(path: &Path, cause: String) -> PluginError {
    PluginError::Store { path: path.to_owned(), cause }
}

/// Nobody but the server's user may have written it.
fn check_private(found: &Stat) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if found.st_uid != own {
        return Err(format!(
            "it belongs to the user with number {}, and the server runs as {own}; compiled code is \
             only taken from the server's own files",
            found.st_uid
        ));
    }
    match found.st_mode & 0o022 {
        0 => Ok(()),
        _ => Err(format!(
            "others may write it (mode {:04o}): compiled code is only taken from where they \
             cannot; chmod go-w",
            found.st_mode & 0o7777
        )),
    }
}
