//! The admin API: health, metrics, status, purge, reload, plugins, guard. JSON over HTTP/1.1 on a
//! listener of its own, which is loopback or a Unix-domain socket unless the operator insists
//! otherwise.

pub mod guard;
mod handle;
mod plugins;
mod purge;
mod quantity;
mod status;
mod wanted;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use weir_config::Address;

use crate::guard::NOTE_PERIOD;
use crate::sockets::bind_socket_file;
use crate::{Server, StartError};

/// Admin connections served at once; more wait in the accept queue.
const CONNECTIONS_MAX: usize = 64;

/// A head that has not arrived by then will not.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How the API reloads: reads the configuration anew. The error is for people, as `weir check`
/// would print it.
pub type Reload = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A bound admin listener.
pub struct Admin {
    listener: Listener,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Admin {
    /// Binds the admin listener. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError::Bind`] with the address and the reason.
    pub fn bind(address: &Address) -> Result<Admin, StartError> {
        let listener = match address {
            Address::Tcp(tcp) => bind_tcp(*tcp).map(Listener::Tcp),
            Address::Unix(path) => bind_private(path).map(Listener::Unix),
        };
        let listener =
            listener.map_err(|source| StartError::Bind { address: address.clone(), source })?;
        Ok(Admin { listener })
    }

    /// The TCP address with the port that the kernel chose for port 0.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// Serves for as long as the runtime lives.
    pub async fn serve(self, server: Arc<Server>, reload: Reload) {
        tokio::spawn(note_rates(Arc::clone(&server)));
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let local = matches!(self.listener, Listener::Unix(_));
        loop {
            // The semaphore is never closed.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (server, reload) = (Arc::clone(&server), Arc::clone(&reload));
            let accepted = match &self.listener {
                Listener::Tcp(listener) => listener.accept().await.map(|(s, _)| Peer::Tcp(s)),
                Listener::Unix(listener) => listener.accept().await.map(|(s, _)| Peer::Unix(s)),
            };
            match accepted {
                Ok(peer) => {
                    tokio::spawn(async move {
                        match peer {
                            Peer::Tcp(stream) => connection(stream, server, reload, local).await,
                            Peer::Unix(stream) => connection(stream, server, reload, local).await,
                        }
                        drop(place);
                    });
                }
                Err(cause) => {
                    tracing::error!(%cause, "admin: cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Notes every second how far counters have come, so that status can tell rates.
async fn note_rates(server: Arc<Server>) {
    let guard = &server.shared().guard;
    loop {
        guard.rates.note(guard.now_ns(), &guard.classes);
        tokio::time::sleep(NOTE_PERIOD).await;
    }
}

enum Peer {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn connection<S>(stream: S, server: Arc<Server>, reload: Reload, local: bool)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, reload) = (Arc::clone(&server), Arc::clone(&reload));
        async move { Ok::<_, Infallible>(handle::handle(&server, &reload, local, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    if let Err(cause) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%cause, "admin: connection ended");
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Only the server's own user may connect.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let listener = bind_socket_file(path, 0o600)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(listener))
}
