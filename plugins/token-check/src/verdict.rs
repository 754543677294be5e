//! Whether a token counts, as far as that can be said without asking anybody, and how a refusal is
//! put.

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::jwt;

/// Bytes of a token at most: more is no token, and need not be hashed.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There is no token.
    Missing,
    /// Nobody knows this token.
    Invalid,
    /// It counted once.
    Expired,
}

/// What is to be done with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes; the token is this one's, where that is known.
    Pass(Option<String>),
    /// It does not.
    Refuse(Reason),
    /// The other server must be asked.
    Ask,
}

/// Decides about a request with `token` at `now_s`, in seconds since 1970.
pub fn verdict(config: &Config, token: Option<&str>, now_s: u64) -> Verdict {
    let Some(token) = token else {
        return Verdict::Refuse(Reason::Missing);
    };
    if token.len() > TOKEN_BYTES_MAX {
        return Verdict::Refuse(Reason::Invalid);
    }
    // Comparing digests tells nothing by its time: nobody can choose a digest.
    let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
    if let Some((who, _)) = config.tokens.iter().find(|(_, known)| known.0 == digest) {
        return Verdict::Pass(Some(who.clone()));
    }
    let signed = config.jwt.as_ref().map(|jwt| jwt::verify(token, jwt, now_s));
    match signed {
        Some(Ok(subject)) => Verdict::Pass(subject),
        Some(Err(Reason::Expired)) => Verdict::Refuse(Reason::Expired),
        _ if config.remote.is_some() => Verdict::Ask,
        _ => Verdict::Refuse(Reason::Invalid),
    }
}

/// The WWW-Authenticate field of a refusal. A request without a token is told no error (RFC 6750,
/// 3.1).
pub fn challenge(realm: &str, reason: Reason) -> String {
    let error = match reason {
        Reason::Missing => "",
        Reason::Invalid => ", error=\"invalid_token\"",
        Reason::Expired => ", error=\"invalid_token\", error_description=\"the token has expired\"",
    };
    format!("Bearer realm=\"{realm}\"{error}")
}

/// Whether `value` may stand in a field: a token's subject is whatever its issuer wrote.
pub fn is_field_value(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b >= 0x20 && b != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of “secret”.
    const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn verdicts() {
        let config = |more: &str| {
            let json = format!(r#"{{"tokens": {{"ci": "{DIGEST}"}}{more}}}"#);
            Config::parse(json.as_bytes()).unwrap()
        };
        let plain = config("");
        let check = |config: &Config, token, expect| {
            assert_eq!(verdict(config, token, 0), expect, "{token:?}");
        };
        check(&plain, None, Verdict::Refuse(Reason::Missing));
        check(&plain, Some("secret"), Verdict::Pass(Some("ci".into())));
        check(&plain, Some("Secret"), Verdict::Refuse(Reason::Invalid));
        let remote = config(r#", "remote": {"upstream": "auth", "path": "/"}"#);
        check(&remote, None, Verdict::Refuse(Reason::Missing));
        check(&remote, Some("secret"), Verdict::Pass(Some("ci".into())));
        check(&remote, Some("other"), Verdict::Ask);
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        check(&remote, Some(&long), Verdict::Refuse(Reason::Invalid));
        check(&remote, Some(&long[1..]), Verdict::Ask);
    }

    #[test]
    fn challenges() {
        assert_eq!(challenge("a b", Reason::Missing), "Bearer realm=\"a b\"");
        let invalid = challenge("r", Reason::Invalid);
        assert_eq!(invalid, "Bearer realm=\"r\", error=\"invalid_token\"");
        assert!(challenge("r", Reason::Expired).starts_with(&invalid));
    }

    #[test]
    fn subjects_fit_into_a_field() {
        assert!(is_field_value("Zoë O'Hara"));
        assert!(!is_field_value("a\r\nb: c"));
        assert!(!is_field_value(""));
    }
}
