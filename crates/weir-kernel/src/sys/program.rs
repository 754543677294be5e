//! Programs: loading, with what the verifier says, and test runs.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::{NAME_BYTES, PROG_LOAD, PROG_TEST_RUN, bpf, bpf_open, name};
use crate::asm::Program;
use crate::error::KernelError;
use crate::limits::{LOG_BYTES_MAX, LOG_LINES_SHOWN};

/// What a program is for, `enum bpf_prog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramKind {
    /// On a socket: drops or keeps packets.
    SocketFilter,
    /// On a group of listeners: chooses one.
    Steering,
    /// On an interface, at the traffic control ingress hook.
    Tcx,
    /// On an interface, before the network stack.
    Xdp,
}

impl ProgramKind {
    /// Type and, where it must be told, the attachment (`enum bpf_attach_type`).
    fn numbers(self) -> (u32, u32) {
        match self {
            ProgramKind::SocketFilter => (1, 0),
            ProgramKind::Tcx => (3, ATTACH_TCX_INGRESS),
            ProgramKind::Xdp => (6, ATTACH_XDP),
            ProgramKind::Steering => (21, ATTACH_REUSEPORT_SELECT),
        }
    }

    fn name(self) -> &'static str {
        match self {
            ProgramKind::SocketFilter => "policing",
            ProgramKind::Steering => "steering",
            ProgramKind::Tcx => "tcx",
            ProgramKind::Xdp => "XDP",
        }
    }
}

pub(super) const ATTACH_XDP: u32 = 37;
pub(super) const ATTACH_TCX_INGRESS: u32 = 46;
const ATTACH_REUSEPORT_SELECT: u32 = 39;

/// The beginning of what `BPF_PROG_LOAD` takes.
#[repr(C)]
struct Load {
    kind: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    attach: u32,
}

/// What `BPF_PROG_TEST_RUN` takes.
#[derive(Default)]
#[repr(C)]
struct Test {
    program_fd: u32,
    result: u32,
    data_in_size: u32,
    data_out_size: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
    context_in_size: u32,
    context_out_size: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    gap: u32,
}

/// What a test run gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestRun {
    /// The program's result.
    pub(crate) result: u32,
    /// Time of one run, the mean of all.
    pub(crate) each: Duration,
}

/// A program in the kernel; it goes with its last descriptor and its last attachment.
#[derive(Debug)]
pub(crate) struct LoadedProgram {
    fd: OwnedFd,
}

impl LoadedProgram {
    /// Has the kernel verify and compile a program. What the verifier says is asked for only when
    /// it refuses: writing it takes it several times as long.
    pub(crate) fn load(kind: ProgramKind, program: &Program) -> Result<LoadedProgram, KernelError> {
        let error = match load(kind, program, &mut []) {
            Ok(fd) => return Ok(LoadedProgram { fd }),
            Err(e) => e,
        };
        if error.raw_os_error() == Some(libc::EPERM) {
            return Err(KernelError::bpf("loading a program", error));
        }
        let mut log = vec![0; LOG_BYTES_MAX];
        // It is refused again, or for the log being too short: the kernel keeps the end of it.
        match load(kind, program, &mut log) {
            Ok(fd) => Ok(LoadedProgram { fd }),
            Err(_) => {
                let log = last_lines(&log);
                Err(KernelError::Refused { program: kind.name(), source: error, log })
            }
        }
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Runs it on a packet, which begins with its Ethernet header, as often as is said.
    #[allow(unsafe_code, reason = "a system call")]
    pub(crate) fn test(&self, packet: &[u8], repeat: u32) -> io::Result<TestRun> {
        let mut attributes = Test {
            program_fd: self.fd().cast_unsigned(),
            data_in_size: packet.len() as u32,
            data_in: packet.as_ptr().addr() as u64,
            repeat,
            ..Test::default()
        };
        // SAFETY: `Test` is the command's part of the attributes; the packet lives until the call
        // returns, and nothing is written but the attributes.
        unsafe { bpf(PROG_TEST_RUN, &mut attributes) }?;
        let each = Duration::from_nanos(attributes.duration_ns.into());
        Ok(TestRun { result: attributes.result, each })
    }
}

#[allow(unsafe_code, reason = "a system call")]
fn load(kind: ProgramKind, program: &Program, log: &mut [u8]) -> io::Result<OwnedFd> {
    // Which functions of the kernel a program may call depends on it; ours need none that is kept
    // for programs under the GPL.
    let license = c"Apache-2.0";
    let (kind, attach) = kind.numbers();
    let log_address = if log.is_empty() { 0 } else { log.as_mut_ptr().addr() as u64 };
    let mut attributes = Load {
        kind,
        insn_count: program.insns().len() as u32,
        insns: program.insns().as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: log_address,
        kernel_version: 0,
        flags: 0,
        name: name("weir"),
        interface: 0,
        attach,
    };
    // SAFETY: `Load` is the beginning of the command's attributes. Instructions and licence are
    // read, and the log is written within its size; all three live until the call returns.
    unsafe { bpf_open(PROG_LOAD, &mut attributes) }
}

/// The last lines of what is before the first zero.
fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
