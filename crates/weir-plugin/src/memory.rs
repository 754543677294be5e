//! Guest memory, looked at with suspicion: every address and length comes from the guest.

use wasmtime::{AsContextMut, Caller, Memory};

use crate::host::Host;

/// An address outside the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {ptr:#x} are not in the plugin's memory")]
pub(crate) struct OutOfBounds {
    pub(crate) ptr: u32,
    pub(crate) len: u32,
}

/// `len` bytes at `ptr` of a memory's content.
#[inline]
pub(crate) fn slice(data: &[u8], ptr: u32, len: u32) -> Result<&[u8], OutOfBounds> {
    let start = ptr as usize;
    data.get(start..start + len as usize).ok_or(OutOfBounds { ptr, len })
}

/// The same, to be written.
#[inline]
pub(crate) fn slice_mut(data: &mut [u8], ptr: u32, len: u32) -> Result<&mut [u8], OutOfBounds> {
    let start = ptr as usize;
    data.get_mut(start..start + len as usize).ok_or(OutOfBounds { ptr, len })
}

/// A little-endian 32-bit number at `ptr`.
#[cfg(test)]
pub(crate) fn read_u32(data: &[u8], ptr: u32) -> Result<u32, OutOfBounds> {
    let bytes = slice(data, ptr, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Writes one.
pub(crate) fn write_u32(data: &mut [u8], ptr: u32, value: u32) -> Result<(), OutOfBounds> {
    slice_mut(data, ptr, 4)?.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

/// Writes a little-endian 64-bit number.
pub(crate) fn write_u64(data: &mut [u8], ptr: u32, value: u64) -> Result<(), OutOfBounds> {
    slice_mut(data, ptr, 8)?.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

/// The memory of the instance that calls a host function. A module without one has no instance:
/// see [`crate::module`]; while it starts, its memory is looked up by name.
pub(crate) fn of_caller(caller: &mut Caller<'_, Host>) -> Option<Memory> {
    if let Some(memory) = caller.data().memory {
        return Some(memory);
    }
    let memory = caller.get_export("memory")?.into_memory()?;
    caller.data_mut().memory = Some(memory);
    Some(memory)
}

/// The memory's content and the host's state, both at once.
pub(crate) fn split<'a>(
    caller: &'a mut Caller<'_, Host>,
    memory: Memory,
) -> (&'a mut [u8], &'a mut Host) {
    memory.data_and_store_mut(caller.as_context_mut())
}
