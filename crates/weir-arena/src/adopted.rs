//! Memory that somebody else has filled: a sealed memfd that becomes part of the arena as it is.
//!
//! Each lies behind addresses of its own in one reserved span, in whole grains, so that
//! [`crate::locate`] finds its descriptor by one look into a table. Pages are mapped one memfd at a
//! time, and unmapped when the last `Bytes` over them is gone; pages that a socket's send queue
//! still refers to live on without it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::arena::Memory;
use crate::extent::Extent;
use crate::pages::{FreePages, PageRange};
use crate::{ArenaError, PAGE_BYTES, registry};

/// Unit in which addresses are given out.
const GRAIN_BYTES: usize = 64 << 10;

/// Memfds adopted at a time, each of which takes a descriptor and a mapping: the kernel allows a
/// process 65,530 mappings unless told otherwise.
const ADOPTED_MAX: usize = 4096;

/// Or this part of the descriptors that the process may have, if those are fewer.
const DESCRIPTORS_SHARE: u64 = 8;

/// What is not adopted is copied by pieces of this size.
const COPIED_BYTES: usize = 256 << 10;

/// Unit of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// What the maker can no longer do to a file with these seals: change what is in it.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// The span behind which adopted files lie.
pub(crate) struct Span {
    base: NonNull<u8>,
    bytes: usize,
    free: Mutex<FreePages>,
    count: AtomicUsize,
    count_max: usize,
    table: Arc<Table>,
}

/// Which file lies behind an address.
pub(crate) struct Table {
    /// By grain: the descriptor and the file's first grain, or 0 where there is none.
    grains: Box<[AtomicU64]>,
}

// SAFETY: `base` is only read through, by `Adopted::as_ref`, from mappings of sealed files; all
// other fields are thread-safe themselves. Test: `adopted_bytes_are_read_on_other_threads`.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Table {
    /// The descriptor behind an offset into the span, and where the file's bytes begin.
    pub(crate) fn find(&self, offset: usize) -> Option<(RawFd, usize)> {
        let entry = self.grains.get(offset / GRAIN_BYTES)?.load(Ordering::Acquire);
        let fd = RawFd::try_from(entry >> 32).ok()?.checked_sub(1)?;
        (fd >= 0).then_some((fd, (entry & u64::from(u32::MAX)) as usize * GRAIN_BYTES))
    }

    fn set(&self, range: PageRange, fd: Option<RawFd>) {
        let entry = fd.map_or(0, |fd| (fd as u64 + 1) << 32 | range.start);
        for grain in range.start..range.start + range.count {
            self.grains[grain as usize].store(entry, Ordering::Release);
        }
    }
}

impl Span {
    /// Reserves addresses for `bytes`, rounded up to grains.
    pub(crate) fn new(bytes: usize) -> io::Result<Span> {
        let grains = bytes.div_ceil(GRAIN_BYTES).clamp(1, u32::MAX as usize);
        let bytes = grains * GRAIN_BYTES;
        // SAFETY: a fresh reservation at an address that the kernel chooses aliases nothing.
        let base = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), flags)
        }?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mapped at address 0"))?;
        let grains = (0..grains).map(|_| AtomicU64::new(0)).collect();
        let span = Span {
            base,
            bytes,
            free: Mutex::new(FreePages::new((bytes / GRAIN_BYTES) as u64)),
            count: AtomicUsize::new(0),
            count_max: count_max(),
            table: Arc::new(Table { grains }),
        };
        registry::register_table(span.base.as_ptr() as usize, bytes, &span.table)
            .ok_or_else(|| io::Error::other("too many arenas"))?;
        Ok(span)
    }

    fn map(&self, fd: &OwnedFd, len: usize) -> io::Result<PageRange> {
        let within = |count: usize| (count < self.count_max).then_some(count + 1);
        let counted = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        counted.map_err(|_| io::Error::other("as many are mapped as may be"))?;
        let mapped = self.map_counted(fd, len);
        if mapped.is_err() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        mapped
    }

    fn map_counted(&self, fd: &OwnedFd, len: usize) -> io::Result<PageRange> {
        let count = len.div_ceil(GRAIN_BYTES) as u64;
        let range = self.free.lock().take(count);
        let range = range.ok_or_else(|| io::Error::other("no addresses are left"))?;
        // SAFETY: `range` is this caller's alone, inside the reservation, and nobody refers to it;
        // the file can neither shrink nor be written (checked by the caller).
        let mapped = unsafe {
            let start = self.base.as_ptr().add(range.start as usize * GRAIN_BYTES).cast();
            rustix::mm::mmap(start, len, ProtFlags::READ, MapFlags::SHARED | MapFlags::FIXED, fd, 0)
        };
        match mapped {
            Ok(_) => {
                self.table.set(range, Some(fd.as_raw_fd()));
                Ok(range)
            }
            Err(error) => {
                self.free.lock().give_back(range);
                Err(error.into())
            }
        }
    }

    fn unmap(&self, range: PageRange) {
        self.table.set(range, None);
        // SAFETY: `range` was mapped by `map`, and its only owner is being dropped; the addresses
        // stay reserved.
        let unmapped = unsafe {
            let start = self.base.as_ptr().add(range.start as usize * GRAIN_BYTES).cast();
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
            let bytes = range.count as usize * GRAIN_BYTES;
            rustix::mm::mmap_anonymous(start, bytes, ProtFlags::empty(), flags)
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        if unmapped.is_ok() {
            self.free.lock().give_back(range);
        }
        // Otherwise the addresses are never used again, which leaks them and nothing else.
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        registry::unregister(self.base.as_ptr() as usize);
        // SAFETY: the reservation was made by `new`, and nothing refers to it: every adopted
        // file's owner holds the arena, which holds this.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A file that has become part of an arena; what a `Bytes` over it owns.
struct Adopted {
    memory: Arc<Memory>,
    /// Grains.
    range: PageRange,
    len: usize,
    pages: u64,
    /// Open as long as [`Table`] names it.
    _fd: OwnedFd,
}

impl AsRef<[u8]> for Adopted {
    fn as_ref(&self) -> &[u8] {
        let Some(span) = self.memory.span() else { return &[] };
        // SAFETY: `map` mapped `len` bytes of a file of at least that size there, which is sealed
        // against writing and shrinking; `self` keeps the mapping. Tests: `tests/adopted.rs`.
        unsafe {
            let start = span.base.as_ptr().add(self.range.start as usize * GRAIN_BYTES);
            std::slice::from_raw_parts(start, self.len)
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if let Some(span) = self.memory.span() {
            span.unmap(self.range);
        }
        self.memory.uncount(self.pages);
    }
}

/// How many may be adopted by a process that may have so many descriptors as this one.
fn count_max() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / DESCRIPTORS_SHARE).unwrap_or(usize::MAX).min(ADOPTED_MAX)
}

/// Makes a file of `len` bytes part of an arena; copies it where that cannot be.
pub(crate) fn adopt(memory: &Arc<Memory>, fd: OwnedFd, len: usize) -> Result<Bytes, ArenaError> {
    let refuse = |why| ArenaError::NotAdopted { len_bytes: len as u64, why };
    check(&fd, len).map_err(refuse)?;
    if len == 0 {
        return Ok(Bytes::new());
    }
    let pages = len.div_ceil(PAGE_BYTES) as u64;
    memory.count(pages)?;
    let span = memory.span_or_new();
    match span.and_then(|span| span.map(&fd, len)) {
        Ok(range) => {
            let memory = Arc::clone(memory);
            Ok(Bytes::from_owner(Adopted { memory, range, len, pages, _fd: fd }))
        }
        Err(_) => {
            memory.uncount(pages);
            let extent = Extent::new(Arc::clone(memory), memory.take(pages)?);
            copy(&fd, len, extent).map_err(refuse)
        }
    }
}

fn copy(fd: &OwnedFd, len: usize, mut extent: Extent) -> io::Result<Bytes> {
    let mut piece = vec![0; len.min(COPIED_BYTES)];
    while extent.len() < len {
        let wanted = piece.len().min(len - extent.len());
        let offset = extent.len() as u64;
        let read =
            rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut piece[..wanted], offset))?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        extent.write(&piece[..read])?;
    }
    Ok(extent.freeze())
}

/// Whether a file has `len` bytes and nobody can change them any more. What it had beyond them
/// would be memory that nobody counts.
fn check(fd: &impl AsFd, len: usize) -> io::Result<()> {
    let seals = rustix::fs::fcntl_get_seals(fd)?;
    if !seals.contains(SEALS) {
        return Err(io::Error::other("it is not sealed against writing, shrinking and growing"));
    }
    let stat = rustix::fs::fstat(fd)?;
    if u64::try_from(stat.st_size) != Ok(len as u64) {
        return Err(io::Error::other(format!("it has {} bytes", stat.st_size)));
    }
    // Pages may be kept behind the end (fallocate(2), FALLOC_FL_KEEP_SIZE).
    let kept = u64::try_from(stat.st_blocks).unwrap_or_default() * BLOCK_BYTES;
    if kept > len.next_multiple_of(PAGE_BYTES) as u64 {
        return Err(io::Error::other("it keeps memory behind its end"));
    }
    Ok(())
}
