//! A TLS client that takes any certificate and says which it was shown.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::common::PATIENCE;

/// A connection after its handshake.
pub(crate) struct Shaken {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// What the server showed, the leaf only.
    pub(crate) certificate: Vec<u8>,
    /// What was agreed on by ALPN.
    pub(crate) protocol: Option<String>,
}

/// A response over TLS.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) body: Vec<u8>,
}

/// Connects, asks for `name` and offers these protocols.
pub(crate) fn handshake(address: SocketAddr, name: &str, offered: &[&str]) -> io::Result<Shaken> {
    handshake_after(b"", address, name, offered)
}

/// The same after some bytes in clear.
pub(crate) fn handshake_after(
    before: &[u8],
    address: SocketAddr,
    name: &str,
    offered: &[&str],
) -> io::Result<Shaken> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(before)?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(config(offered), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    let certificate = connection.peer_certificates().unwrap()[0].to_vec();
    let protocol = connection.alpn_protocol().map(|p| String::from_utf8(p.to_vec()).unwrap());
    Ok(Shaken { stream: StreamOwned::new(connection, stream), certificate, protocol })
}

impl Shaken {
    /// A request by HTTP/1.1, and the response's bytes: at least a head, and what came with it.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<Vec<u8>> {
        write!(self.stream, "GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")?;
        let mut response = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer)?;
            response.extend_from_slice(&buffer[..count]);
            let head = crate::common::client::find(&response, b"\r\n\r\n");
            // The answers that are asked for this way have a body of a few bytes.
            if count == 0 || head.is_some_and(|end| response.len() > end + 4) {
                return Ok(response);
            }
        }
    }

    /// Whether the server ends the connection within this time.
    pub(crate) fn is_ended(&mut self, within: Duration) -> bool {
        self.stream.sock.set_read_timeout(Some(within)).unwrap();
        match self.stream.read(&mut [0; 100]) {
            Ok(count) => count == 0,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }
}

/// A whole exchange, by whichever protocol is agreed on.
pub(crate) fn get(
    address: SocketAddr,
    host: &str,
    path: &str,
    offered: &[&str],
) -> Result<Response, Box<dyn std::error::Error + Send + Sync>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let name = ServerName::try_from(host.to_owned())?;
        let connector = tokio_rustls::TlsConnector::from(config(offered));
        let stream = connector.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let request = Request::builder().header("host", host);
        let response = if is_http2 {
            use hyper::client::conn::http2;
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(connection);
            let uri = format!("https://{host}{path}");
            let request = Request::builder().uri(uri).body(Empty::<Bytes>::new())?;
            let response = sender.send_request(request).await?;
            collect(response).await?
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
            tokio::spawn(connection);
            let response =
                sender.send_request(request.uri(path).body(Empty::<Bytes>::new())?).await?;
            collect(response).await?
        };
        Ok(response)
    })
}

async fn collect(response: http::Response<hyper::body::Incoming>) -> hyper::Result<Response> {
    let (head, body) = response.into_parts();
    Ok(Response {
        status: head.status.as_u16(),
        version: format!("{:?}", head.version),
        body: body.collect().await?.to_bytes().to_vec(),
    })
}

/// Verifies a self-signed certificate as if somebody had decided to trust it.
pub(crate) fn verify_own(certificate: &[u8], host: &str) -> Result<(), rustls::Error> {
    let certificate = CertificateDer::from(certificate.to_vec());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
    // That it is valid today, and for this name.
    verifier.build().unwrap().verify_server_cert(&certificate, &[], &name, &[], UnixTime::now())?;
    verify_server_name(&ParsedCertificate::try_from(&certificate)?, &name)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn config(offered: &[&str]) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(Anything));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Takes every certificate; the tests compare what they were shown.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
