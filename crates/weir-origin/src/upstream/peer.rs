//! Whom a connection leads to, for those who ask: its addresses, and what TLS agreed on.

use std::net::SocketAddr;

use rustls::ProtocolVersion;
use rustls::pki_types::CertificateDer;

use super::stream::{Socket, Stream};

/// The other side of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The server's address; `None` over a Unix-domain socket.
    pub address: Option<SocketAddr>,
    /// The connection's own address, likewise.
    pub local: Option<SocketAddr>,
    /// What the handshake agreed on.
    pub tls: Option<PeerTls>,
}

/// A connection's TLS.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The server's own certificate.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Peer {
    pub(super) fn of(stream: &Stream) -> Peer {
        let (socket, tls) = match stream {
            Stream::Plain(socket) => (socket, None),
            Stream::Tls(stream) => {
                let (socket, session) = stream.get_ref();
                let version = match session.protocol_version() {
                    Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                    // No other is offered.
                    _ => "TLSv1.3",
                };
                let chain = session.peer_certificates().unwrap_or_default();
                let certificate = chain.first().map(|own| own.clone().into_owned());
                (socket, Some(PeerTls { version, certificate }))
            }
        };
        match socket {
            Socket::Tcp(tcp) => {
                Peer { address: tcp.peer_addr().ok(), local: tcp.local_addr().ok(), tls }
            }
            Socket::Unix(_) => Peer { tls, ..Peer::default() },
        }
    }
}
