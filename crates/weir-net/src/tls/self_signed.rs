//! Certificates for development, made at start and kept in memory: no browser trusts them, and no
//! file has to be cleaned up after them.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::NetError;

/// How long a certificate is valid: long enough for a demonstration left running, short enough that
/// nobody builds on it.
pub(super) const LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// How far validity begins in the past, for clients whose clock is behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Names every certificate carries, so that a browser on the same machine can try any site.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Makes a key and a certificate for `names` and the local names, valid from an hour before `now`.
pub(super) fn make(
    names: &[String],
    now: SystemTime,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, NetError> {
    let names = subject_names(names);
    let error = |cause: Box<dyn std::error::Error + Send + Sync>| NetError::SelfSigned {
        names: names.join(", "),
        cause,
    };
    let mut params = CertificateParams::new(names.clone()).map_err(|e| error(e.into()))?;
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + LIFETIME).into();
    params.distinguished_name.push(DnType::CommonName, "Weir self-signed");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];

    let key = KeyPair::generate().map_err(|e| error(e.into()))?;
    let certificate = params.self_signed(&key).map_err(|e| error(e.into()))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    CertifiedKey::from_der(vec![certificate.der().clone()], key, provider)
        .map_err(|e| error(e.into()))
}

/// The site's names that a certificate can carry (`*` cannot be), then the local ones, each once.
fn subject_names(names: &[String]) -> Vec<String> {
    let asked = names.iter().map(String::as_str).filter(|name| *name != "*");
    let mut subjects: Vec<String> = Vec::new();
    for name in asked.chain(LOCAL_NAMES) {
        let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if !subjects.contains(&name) {
            subjects.push(name);
        }
    }
    subjects
}
