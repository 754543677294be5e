//! The arena: one memfd, mapped read-only once, and the account of its pages.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::adopted::{self, Span};
use crate::extent::Extent;
use crate::pages::{FreePages, PageRange};
use crate::{ArenaError, PAGE_BYTES, folios, registry};

/// The span is this many times the limit: holes cost nothing in a sparse file, and with that much
/// room best fit never fails for fragmentation while pages are free.
const SPAN_FACTOR: u64 = 8;

/// A bounded, shared store of immutable bytes. Cheap to clone; the memory lives until the last
/// clone and the last `Bytes` are gone.
#[derive(Clone)]
pub struct Arena {
    memory: Arc<Memory>,
}

impl Arena {
    /// Sets up an arena that holds at most `limit_bytes` (rounded up to a page).
    ///
    /// # Errors
    /// [`ArenaError::Setup`] if the system refuses the memfd or the mapping.
    pub fn new(limit_bytes: u64) -> Result<Arena, ArenaError> {
        Ok(Arena { memory: Arc::new(Memory::new(limit_bytes)?) })
    }

    /// Reserves room for a body of up to `capacity_bytes`.
    ///
    /// # Errors
    /// [`ArenaError::Full`] when the limit would be passed.
    pub fn reserve(&self, capacity_bytes: usize) -> Result<Extent, ArenaError> {
        let count = capacity_bytes.div_ceil(PAGE_BYTES).max(1) as u64;
        let range = self.memory.take(count)?;
        Ok(Extent::new(Arc::clone(&self.memory), range))
    }

    /// Makes a memfd of `len` bytes a part of the arena, without copying them unless as many have
    /// been adopted as a process should map. Whoever made it must have sealed it against writing,
    /// shrinking and growing.
    ///
    /// # Errors
    /// [`ArenaError::Full`] when the limit would be passed; [`ArenaError::NotAdopted`] if it is not
    /// sealed or not of that length.
    pub fn adopt(&self, fd: OwnedFd, len: usize) -> Result<Bytes, ArenaError> {
        adopted::adopt(&self.memory, fd, len)
    }

    /// A descriptor by which another process can read what is stored, and nothing else.
    ///
    /// # Errors
    /// What the system says; it needs `/proc`.
    pub fn reading_end(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.memory.fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// Where in that descriptor's file a slice lies, if it is stored there.
    pub fn offset_of(&self, slice: &[u8]) -> Option<u64> {
        let offset = (slice.as_ptr() as usize).checked_sub(self.memory.base.as_ptr() as usize)?;
        (offset < self.memory.span_bytes).then_some(offset as u64)
    }

    /// Bytes reserved or stored now, in whole pages.
    pub fn used(&self) -> u64 {
        self.memory.used_pages.load(Ordering::Relaxed) * PAGE_BYTES as u64
    }

    /// The most bytes the arena holds.
    pub fn limit(&self) -> u64 {
        self.memory.limit_pages * PAGE_BYTES as u64
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("used", &self.used()).field("limit", &self.limit()).finish()
    }
}

/// The memfd, its mapping and the account of its pages; shared by the arena and all its extents.
pub(crate) struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    span_bytes: usize,
    limit_pages: u64,
    /// Writing alone might allocate huge pages: see [`folios`].
    page_by_page: bool,
    used_pages: AtomicU64,
    free: Mutex<FreePages>,
    /// Files that were adopted, once there was one.
    adopted: OnceLock<Span>,
}

// SAFETY: `base` is only read through, by `slice`, from ranges that are never written again; all
// other fields are thread-safe themselves. Test: `readers_on_other_threads_see_what_was_written`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(limit_bytes: u64) -> Result<Memory, ArenaError> {
        let setup = |step, source: io::Error| ArenaError::Setup { limit_bytes, step, source };
        if rustix::param::page_size() != PAGE_BYTES {
            return Err(setup("page size", io::Error::other("pages are not 4 KiB")));
        }
        let limit_pages = limit_bytes.div_ceil(PAGE_BYTES as u64).max(1);
        let span_pages = limit_pages.saturating_mul(SPAN_FACTOR);
        let span_bytes = usize::try_from(span_pages.saturating_mul(PAGE_BYTES as u64))
            .ok()
            .filter(|&bytes| bytes < 1 << 46)
            .ok_or_else(|| setup("size", io::Error::other("larger than the address space")))?;

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("weir-arena", flags)
            .map_err(|e| setup("memfd_create", e.into()))?;
        rustix::fs::ftruncate(&fd, span_bytes as u64).map_err(|e| setup("ftruncate", e.into()))?;
        // Nobody, not even a helper that is handed the descriptor, can take mapped pages away.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
            .map_err(|e| setup("fcntl(F_ADD_SEALS)", e.into()))?;
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing. It stays
        // until `drop`, and the file cannot shrink under it (sealed above).
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                span_bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }
        .map_err(|e| setup("mmap", e.into()))?;
        // SAFETY: advice about the mapping just made; it changes no contents.
        let advised = unsafe { rustix::mm::madvise(base, span_bytes, Advice::LinuxNoHugepage) };
        // Fails only on kernels that know no huge pages.
        let _ = advised;
        let page_by_page =
            folios::writes_make_huge_pages().map_err(|e| setup("probe of huge pages", e))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| setup("mmap", io::Error::other("mapped at address 0")))?;

        let memory = Memory {
            fd,
            base,
            span_bytes,
            limit_pages,
            page_by_page,
            used_pages: AtomicU64::new(0),
            free: Mutex::new(FreePages::new(span_pages)),
            adopted: OnceLock::new(),
        };
        registry::register(base.as_ptr() as usize, span_bytes, memory.fd.as_raw_fd())
            .ok_or_else(|| setup("register", io::Error::other("too many arenas")))?;
        Ok(memory)
    }

    /// Takes `count` pages, or says how many are free.
    pub(crate) fn take(&self, count: u64) -> Result<PageRange, ArenaError> {
        self.count(count)?;
        let range = self.free.lock().take(count);
        range.ok_or_else(|| {
            let before = self.used_pages.fetch_sub(count, Ordering::Relaxed);
            self.full(before - count, count)
        })
    }

    /// Counts pages against the limit, wherever they lie.
    pub(crate) fn count(&self, count: u64) -> Result<(), ArenaError> {
        let within = |used: u64| used.checked_add(count).filter(|&sum| sum <= self.limit_pages);
        let counted = self.used_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        counted.map(drop).map_err(|used| self.full(used, count))
    }

    pub(crate) fn uncount(&self, count: u64) {
        self.used_pages.fetch_sub(count, Ordering::Relaxed);
    }

    fn full(&self, used: u64, count: u64) -> ArenaError {
        let page = PAGE_BYTES as u64;
        ArenaError::Full {
            wanted_bytes: count * page,
            free_bytes: self.limit_pages.saturating_sub(used) * page,
            limit_bytes: self.limit_pages * page,
        }
    }

    /// Where adopted files lie, if there was one.
    pub(crate) fn span(&self) -> Option<&Span> {
        self.adopted.get()
    }

    /// The same, made if it is not there.
    pub(crate) fn span_or_new(&self) -> io::Result<&Span> {
        if let Some(span) = self.adopted.get() {
            return Ok(span);
        }
        let span = Span::new(self.span_bytes)?;
        Ok(self.adopted.get_or_init(|| span))
    }

    /// Gives back pages that were never written.
    pub(crate) fn give_back_untouched(&self, range: PageRange) {
        self.free.lock().give_back(range);
        self.uncount(range.count);
    }

    /// Detaches written pages from the file and gives their range back.
    pub(crate) fn free(&self, range: PageRange) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let page = PAGE_BYTES as u64;
        let punched =
            rustix::fs::fallocate(&self.fd, flags, range.start * page, range.count * page);
        if punched.is_ok() {
            self.give_back_untouched(range);
        }
        // Otherwise the range stays taken: pages that might still be in a send queue are never
        // handed out again, at the price of leaking them. tmpfs has no reason to refuse a hole.
    }

    /// Writes into a range that only the caller's extent owns.
    pub(crate) fn write(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        if self.page_by_page {
            self.allocate_single_pages(offset, data.len())?;
        }
        while !data.is_empty() {
            match rustix::io::pwrite(&self.fd, data, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    data = &data[n..];
                    offset += n as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Has the kernel allocate the pages of a range one by one, through the mapping, whose advice
    /// against huge pages a mere write does not heed.
    fn allocate_single_pages(&self, offset: u64, len: usize) -> io::Result<()> {
        let first = offset as usize / PAGE_BYTES * PAGE_BYTES;
        let count = offset as usize + len - first;
        debug_assert!(first + count <= self.span_bytes);
        // SAFETY: inside the mapping; the advice only faults pages in, which nobody has mapped.
        let populated = unsafe {
            let start = self.base.as_ptr().add(first).cast();
            rustix::mm::madvise(start, count, Advice::LinuxPopulateRead)
        };
        populated.map_err(io::Error::from)
    }

    /// The bytes at `offset..offset + len`.
    ///
    /// # Safety
    /// The range must have been written completely, must never be written again, and must stay
    /// allocated as long as the slice is used.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        debug_assert!(offset + len <= self.span_bytes);
        // SAFETY: inside the mapping; immutable by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        registry::unregister(self.base.as_ptr() as usize);
        // SAFETY: the mapping was made by `new` with this address and length, and nothing refers
        // to it: every slice's owner holds this `Memory`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.span_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines about the mapping that begins at `base`.
    fn smaps(base: usize) -> Vec<String> {
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{base:x}-");
        let from_head = all.lines().skip_while(|line| !line.starts_with(&head));
        let to_flags = from_head.take_while(|line| !line.starts_with("VmFlags:"));
        let mut lines: Vec<String> = to_flags.map(str::to_owned).collect();
        let flags = all.lines().skip_while(|line| !line.starts_with(&head));
        lines.extend(flags.filter(|line| line.starts_with("VmFlags:")).take(1).map(str::to_owned));
        lines
    }

    #[test]
    fn pages_come_by_the_mapping_and_its_advice_where_writes_make_huge_pages() {
        for page_by_page in [false, true] {
            let mut memory = Memory::new(1 << 20).unwrap();
            memory.page_by_page = page_by_page;
            let range = memory.take(16).unwrap();
            memory.write(&[7; 16 * PAGE_BYTES], range.start * PAGE_BYTES as u64).unwrap();
            let lines = smaps(memory.base.as_ptr() as usize);
            let resident = lines.iter().find_map(|line| line.strip_prefix("Rss:")).unwrap();
            let expected = if page_by_page { "64 kB" } else { "0 kB" };
            assert_eq!(resident.trim(), expected, "resident by the mapping");
            let flags = lines.iter().find(|line| line.starts_with("VmFlags:")).unwrap();
            assert!(flags.split(' ').any(|flag| flag == "nh"), "no advice: {flags}");
            memory.free(range);
        }
    }
}
