//! Listeners that are about to be closed: no new handshake begins there, while those that have
//! begun complete and can be accepted. Closing right away would reset them.

use std::os::fd::BorrowedFd;

use weir_config::KernelUse;

use crate::compile;
use crate::error::KernelError;
use crate::sys::{ClassicInsn, LoadedProgram, ProgramKind, attach_classic_filter, attach_filter};

/// What refuses new connections. Clients send their SYN again, and find the port closed or taken
/// over.
#[derive(Debug)]
pub struct Refusal {
    program: Option<LoadedProgram>,
}

impl Refusal {
    /// Loads a program, if that is wanted and permitted: once it is loaded, it takes no privilege
    /// to attach it.
    pub fn load(wanted: KernelUse) -> Refusal {
        let load = |program| LoadedProgram::load(ProgramKind::SocketFilter, &program);
        let program = match wanted {
            // Without one there is a classic one.
            KernelUse::Auto => compile::refuse().and_then(load).ok(),
            KernelUse::Off => None,
        };
        Refusal { program }
    }

    /// Has a listener refuse whoever comes from now on. Without [`Refusal::load`]'s program this
    /// takes CAP_NET_ADMIN from Linux 6.18 on.
    ///
    /// # Errors
    /// If the socket takes no program; then closing it right away is all that is left.
    pub fn hold(&self, listener: BorrowedFd<'_>) -> Result<(), KernelError> {
        match &self.program {
            Some(program) => attach_filter(listener, program),
            None => attach_classic_filter(listener, &CLASSIC),
        }
    }
}

/// Of the TCP header's byte 13 only SYN is set, not ACK: drop; everything else passes.
const CLASSIC: [ClassicInsn; 5] = {
    const fn insn(code: u16, if_false: u8, value: u32) -> ClassicInsn {
        ClassicInsn { code, if_true: 0, if_false, value }
    }
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        insn(LOAD_BYTE, 0, 13),
        insn(AND, 0, 0x12),
        insn(JUMP_EQUAL, 1, 0x02),
        insn(RETURN, 0, 0),
        insn(RETURN, 0, u32::MAX),
    ]
};

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::thread::CapabilitySet;

    use super::*;
    use crate::testing::within_capabilities;
    use crate::testnet::{connect, listen};

    const PATIENT: Duration = Duration::from_secs(20);

    /// Whoever has begun to connect is accepted, and nobody else comes.
    fn check(refusal: &Refusal) {
        let listener = listen("127.0.0.1:0", 64);
        let to = listener.local_addr().unwrap();
        let mut early = TcpStream::connect(to).unwrap();
        refusal.hold(listener.as_fd()).unwrap();
        // A SYN that is dropped is not sent again before this.
        let late = connect("127.0.0.1:0", &to.to_string(), Duration::from_millis(300));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        early.write_all(b"hello").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        assert!(listener.accept().is_err(), "a new handshake got through");
        drop(listener);
        accepted.set_nonblocking(false).unwrap();
        accepted.set_read_timeout(Some(PATIENT)).unwrap();
        early.set_read_timeout(Some(PATIENT)).unwrap();
        let mut heard = [0; 5];
        accepted.read_exact(&mut heard).unwrap();
        accepted.write_all(b"world").unwrap();
        early.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"world");
    }

    #[test]
    fn whoever_has_begun_to_connect_is_accepted_still() {
        let loaded = Refusal::load(KernelUse::Auto);
        if loaded.program.is_none() {
            return println!("skipped: loading programs is not permitted");
        }
        check(&loaded);
        check(&Refusal { program: None });
        within_capabilities(CapabilitySet::empty(), || check(&loaded));
    }
}
