//! The border between the plugin and the host: buffers whose addresses the host is told, imported
//! functions. Everything here that is unsafe is so because a plugin is one thread, and because the
//! host writes into buffers only before it calls a hook.

#[cfg(target_family = "wasm")]
pub use guest::{Global, buffer};
#[cfg(target_family = "wasm")]
pub(crate) use imports::*;

#[cfg(target_family = "wasm")]
mod guest {
    use alloc::vec::Vec;
    use core::cell::UnsafeCell;

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
                    *self.state() = Some(State { plugin, edits: Edits::new() });
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
        pub fn hook(&self, hook: fn(&mut P, &Frame<'_>, &mut Edits)) -> i64 {
            let Some(state) = self.state() else { return -1 };
            let buffer = content(FRAME);
            let body = Frame::new(buffer, buffer.as_ptr() as u32, &[]);
            let body = content(BODY).get(..body.body_len()).unwrap_or_default();
            let frame = Frame::new(buffer, buffer.as_ptr() as u32, body);
            state.edits.clear();
            hook(&mut state.plugin, &frame, &mut state.edits);
            match state.edits.finish() {
                [] => 0,
                list => i64::from(list.as_ptr() as u32) << 32 | list.len() as i64,
            }
        }
    }

    const FRAME: usize = 0;
    const BODY: usize = 1;
    const RESULTS: usize = 2;

    /// Words, so that a buffer is aligned as the host wants it.
    struct Buffers(UnsafeCell<[Vec<u64>; 3]>);

    // SAFETY: as above.
    unsafe impl Sync for Buffers {}

    static BUFFERS: Buffers = Buffers(UnsafeCell::new([Vec::new(), Vec::new(), Vec::new()]));

    /// `weir_buffer`.
    pub fn buffer(kind: u32, size: u32) -> u32 {
        // SAFETY: the host asks for frames and bodies only between hooks, and for results only
        // while a host function runs, when nobody looks at what these were before.
        let buffers = unsafe { &mut *BUFFERS.0.get() };
        let Some(buffer) = buffers.get_mut(kind as usize) else { return 0 };
        let words = (size as usize).div_ceil(8);
        if buffer.len() < words {
            // What is in it is not needed any more.
            *buffer = Vec::new();
            if buffer.try_reserve_exact(words).is_err() {
                return 0;
            }
            buffer.resize(words, 0);
        }
        buffer.as_ptr() as u32
    }

    /// A buffer's content, while a hook runs.
    fn content(kind: usize) -> &'static [u8] {
        // SAFETY: words are bytes. The host writes into frames and bodies, and asks for others,
        // only between hooks, and `Frame` does not outlive one.
        unsafe {
            let buffer = &(&*BUFFERS.0.get())[kind];
            core::slice::from_raw_parts(buffer.as_ptr().cast(), buffer.len() * 8)
        }
    }

    /// What a host function returned.
    pub(crate) fn results(len: usize) -> Vec<u8> {
        // SAFETY: as above; the bytes are copied before anything else is called.
        unsafe {
            let buffer = &(&*BUFFERS.0.get())[RESULTS];
            let bytes = core::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), buffer.len() * 8);
            bytes.get(..len).unwrap_or_default().to_vec()
        }
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
