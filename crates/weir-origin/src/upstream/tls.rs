//! TLS to servers: roots, ALPN, and the verifiers: by named roots, and of anything for tests.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use tokio_rustls::TlsConnector;
use weir_config::{UpstreamProtocol, UpstreamTls};

use crate::error::{ErrorKind, OriginError};

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// A group's TLS settings, ready for use.
#[derive(Clone)]
pub(super) struct Tls {
    /// Offers what the group's `protocol` allows.
    pub(super) any: TlsConnector,
    /// Offers HTTP/1.1 only, for upgrades.
    pub(super) http1: TlsConnector,
}

impl Tls {
    pub(super) fn new(
        config: &UpstreamTls,
        protocol: UpstreamProtocol,
        group: &str,
    ) -> Result<Tls, OriginError> {
        let alpn: &[&[u8]] = match protocol {
            UpstreamProtocol::Auto => &[HTTP2, HTTP1],
            UpstreamProtocol::Http1 => &[HTTP1],
            UpstreamProtocol::Http2 => &[HTTP2],
        };
        let base = client_config(config, group)?;
        if config.insecure {
            tracing::warn!(upstream = group, "certificates of this upstream are not verified");
        }
        let with = |alpn: &[&[u8]]| {
            let mut client = base.clone();
            client.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
            TlsConnector::from(Arc::new(client))
        };
        Ok(Tls { any: with(alpn), http1: with(&[HTTP1]) })
    }
}

/// Whether the handshake settled on HTTP/2.
pub(super) fn is_http2(alpn: Option<&[u8]>) -> bool {
    alpn == Some(HTTP2)
}

fn client_config(config: &UpstreamTls, group: &str) -> Result<ClientConfig, OriginError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| OriginError::new(ErrorKind::Config, group, error))?;
    if config.insecure {
        let verifier = Arc::new(AcceptAny(provider));
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth());
    }
    let Some(path) = &config.ca else {
        let roots = system_roots(group)?;
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    };
    let (roots, named) = roots_of(path, group)?;
    let by_roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| OriginError::new(ErrorKind::Config, group, error))?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ByNamed { by_roots, named }))
        .with_no_client_auth())
}

/// The roots in a file, and its certificates as they are.
fn roots_of(
    path: &Path,
    group: &str,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), OriginError> {
    let fail = |cause: String| {
        OriginError::new(ErrorKind::Config, group, format!("{}: {cause}", path.display()))
    };
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    for certificate in
        CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| fail(error.to_string()))?;
        named.push(certificate.clone());
        roots.add(certificate).map_err(|error| fail(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fail("holds no certificate; expected PEM \"CERTIFICATE\" blocks".into()));
    }
    Ok((roots, named))
}

/// The operating system's roots, read once for the process: it takes tens of milliseconds.
fn system_roots(group: &str) -> Result<Arc<RootCertStore>, OriginError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a system root certificate cannot be read");
        }
        roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        let cause = "no root certificates on this system; name a file with \"tls ca=…\"";
        return Err(OriginError::new(ErrorKind::Config, group, cause));
    }
    Ok(Arc::clone(roots))
}

/// Verifies by the named roots, and takes a server whose own certificate is named at its word, be
/// it a CA's too: `openssl req -x509` makes such ones, and webpki takes no CA for a server.
#[derive(Debug)]
struct ByNamed {
    by_roots: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for ByNamed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = &self.by_roots;
        match verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            Err(error) if is_ca(&error) && self.named.iter().any(|named| named == end_entity) => {
                // webpki has looked at the times before it complained; what is left is the name.
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_roots.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_roots.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_roots.supported_verify_schemes()
    }
}

fn is_ca(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error
    else {
        return false;
    };
    matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Accepts every certificate, but still checks that the peer holds its key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
