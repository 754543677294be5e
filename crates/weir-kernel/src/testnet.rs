//! For tests: two network namespaces and a cable between them, which go away with the value that
//! stands for them.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// A server's and a client's side. The server is 10.77.0.1 and fd77::1; the client has the rest of
/// 10.77.0.0/16 and fd77::/64 in its hands, of which `sources` are its addresses.
pub(crate) struct Net {
    server: String,
    client: String,
}

/// The server's interface.
pub(crate) const SERVER_INTERFACE: &str = "server";

impl Net {
    /// `None`, and a line that says why, without the privilege or without `ip`.
    pub(crate) fn new(sources: &[&str]) -> Option<Net> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir{}x{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let net = Net { server: format!("{name}s"), client: format!("{name}c") };
        if let Err(e) = ip(&format!("netns add {}", net.server)) {
            println!("skipped: no network namespaces here: {e}");
            return None;
        }
        ip(&format!("netns add {}", net.client)).unwrap();
        let (server, client) = (&net.server, &net.client);
        let pair = "type veth peer name client netns";
        ip(&format!("-n {server} link add {SERVER_INTERFACE} {pair} {client}")).unwrap();
        for (namespace, device, addresses) in [
            (server, SERVER_INTERFACE, &["10.77.0.1/16", "fd77::1/64"][..]),
            (client, "client", sources),
        ] {
            for address in addresses {
                // Without duplicate detection an address can be used at once.
                let nodad = if address.contains(':') { "nodad" } else { "" };
                ip(&format!("-n {namespace} addr add {address} dev {device} {nodad}")).unwrap();
            }
            ip(&format!("-n {namespace} link set {device} up")).unwrap();
            ip(&format!("-n {namespace} link set lo up")).unwrap();
        }
        Some(net)
    }

    /// Runs on a thread of the server's side.
    pub(crate) fn server<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        within(&self.server, run)
    }

    /// Runs on a thread of the client's side.
    pub(crate) fn client<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        within(&self.client, run)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            // One that was not made is not there to be removed.
            let _absent = ip(&format!("netns del {name}"));
        }
    }
}

fn within<T: Send>(namespace: &str, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{namespace}")).unwrap();
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), kind).unwrap();
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {said}")) }
}

/// A listener of a SO_REUSEPORT group.
pub(crate) fn listen(address: &str, backlog: i32) -> TcpListener {
    let address: SocketAddr = address.parse().unwrap();
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(backlog).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// Connects from one of the client's addresses.
pub(crate) fn connect(from: &str, to: &str, patience: Duration) -> std::io::Result<TcpStream> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&from.into())?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

/// Sends a SYN, and does not wait for what comes of it: the socket is returned to be dropped.
pub(crate) fn knock(from: &str, to: &str) -> Socket {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP)).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&from.into()).unwrap();
    let begun = socket.connect(&to.into()).unwrap_err();
    assert_eq!(begun.raw_os_error(), Some(libc::EINPROGRESS));
    socket
}
