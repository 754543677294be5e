//! The one error of this crate.

use std::io;

use crate::asm::AsmError;

/// What went wrong between rules and the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A call of bpf(2) failed.
    #[error("{what}: {source}")]
    Bpf {
        /// What was asked for.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The process may not do that.
    #[error("{what} is not permitted ({source}): it needs {needs}")]
    NotPermitted {
        /// What was asked for.
        what: &'static str,
        /// The capabilities that would do.
        needs: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The verifier refused a program.
    #[error("the kernel's verifier refused the {program} program ({source}):\n{log}")]
    Refused {
        /// Which one.
        program: &'static str,
        /// The system's answer.
        source: io::Error,
        /// The last lines of what the verifier said.
        log: String,
    },
    /// A program could not be assembled.
    #[error(transparent)]
    Assembly(#[from] AsmError),
    /// A socket took no program, or is none that can.
    #[error("socket option {option}: {source}")]
    Socket {
        /// The option's name.
        option: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// No interface has this name.
    #[error("network interface {name:?}: {source}")]
    Interface {
        /// The name.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Something has more of something than there is room for.
    #[error("{what}: {found}; at most {max} fit")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        max: usize,
    },
    /// The kernel does nothing for Weir: the configuration said so.
    #[error("off by configuration (kernel=\"off\")")]
    Off,
}

impl KernelError {
    /// An error of bpf(2), which is one of permission when the system says so.
    pub(crate) fn bpf(what: &'static str, source: io::Error) -> KernelError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                KernelError::NotPermitted { what, needs: NEEDS, source }
            }
            _ => KernelError::Bpf { what, source },
        }
    }
}

/// See the head of `kernel.rs`, where this was found out.
const NEEDS: &str = "CAP_BPF, and CAP_NET_ADMIN for interfaces (before Linux 5.8: CAP_SYS_ADMIN)";
