//! How a forward proxy reaches the servers that its clients name: where it may connect to, and how
//! they are verified. One for all of them, since roots are many.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use weir_config::{Forward, Target, UpstreamProtocol, UpstreamTls};

use super::dial::{Resolved, dial};
use super::stream::Socket;
use super::tls::Tls;
use crate::egress::Egress;
use crate::error::{ErrorKind, OriginError};
use crate::names::Names;

/// The way out of a forward proxy.
pub struct Way {
    pub(super) requests: Exit,
    tunnels: Exit,
    /// `None` where the system has no roots: then no origin can be verified.
    pub(super) tls: Option<Tls>,
}

/// Where it leads, for requests or for tunnels, and who finds addresses of the names there.
#[derive(Clone)]
pub(super) struct Exit {
    pub(super) egress: Arc<Egress>,
    pub(super) names: Arc<Names>,
}

impl Way {
    /// The way that `settings` describe, for a server that listens at `own`; `names` looks up what
    /// clients name. Reads the CA file, if one is named, or else the operating system's roots.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] with the file that cannot be used.
    pub fn new(
        settings: &Forward,
        own: Vec<SocketAddr>,
        names: &Arc<Names>,
    ) -> Result<Way, OriginError> {
        let exit = |egress| Exit { egress: Arc::new(egress), names: Arc::clone(names) };
        let tls = UpstreamTls { ca: settings.ca.clone(), ..UpstreamTls::default() };
        let tls = match Tls::new(&tls, UpstreamProtocol::Auto, "forward") {
            Ok(tls) => Some(tls),
            Err(error) if settings.ca.is_none() => {
                tracing::warn!(cause = error.cause(), "no origin can be asked over https");
                None
            }
            Err(error) => return Err(error),
        };
        let requests = exit(Egress::new(settings, own.clone()));
        Ok(Way { requests, tunnels: exit(Egress::of_tunnels(settings, own)), tls })
    }

    /// Where requests may go.
    pub fn egress(&self) -> &Egress {
        &self.requests.egress
    }

    /// Where tunnels may lead.
    pub fn tunnels(&self) -> &Egress {
        &self.tunnels.egress
    }

    /// Connects a tunnel to a host (in its one form) and a port, within `limit`.
    ///
    /// # Errors
    /// What a request's connection fails with, too; the kind is `Denied` if it may not lead there.
    pub async fn tunnel(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<TcpStream, OriginError> {
        let server = format!("{host}:{port}");
        let target = Target::Host(host.trim_matches(['[', ']']).to_owned(), port);
        let resolved = Resolved::default();
        let dialling = dial(&target, &resolved, &server, Some(&self.tunnels));
        match tokio::time::timeout(limit, dialling).await {
            Ok(Ok(Socket::Tcp(tcp))) => Ok(tcp),
            // `Target::Host` leads to no other.
            Ok(Ok(Socket::Unix(_))) => {
                Err(OriginError::new(ErrorKind::Connect, server, "not a TCP connection"))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let cause = format!("no connection within {limit:?}");
                Err(OriginError::new(ErrorKind::ConnectTimeout, server, cause))
            }
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way").field("egress", self.egress()).finish_non_exhaustive()
    }
}
