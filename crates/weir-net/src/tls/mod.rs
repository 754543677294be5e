//! Server-side TLS: which certificate answers which name, where certificates come from, and the
//! settings every TLS listener shares. Handshakes and streams belong to the listeners.

mod authority;
mod load;
mod names;
mod self_signed;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ResolvesServerCert, ServerSessionMemoryCache};

pub use self::authority::{Authority, NewAuthority};
pub use self::load::CertificateFiles;
pub use self::store::{CertStore, Reload};
use crate::NetError;

/// Sessions kept for TLS 1.2 clients that resume by session identifier; everyone else resumes by
/// ticket, which the server does not store. An entry is a few hundred bytes, so this is about half
/// a megabyte a listener.
const STORED_SESSIONS_MAX: usize = 1024;

/// Protocols offered by ALPN, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The TLS settings of a listener whose certificates are in `store`.
///
/// TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1 by ALPN, resumption by tickets whose keys are made here and
/// rotated by rustls. Share one value between all workers: a ticket is good wherever it is shown.
/// No early data: a request in it could be replayed (RFC 8470, section 3).
///
/// # Errors
/// [`NetError::Tls`] if the system gives no random numbers for the ticket keys.
pub fn server_config(store: Arc<CertStore>) -> Result<Arc<ServerConfig>, NetError> {
    settings(store).map(Arc::new)
}

fn settings(certificates: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, NetError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.session_storage = ServerSessionMemoryCache::new(STORED_SESSIONS_MAX);
    config.max_early_data_size = 0;
    // A server that speaks first could use half a round trip; HTTP's server never does, and data
    // sent before the client's Finished would go to a client that has proved nothing.
    config.send_half_rtt_data = false;
    Ok(config)
}
