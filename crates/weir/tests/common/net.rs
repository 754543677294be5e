//! Two network namespaces and a cable between them: a server on one side, clients with addresses
//! of their own on the other, and packets whose senders there are none. All of it goes away with
//! the value that stands for it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Two namespaces. The client has 10.77.0.2 to 10.77.0.9; whatever is sent to 10.78.0.0/16 goes its
/// way, too, and is lost there.
pub struct Net {
    server: String,
    client: String,
}

impl Net {
    /// Nothing, and a line that says why, without the privilege or without `ip`.
    pub fn new() -> Option<Net> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir{}t{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let net = Net { server: format!("{name}s"), client: format!("{name}c") };
        if let Err(cause) = ip(&format!("netns add {}", net.server)) {
            eprintln!("skipped: no network namespaces here: {cause}");
            return None;
        }
        let (server, client) = (&net.server, &net.client);
        let mut steps = vec![
            format!("netns add {client}"),
            format!("-n {server} link add server type veth peer name client netns {client}"),
            format!("-n {server} addr add 10.77.0.1/16 dev server"),
        ];
        steps.extend((2..10).map(|n| format!("-n {client} addr add 10.77.0.{n}/16 dev client")));
        for (namespace, device) in [(server, "server"), (client, "client")] {
            steps.push(format!("-n {namespace} link set {device} up"));
            steps.push(format!("-n {namespace} link set lo up"));
        }
        steps.push(format!("-n {server} route add 10.78.0.0/16 via 10.77.0.2"));
        for step in steps {
            ip(&step).unwrap();
        }
        Some(net)
    }

    /// Runs on a thread of the server's side; so does what it starts.
    pub fn server<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        within(&self.server, run)
    }

    /// Runs on a thread of the clients' side.
    pub fn client<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        within(&self.client, run)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            // One that was not made is not there to be removed.
            let _ = ip(&format!("netns del {name}"));
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

/// Connects from one of the client's addresses.
pub fn connect_from(from: Ipv4Addr, to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), patience)?;
    Ok(socket.into())
}

/// Sends SYNs of clients that there are not.
pub struct Flood {
    socket: Socket,
    to: SocketAddrV4,
    sent: u32,
}

impl Flood {
    /// To a server's address.
    pub fn new(to: SocketAddrV4) -> Flood {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(6))).unwrap();
        socket.set_header_included_v4(true).unwrap();
        Flood { socket, to, sent: 0 }
    }

    /// One SYN from the next of 10.78.0.0/16's addresses and ports; false if the queue was full.
    pub fn send(&mut self) -> bool {
        let [high, low] = (self.sent as u16).to_be_bytes();
        let port = 1024 + (self.sent >> 16) as u16 % 60_000;
        self.sent = self.sent.wrapping_add(1);
        let packet = syn(SocketAddrV4::new(Ipv4Addr::new(10, 78, high, low), port), self.to);
        let to = SocketAddr::from((*self.to.ip(), 0)).into();
        self.socket.send_to(&packet, &to).is_ok()
    }
}

/// An IPv4 packet with a SYN in it (RFC 791 §3.1, RFC 9293 §3.1). The kernel fills in the IP
/// header's checksum (raw(7)).
fn syn(from: SocketAddrV4, to: SocketAddrV4) -> [u8; 40] {
    let mut packet = [0; 40];
    packet[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    let tcp = &mut packet[20..];
    tcp[..2].copy_from_slice(&from.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
    // A header of 20 bytes, SYN, a window.
    tcp[12..16].copy_from_slice(&[5 << 4, 2, 0xff, 0xff]);
    let pairs =
        packet[12..].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    // The pseudo header besides: protocol and length.
    let mut sum: u32 = pairs.sum::<u32>() + 6 + 20;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[36..38].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}
