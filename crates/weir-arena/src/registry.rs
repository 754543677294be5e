//! Address → (fd, offset): the table of all arenas of the process, read without locks by every
//! write to a socket.

use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::adopted::Table;

/// Regions that may exist at once. A server has one for its arena, and one for adopted files; tests
/// run several arenas side by side.
const REGIONS_MAX: usize = 128;

/// Where a slice's bytes lie in a file.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The arena's memfd, alive at least as long as the slice that was asked about.
    pub fd: BorrowedFd<'a>,
    /// Offset of the slice's first byte in the file.
    pub offset: u64,
}

/// Finds the file range behind `slice`, if it lies in an arena: a comparison per arena, no lock.
#[inline]
pub fn locate(slice: &[u8]) -> Option<Location<'_>> {
    let address = slice.as_ptr() as usize;
    for region in &REGIONS[..USED.load(Ordering::Acquire)] {
        let base = region.base.load(Ordering::Acquire);
        let offset = address.wrapping_sub(base);
        if base != 0 && offset < region.len.load(Ordering::Relaxed) {
            let mut fd: RawFd = region.fd.load(Ordering::Relaxed);
            let mut start = 0;
            if fd < 0 {
                // SAFETY: the table is there until the region is unregistered, which is when
                // nothing refers to its memory any more; `slice` refers to it.
                let table = unsafe { region.table.load(Ordering::Relaxed).as_ref() }?;
                (fd, start) = table.find(offset)?;
            }
            // SAFETY: a registered region's fd is open until the region is unregistered, which the
            // arena does when nothing refers to its memory any more. `slice` refers to it, and the
            // result borrows from `slice`. Test: `an_arena_lives_as_long_as_its_bytes`.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            return Some(Location { fd, offset: (offset - start) as u64 });
        }
    }
    None
}

struct Region {
    /// Address of the mapping; 0 while the slot is free. Written last and cleared first.
    base: AtomicUsize,
    len: AtomicUsize,
    /// The one file behind the region, or -1.
    fd: AtomicI32,
    /// The files behind it, then.
    table: AtomicPtr<Table>,
}

static REGIONS: [Region; REGIONS_MAX] = [const {
    Region {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
        table: AtomicPtr::new(ptr::null_mut()),
    }
}; REGIONS_MAX];

/// Slots in use at some time, so that a server with one arena compares once.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Orders changes of the table; readers do not take it.
static CHANGE: Mutex<()> = Mutex::new(());

/// Adds a mapping of one file. `None` if there are [`REGIONS_MAX`] regions already.
pub(crate) fn register(base: usize, len: usize, fd: RawFd) -> Option<()> {
    add(base, len, fd, ptr::null_mut())
}

/// Adds a span of mappings of many files. The table must live until [`unregister`].
pub(crate) fn register_table(base: usize, len: usize, table: &Arc<Table>) -> Option<()> {
    add(base, len, -1, Arc::as_ptr(table).cast_mut())
}

fn add(base: usize, len: usize, fd: RawFd, table: *mut Table) -> Option<()> {
    let _change = CHANGE.lock();
    let slot = REGIONS.iter().position(|r| r.base.load(Ordering::Relaxed) == 0)?;
    let region = &REGIONS[slot];
    region.len.store(len, Ordering::Relaxed);
    region.fd.store(fd, Ordering::Relaxed);
    region.table.store(table, Ordering::Relaxed);
    region.base.store(base, Ordering::Release);
    USED.fetch_max(slot + 1, Ordering::Release);
    Some(())
}

/// Takes a mapping out of the table, before it is unmapped.
pub(crate) fn unregister(base: usize) {
    let _change = CHANGE.lock();
    if let Some(region) = REGIONS.iter().find(|r| r.base.load(Ordering::Relaxed) == base) {
        region.base.store(0, Ordering::Release);
    }
}
