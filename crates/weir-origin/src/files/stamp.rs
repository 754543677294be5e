//! Whether bytes read earlier are still the file's: the question asked at every hit.
//!
//! A stamp keeps the file's descriptor, so the usual answer costs one `fstat` and no path lookup.
//! The kernel moves a file's change time at every write, truncation, unlink and rename over it, and
//! no program can set it. What `fstat` cannot see – another file now answers to the path – is
//! looked up again every [`RESOLVE_INTERVAL`], by the one caller that comes first.
//!
//! Three limits. Writes through a shared writable mapping show up only when the kernel writes the
//! pages back. A file unlinked while its stamp lives keeps its disk blocks until the stamp is
//! dropped. And where descriptors or the file system fail, a held file counts as current: what was
//! right half a second ago beats an error page.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use rustix::process::Resource;
use weir_http::negotiate::Coding;

use super::facts::{Facts, since_epoch_ns};
use super::root::{FileRoot, Found, Query};
use super::{FilesError, OpenFile, RESOLVE_INTERVAL};

/// The part of the process's descriptors that stamps may keep; connections need the rest. Beyond
/// it a stamp keeps none and looks the path up at every check (about 2 µs).
const HELD_SHARE: u64 = 4;

/// Descriptors kept by stamps, in the whole process.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The state of a file at the moment it was found. Bytes read after that, by [`OpenFile::read`]
/// with success, are the file's as long as the stamp is current.
#[derive(Debug)]
pub struct Stamp {
    root: FileRoot,
    query: Query,
    held: Option<Held>,
    facts: Facts,
    coding: Option<Coding>,
    vary_on_encoding: bool,
    /// Read too soon after a change to tell the next change by its time.
    racy: bool,
    /// When the path was last looked up, in nanoseconds since 1970.
    resolved_ns: AtomicI64,
    /// The path leads elsewhere by now; never reset.
    replaced: AtomicBool,
}

impl Stamp {
    pub(super) fn new(file: &OpenFile) -> Stamp {
        Stamp::holding(file, *HELD_MAX)
    }

    pub(super) fn holding(file: &OpenFile, held_max: usize) -> Stamp {
        Stamp {
            root: file.root().clone(),
            query: file.query().clone(),
            held: Held::within(held_max, file.file()),
            facts: file.facts(),
            coding: file.coding,
            vary_on_encoding: file.vary_on_encoding,
            racy: file.is_racy(),
            resolved_ns: AtomicI64::new(clock_ns(file.resolved_at())),
            replaced: AtomicBool::new(false),
        }
    }

    /// Whether a request like the one that found the file would find the same content at `now`
    /// (wall clock). Noticed at once: edits in place, truncation, appending, unlinking, replacement
    /// by rename. Noticed within a second: a swapped directory or symlink on the way, a new
    /// precompressed sibling or index file. A file found within [`super::RACY_WINDOW`] of its last
    /// change is never current; reading it again later gives a better stamp.
    pub fn is_current(&self, now: SystemTime) -> bool {
        if self.racy || self.replaced.load(Relaxed) {
            return false;
        }
        let Some(held) = &self.held else {
            return self.resolves_alike(now);
        };
        match rustix::fs::fstat(&*held.file) {
            Ok(stat) if Facts::new(&stat) == self.facts => {}
            _ => return false,
        }
        let now_ns = clock_ns(now);
        let resolved_ns = self.resolved_ns.load(Relaxed);
        if u128::from(now_ns.abs_diff(resolved_ns)) < RESOLVE_INTERVAL.as_nanos() {
            return true;
        }
        let claim = self.resolved_ns.compare_exchange(resolved_ns, now_ns, Relaxed, Relaxed);
        // A failed claim means another worker is looking the path up at this moment.
        claim.is_err() || self.resolves_alike(now)
    }

    /// Looks the path up again, with everything that decided last time.
    fn resolves_alike(&self, now: SystemTime) -> bool {
        let alike = match self.root.find(&self.query, now) {
            Ok(Found::File(file)) => {
                file.facts() == self.facts
                    && file.coding == self.coding
                    && file.vary_on_encoding == self.vary_on_encoding
            }
            Err(FilesError::Unavailable { .. } | FilesError::Io { .. }) => self.held.is_some(),
            Ok(_) | Err(_) => false,
        };
        if !alike {
            self.replaced.store(true, Relaxed);
        }
        alike
    }
}

/// A descriptor counted against the process's share.
#[derive(Debug)]
struct Held {
    file: Arc<OwnedFd>,
}

impl Held {
    fn within(limit: usize, file: &Arc<OwnedFd>) -> Option<Held> {
        HELD.fetch_update(Relaxed, Relaxed, |count| (count < limit).then_some(count + 1)).ok()?;
        Some(Held { file: Arc::clone(file) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Relaxed);
    }
}

/// Read once: the binary raises its limit before it opens anything.
static HELD_MAX: LazyLock<usize> = LazyLock::new(|| {
    // No limit at all still gets one: 2^20 descriptors, the kernel's default for fs.nr_open.
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(limit / HELD_SHARE).unwrap_or(usize::MAX)
});

/// Nanoseconds since 1970 in an atomic's width, which lasts until 2262.
fn clock_ns(time: SystemTime) -> i64 {
    i64::try_from(since_epoch_ns(time)).unwrap_or(i64::MAX)
}
