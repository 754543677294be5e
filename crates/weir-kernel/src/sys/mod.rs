//! All system calls of this crate: bpf(2), the socket options that attach programs, and mappings of
//! maps. The only unsafe code. Everything is held by descriptors that close with their owner;
//! nothing is ever pinned to a file system, so that nothing outlives the process.

mod link;
mod map;
#[cfg(test)]
pub(crate) mod objects;
mod program;
mod socket;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub(crate) use link::Link;
pub(crate) use link::interface_index;
pub(crate) use map::{Mapped, SocketArray};
pub(crate) use program::{LoadedProgram, ProgramKind};
pub(crate) use socket::{
    ClassicInsn, attach_classic, attach_classic_filter, attach_filter, attach_steering,
    detach_filter, detach_steering,
};

// Commands of bpf(2), `enum bpf_cmd`.
const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const LINK_CREATE: i32 = 28;
const LINK_UPDATE: i32 = 29;

/// Bytes of a name that the kernel keeps of maps and programs, with a final zero.
const NAME_BYTES: usize = 16;

/// bpf(2) with the attributes of one command, which say how long they are.
///
/// # Safety
/// `Attributes` is laid out as the command's part of `union bpf_attr`, and what addresses in it
/// point to lives and has the size that the command takes it for.
#[allow(unsafe_code, reason = "a system call")]
unsafe fn bpf<Attributes>(command: i32, attributes: &mut Attributes) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes `attributes` within its size; the rest is the caller's.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<Attributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// bpf(2) for commands that answer with a new descriptor.
///
/// # Safety
/// As of [`bpf`]; and the command is one of those.
#[allow(unsafe_code, reason = "a system call")]
unsafe fn bpf_open<Attributes>(command: i32, attributes: &mut Attributes) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise is the same.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel takes it: cut, and ending in a zero.
fn name(text: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let kept = text.len().min(NAME_BYTES - 1);
    bytes[..kept].copy_from_slice(&text.as_bytes()[..kept]);
    bytes
}
