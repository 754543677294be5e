//! What a plugin is.

use alloc::string::String;

use crate::edits::Edits;
use crate::frame::Frame;
use crate::hook::{Hook, Parts};

/// A plugin. Each thread of the server has a value of its own, and the hooks of one request may run
/// in different ones: what belongs to a request is kept in its note ([`Edits::note`]), what belongs
/// to the plugin in shared data ([`crate::host::shared_get`]).
///
/// Hooks do nothing unless they are written, and are called only if they are named in
/// [`weir_plugin!`](crate::weir_plugin).
#[allow(unused_variables, reason = "the names are the documentation of the parameters")]
pub trait Plugin: Sized + 'static {
    /// Makes the plugin from its configuration, which is empty if there is none.
    ///
    /// # Errors
    /// What is wrong with the configuration: the deployment is refused, and this is logged.
    fn configure(config: &[u8]) -> Result<Self, String>;

    /// Which parts of the frame a hook looks at. Asked once, at start. What is not laid out costs
    /// nothing.
    fn wants(&self, hook: Hook) -> Parts {
        Parts::ALL
    }

    /// A connection's first request has come.
    fn on_connection(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The request's head is there.
    fn on_request(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// A piece of the request's body, if it was wanted.
    fn on_request_body(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The request's trailer section.
    fn on_request_trailers(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The cache is about to be looked into.
    fn on_lookup(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// There is a stored response.
    fn on_hit(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// There is none, and the source is about to be asked.
    fn on_miss(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// A response is about to be stored.
    fn on_store(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The response's head is there.
    fn on_response(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// A piece of the response's body, if it was wanted.
    fn on_response_body(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The response's trailer section.
    fn on_response_trailers(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The request is over. Takes no edits.
    fn on_log(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// The timer has run out. Takes no edits.
    fn on_tick(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}

    /// A call was answered, or has failed.
    fn on_call(&mut self, frame: &Frame<'_>, edits: &mut Edits) {}
}

/// Makes a module of a [`Plugin`]: `weir_plugin!(Type: on_request, on_response)` exports what the
/// interface requires and the hooks that are named.
#[macro_export]
macro_rules! weir_plugin {
    ($plugin:ty $(: $($hook:ident),+ $(,)?)?) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            static PLUGIN: $crate::raw::Global<$plugin> = $crate::raw::Global::new();

            #[unsafe(export_name = "weir_abi_1")]
            extern "C" fn weir_abi_1() {}

            #[unsafe(export_name = "weir_buffer")]
            extern "C" fn weir_buffer(kind: u32, size: u32) -> u32 {
                $crate::raw::buffer(kind, size)
            }

            #[unsafe(export_name = "weir_configure")]
            extern "C" fn weir_configure(_address: u32, len: u32) -> i32 {
                PLUGIN.configure(len)
            }

            #[unsafe(export_name = "weir_wants")]
            extern "C" fn weir_wants(hook: u32) -> u32 {
                PLUGIN.wants(hook)
            }

            $($($crate::weir_plugin!(@hook $hook, PLUGIN, $plugin);)+)?
        };
    };
    (@hook $hook:ident, $global:ident, $plugin:ty) => {
        const _: () = {
            #[unsafe(export_name = concat!("weir_", stringify!($hook)))]
            extern "C" fn hook(_frame: u32) -> i64 {
                $global.hook(<$plugin as $crate::Plugin>::$hook)
            }
        };
    };
}

/// Gives the module an allocator that is small, in place of the standard library's. Once in a
/// module, and only where nothing else names a global allocator.
///
/// It is made for what plugins do: few large buffers, many small pieces, one thread.
#[macro_export]
macro_rules! allocator {
    () => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[global_allocator]
            static ALLOCATOR: $crate::raw::Allocator = $crate::raw::Allocator::new();
        };
    };
}

/// What a module without the standard library does when it panics: file and line go into the
/// server's log, and the call fails. Once in a module, which begins with
/// `#![cfg_attr(target_family = "wasm", no_std)]`.
#[macro_export]
macro_rules! panic_handler {
    () => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[panic_handler]
            fn panicked(info: &::core::panic::PanicInfo<'_>) -> ! {
                $crate::panicked(info)
            }
        };
    };
}

/// What [`panic_handler!`](crate::panic_handler) does.
#[cfg(target_family = "wasm")]
pub(crate) mod panic {
    use core::panic::PanicInfo;

    use crate::edits::Decimal;
    use crate::host::Level;
    use crate::raw;

    /// Bytes of what is said. They are the stack's, because there may be no other memory.
    const TEXT_BYTES: usize = 200;

    struct Text {
        bytes: [u8; TEXT_BYTES],
        len: usize,
    }

    impl Text {
        /// Adds what there is room for.
        #[inline(never)]
        fn push(&mut self, part: &[u8]) {
            let room = self.bytes.get_mut(self.len..).unwrap_or_default();
            for (to, from) in room.iter_mut().zip(part) {
                *to = *from;
                self.len += 1;
            }
        }
    }

    /// Says where it was, and ends the call. Not why: a message is put together by code that is
    /// more than most plugins are, and that is left out if nobody looks at messages.
    #[cold]
    pub fn panicked(info: &PanicInfo<'_>) -> ! {
        let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
        let line = Decimal::new(line.into());
        let mut text = Text { bytes: [0; TEXT_BYTES], len: 0 };
        text.push(b"panic at ");
        text.push(file.as_bytes());
        text.push(b":");
        text.push(line.as_ref());
        raw::log(Level::Critical as u32, text.bytes.as_ptr(), text.len);
        core::arch::wasm32::unreachable()
    }
}
