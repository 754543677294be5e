//! What a certificate says of its owner, as text for plugins. It has been verified, or was not to
//! be: nothing is decided by this.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use webpki::EndEntityCert;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// The subject, in the form of RFC 2253: the last of its parts first.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate().subject().to_string())
}

/// What `weir ca show` tells of a certificate.
#[derive(Clone, Debug)]
pub struct CertificateFacts {
    /// As [RFC 2253](https://www.rfc-editor.org/rfc/rfc2253) writes it.
    pub subject: String,
    /// When it begins to be valid, in UTC.
    pub not_before: String,
    /// When it ends, likewise.
    pub not_after: String,
    /// SHA-256 of all of it, in hexadecimal.
    pub digest: String,
}

/// The facts of the first certificate in a PEM text; `None` if there is none.
pub fn facts(pem: &[u8]) -> Option<CertificateFacts> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let certificate = Certificate::from_der(&der).ok()?;
    let body = certificate.tbs_certificate();
    Some(CertificateFacts {
        subject: body.subject().to_string(),
        not_before: body.validity().not_before.to_string(),
        not_after: body.validity().not_after.to_string(),
        digest: digest(&der),
    })
}

/// The first host name that it is valid for.
pub(crate) fn dns_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().map(str::to_owned)
}

/// The first URI that it is valid for.
pub(crate) fn uri(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_uri_names().next().map(str::to_owned)
}

/// SHA-256 of all of it, in hexadecimal.
pub(crate) fn digest(certificate: &CertificateDer<'_>) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    hex(digest.as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    #[test]
    fn subjects_are_written_last_part_first() {
        let (o, cn) = (DnType::OrganizationName, DnType::CommonName);
        let unknown = DnType::CustomDnType(vec![1, 2, 3, 4, 5]);
        for (parts, expect) in [
            (vec![], ""),
            (vec![(cn.clone(), "a")], "CN=a"),
            (vec![(o, "Weir, Inc."), (cn.clone(), "a b")], r"CN=a b,O=Weir\, Inc."),
            (vec![(cn.clone(), " #+ ")], r"CN=\ #\+\ "),
            (vec![(cn, "#é")], r"CN=\#é"),
            (vec![(unknown, "a")], "1.2.3.4.5=#0c0161"),
        ] {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.distinguished_name = DistinguishedName::new();
            for (part, text) in parts {
                params.distinguished_name.push(part, text);
            }
            let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(subject(own.der()).as_deref(), Some(expect));
        }
        assert_eq!(subject(&CertificateDer::from(vec![0x30, 0])), None);
    }
}
