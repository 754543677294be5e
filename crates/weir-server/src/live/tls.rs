//! TLS of listeners: which certificates, and whether a reload may keep what is there.

use std::sync::Arc;

use weir_config::{self as config, Config};
use weir_net::tls::{CertStore, CertificateFiles};

use super::ListenerSites;
use crate::error::StartError;

/// A TLS listener's settings.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) store: Arc<CertStore>,
    pub(crate) config: Arc<rustls::ServerConfig>,
    /// What the store was made from, to tell on a reload whether it can be kept.
    source: TlsSource,
}

#[derive(Clone, PartialEq)]
enum TlsSource {
    Files(Vec<CertificateFiles>),
    SelfSigned(Vec<String>),
}

pub(super) fn build_tls(
    config: &Config,
    listener: &config::Listener,
    before: Option<&ListenerSites>,
) -> Result<Option<Tls>, StartError> {
    let Some(mode) = listener.tls else { return Ok(None) };
    let here = config
        .sites
        .iter()
        .filter(|site| site.listeners.iter().any(|l| l.address == listener.address));
    let source = match mode {
        config::ListenerTls::Files => {
            let files = here.flat_map(|site| {
                site.certificates.iter().map(|certificate| CertificateFiles {
                    chain: certificate.chain.clone(),
                    key: certificate.key.clone(),
                    site_names: site.names.clone(),
                })
            });
            TlsSource::Files(files.collect())
        }
        config::ListenerTls::SelfSigned => {
            TlsSource::SelfSigned(here.flat_map(|site| site.names.clone()).collect())
        }
    };
    if let Some(tls) = before.and_then(|listener| listener.tls.as_ref())
        && tls.source == source
    {
        return Ok(Some(tls.clone()));
    }
    let store = Arc::new(match &source {
        TlsSource::Files(files) => CertStore::from_files(files.clone())?,
        TlsSource::SelfSigned(names) => CertStore::self_signed(names)?,
    });
    let config = weir_net::tls::server_config(Arc::clone(&store))?;
    Ok(Some(Tls { store, config, source }))
}
