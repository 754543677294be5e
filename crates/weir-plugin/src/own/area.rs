//! Buffers that the guest lends the host: for frames, for pieces of bodies, for what host functions
//! return.

use wasmtime::{AsContextMut, Memory, TypedFunc};

use super::frame::Slice;
use crate::failure::{Failure, FailureKind};
use crate::host::Host;

/// `weir_buffer`.
pub(crate) type BufferFunction = TypedFunc<(i32, i32), i32>;

/// What a buffer is for: the number that `weir_buffer` is asked with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Frame = 0,
    Body = 1,
    Results = 2,
}

/// Addresses of buffers are multiples of this.
const ALIGNMENT: u32 = 8;

/// Steps that sizes are rounded up to, so that sizes that differ a little do not each ask again.
const STEP_BYTES: usize = 4096;

/// A buffer in the guest's memory. It has been checked to be there, and memories never shrink.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Area {
    pub(crate) ptr: u32,
    pub(crate) len: usize,
}

impl Area {
    /// Asks the guest for a buffer.
    ///
    /// # Errors
    /// If it fails, has no memory, or returns what cannot be a buffer.
    pub(crate) fn ask(
        mut store: impl AsContextMut<Data = Host>,
        memory: Memory,
        function: &BufferFunction,
        kind: Kind,
        len: usize,
    ) -> Result<Area, Failure> {
        let len = len.next_multiple_of(STEP_BYTES);
        let asked = i32::try_from(len).map_err(|_| {
            Failure::new(FailureKind::Memory, format!("a buffer of {len} bytes is too large"))
        })?;
        let ptr = function
            .call(&mut store, (kind as i32, asked))
            .map_err(|error| Failure::of(&error))?
            .cast_unsigned();
        if ptr == 0 {
            let message = format!("weir_buffer({}, {len}) gave no memory", kind as i32);
            return Err(Failure::new(FailureKind::Memory, message));
        }
        if !ptr.is_multiple_of(ALIGNMENT) {
            let message = format!(
                "weir_buffer({}, {len}) gave {ptr:#x}, which is no multiple of {ALIGNMENT}",
                kind as i32
            );
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        if ptr as usize + len > memory.data_size(&store) {
            let message = format!(
                "weir_buffer({}, {len}) gave {ptr:#x}: not {len} bytes of the plugin's memory",
                kind as i32
            );
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        Ok(Area { ptr, len })
    }

    /// The buffer, in the memory's content.
    #[inline]
    pub(crate) fn of<'a>(&self, data: &'a mut [u8]) -> &'a mut [u8] {
        let start = self.ptr as usize;
        &mut data[start..start + self.len]
    }

    /// The first bytes of it, as the guest sees them.
    pub(crate) fn slice(&self, len: usize) -> Slice {
        // An area's length fits in 31 bits.
        Slice { ptr: self.ptr, len: len as u32 }
    }
}
