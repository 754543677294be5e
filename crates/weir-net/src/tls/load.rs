//! From PEM files to a key and chain that are known to fit together, with messages that say what is
//! wrong with which file. Choosing among certificates is left to the store.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::NetError;

/// Bytes of a PEM file. A chain of ten RSA-4096 certificates is about 25 KB; a file beyond this is
/// something else named by mistake.
const PEM_SIZE_MAX: u64 = 1 << 20;

/// Where one certificate is, and the site names it was configured for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// PEM file of the chain, leaf first.
    pub chain: PathBuf,
    /// PEM file of the private key (PKCS #8, PKCS #1 or SEC 1), not encrypted.
    pub key: PathBuf,
    /// Names of the sites that list the certificate. They choose it only where no certificate is
    /// valid for the name a client asks for.
    pub site_names: Vec<String>,
}

/// What tells one state of a file from another: device, inode, size, and the times of its last
/// change of content and of attributes in nanoseconds. `None` for a file that cannot be examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<[i128; 5]>);

impl Stamp {
    /// The state of the file that `path` leads to, symbolic links followed: certificate managers
    /// replace the link, not the file.
    pub(super) fn of(path: &Path) -> Stamp {
        let nanoseconds = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
        Stamp(std::fs::metadata(path).ok().map(|m| {
            [
                i128::from(m.dev()),
                i128::from(m.ino()),
                i128::from(m.size()),
                nanoseconds(m.mtime(), m.mtime_nsec()),
                nanoseconds(m.ctime(), m.ctime_nsec()),
            ]
        }))
    }
}

/// Reads chain and key and makes sure that they belong together.
pub(super) fn load(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, NetError> {
    let chain = read_chain(&files.chain)?;
    let key = read_key(&files.key)?;
    let key = provider.key_provider.load_private_key(key).map_err(|cause| {
        fault(&files.key, format!("the private key is of no supported kind: {cause}"))
    })?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(TlsError::InconsistentKeys(_)) => Err(fault(
            &files.key,
            format!(
                "the private key does not belong to the first certificate in {}",
                files.chain.display()
            ),
        )),
        Err(cause) => Err(fault(
            &files.chain,
            format!("the first certificate is not a usable X.509 v3 certificate: {cause}"),
        )),
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, NetError> {
    let text = read_bounded(path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|cause| damaged(path, &cause))?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    Err(fault(
        path,
        if is_encrypted(&text) || PrivateKeyDer::from_pem_slice(&text).is_ok() {
            "no certificate in the file, but a private key; are chain and key swapped?".into()
        } else {
            "no certificate in the file; expected PEM with “-----BEGIN CERTIFICATE-----”".into()
        },
    ))
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, NetError> {
    let text = read_bounded(path)?;
    if is_encrypted(&text) {
        return Err(fault(
            path,
            "the private key is encrypted, and a server has nobody to ask for its passphrase; \
             decrypt it, for example by `openssl pkey -in KEY -out PLAIN-KEY`"
                .into(),
        ));
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(fault(
            path,
            if CertificateDer::from_pem_slice(&text).is_ok() {
                "no private key in the file, but a certificate; are chain and key swapped?".into()
            } else {
                "no private key in the file; expected PEM with “-----BEGIN PRIVATE KEY-----”".into()
            },
        )),
        Err(cause) => Err(damaged(path, &cause)),
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, NetError> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(PEM_SIZE_MAX + 1).read_to_end(&mut text))
        .map_err(|cause| NetError::ReadFile { path: path.to_owned(), cause })?;
    if text.len() as u64 > PEM_SIZE_MAX {
        return Err(fault(path, format!("larger than {PEM_SIZE_MAX} bytes; expected a PEM file")));
    }
    Ok(text)
}

/// PKCS #8 says it in the block's label (RFC 7468, section 11), the older forms in a header line
/// (RFC 1421, section 4.6.1.1).
fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn damaged(path: &Path, cause: &pem::Error) -> NetError {
    let problem = match cause {
        pem::Error::MissingSectionEnd { end_marker } => {
            let label = String::from_utf8_lossy(end_marker);
            format!("the file ends before “-----END {}-----”", label.trim_end())
        }
        other => format!("damaged PEM: {other}"),
    };
    fault(path, problem)
}

fn fault(path: &Path, problem: String) -> NetError {
    NetError::Certificate { path: path.to_owned(), problem }
}
