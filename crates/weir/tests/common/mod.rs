//! What tests of the running server share: the real binary with a configuration, a client that
//! sends bytes as they are, an origin that answers by script, and other people's tools.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of this")]

pub mod client;
pub mod net;
pub mod origin;
pub mod server;
pub mod tools;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// How long anything may take that should take no time: long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An address on loopback where nothing listens. Below the ports that the system gives to outgoing
/// connections, so that none of those takes it before the server does.
pub fn free_address() -> SocketAddr {
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time start at different places.
    let start = u16::try_from(std::process::id() * 97 % u32::from(COUNT)).unwrap();
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start.wrapping_add(offset)) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if is_free(address) {
            return address;
        }
    }
    panic!("no free port on loopback");
}

/// Whether a server could listen there. Asked without listening: a child that another test starts
/// at this moment holds a copy of the socket until it executes its program, and a copy that listens
/// would take the first connection to a server that does not listen yet.
fn is_free(address: SocketAddr) -> bool {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).is_ok()
}

/// Waits until `ready` gives a value; `None` after `patience`.
pub fn wait_for<T>(patience: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
