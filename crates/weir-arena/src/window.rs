//! An arena as another process sees it: a stored body, or a part of it, mapped from the arena's
//! descriptor.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::PAGE_BYTES;

/// Bytes of an arena, mapped read-only.
///
/// Whoever hands the descriptor over keeps the range frozen as long as there is a window onto it:
/// that is the contract between a server and its helpers, which run the same program.
#[derive(Debug)]
pub struct Window {
    mapping: NonNull<u8>,
    mapped: usize,
    skip: usize,
    len: usize,
}

// SAFETY: the mapping is read-only, owned by this value alone, and may be read from any thread.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `offset..offset + len` of an arena's file.
    ///
    /// # Errors
    /// `InvalidInput` if the file may shrink, or is shorter; what the system says otherwise.
    pub fn map(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Window> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        if !rustix::fs::fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(invalid("not an arena: it may shrink while it is read"));
        }
        let size = u64::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or_default();
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(invalid("not within the arena"));
        }
        let skip = (offset % PAGE_BYTES as u64) as usize;
        let mapped = (skip + len).max(1);
        // SAFETY: a fresh mapping at an address that the kernel chooses aliases nothing of this
        // process; the file cannot shrink under it, and the range lies within (checked above).
        let mapping = unsafe {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            let start = offset - skip as u64;
            rustix::mm::mmap(ptr::null_mut(), mapped, ProtFlags::READ, flags, fd, start)
        }?;
        let mapping =
            NonNull::new(mapping.cast::<u8>()).ok_or_else(|| invalid("mapped at address 0"))?;
        Ok(Window { mapping, mapped, skip, len })
    }
}

impl Deref for Window {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: within the mapping, which lives as long as `self`; frozen by the type's contract.
        // Test: `tests/adopted.rs`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.skip), self.len) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}
