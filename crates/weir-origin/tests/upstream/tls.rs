//! TLS to servers: trust, names, ALPN.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use weir_config::{Upstream, UpstreamProtocol};
use weir_origin::error::ErrorKind;
use weir_origin::upstream::Group;

use crate::support::*;

/// A TLS origin for `localhost` under a CA of its own. Speaks what ALPN settled and answers with
/// its name.
struct Secure {
    address: SocketAddr,
    ca: PathBuf,
    _directory: tempfile::TempDir,
}

async fn secure(alpn: &[&[u8]]) -> Secure {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();

    showing(alpn, leaf.der().clone(), &key, &ca_certificate.pem()).await
}

/// The same with a certificate that was signed by its own key, and is its own CA.
async fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Secure {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
    change(&mut params);
    let certificate = params.self_signed(&key).unwrap();
    showing(&[], certificate.der().clone(), &key, &certificate.pem()).await
}

async fn showing(
    alpn: &[&[u8]],
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    ca: &str,
) -> Secure {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, ca).unwrap();

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let address = raw(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if !http2 {
                return converse(stream, |_| ok("http/1.1"), &Seen::default()).await;
            }
            let service = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("h2"))))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
    Secure { address, ca: path, _directory: directory }
}

fn trusting(origin: &Secure) -> Upstream {
    let mut config = config(&[origin.address]);
    config.servers[0].tls = true;
    config.tls.ca = Some(origin.ca.clone());
    config.tls.server_name = Some("localhost".into());
    config
}

#[tokio::test]
async fn a_certificate_of_the_named_ca_is_trusted() {
    let origin = secure(&[]).await;
    let group = group(&trusting(&origin));
    for _ in 0..2 {
        assert_eq!(text(&group, get("/")).await.unwrap(), "http/1.1");
    }
    assert_eq!(status(&group, 0).connects, 1);
}

/// As `openssl req -x509` makes them: a root and the server's own certificate at once.
#[tokio::test]
async fn a_self_signed_certificate_that_is_named_is_trusted() {
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        let origin = self_signed(|params| params.is_ca = is_ca).await;
        let got = text(&group(&trusting(&origin)), get("/")).await;
        assert_eq!(got.unwrap(), "http/1.1", "{is_ca:?}");
    }
}

#[tokio::test]
async fn what_is_not_trusted_is_502() {
    let is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own_ca = self_signed(|params| params.is_ca = is_ca).await;
    let another = self_signed(|params| params.is_ca = is_ca).await;
    let expired = self_signed(|params| {
        params.is_ca = is_ca;
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    })
    .await;
    let mut own_ca_wrong_name = trusting(&own_ca);
    own_ca_wrong_name.tls.server_name = Some("elsewhere.test".into());
    let mut own_ca_wrong_ca = trusting(&own_ca);
    own_ca_wrong_ca.tls.ca = Some(another.ca.clone());
    let origin = secure(&[]).await;
    let other = secure(&[]).await;
    let mut wrong_name = trusting(&origin);
    wrong_name.tls.server_name = Some("elsewhere.test".into());
    let mut by_address = trusting(&origin);
    by_address.tls.server_name = None;
    let mut wrong_ca = trusting(&origin);
    wrong_ca.tls.ca = Some(other.ca.clone());
    let plain = raw(|_, mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        let _ = stream.read(&mut [0; 16]).await;
    })
    .await;
    let mut not_tls = trusting(&origin);
    not_tls.servers[0].target = server(plain).target;
    let cases = [
        ("wrong name", wrong_name),
        ("address not in the certificate", by_address),
        ("wrong CA", wrong_ca),
        ("not TLS", not_tls),
        ("self-signed, wrong name", own_ca_wrong_name),
        ("self-signed, another one is named", own_ca_wrong_ca),
        ("self-signed, expired", trusting(&expired)),
    ];
    for (name, config) in cases {
        let error = text(&group(&config), post("data")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{name}: {error}");
        assert_eq!(error.status(), http::StatusCode::BAD_GATEWAY);
        assert!(error.may_retry(), "{name}: nothing of the request was sent");
    }
}

#[tokio::test]
async fn insecure_accepts_any_certificate() {
    let origin = secure(&[]).await;
    let mut config = trusting(&origin);
    config.tls.ca = None;
    config.tls.insecure = true;
    config.tls.server_name = Some("elsewhere.test".into());
    assert_eq!(text(&group(&config), get("/")).await.unwrap(), "http/1.1");
}

#[tokio::test]
async fn alpn_decides_the_protocol_within_what_is_allowed() {
    use UpstreamProtocol::{Auto, Http1, Http2};
    type Case<'a> = (&'a [&'a [u8]], UpstreamProtocol, Result<&'a str, ErrorKind>);
    let cases: [Case<'_>; 6] = [
        (&[b"h2", b"http/1.1"], Auto, Ok("h2")),
        (&[b"http/1.1"], Auto, Ok("http/1.1")),
        (&[b"h2", b"http/1.1"], Http1, Ok("http/1.1")),
        (&[b"h2", b"http/1.1"], Http2, Ok("h2")),
        (&[], Http2, Err(ErrorKind::Tls)),
        (&[b"http/1.1"], Http2, Err(ErrorKind::Tls)),
    ];
    for (alpn, protocol, expect) in cases {
        let origin = secure(alpn).await;
        let mut config = trusting(&origin);
        config.protocol = protocol;
        let group = group(&config);
        let all = (0..4).map(|_| text(&group, get("/")));
        for result in futures_util::future::join_all(all).await {
            let result = result.map_err(|error| error.kind());
            assert_eq!(result.as_deref(), expect.as_ref().copied(), "{alpn:?} {protocol:?}");
        }
        if expect == Ok("h2") {
            assert_eq!(status(&group, 0).connects, 1, "four at once wait for one connection");
        }
    }
}

#[tokio::test]
async fn an_upgrade_is_asked_for_on_http1_even_where_http2_is_spoken() {
    let origin = secure(&[b"h2", b"http/1.1"]).await;
    let group = group(&trusting(&origin));
    for _ in 0..2 {
        assert_eq!(text(&group, get("/")).await.unwrap(), "h2");
        assert_eq!(text(&group, crate::upgrade::upgrade()).await.unwrap(), "http/1.1");
    }
    assert_eq!(status(&group, 0).connects, 2);
}

#[tokio::test]
async fn unusable_settings_are_refused_at_start_and_named() {
    let origin = secure(&[]).await;
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "nothing here\n").unwrap();
    let mut missing = trusting(&origin);
    missing.tls.ca = Some(directory.path().join("missing.pem"));
    let mut hollow = trusting(&origin);
    hollow.tls.ca = Some(empty);
    let mut name = trusting(&origin);
    name.tls.server_name = Some("not a name".into());
    for (config, expect) in [
        (missing, "missing.pem"),
        (hollow, "empty.pem: holds no certificate"),
        (name, "not a name"),
    ] {
        let error = Group::new(&config, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(expect), "{error}");
    }
}
