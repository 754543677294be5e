//! The border between the plugin and the host: buffers whose addresses the host is told, imported
//! functions, memory. Everything here that is unsafe is so because a plugin is one thread, and
//! because the host writes into buffers only before it calls a hook.

#[cfg(target_family = "wasm")]
pub use guest::{Global, buffer};
#[cfg(target_family = "wasm")]
pub use heap::Allocator;
#[cfg(target_family = "wasm")]
pub(crate) use imports::*;

#[cfg(target_family = "wasm")]
mod guest {
    use alloc::alloc::{alloc_zeroed, dealloc};
    use alloc::vec::Vec;
    use core::alloc::Layout;
    use core::cell::UnsafeCell;
    use core::{mem, ptr};

    use crate::edits::Edits;
    use crate::frame::Frame;
    use crate::hook::Hook;
    use crate::host::{self, Level};
    use crate::plugin::Plugin;

    /// What hooks of a plugin share.
    pub struct Global<P>(UnsafeCell<Option<State<P>>>);

    struct State<P> {
        plugin: P,
        edits: Edits,
    }

    // SAFETY: a WebAssembly instance without shared memory has one thread.
    unsafe impl<P> Sync for Global<P> {}

    impl<P: Plugin> Global<P> {
        /// Not configured yet.
        #[allow(clippy::new_without_default, reason = "only used by the macro")]
        pub const fn new() -> Global<P> {
            Global(UnsafeCell::new(None))
        }

        #[allow(clippy::mut_from_ref, reason = "that is what the cell is for")]
        fn state(&self) -> &mut Option<State<P>> {
            // SAFETY: the host calls one hook after the other; the only function that it calls
            // while one runs is `buffer`, which does not touch this.
            unsafe { &mut *self.0.get() }
        }

        /// `weir_configure`.
        pub fn configure(&self, len: u32) -> i32 {
            let config = content(BODY);
            match P::configure(config.get(..len as usize).unwrap_or_default()) {
                Ok(plugin) => {
                    let state = self.state().replace(State { plugin, edits: Edits::new() });
                    // There was none: an instance is configured once. So nothing need be there
                    // that would drop it.
                    mem::forget(state);
                    0
                }
                Err(why) => {
                    host::log(Level::Error, &why);
                    1
                }
            }
        }

        /// `weir_wants`.
        pub fn wants(&self, hook: u32) -> u32 {
            match (self.state(), Hook::new(hook)) {
                (Some(state), Some(hook)) => state.plugin.wants(hook).bits(),
                _ => u32::MAX,
            }
        }

        /// A hook.
        // In place, so that each hook is called by its name: what a table refers to, the host
        // compiles an entrance to.
        #[inline(always)]
        pub fn hook(&self, hook: impl FnOnce(&mut P, &Frame<'_>, &mut Edits)) -> i64 {
            let Some(state) = self.state() else { return -1 };
            state.edits.clear();
            hook(&mut state.plugin, &shown(), &mut state.edits);
            said(&mut state.edits)
        }
    }

    /// What the host shows.
    #[inline(never)]
    fn shown() -> Frame<'static> {
        let buffer = content(FRAME);
        let base = buffer.as_ptr() as u32;
        let len = Frame::new(buffer, base, &[]).body_len();
        Frame::new(buffer, base, content(BODY).get(..len).unwrap_or_default())
    }

    /// What the host is told.
    #[inline(never)]
    fn said(edits: &mut Edits) -> i64 {
        match edits.finish() {
            [] => 0,
            list => i64::from(list.as_ptr() as u32) << 32 | list.len() as i64,
        }
    }

    const FRAME: usize = 0;
    const BODY: usize = 1;
    const RESULTS: usize = 2;

    /// A buffer: bytes that were zeroed when it was made, or none.
    #[derive(Clone, Copy)]
    struct Buffer {
        start: *mut u8,
        len: usize,
    }

    /// What is aligned to this suits the host.
    const ALIGN: usize = 8;

    struct Buffers(UnsafeCell<[Buffer; 3]>);

    // SAFETY: as above.
    unsafe impl Sync for Buffers {}

    const NOTHING: Buffer = Buffer { start: ptr::null_mut(), len: 0 };

    static BUFFERS: Buffers = Buffers(UnsafeCell::new([NOTHING; 3]));

    /// `weir_buffer`.
    // Not a vector, whose growth is three times the code.
    pub fn buffer(kind: u32, size: u32) -> u32 {
        // SAFETY: the host asks for frames and bodies only between hooks, and for results only
        // while a host function runs, when nobody looks at what these were before.
        let buffers = unsafe { &mut *BUFFERS.0.get() };
        let Some(buffer) = buffers.get_mut(kind as usize) else { return 0 };
        if buffer.len < size as usize || buffer.start.is_null() {
            let layout = |len| Layout::from_size_align(len, ALIGN).ok();
            let Some(wanted) = layout((size as usize).max(ALIGN)) else { return 0 };
            let last = mem::replace(buffer, NOTHING);
            // SAFETY: what is in the last one is not needed any more, and it was made like this one
            // is; the size is not zero.
            unsafe {
                if let Some(made) = layout(last.len)
                    && !last.start.is_null()
                {
                    dealloc(last.start, made);
                }
                *buffer = Buffer { start: alloc_zeroed(wanted), len: wanted.size() };
            }
        }
        buffer.start as u32
    }

    /// A buffer's content, while a hook runs.
    fn content(kind: usize) -> &'static [u8] {
        // SAFETY: there is one thread, and bytes can be read. The host writes into frames and
        // bodies, and asks for others, only between hooks, and `Frame` does not outlive one.
        unsafe {
            match (*BUFFERS.0.get())[kind] {
                Buffer { start, .. } if start.is_null() => &[],
                Buffer { start, len } => core::slice::from_raw_parts(start, len),
            }
        }
    }

    /// What a host function returned.
    pub(crate) fn results(len: usize) -> Vec<u8> {
        // The bytes are copied before anything else is called.
        content(RESULTS).get(..len).unwrap_or_default().to_vec()
    }
}

#[cfg(target_family = "wasm")]
mod imports {
    pub(crate) use super::guest::results;

    #[link(wasm_import_module = "weir")]
    unsafe extern "C" {
        pub(crate) safe fn log(level: u32, text: *const u8, len: usize) -> i32;
        pub(crate) safe fn now() -> i64;
        pub(crate) safe fn random(to: *mut u8, len: usize) -> i32;
        pub(crate) safe fn tick(ms: u32) -> i32;
        pub(crate) safe fn property(path: *const u8, len: usize) -> i64;
        pub(crate) safe fn property_set(
            path: *const u8,
            path_len: usize,
            value: *const u8,
            len: usize,
        ) -> i32;
        pub(crate) safe fn call(request: *const u8, len: usize, timeout_ms: u32) -> i32;
        pub(crate) safe fn shared_get(key: *const u8, len: usize, cas: *mut u32) -> i64;
        pub(crate) safe fn shared_set(
            key: *const u8,
            key_len: usize,
            value: *const u8,
            len: usize,
            cas: u32,
        ) -> i32;
        pub(crate) safe fn queue_open(name: *const u8, len: usize) -> i32;
        pub(crate) safe fn queue_push(queue: u32, item: *const u8, len: usize) -> i32;
        pub(crate) safe fn queue_pop(queue: u32) -> i64;
        pub(crate) safe fn metric(kind: u32, name: *const u8, len: usize) -> i32;
        pub(crate) safe fn metric_add(metric: u32, delta: i64) -> i32;
        pub(crate) safe fn metric_set(metric: u32, value: u64) -> i32;
        pub(crate) safe fn metric_get(metric: u32, to: *mut u64) -> i32;
        pub(crate) safe fn cache_query(url: *const u8, len: usize, to: *mut [u64; 5]) -> i32;
        pub(crate) safe fn cache_fields(url: *const u8, len: usize) -> i64;
        pub(crate) safe fn cache_read(url: *const u8, len: usize, offset: u64, max: u32) -> i64;
        pub(crate) safe fn cache_inject(
            url: *const u8,
            url_len: usize,
            response: *const u8,
            len: usize,
            ttl_ms: u64,
        ) -> i32;
        pub(crate) safe fn cache_expire(url: *const u8, len: usize) -> i32;
        pub(crate) safe fn cache_purge(url: *const u8, len: usize) -> i32;
    }
}

/// What [`allocator!`](crate::allocator) puts in place of the standard library's allocator, which
/// alone would be most of a small plugin, and most of what is compiled when it is deployed.
///
/// Small blocks that are given back are kept by size and never become anything else, so that they
/// cost the same however many there are. Larger ones join their neighbours, and the first that is
/// large enough is taken.
pub mod heap {
    use core::alloc::Layout;
    #[cfg(target_family = "wasm")]
    use core::{alloc::GlobalAlloc, cell::UnsafeCell};
    use core::{cmp, ptr};

    /// Blocks are multiples of this and aligned to it: a vector's alignment, and room for a
    /// [`Free`] on any machine.
    const UNIT: usize = 16;

    /// Units of the largest blocks that are kept by size.
    const SMALL_UNITS: usize = 32;

    /// What a free block begins with.
    struct Free {
        next: *mut Free,
        bytes: usize,
    }

    /// Where memory comes from.
    pub trait Source {
        /// At least so many bytes more, aligned to 16 and a multiple of it: where they are,
        /// and how many. Nobody else uses them.
        fn more(&mut self, bytes: usize) -> Option<(*mut u8, usize)>;
    }

    /// Memory that is given out in blocks, by one thread.
    pub struct Heap<S> {
        /// By units, from one on.
        small: [*mut Free; SMALL_UNITS],
        /// By address.
        large: *mut Free,
        source: S,
    }

    fn rounded(bytes: usize) -> usize {
        // A layout's size is at most half of the address space.
        bytes.next_multiple_of(UNIT)
    }

    impl<S: Source> Heap<S> {
        /// Without any memory yet.
        pub const fn new(source: S) -> Heap<S> {
            Heap { small: [ptr::null_mut(); SMALL_UNITS], large: ptr::null_mut(), source }
        }

        /// The list that blocks like this are kept in, if they are small.
        fn kept(&mut self, layout: Layout) -> Option<&mut *mut Free> {
            let units = rounded(layout.size()) / UNIT;
            match layout.align() <= UNIT {
                true => self.small.get_mut(units.wrapping_sub(1)),
                false => None,
            }
        }

        /// A block, or null if there is no memory.
        #[inline(never)]
        pub fn allocate(&mut self, layout: Layout) -> *mut u8 {
            if let Some(kept) = self.kept(layout)
                && !kept.is_null()
            {
                let block = *kept;
                // SAFETY: what is in a list is free, and begins with a `Free`.
                *kept = unsafe { (*block).next };
                return block.cast();
            }
            let (bytes, align) = (rounded(layout.size()), layout.align());
            let block = self.take(bytes, align);
            if !block.is_null() {
                return block;
            }
            match self.source.more(bytes + cmp::max(align, UNIT) - UNIT) {
                Some((start, more)) => {
                    // SAFETY: nobody else uses it, says the source.
                    unsafe { self.give(start, more) };
                    self.take(bytes, align)
                }
                None => ptr::null_mut(),
            }
        }

        /// Takes a block back.
        // Not where it is called: there are many such places.
        #[inline(never)]
        ///
        /// # Safety
        /// It is one that [`Heap::allocate`] returned for this layout, and nobody uses it any more.
        pub unsafe fn free(&mut self, start: *mut u8, layout: Layout) {
            let bytes = rounded(layout.size());
            match self.kept(layout) {
                Some(kept) => {
                    let block = start.cast::<Free>();
                    // SAFETY: nobody uses it, and it has room and is aligned for a `Free`.
                    unsafe { block.write(Free { next: *kept, bytes }) };
                    *kept = block;
                }
                // SAFETY: nobody uses it.
                None => unsafe { self.give(start, bytes) },
            }
        }

        /// For tests: free bytes that are kept by size, and those of each block that can become
        /// anything.
        #[cfg(not(target_family = "wasm"))]
        pub fn free_bytes(&self) -> (usize, alloc::vec::Vec<usize>) {
            fn sizes(mut at: *mut Free) -> alloc::vec::Vec<usize> {
                let mut sizes = alloc::vec::Vec::new();
                // SAFETY: what is in a list is free, and begins with a `Free`.
                while let Some(block) = unsafe { at.as_ref() } {
                    sizes.push(block.bytes);
                    at = block.next;
                }
                sizes
            }
            (self.small.iter().flat_map(|first| sizes(*first)).sum(), sizes(self.large))
        }

        /// For tests: where memory comes from.
        #[cfg(not(target_family = "wasm"))]
        pub fn source(&self) -> &S {
            &self.source
        }

        /// Cuts a block out of the first free one that is large enough.
        fn take(&mut self, bytes: usize, align: usize) -> *mut u8 {
            let mut link: *mut *mut Free = &raw mut self.large;
            // SAFETY: what is in the list is free, begins with a `Free`, and has as many bytes as
            // that says; everything is aligned to a unit, and so are the parts that stay free.
            unsafe {
                loop {
                    let block = *link;
                    if block.is_null() {
                        return ptr::null_mut();
                    }
                    let Free { next, bytes: found } = block.read();
                    // Alignments are powers of two.
                    let before = block.addr().wrapping_neg() & (align - 1);
                    if found >= before && found - before >= bytes {
                        let start = block.cast::<u8>().add(before);
                        let after = found - before - bytes;
                        let mut rest = next;
                        if after > 0 {
                            rest = start.add(bytes).cast();
                            rest.write(Free { next, bytes: after });
                        }
                        if before > 0 {
                            block.write(Free { next: rest, bytes: before });
                        } else {
                            *link = rest;
                        }
                        return start;
                    }
                    link = &raw mut (*block).next;
                }
            }
        }

        /// Puts a block among the free ones, and joins it with those that it touches.
        ///
        /// # Safety
        /// Nobody uses it, and it is aligned to a unit and a multiple of it.
        unsafe fn give(&mut self, start: *mut u8, mut bytes: usize) {
            let mut link: *mut *mut Free = &raw mut self.large;
            let mut before: *mut Free = ptr::null_mut();
            // SAFETY: as in `take`; the caller vouches for the block.
            unsafe {
                while !(*link).is_null() && (*link).addr() < start.addr() {
                    before = *link;
                    link = &raw mut (*before).next;
                }
                let mut next = *link;
                if !next.is_null() && start.addr() + bytes == next.addr() {
                    bytes += (*next).bytes;
                    next = (*next).next;
                }
                if !before.is_null() && before.addr() + (*before).bytes == start.addr() {
                    bytes += (*before).bytes;
                    before.write(Free { next, bytes });
                } else {
                    let block = start.cast::<Free>();
                    block.write(Free { next, bytes });
                    *link = block;
                }
            }
        }
    }

    /// A plugin's memory, which grows by pages.
    #[cfg(target_family = "wasm")]
    struct Pages;

    #[cfg(target_family = "wasm")]
    impl Source for Pages {
        fn more(&mut self, bytes: usize) -> Option<(*mut u8, usize)> {
            const PAGE_BYTES: usize = 1 << 16;
            let pages = bytes.div_ceil(PAGE_BYTES);
            match core::arch::wasm32::memory_grow::<0>(pages) {
                usize::MAX => None,
                before => Some((
                    ptr::with_exposed_provenance_mut(before * PAGE_BYTES),
                    pages * PAGE_BYTES,
                )),
            }
        }
    }

    /// The allocator of a plugin.
    #[cfg(target_family = "wasm")]
    pub struct Allocator(UnsafeCell<Heap<Pages>>);

    // SAFETY: a WebAssembly instance without shared memory has one thread.
    #[cfg(target_family = "wasm")]
    unsafe impl Sync for Allocator {}

    #[cfg(target_family = "wasm")]
    impl Allocator {
        /// Without any memory yet.
        #[allow(clippy::new_without_default, reason = "only used by the macro")]
        pub const fn new() -> Allocator {
            Allocator(UnsafeCell::new(Heap::new(Pages)))
        }
    }

    // SAFETY: blocks do not overlap, are aligned and are large enough, as the tests show; and
    // nothing that is called while the heap is in use calls back.
    #[cfg(target_family = "wasm")]
    unsafe impl GlobalAlloc for Allocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: there is one thread.
            unsafe { (*self.0.get()).allocate(layout) }
        }

        unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
            // SAFETY: there is one thread, and the caller vouches for the block.
            unsafe { (*self.0.get()).free(start, layout) }
        }
    }
}
