//! What one `fstat` says about a file, as far as it tells one state of its content from another.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use rustix::fs::{FileType, Stat};
use weir_http::negotiate::Coding;

/// 1990-01-01. An earlier modification time is a placeholder: build tools that want the same output
/// from the same input write 0 (tar), 1 (Nix), 1980 (zip) or 1985 (npm), whatever the content.
const PLACEHOLDER_BEFORE_NS: i128 = 631_152_000 * NS_PER_S;

const NS_PER_S: i128 = 1_000_000_000;

/// Identity and state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Nanoseconds since 1970; can be set by anyone who may write the file.
    pub(super) modified_ns: i128,
    /// Nanoseconds since 1970; set by the kernel at every write, rename, unlink and change of mode.
    pub(super) changed_ns: i128,
}

impl Facts {
    pub(super) fn new(stat: &Stat) -> Facts {
        Facts {
            device: stat.st_dev,
            inode: stat.st_ino,
            // A regular file's size is never negative.
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: i128::from(stat.st_mtime) * NS_PER_S + i128::from(stat.st_mtime_nsec),
            changed_ns: i128::from(stat.st_ctime) * NS_PER_S + i128::from(stat.st_ctime_nsec),
        }
    }

    /// Whether the content of an open file is still that of `self`, which was taken earlier. Its
    /// name and mode do not matter: a file that was replaced by rename keeps its content.
    pub(super) fn same_content(&self, later: &Facts) -> bool {
        self.size == later.size && self.modified_ns == later.modified_ns
    }

    /// Whether the file may be written again without a new time, seen from `now` (see
    /// [`super::RACY_WINDOW`]). A change time well ahead of `now` comes from another clock and
    /// cannot be met by a later write.
    pub(super) fn is_racy(&self, now: SystemTime) -> bool {
        let window_ns = super::RACY_WINDOW.as_nanos();
        (since_epoch_ns(now) - self.changed_ns).unsigned_abs() < window_ns
    }

    /// The time the content got its present form, best known: the modification time, or the change
    /// time where the former is a placeholder.
    fn content_time_ns(&self) -> i128 {
        if self.modified_ns < PLACEHOLDER_BEFORE_NS { self.changed_ns } else { self.modified_ns }
    }

    /// For `Last-Modified`; never after `now` (RFC 9110 §8.8.2.1).
    pub(super) fn last_modified(&self, now: SystemTime) -> SystemTime {
        let since_epoch_ns = u64::try_from(self.content_time_ns()).unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(since_epoch_ns);
        modified.min(now)
    }

    /// A strong entity tag (RFC 9110 §8.8.1) of this content in this coding.
    pub(super) fn etag(&self, coding: Option<Coding>) -> HeaderValue {
        let time_ns = u64::try_from(self.content_time_ns()).unwrap_or(0);
        weir_http::etag::for_file(time_ns, self.size, coding.unwrap_or(Coding::Identity))
    }
}

/// What an open descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Directory,
    /// A pipe, socket, device or unfollowed symlink: never served.
    Other,
}

impl Kind {
    pub(super) fn of(stat: &Stat) -> Kind {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::Regular,
            FileType::Directory => Kind::Directory,
            _ => Kind::Other,
        }
    }
}

/// Nanoseconds from 1970 to `time`, negative before.
pub(super) fn since_epoch_ns(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        // A Duration's nanoseconds fit: u64 seconds times 10^9 is below 2^94.
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}
