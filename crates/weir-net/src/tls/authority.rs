//! A certificate authority of one's own, for connections that are inspected: it makes a certificate
//! for each host when it is first asked for. Clients trust these where its own is installed, and
//! nowhere else. Who may be inspected is decided by others.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::ResolvesServerCertUsingSni;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::settings;
use crate::NetError;

/// How long an authority is valid. Whoever still needs it then makes another.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(2 * 365 * 24 * 3600);

/// How long a host's certificate is, and when another is made. Both are short: nobody sees them but
/// the clients of one proxy, and a key that gets lost is worth little.
const LEAF_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
const LEAF_RENEWED: Duration = Duration::from_secs(24 * 3600);

/// How far validity begins in the past, for clients whose clock is behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Hosts whose certificates are kept; each is a few kilobytes. The oldest leaves first.
const LEAVES_MAX: usize = 1000;

/// An authority in use.
pub struct Authority {
    /// How long it is valid, from when it was loaded.
    lasts: Duration,
    issuer: Issuer<'static, KeyPair>,
    /// The key of all hosts: made at the start, and kept nowhere.
    key: KeyPair,
    provider: Arc<CryptoProvider>,
    base: ServerConfig,
    leaves: Mutex<HashMap<String, Leaf>>,
}

struct Leaf {
    config: Arc<ServerConfig>,
    made: Instant,
}

/// A new authority, as PEM.
pub struct NewAuthority {
    /// What clients install.
    pub certificate: String,
    /// What nobody but the proxy may have.
    pub key: String,
}

impl NewAuthority {
    /// Makes an authority that speaks for `hosts` and all names below them alone, or for any host
    /// if there are none.
    ///
    /// # Errors
    /// [`NetError::Authority`] if the library cannot.
    pub fn new(hosts: &[String], now: SystemTime) -> Result<NewAuthority, NetError> {
        let key = KeyPair::generate().map_err(fault)?;
        let mut params = params(&key);
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + AUTHORITY_LIFETIME).into();
        if !hosts.is_empty() {
            let any_v4 = CidrSubnet::V4([0; 4], [0; 4]);
            let any_v6 = CidrSubnet::V6([0; 16], [0; 16]);
            params.name_constraints = Some(NameConstraints {
                permitted_subtrees: hosts.iter().cloned().map(GeneralSubtree::DnsName).collect(),
                // Constraints of names say nothing of addresses.
                excluded_subtrees: [any_v4, any_v6].map(GeneralSubtree::IpAddress).to_vec(),
            });
        }
        let certificate = params.self_signed(&key).map_err(fault)?.pem();
        Ok(NewAuthority { certificate, key: key.serialize_pem() })
    }
}

impl Authority {
    /// Loads an authority that [`NewAuthority`] has made, and tries whether it speaks for `hosts`
    /// at the time `now`.
    ///
    /// # Errors
    /// The file that cannot be read or used, an authority that is not valid, and the first host
    /// that it may not speak for.
    pub fn load(
        ca: &Path,
        key: &Path,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<Authority, NetError> {
        let problem =
            |path: &Path, problem| NetError::Certificate { path: path.to_owned(), problem };
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|cause| NetError::ReadFile { path: path.to_owned(), cause })
        };
        let certificate = CertificateDer::from_pem_slice(read(ca)?.as_bytes())
            .map_err(|cause| problem(ca, format!("there is no certificate in it: {cause}")))?;
        let pair = KeyPair::from_pem(&read(key)?)
            .map_err(|cause| problem(key, format!("there is no key in it: {cause}")))?;
        let lasts = validity(&certificate, now).map_err(|why| problem(ca, why))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authority = Authority {
            lasts,
            issuer: Issuer::new(params(&pair), pair),
            key: KeyPair::generate().map_err(fault)?,
            base: settings(Arc::new(ResolvesServerCertUsingSni::new()))?,
            provider,
            leaves: Mutex::default(),
        };
        let verifier = authority.verifier(&certificate).map_err(|why| problem(ca, why))?;
        for host in hosts {
            authority.try_out(&verifier, host).map_err(|why| problem(ca, why))?;
        }
        Ok(authority)
    }

    /// How long it is valid, from when it was loaded: no client takes its word afterwards.
    pub fn lasts(&self) -> Duration {
        self.lasts
    }

    /// The TLS settings to answer with in a host's name, which is in lower case.
    ///
    /// # Errors
    /// If it is no name that a certificate can have.
    pub fn settings_for(&self, host: &str) -> Result<Arc<ServerConfig>, NetError> {
        if let Some(leaf) = self.leaves.lock().get(host)
            && leaf.made.elapsed() < LEAF_RENEWED
        {
            return Ok(Arc::clone(&leaf.config));
        }
        let certified = self.certify(host)?;
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        let config = Arc::new(config);
        let mut leaves = self.leaves.lock();
        if leaves.len() >= LEAVES_MAX {
            let oldest = leaves.iter().min_by_key(|(_, leaf)| leaf.made);
            let oldest = oldest.map(|(host, _)| host.clone());
            oldest.and_then(|oldest| leaves.remove(&oldest));
        }
        let leaf = Leaf { config: Arc::clone(&config), made: Instant::now() };
        leaves.insert(host.to_owned(), leaf);
        Ok(config)
    }

    fn certify(&self, host: &str) -> Result<CertifiedKey, NetError> {
        let name = host.trim_matches(['[', ']']).to_owned();
        let now = SystemTime::now();
        let mut params = CertificateParams::new(vec![name]).map_err(fault)?;
        params.distinguished_name = DistinguishedName::new();
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + LEAF_LIFETIME).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.key, &self.issuer).map_err(fault)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        Ok(CertifiedKey::from_der(vec![certificate.der().clone()], key, &self.provider)?)
    }

    fn verifier(&self, ca: &CertificateDer<'_>) -> Result<Arc<WebPkiServerVerifier>, String> {
        let mut roots = RootCertStore::empty();
        let unusable = |cause: &dyn fmt::Display| format!("it is no authority: {cause}");
        roots.add(ca.clone().into_owned()).map_err(|cause| unusable(&cause))?;
        let provider = Arc::clone(&self.provider);
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.build().map_err(|cause| unusable(&cause))
    }

    /// Whether clients that trust the authority would take its word for a host.
    fn try_out(&self, verifier: &WebPkiServerVerifier, host: &str) -> Result<(), String> {
        let certified = self.certify(host).map_err(|cause| cause.to_string())?;
        let leaf = certified.end_entity_cert().map_err(|cause| cause.to_string())?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("{host:?} is no name for a certificate"))?;
        let verdict = verifier.verify_server_cert(leaf, &[], &name, &[], UnixTime::now());
        verdict.map(drop).map_err(|cause| {
            format!(
                "its word for {host:?} would not be taken ({cause}): it was made by `weir ca \
                 create` together with the key, and for this host or for any?"
            )
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

/// How long an authority is valid from `now` on. Nobody else looks: to whoever verifies a
/// certificate an authority is a name and a key (RFC 5280 §6.1.1), but clients see to it when they
/// are given one.
fn validity(ca: &CertificateDer<'_>, now: SystemTime) -> Result<Duration, String> {
    let certificate = Certificate::from_der(ca).map_err(|cause| format!("it is none: {cause}"))?;
    let validity = certificate.tbs_certificate().validity();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if now < validity.not_before.to_unix_duration() {
        let begins = validity.not_before;
        return Err(format!("it is not valid before {begins}: is the clock right?"));
    }
    let ends = validity.not_after;
    ends.to_unix_duration().checked_sub(now).filter(|lasts| !lasts.is_zero()).ok_or_else(|| {
        format!(
            "it was valid until {ends}, and no client takes its word now: make another with `weir ca \
             create`, in another directory, and have clients trust that one"
        )
    })
}

/// What an authority with this key says of itself. Its name comes from the key, so that the two
/// files need not be read to know what to sign with.
fn params(key: &KeyPair) -> CertificateParams {
    // The point's first coordinate begins behind a byte that says which form it has.
    let number = key.public_key_raw().iter().skip(1).take(8);
    let number: String = number.map(|byte| format!("{byte:02x}")).collect();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Weir inspection {number}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn fault(cause: rcgen::Error) -> NetError {
    NetError::Authority { cause: cause.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;

    fn made(hosts: &[&str]) -> (tempfile::TempDir, NewAuthority) {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let new = NewAuthority::new(&hosts, SystemTime::now()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), &new.certificate).unwrap();
        std::fs::write(directory.path().join("ca.key"), &new.key).unwrap();
        (directory, new)
    }

    fn load(directory: &tempfile::TempDir, hosts: &[&str]) -> Result<Authority, NetError> {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let (ca, key) = (directory.path().join("ca.pem"), directory.path().join("ca.key"));
        Authority::load(&ca, &key, &hosts, SystemTime::now())
    }

    #[test]
    fn an_authority_speaks_for_its_hosts() {
        let (any, _) = made(&[]);
        assert!(load(&any, &["shop.example", "192.0.2.1", "2001:db8::1"]).is_ok());
        let (some, _) = made(&["example", "shop.test"]);
        assert!(load(&some, &["example", "a.b.example", "shop.test"]).is_ok());
        for other in ["test", "other.test", "192.0.2.1", "2001:db8::1"] {
            let error = load(&some, &[other]).unwrap_err().to_string();
            assert!(error.contains("would not be taken"), "{other}: {error}");
        }
    }

    #[test]
    fn files_belong_together() {
        let (one, _) = made(&[]);
        let (_, other) = made(&[]);
        std::fs::write(one.path().join("ca.key"), &other.key).unwrap();
        let error = load(&one, &["shop.example"]).unwrap_err().to_string();
        assert!(error.contains("together with the key"), "{error}");
        std::fs::write(one.path().join("ca.pem"), "nothing").unwrap();
        assert!(load(&one, &[]).unwrap_err().to_string().contains("no certificate"));
    }

    #[test]
    fn what_is_not_valid_is_not_loaded() {
        let now = SystemTime::now();
        let (directory, _) = made(&[]);
        let at = |now| {
            let file = |name| directory.path().join(name);
            Authority::load(&file("ca.pem"), &file("ca.key"), &["a.example".to_owned()], now)
        };
        let why = |now| at(now).unwrap_err().to_string();
        assert!(why(now - BACKDATED * 2).contains("it is not valid before "));
        assert!(why(now + AUTHORITY_LIFETIME + BACKDATED).contains("it was valid until "));
        let lasts = at(now + AUTHORITY_LIFETIME / 2).unwrap().lasts();
        let half = AUTHORITY_LIFETIME / 2;
        assert!((half - BACKDATED..=half).contains(&lasts), "{lasts:?}");
    }

    #[test]
    fn a_host_is_certified_once() {
        let (directory, _) = made(&[]);
        let authority = load(&directory, &[]).unwrap();
        let first = authority.settings_for("a.example").unwrap();
        assert!(Arc::ptr_eq(&first, &authority.settings_for("a.example").unwrap()));
        assert!(!Arc::ptr_eq(&first, &authority.settings_for("b.example").unwrap()));
        for number in 0..LEAVES_MAX + 5 {
            authority.settings_for(&format!("{number}.example")).unwrap();
        }
        assert_eq!(authority.leaves.lock().len(), LEAVES_MAX);
    }
}
