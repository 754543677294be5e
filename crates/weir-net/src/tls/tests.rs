use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, KeyUsagePurpose};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

/// A directory with a certificate authority and whatever files a test writes.
struct Fixture {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Fixture {
    fn new() -> Fixture {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Fixture { directory: TempDir::new().unwrap(), issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `FILE.pem` and `FILE.key`, a certificate for `names` signed by the authority.
    fn issue(&self, file: &str, names: &[&str]) -> CertificateFiles {
        self.issue_with(file, names, &KeyPair::generate().unwrap())
    }

    fn issue_with(&self, file: &str, names: &[&str], key: &KeyPair) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let params = CertificateParams::new(names).unwrap();
        let leaf = params.signed_by(key, &self.issuer).unwrap();
        let files = CertificateFiles {
            chain: self.path(&format!("{file}.pem")),
            key: self.path(&format!("{file}.key")),
            site_names: Vec::new(),
        };
        replace(&files.chain, &(leaf.pem() + &self.issuer.pem()));
        replace(&files.key, &key.serialize_pem());
        files
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }

    fn client(&self) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }
}

/// As certificate managers do: a new file under the old name, so that no reader sees half of it.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Serves `store` on a real socket; each connection is answered with one byte.
async fn serve(store: &Arc<CertStore>) -> SocketAddr {
    let acceptor = TlsAcceptor::from(server_config(Arc::clone(store)).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut tls) = acceptor.accept(stream).await {
                    let _ = tls.write_all(b"!").await;
                    let _ = tls.shutdown().await;
                }
            });
        }
    });
    address
}

/// What a client saw of a handshake.
struct Seen {
    leaf: CertificateDer<'static>,
    alpn: Option<Vec<u8>>,
    kind: HandshakeKind,
}

async fn connect(
    address: SocketAddr,
    name: &str,
    client: Arc<ClientConfig>,
) -> std::io::Result<Seen> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let handshake = async {
        let stream = TcpStream::connect(address).await?;
        let mut tls = TlsConnector::from(client).connect(name, stream).await?;
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer).await?;
        assert_eq!(answer, b"!");
        let connection = tls.get_ref().1;
        Ok(Seen {
            leaf: connection.peer_certificates().unwrap()[0].clone().into_owned(),
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            kind: connection.handshake_kind().unwrap(),
        })
    };
    tokio::time::timeout(Duration::from_secs(10), handshake).await.expect("handshake hangs")
}

/// The DNS names of the certificate that a client asking for `name` is given, trusted or not.
async fn names_seen(address: SocketAddr, name: &str) -> Vec<String> {
    let mut client = Fixture::new().client();
    client.dangerous().set_certificate_verifier(Arc::new(TrustAnyone));
    let seen = connect(address, name, Arc::new(client)).await.unwrap();
    let leaf = webpki::EndEntityCert::try_from(&seen.leaf).unwrap();
    leaf.valid_dns_names().map(ToString::to_string).collect()
}

#[derive(Debug)]
struct TrustAnyone;

impl ServerCertVerifier for TrustAnyone {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn certificate_by_server_name() {
    let fixture = Fixture::new();
    let mut odd = fixture.issue("odd", &["internal.test"]);
    odd.site_names = vec!["odd.test".into(), "*.odd.test".into(), "one.test".into()];
    let store = CertStore::from_files(vec![
        fixture.issue("one", &["one.test", "also-one.test"]),
        fixture.issue("wild", &["*.wild.test"]),
        fixture.issue("exact", &["exact.wild.test"]),
        odd,
    ]);
    let address = serve(&Arc::new(store.unwrap())).await;

    let check = async |ask: &str, expect: &[&str]| {
        assert_eq!(names_seen(address, ask).await, expect, "asked for {ask}");
    };
    check("one.test", &["one.test", "also-one.test"]).await;
    check("also-one.test", &["one.test", "also-one.test"]).await;
    check("a.wild.test", &["*.wild.test"]).await;
    check("exact.wild.test", &["exact.wild.test"]).await;
    // No certificate is valid for these, but a site of that name lists one.
    check("odd.test", &["internal.test"]).await;
    check("b.odd.test", &["internal.test"]).await;
    // Nobody's name, one label too many, and no name at all: the first certificate.
    check("nobody.test", &["one.test", "also-one.test"]).await;
    check("a.b.wild.test", &["one.test", "also-one.test"]).await;
    check("127.0.0.1", &["one.test", "also-one.test"]).await;

    // A client that verifies accepts what it should and nothing else.
    let client = Arc::new(fixture.client());
    connect(address, "a.wild.test", Arc::clone(&client)).await.unwrap();
    assert!(connect(address, "nobody.test", client).await.is_err());
}

#[tokio::test]
async fn client_gets_a_certificate_it_can_verify() {
    let fixture = Fixture::new();
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let store = CertStore::from_files(vec![
        fixture.issue_with("ed25519", &["both.test", "ed25519.test"], &ed25519),
        fixture.issue("ecdsa", &["both.test", "ecdsa.test"]),
    ]);
    let address = serve(&Arc::new(store.unwrap())).await;

    let mut provider = aws_lc_rs::default_provider();
    let schemes = provider.signature_verification_algorithms.mapping;
    let ecdsa_only: Vec<_> = schemes
        .iter()
        .filter(|(scheme, _)| *scheme == SignatureScheme::ECDSA_NISTP256_SHA256)
        .copied()
        .collect();
    provider.signature_verification_algorithms.mapping = ecdsa_only.leak();
    let client = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(fixture.roots())
        .with_no_client_auth();
    connect(address, "both.test", Arc::new(client)).await.unwrap();

    assert_eq!(names_seen(address, "both.test").await, ["both.test", "ed25519.test"]);
}

#[tokio::test]
async fn alpn_prefers_http2() {
    let fixture = Fixture::new();
    let store = CertStore::from_files(vec![fixture.issue("a", &["a.test"])]).unwrap();
    let address = serve(&Arc::new(store)).await;

    let check = async |offer: &[&str], expect: Option<&str>| {
        let mut client = fixture.client();
        client.alpn_protocols = offer.iter().map(|p| p.as_bytes().to_vec()).collect();
        let seen = connect(address, "a.test", Arc::new(client)).await.unwrap();
        assert_eq!(seen.alpn.as_deref(), expect.map(str::as_bytes), "offered {offer:?}");
    };
    check(&["http/1.1", "h2"], Some("h2")).await;
    check(&["h2"], Some("h2")).await;
    check(&["http/1.0", "http/1.1"], Some("http/1.1")).await;
    check(&[], None).await;

    // RFC 7301, section 3.2: nothing in common ends the handshake.
    let mut client = fixture.client();
    client.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    assert!(connect(address, "a.test", Arc::new(client)).await.is_err());
}

#[tokio::test]
async fn sessions_are_resumed() {
    let fixture = Fixture::new();
    let store = CertStore::from_files(vec![fixture.issue("a", &["a.test"])]).unwrap();
    let address = serve(&Arc::new(store)).await;
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(fixture.roots())
            .with_no_client_auth();
        let client = Arc::new(client);
        let first = connect(address, "a.test", Arc::clone(&client)).await.unwrap();
        let second = connect(address, "a.test", client).await.unwrap();
        assert_ne!(first.kind, HandshakeKind::Resumed, "{version:?}");
        assert_eq!(second.kind, HandshakeKind::Resumed, "{version:?}");
    }
}

#[tokio::test]
async fn changed_files_are_served_from_the_next_handshake_on() {
    let fixture = Fixture::new();
    let files = vec![fixture.issue("a", &["old.test"]), fixture.issue("b", &["b.test"])];
    let store = Arc::new(CertStore::from_files(files).unwrap());
    let address = serve(&store).await;
    assert_eq!(names_seen(address, "any.test").await, ["old.test"]);
    assert_eq!(store.reload_if_changed().unwrap(), Reload::Unchanged);

    fixture.issue("a", &["new.test"]);
    assert_eq!(names_seen(address, "any.test").await, ["old.test"]);
    assert_eq!(store.reload_if_changed().unwrap(), Reload::Replaced);
    assert_eq!(store.reload_if_changed().unwrap(), Reload::Unchanged);
    assert_eq!(names_seen(address, "any.test").await, ["new.test"]);
    assert_eq!(names_seen(address, "b.test").await, ["b.test"]);
}

#[tokio::test]
async fn bad_reload_keeps_the_old_certificates_and_is_reported_once() {
    let fixture = Fixture::new();
    let files = fixture.issue("a", &["good.test"]);
    let store = Arc::new(CertStore::from_files(vec![files.clone()]).unwrap());
    let address = serve(&store).await;

    // A manager that has replaced the chain and not yet the key.
    let next = fixture.issue("next", &["next.test"]);
    replace(&files.chain, &fs::read_to_string(&next.chain).unwrap());
    let message = store.reload_if_changed().unwrap_err().to_string();
    assert!(message.contains("a.key: the private key does not belong"), "{message}");
    assert!(message.contains("a.pem"), "{message}");
    assert_eq!(store.reload_if_changed().unwrap(), Reload::Unchanged);
    assert_eq!(names_seen(address, "good.test").await, ["good.test"]);

    fs::remove_file(&files.key).unwrap();
    let message = store.reload_if_changed().unwrap_err().to_string();
    assert!(message.starts_with("cannot read") && message.contains("a.key"), "{message}");
    assert_eq!(names_seen(address, "good.test").await, ["good.test"]);

    replace(&files.key, &fs::read_to_string(&next.key).unwrap());
    assert_eq!(store.reload_if_changed().unwrap(), Reload::Replaced);
    assert_eq!(names_seen(address, "good.test").await, ["next.test"]);
}

#[test]
fn messages_name_the_file_and_the_fault() {
    let fixture = Fixture::new();
    let good = fixture.issue("good", &["good.test"]);
    let other = fixture.issue("other", &["other.test"]);
    let chain = fs::read_to_string(&good.chain).unwrap();
    let key = fs::read_to_string(&good.key).unwrap();

    let check = |chain: &str, key: &str, expect: &[&str]| {
        let files = CertificateFiles {
            chain: fixture.path("c.pem"),
            key: fixture.path("k.pem"),
            site_names: Vec::new(),
        };
        replace(&files.chain, chain);
        replace(&files.key, key);
        let message = CertStore::from_files(vec![files]).unwrap_err().to_string();
        for part in expect {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    };
    check("", &key, &["c.pem: no certificate in the file", "BEGIN CERTIFICATE"]);
    check("hello\n", &key, &["c.pem: no certificate in the file"]);
    check(&key, &chain, &["c.pem: no certificate in the file", "swapped?"]);
    check(&chain, "", &["k.pem: no private key in the file", "BEGIN PRIVATE KEY"]);
    check(&chain, &chain, &["k.pem: no private key in the file", "swapped?"]);
    check(&chain[..200], &key, &["c.pem: the file ends before", "END CERTIFICATE"]);
    check(&chain, &key[..100], &["k.pem: the file ends before", "END PRIVATE KEY"]);
    check(&chain.replacen("MII", "M*I", 1), &key, &["c.pem: damaged PEM"]);
    let der_of_nothing = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check(der_of_nothing, &key, &["c.pem: the first certificate is not a usable X.509"]);
    let key_of_nothing = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    check(&chain, key_of_nothing, &["k.pem: the private key is of no supported kind"]);
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    check(&chain, &encrypted, &["k.pem: the private key is encrypted", "openssl pkey"]);
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
    check(&chain, legacy, &["k.pem: the private key is encrypted"]);
    let mismatch = fs::read_to_string(&other.key).unwrap();
    check(&chain, &mismatch, &["k.pem: the private key does not belong", "c.pem"]);
    check(&"x".repeat((1 << 20) + 1), &key, &["c.pem: larger than 1048576 bytes"]);

    let missing = CertificateFiles { chain: fixture.path("absent.pem"), ..good };
    let message = CertStore::from_files(vec![missing]).unwrap_err().to_string();
    assert!(message.starts_with("cannot read ") && message.contains("absent.pem: "), "{message}");
    assert!(matches!(CertStore::from_files(Vec::new()), Err(NetError::NoCertificate)));
}

#[tokio::test]
async fn self_signed_for_site_and_local_names() {
    let names = ["*".to_owned(), "Dev.test".to_owned(), "*.dev.test".to_owned()];
    let store = Arc::new(CertStore::self_signed(&names).unwrap());
    let address = serve(&store).await;
    let expect = ["dev.test", "*.dev.test", "localhost"];
    assert_eq!(names_seen(address, "whoever.test").await, expect);

    // Names that browsers and curl check, the addresses included.
    let mut client = Fixture::new().client();
    client.dangerous().set_certificate_verifier(Arc::new(TrustAnyone));
    let leaf = connect(address, "localhost", Arc::new(client)).await.unwrap().leaf;
    let leaf = webpki::EndEntityCert::try_from(&leaf).unwrap();
    for name in ["dev.test", "a.dev.test", "localhost", "127.0.0.1", "::1"] {
        let name = ServerName::try_from(name).unwrap();
        leaf.verify_is_valid_for_subject_name(&name).unwrap();
    }
    let other = ServerName::try_from("other.test").unwrap();
    assert!(leaf.verify_is_valid_for_subject_name(&other).is_err());
}

#[test]
fn self_signed_is_renewed_in_time() {
    let day = Duration::from_secs(24 * 3600);
    let store = CertStore::self_signed(&[]).unwrap();
    let now = SystemTime::now();
    let check = |after, expect| {
        assert_eq!(store.reload_if_changed_at(now + after).unwrap(), expect, "{after:?}");
    };
    check(day * 19, Reload::Unchanged);
    check(day * 21, Reload::Replaced);
    check(day * 22, Reload::Unchanged);
    check(day * 42, Reload::Replaced);
}

#[test]
fn self_signed_refuses_an_impossible_name() {
    let error = CertStore::self_signed(&["süß.test".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("süß.test"), "{error}");
}
