//! Socket options that attach programs to listeners and take them off.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::LoadedProgram;
use crate::error::KernelError;

/// An instruction of classic BPF, as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ClassicInsn {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

/// Attaches a program that polices what a socket receives, in the place of any other.
pub(crate) fn attach_filter(
    socket: BorrowedFd<'_>,
    program: &LoadedProgram,
) -> Result<(), KernelError> {
    set(socket, libc::SO_ATTACH_BPF, "SO_ATTACH_BPF", &program.fd())
}

/// Attaches a classic program of that kind; takes CAP_NET_ADMIN from Linux 6.18 on.
pub(crate) fn attach_classic_filter(
    socket: BorrowedFd<'_>,
    program: &[ClassicInsn],
) -> Result<(), KernelError> {
    set_classic(socket, libc::SO_ATTACH_FILTER, "SO_ATTACH_FILTER", program)
}

/// Takes a socket's policing program off; one that has none is as well.
pub(crate) fn detach_filter(socket: BorrowedFd<'_>) -> Result<(), KernelError> {
    unset(socket, libc::SO_DETACH_FILTER, "SO_DETACH_FILTER")
}

/// Attaches a steering program to a listener's whole group, in the place of any other.
pub(crate) fn attach_steering(
    socket: BorrowedFd<'_>,
    program: &LoadedProgram,
) -> Result<(), KernelError> {
    let option = libc::SO_ATTACH_REUSEPORT_EBPF;
    set(socket, option, "SO_ATTACH_REUSEPORT_EBPF", &program.fd())
}

/// Attaches a classic program, which gives the index of a socket in its group; needs no privilege.
pub(crate) fn attach_classic(
    socket: BorrowedFd<'_>,
    program: &[ClassicInsn],
) -> Result<(), KernelError> {
    set_classic(socket, libc::SO_ATTACH_REUSEPORT_CBPF, "SO_ATTACH_REUSEPORT_CBPF", program)
}

/// Takes a group's steering program off; one that has none is as well.
pub(crate) fn detach_steering(socket: BorrowedFd<'_>) -> Result<(), KernelError> {
    unset(socket, SO_DETACH_REUSEPORT_BPF, "SO_DETACH_REUSEPORT_BPF")
}

/// Linux 5.3; the same on all machines but those of SPARC and PA-RISC.
const SO_DETACH_REUSEPORT_BPF: i32 = 68;

fn unset(socket: BorrowedFd<'_>, option: i32, name: &'static str) -> Result<(), KernelError> {
    match set(socket, option, name, &0_i32) {
        Err(KernelError::Socket { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        result => result,
    }
}

fn set_classic(
    socket: BorrowedFd<'_>,
    option: i32,
    name: &'static str,
    program: &[ClassicInsn],
) -> Result<(), KernelError> {
    let filter = program.as_ptr().cast_mut().cast();
    set(socket, option, name, &libc::sock_fprog { len: program.len() as u16, filter })
}

#[allow(unsafe_code, reason = "a system call")]
fn set<T>(
    socket: BorrowedFd<'_>,
    option: i32,
    name: &'static str,
    value: &T,
) -> Result<(), KernelError> {
    // SAFETY: the kernel reads `value` within its size. Where that is a `sock_fprog`, it also reads
    // as many instructions as that says, which the caller borrows.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(KernelError::Socket { option: name, source: io::Error::last_os_error() })
}
