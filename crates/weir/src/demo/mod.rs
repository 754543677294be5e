//! A small origin for `weir demo`: pictures drawn by code, text, and pages that are slow,
//! short-lived, varying, failing or endless, each made to show one thing a cache does with it. It
//! knows nothing of Weir but where it listens, to send crowds there; everything one can see, Weir
//! does.

mod answer;
mod banner;
mod crowd;
mod gallery;
mod guard;
mod pictures;
mod plugin;
mod routes;
mod sale;
mod tally;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use banner::banner;
pub use gallery::{LIST as ADS_LIST, ROUTES as ADAPTED_ROUTES};
pub use guard::{GUARD, GUARDED, UNGUARDED};
pub use plugin::{GRAY, GRAY_PATTERN, GRAY_PICTURE, GRAY_PREFIX, Shown};
pub use sale::PLACES as SALE_PLACES;

/// Connections served at once; Weir in front keeps far fewer.
const CONNECTIONS_MAX: usize = 1024;

/// How long a connection may take for a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Rest after a failed accept: out of descriptors, the next attempt fails as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where Weir listens, once it does.
pub type Front = Arc<OnceLock<SocketAddr>>;

/// Serves the demo's origin on `listener` until the future is dropped. Crowds are sent to `front`,
/// which is to be on this machine.
pub async fn serve(listener: TcpListener, front: Front) -> Infallible {
    let origin = Arc::new(routes::Origin::new(front));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "demo origin: accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let origin = Arc::clone(&origin);
        tokio::spawn(async move {
            let _permit = permit;
            let service = service_fn(move |request| {
                let origin = Arc::clone(&origin);
                async move { Ok::<_, Infallible>(origin.answer(request).await) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                // A client that went away; nothing to be done about it here.
                tracing::debug!(%error, "demo origin: connection");
            }
        });
    }
}
