//! What can go wrong between the operating system and a connection. Every message names the file or
//! the address and says what was expected; who retries or gives up is decided by the caller.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A certificate or key file could not be read.
    #[error("cannot read {}: {cause}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A certificate or key file was read, but what is in it cannot be used.
    #[error("{}: {problem}", path.display())]
    Certificate {
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it and what was expected.
        problem: String,
    },
    /// A TLS listener was given no certificate.
    #[error("a TLS listener needs at least one certificate: chain and key, or a self-signed one")]
    NoCertificate,
    /// A self-signed certificate could not be made.
    #[error("cannot make a self-signed certificate for {names}: {cause}")]
    SelfSigned {
        /// The names asked for, separated by commas.
        names: String,
        /// What the library said.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An authority, or a certificate of one, could not be made.
    #[error("cannot make a certificate: {cause}")]
    Authority {
        /// What the library said.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// TLS could not be set up; only a build without its cryptography provider gets here.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}
