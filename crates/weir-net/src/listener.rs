//! Listening sockets: one per worker and address (SO_REUSEPORT), so that workers share no accept
//! queue; Unix-domain sockets are shared, since the kernel does not balance those.

use std::fs::{File, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::io::unix::AsyncFd;

/// Connections that may wait in a worker's accept queue; the kernel caps it at net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// A silent client is handed over after this time; until then its connection costs no descriptor.
const DEFER_ACCEPT: Duration = Duration::from_secs(5);

/// Binds a TCP listener for one worker. Options that connections inherit are set here, once.
///
/// # Errors
/// What the system says: the address is in use, not local, or privileged.
pub fn bind_tcp(address: SocketAddr) -> io::Result<OwnedFd> {
    let (socket, address) = open_tcp(address)?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_tcp_nodelay(true)?;
    if let IpAddr::V6(ip) = address.ip() {
        // `[::]` serves IPv4 too, as users of `:8080` expect.
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    defer_accept(&socket);
    Ok(socket.into())
}

/// Binds a Unix-domain listener whose file gets this mode, whatever the process's umask. Nobody
/// can connect who the mode does not allow to, not even for a moment.
///
/// # Errors
/// What the system says; `AddrInUse` if the path exists.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let permissions = Permissions::from_mode(mode);
    // The file is made with the mode of the socket, of which the umask takes away.
    let socket = File::from(OwnedFd::from(socket));
    socket.set_permissions(permissions.clone())?;
    let socket = Socket::from(OwnedFd::from(socket));
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, permissions)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket file of a server that is gone; tells whether there was one.
///
/// # Errors
/// `AddrInUse` if somebody listens there, `AlreadyExists` if the path is no socket, or what else
/// the system says.
pub fn remove_stale_unix(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // One with a full accept queue would make the question wait.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        // The only answer that says that nobody is there.
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?;
            Ok(true)
        }
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// Whether a TCP address is free for this process, ignoring SO_REUSEPORT: without this question a
/// second server started by mistake would silently share the port.
///
/// # Errors
/// `AddrInUse` or what else the system says.
pub fn probe_tcp(address: SocketAddr) -> io::Result<()> {
    let (socket, address) = open_tcp(address)?;
    socket.set_reuse_address(true)?;
    if let IpAddr::V6(ip) = address.ip() {
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.bind(&address.into())
}

/// A socket for an address, and the address to bind it to.
fn open_tcp(address: SocketAddr) -> io::Result<(Socket, SocketAddr)> {
    let open = |address| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        Ok((socket, address))
    };
    open(address).or_else(|e| open(instead(address, &e).ok_or(e)?))
}

/// All interfaces, `[::]`, are those of IPv4 on a machine whose kernel has no IPv6.
fn instead(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    let lacks = error.raw_os_error() == Some(libc::EAFNOSUPPORT);
    (is_any && lacks).then(|| (Ipv4Addr::UNSPECIFIED, address.port()).into())
}

/// The address a TCP listener is bound to, with the port the kernel chose for port 0.
///
/// # Errors
/// If the descriptor is no TCP socket.
pub fn local_address(fd: &impl AsFd) -> io::Result<SocketAddr> {
    let any = rustix::net::getsockname(fd)?;
    SocketAddr::try_from(any).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// A listener in a worker's event loop.
#[derive(Debug)]
pub struct Listener {
    fd: AsyncFd<OwnedFd>,
}

impl Listener {
    /// Registers a bound, nonblocking listener with the current runtime.
    ///
    /// # Errors
    /// If the event loop refuses the descriptor.
    pub fn new(fd: OwnedFd) -> io::Result<Listener> {
        // SAFETY: the descriptor is owned by the `AsyncFd` and stays open until it is dropped.
        let fd = unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)?;
        Ok(Listener { fd })
    }

    /// The next connection: a nonblocking descriptor and, for TCP, the client's address.
    ///
    /// # Errors
    /// Of the listener itself: descriptors or memory exhausted. Connections that failed before
    /// they were accepted are passed over.
    pub async fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        loop {
            let mut guard = self.fd.readable().await?;
            match guard.try_io(|fd| accept(fd.get_ref())) {
                Ok(Err(e)) if is_of_the_connection(&e) => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// The same, polled.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_accept(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(OwnedFd, Option<SocketAddr>)>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            match guard.try_io(|fd| accept(fd.get_ref())) {
                Ok(Err(e)) if is_of_the_connection(&e) => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    /// A connection that already waits, if any.
    pub fn accept_waiting(&self) -> Option<(OwnedFd, Option<SocketAddr>)> {
        accept(self.fd.get_ref()).ok()
    }
}

fn accept(fd: &OwnedFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, peer) = rustix::net::acceptfrom_with(fd, flags)?;
    Ok((fd, peer.and_then(|any| SocketAddr::try_from(any).ok())))
}

/// Errors that belong to one connection (accept(2), "Error handling"), not to the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, HostUnreachable, Interrupted, NetworkDown};
    use io::ErrorKind::{NetworkUnreachable, PermissionDenied};
    matches!(
        error.kind(),
        ConnectionAborted
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | HostUnreachable
            | PermissionDenied
    ) || error.raw_os_error() == Some(libc::EPROTO)
}

/// Wakes the server with the request instead of with the connection: one trip through the event
/// loop less. Where the option is missing nothing but that is lost.
fn defer_accept(socket: &Socket) {
    let seconds = libc::c_int::try_from(DEFER_ACCEPT.as_secs()).unwrap_or(1);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is an int that lives through the call. Test:
    // `tests/stream.rs` accepts through such a listener.
    let _ = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(socket),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            std::ptr::from_ref(&seconds).cast(),
            length,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_ipv6_all_interfaces_are_those_of_ipv4() {
        let check = |address: &str, errno: i32, expect: Option<&str>| {
            let got = instead(address.parse().unwrap(), &io::Error::from_raw_os_error(errno));
            assert_eq!(got, expect.map(|address| address.parse().unwrap()), "{address} {errno}");
        };
        check("[::]:80", libc::EAFNOSUPPORT, Some("0.0.0.0:80"));
        check("[::]:80", libc::EADDRINUSE, None);
        check("[::]:80", libc::EACCES, None);
        check("[::1]:80", libc::EAFNOSUPPORT, None);
        check("0.0.0.0:80", libc::EAFNOSUPPORT, None);
    }
}
