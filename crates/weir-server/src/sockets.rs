//! The listening sockets of all workers: bound before privileges are dropped, handed to the
//! workers, and changed by reloads.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use weir_config::Address;
use weir_net::{bind_tcp, bind_unix, local_address, probe_tcp, remove_stale_unix};

use crate::error::StartError;

/// Mode of a site's socket: whoever can reach it may connect, as anybody may to a port. Its
/// directory says who can reach it.
const PUBLIC: u32 = 0o666;

/// One listening address, bound once for each worker.
pub(crate) struct Bound {
    pub(crate) address: Address,
    /// The TCP address with the port that the kernel chose for port 0.
    pub(crate) local: Option<SocketAddr>,
    /// One descriptor a worker.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Bound {
    /// Binds an address for `workers` workers.
    ///
    /// # Errors
    /// [`StartError::Bind`] with the address and the reason.
    pub(crate) fn bind(address: &Address, workers: usize) -> Result<Bound, StartError> {
        let bound = match address {
            Address::Tcp(tcp) => bind_tcp_for_all(*tcp, workers),
            Address::Unix(path) => bind_socket_file(path, PUBLIC).and_then(|fd| {
                let copies = (1..workers).map(|_| fd.try_clone()).collect::<io::Result<Vec<_>>>();
                let mut descriptors = copies?;
                descriptors.push(fd);
                Ok((None, descriptors))
            }),
        };
        let (local, descriptors) =
            bound.map_err(|source| StartError::Bind { address: address.clone(), source })?;
        Ok(Bound { address: address.clone(), local, descriptors })
    }
}

/// Binds a Unix-domain socket, also where a server that crashed has left one.
pub(crate) fn bind_socket_file(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    if remove_stale_unix(path)? {
        tracing::info!(path = %path.display(), "replacing a socket that nobody listens on");
    }
    bind_unix(path, mode)
}

fn bind_tcp_for_all(
    address: SocketAddr,
    workers: usize,
) -> io::Result<(Option<SocketAddr>, Vec<OwnedFd>)> {
    if address.port() != 0 {
        probe_tcp(address)?;
    }
    let first = bind_tcp(address)?;
    let local = local_address(&first)?;
    let mut descriptors = vec![first];
    for _ in 1..workers {
        descriptors.push(bind_tcp(local)?);
    }
    Ok((Some(local), descriptors))
}
