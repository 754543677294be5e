//! Programs on network interfaces, by links: a link that is closed, as when its process ends, takes
//! its program off the interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::program::{ATTACH_TCX_INGRESS, ATTACH_XDP};
use super::{LINK_CREATE, LINK_UPDATE, LoadedProgram, bpf, bpf_open};
use crate::error::KernelError;

/// `XDP_FLAGS_SKB_MODE`: after the driver, which need not know of XDP.
const XDP_GENERIC: u32 = 1 << 1;

/// What `BPF_LINK_CREATE` takes; of the last part, what tcx has.
#[repr(C)]
struct Create {
    program_fd: u32,
    interface: u32,
    attach: u32,
    flags: u32,
    relative_fd: u32,
    gap: u32,
    revision: u64,
}

/// What `BPF_LINK_UPDATE` takes.
#[repr(C)]
struct Update {
    link_fd: u32,
    program_fd: u32,
    flags: u32,
    old_program_fd: u32,
}

/// A program on an interface.
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
}

impl Link {
    /// Puts an XDP program on an interface, in its driver if that can, else behind it. Tells
    /// whether it is the driver's.
    pub(crate) fn xdp(
        program: &LoadedProgram,
        interface: u32,
    ) -> Result<(Link, bool), KernelError> {
        let native = create(program, interface, ATTACH_XDP, 0);
        native.map(|link| (link, true)).or_else(|_| {
            let generic = create(program, interface, ATTACH_XDP, XDP_GENERIC);
            let link = generic.map_err(|e| KernelError::bpf("attaching an XDP program", e))?;
            Ok((link, false))
        })
    }

    /// Puts a program behind those that an interface has at its ingress hook (Linux 6.6).
    pub(crate) fn tcx(program: &LoadedProgram, interface: u32) -> Result<Link, KernelError> {
        create(program, interface, ATTACH_TCX_INGRESS, 0)
            .map_err(|e| KernelError::bpf("attaching a tcx program", e))
    }

    /// Exchanges the program; each packet meets the old one or the new one.
    #[allow(unsafe_code, reason = "a system call")]
    pub(crate) fn replace(&self, program: &LoadedProgram) -> Result<(), KernelError> {
        let mut update = Update {
            link_fd: self.fd.as_raw_fd().cast_unsigned(),
            program_fd: program.fd().cast_unsigned(),
            flags: 0,
            old_program_fd: 0,
        };
        // SAFETY: `Update` is the command's part of the attributes, without addresses.
        unsafe { bpf(LINK_UPDATE, &mut update) }
            .map(drop)
            .map_err(|e| KernelError::bpf("exchanging an interface's program", e))
    }
}

#[allow(unsafe_code, reason = "a system call")]
fn create(program: &LoadedProgram, interface: u32, attach: u32, flags: u32) -> io::Result<Link> {
    let mut create = Create {
        program_fd: program.fd().cast_unsigned(),
        interface,
        attach,
        flags,
        relative_fd: 0,
        gap: 0,
        revision: 0,
    };
    // SAFETY: `Create` is the command's part of the attributes, without addresses.
    let fd = unsafe { bpf_open(LINK_CREATE, &mut create) }?;
    Ok(Link { fd })
}

/// The number of an interface by its name.
pub(crate) fn interface_index(name: &str) -> Result<u32, KernelError> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM);
    rustix::net::socket_with(family, kind, flags, None)
        .and_then(|socket| rustix::net::netdevice::name_to_index(&socket, name))
        .map_err(|e| KernelError::Interface { name: name.to_owned(), source: e.into() })
}
