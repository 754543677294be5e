//! The certificates of a listener: chosen by server name, replaced under running handshakes when
//! their files change. A reload replaces all certificates or none.
//!
//! | event | what is served afterwards |
//! |---|---|
//! | start, every pair good | the files' certificates |
//! | start, a pair bad | nothing: an error, the listener does not start |
//! | files changed, every pair good | the new certificates, from the next handshake on |
//! | files changed, a pair bad | the old certificates; the error is reported once per change |
//! | a self-signed certificate two thirds through its life | a new one |

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::load::{CertificateFiles, Stamp, load};
use super::names::Names;
use super::self_signed;
use crate::NetError;

/// Certificates that handshakes choose from; see the table above for its life.
#[derive(Debug)]
pub struct CertStore {
    source: Source,
    /// What the current table was made from, or a later state that was tried and refused.
    tried: Mutex<Tried>,
    table: ArcSwap<Table>,
}

/// What a check for changes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// No file has changed since the last check.
    Unchanged,
    /// The certificates were replaced.
    Replaced,
}

#[derive(Debug)]
enum Source {
    Files(Vec<CertificateFiles>),
    SelfSigned(Vec<String>),
}

#[derive(Debug, PartialEq)]
enum Tried {
    /// States of chain and key of every pair, taken before they were read, so that a change during
    /// the reading is seen as one at the next check.
    Files(Vec<[Stamp; 2]>),
    /// When the certificate was made.
    SelfSigned(SystemTime),
}

/// One consistent set of certificates; once built, at least one.
#[derive(Debug, Default)]
struct Table {
    certificates: Vec<Arc<CertifiedKey>>,
    /// By the names in the certificates themselves.
    presented: Names,
    /// By the names of the sites that list them.
    configured: Names,
}

impl CertStore {
    /// Loads certificates from files. The first answers clients that send no name or a name
    /// nothing matches.
    ///
    /// # Errors
    /// The first file that is missing, damaged, encrypted or does not fit its partner; also an
    /// empty list.
    pub fn from_files(files: Vec<CertificateFiles>) -> Result<CertStore, NetError> {
        CertStore::new(Source::Files(files), SystemTime::now())
    }

    /// Makes one certificate for `names` (which may hold wildcards), `localhost`, `127.0.0.1` and
    /// `::1`, valid for 30 days and renewed in time by [`CertStore::reload_if_changed`].
    ///
    /// # Errors
    /// [`NetError::SelfSigned`] for a name that no certificate can carry.
    pub fn self_signed(names: &[String]) -> Result<CertStore, NetError> {
        CertStore::new(Source::SelfSigned(names.to_vec()), SystemTime::now())
    }

    /// Looks whether a file changed and, if so, replaces all certificates at once. Reads files, so
    /// it belongs on a thread that may wait, every few seconds.
    ///
    /// # Errors
    /// Names the file and the cause; the certificates stay as they were. The same state of the
    /// files is not tried, and so not reported, again.
    pub fn reload_if_changed(&self) -> Result<Reload, NetError> {
        self.reload_if_changed_at(SystemTime::now())
    }

    fn new(source: Source, now: SystemTime) -> Result<CertStore, NetError> {
        let tried = source.state(now);
        let table = source.load(now)?;
        Ok(CertStore { source, tried: Mutex::new(tried), table: ArcSwap::from_pointee(table) })
    }

    pub(super) fn reload_if_changed_at(&self, now: SystemTime) -> Result<Reload, NetError> {
        let mut tried = self.tried.lock();
        if !self.source.has_changed(&tried, now) {
            return Ok(Reload::Unchanged);
        }
        *tried = self.source.state(now);
        self.table.store(Arc::new(self.source.load(now)?));
        Ok(Reload::Replaced)
    }
}

impl ResolvesServerCert for CertStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.table.load().choose(hello.server_name(), |certificate| {
            certificate.key.choose_scheme(hello.signature_schemes()).is_some()
        })
    }
}

impl Source {
    fn state(&self, now: SystemTime) -> Tried {
        match self {
            Source::Files(files) => Tried::Files(
                files.iter().map(|f| [Stamp::of(&f.chain), Stamp::of(&f.key)]).collect(),
            ),
            Source::SelfSigned(_) => Tried::SelfSigned(now),
        }
    }

    fn has_changed(&self, tried: &Tried, now: SystemTime) -> bool {
        match tried {
            Tried::Files(_) => self.state(now) != *tried,
            Tried::SelfSigned(made) => {
                now.duration_since(*made).is_ok_and(|age| age > self_signed::LIFETIME * 2 / 3)
            }
        }
    }

    fn load(&self, now: SystemTime) -> Result<Table, NetError> {
        let provider = aws_lc_rs::default_provider();
        match self {
            Source::Files(files) => Table::from_files(files, &provider),
            Source::SelfSigned(names) => {
                let mut table = Table::default();
                table.add(self_signed::make(names, now, &provider)?, names);
                Ok(table)
            }
        }
    }
}

impl Table {
    fn from_files(
        files: &[CertificateFiles],
        provider: &CryptoProvider,
    ) -> Result<Table, NetError> {
        let mut table = Table::default();
        for pair in files {
            table.add(load(pair, provider)?, &pair.site_names);
        }
        if table.certificates.is_empty() {
            return Err(NetError::NoCertificate);
        }
        Ok(table)
    }

    fn add(&mut self, certificate: CertifiedKey, site_names: &[String]) {
        let position = self.certificates.len();
        // A leaf that does not parse was refused when it was loaded; its names are none.
        if let Some(leaf) = certificate.cert.first()
            && let Ok(leaf) = EndEntityCert::try_from(leaf)
        {
            leaf.valid_dns_names().for_each(|name| self.presented.add(name, position));
        }
        site_names.iter().for_each(|name| self.configured.add(name, position));
        self.certificates.push(Arc::new(certificate));
    }

    /// Among the certificates for `name` the first that the client can verify, so that an ECDSA
    /// and an RSA certificate may share a name; where no certificate is for `name`, the same among
    /// all. A client that can verify none gets the first: the handshake then fails with the reason.
    fn choose(
        &self,
        name: Option<&str>,
        verifiable: impl Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        let named: Vec<usize> = name.map_or_else(Vec::new, |name| {
            self.presented.find(name).chain(self.configured.find(name)).collect()
        });
        let candidates: Vec<_> = if named.is_empty() {
            self.certificates.iter().collect()
        } else {
            named.iter().map(|&position| &self.certificates[position]).collect()
        };
        let chosen = candidates.iter().find(|c| verifiable(c)).or(candidates.first());
        chosen.map(|certificate| Arc::clone(certificate))
    }
}
