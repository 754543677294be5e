//! The listening sockets of all workers: bound before privileges are dropped, handed to the
//! workers, and changed by reloads.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use weir_config::Address;
use weir_net::{bind_tcp, bind_unix, local_address, probe_tcp, remove_stale_unix};

use crate::error::StartError;
use crate::guard::{Watch, Wish};

/// Mode of a site's socket: whoever can reach it may connect, as anybody may to a port. Its
/// directory says who can reach it.
const PUBLIC: u32 = 0o666;

/// One listening address, bound for every worker.
pub(crate) struct Bound {
    pub(crate) address: Address,
    /// The TCP address with the port that the kernel chose for port 0.
    pub(crate) local: Option<SocketAddr>,
    /// Of each worker, one for each class, or one for all.
    pub(crate) descriptors: Vec<Vec<OwnedFd>>,
    /// The same sockets of TCP once more, for what is to be done with them later.
    pub(crate) copies: Vec<Vec<OwnedFd>>,
    /// What the kernel does for it.
    pub(crate) watch: Watch,
}

impl Bound {
    /// Binds an address for `workers` workers. Where `wish` is for queues by class, and the kernel
    /// does not fill them, there is one for all.
    ///
    /// # Errors
    /// [`StartError::Bind`] with the address and the reason.
    pub(crate) fn bind(
        address: &Address,
        workers: usize,
        wish: &Wish<'_>,
    ) -> Result<Bound, StartError> {
        let bound = match address {
            Address::Tcp(tcp) => return Bound::bind_tcp(address, *tcp, workers, wish),
            Address::Unix(path) => bind_socket_file(path, PUBLIC).and_then(|fd| {
                let copies = (1..workers).map(|_| fd.try_clone()).collect::<io::Result<Vec<_>>>();
                let mut descriptors = copies?;
                descriptors.push(fd);
                Ok(descriptors)
            }),
        };
        let of_all =
            bound.map_err(|source| StartError::Bind { address: address.clone(), source })?;
        let descriptors = of_all.into_iter().map(|fd| vec![fd]).collect();
        let (copies, watch) = (Vec::new(), Watch::default());
        Ok(Bound { address: address.clone(), local: None, descriptors, copies, watch })
    }

    fn bind_tcp(
        address: &Address,
        tcp: SocketAddr,
        workers: usize,
        wish: &Wish<'_>,
    ) -> Result<Bound, StartError> {
        let failed = |source| StartError::Bind { address: address.clone(), source };
        if tcp.port() != 0 && !wish.is_ours {
            probe_tcp(tcp).map_err(failed)?;
        }
        let mut classes = wish.classes;
        loop {
            let (local, descriptors) =
                bind_for_all(tcp, workers, classes.len().max(1)).map_err(failed)?;
            let watch = Watch::begin(wish.kernel, &descriptors, classes);
            if classes.len() > 1 && !watch.is_steered {
                // Connections would be spread over the queues without regard to their class.
                drop(watch);
                classes = &[];
                continue;
            }
            let copies = copied(&descriptors).map_err(failed)?;
            let (address, local) = (address.clone(), Some(local));
            return Ok(Bound { address, local, descriptors, copies, watch });
        }
    }
}

/// The same sockets by other descriptors.
fn copied(descriptors: &[Vec<OwnedFd>]) -> io::Result<Vec<Vec<OwnedFd>>> {
    descriptors.iter().map(|sockets| sockets.iter().map(OwnedFd::try_clone).collect()).collect()
}

/// Binds a Unix-domain socket, also where a server that crashed has left one.
pub(crate) fn bind_socket_file(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    if remove_stale_unix(path)? {
        tracing::info!(path = %path.display(), "replacing a socket that nobody listens on");
    }
    bind_unix(path, mode)
}

/// Binds so many sockets for each worker. Their order is by class, and within one by worker.
fn bind_for_all(
    address: SocketAddr,
    workers: usize,
    queues: usize,
) -> io::Result<(SocketAddr, Vec<Vec<OwnedFd>>)> {
    let first = bind_tcp(address)?;
    let local = local_address(&first)?;
    let mut descriptors: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
    let mut first = Some(first);
    for _ in 0..queues {
        for of_worker in &mut descriptors {
            of_worker.push(first.take().map_or_else(|| bind_tcp(local), Ok)?);
        }
    }
    Ok((local, descriptors))
}
