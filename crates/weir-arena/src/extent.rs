//! An extent: the page range of one body, or of a part of it, from its first byte to its freeing.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::PAGE_BYTES;
use crate::arena::Memory;
use crate::pages::PageRange;

/// A page range that is being filled by its only owner. Dropping it frees the pages, unless a
/// published part is still referred to.
pub struct Extent {
    pages: Arc<Pages>,
    /// Pages reserved; the part that `freeze` does not need goes back.
    reserved_pages: u64,
    /// Bytes written. Bytes below are immutable, bytes above have never been seen by anyone.
    len: usize,
}

impl Extent {
    pub(crate) fn new(memory: Arc<Memory>, range: PageRange) -> Extent {
        let pages = Pages { memory, start: range.start, count: AtomicU64::new(range.count) };
        Extent { reserved_pages: range.count, pages: Arc::new(pages), len: 0 }
    }

    /// Bytes that fit in all.
    pub fn capacity(&self) -> usize {
        self.reserved_pages as usize * PAGE_BYTES
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// `InvalidInput` if it does not fit, or what the system says when it has no memory for it.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if data.len() > self.capacity() - self.len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{} bytes do not fit into an extent with {} of {} bytes free",
                    data.len(),
                    self.capacity() - self.len,
                    self.capacity()
                ),
            ));
        }
        self.pages.memory.write(data, self.pages.offset() + self.len as u64)?;
        self.len += data.len();
        Ok(())
    }

    /// A part of what was written, readable while the rest is still being filled.
    ///
    /// # Panics
    /// If the range reaches beyond what was written.
    pub fn published(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.len, "published beyond the fill");
        if range.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(Slice {
            pages: Arc::clone(&self.pages),
            start: range.start,
            len: range.len(),
        })
    }

    /// Ends the fill: the bytes are immutable from now on, and unused pages go back.
    pub fn freeze(self) -> Bytes {
        let needed_pages = self.len.div_ceil(PAGE_BYTES).max(1) as u64;
        let unused = self.reserved_pages - needed_pages;
        if unused > 0 {
            // Published parts may be around, but they end below `len`.
            self.pages.count.store(needed_pages, Ordering::Relaxed);
            let start = self.pages.start + needed_pages;
            self.pages.memory.give_back_untouched(PageRange { start, count: unused });
        }
        self.published(0..self.len)
    }
}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extent")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// A page range and the memory it lies in; freed with its last owner.
struct Pages {
    memory: Arc<Memory>,
    start: u64,
    /// Written once, by `Extent::freeze`. The last owner's drop comes after it (through the `Arc`).
    count: AtomicU64,
}

impl Pages {
    fn offset(&self) -> u64 {
        self.start * PAGE_BYTES as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.memory.free(PageRange { start: self.start, count: *self.count.get_mut() });
    }
}

/// What a `Bytes` over arena memory owns.
struct Slice {
    pages: Arc<Pages>,
    start: usize,
    len: usize,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `published` checked that the bytes are written; `Extent::write` only appends
        // behind them; `self.pages` keeps the range allocated. Tests: `tests/shared_bytes.rs`.
        unsafe { self.pages.memory.slice(self.pages.offset() as usize + self.start, self.len) }
    }
}
