//! Signed tokens: JWT (RFC 7519) in compact form (RFC 7515, 3.1), signed with HMAC-SHA-256. No
//! other algorithm is accepted, whatever a token says of itself (RFC 8725, 3.1).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

use crate::config::Jwt;
use crate::verdict::Reason;

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood; none is.
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    iss: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self, audience: &str) -> bool {
        match self {
            Audience::One(one) => one == audience,
            Audience::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

/// Whose token it is (may be nobody's in particular), at `now_s` seconds since 1970.
///
/// # Errors
/// Why it does not count.
pub fn verify(token: &str, config: &Jwt, now_s: u64) -> Result<Option<String>, Reason> {
    let (signed, signature) = token.rsplit_once('.').ok_or(Reason::Invalid)?;
    let (header, claims) = signed.split_once('.').ok_or(Reason::Invalid)?;
    let signature = decode(signature)?;
    let mac = Hmac::<Sha256>::new_from_slice(config.secret.as_bytes());
    // In constant time; nothing of the token is looked at before.
    mac.map_err(|_| Reason::Invalid)?
        .chain_update(signed)
        .verify_slice(&signature)
        .map_err(|_| Reason::Invalid)?;
    let header: Header = parse(header)?;
    if header.alg != "HS256" || header.crit.is_some() {
        return Err(Reason::Invalid);
    }
    let claims: Claims = parse(claims)?;
    check_claims(&claims, config, now_s as f64)?;
    Ok(claims.sub)
}

fn check_claims(claims: &Claims, config: &Jwt, now_s: f64) -> Result<(), Reason> {
    let leeway_s = config.leeway_seconds as f64;
    // A token for ever could not be taken back.
    let exp = claims.exp.ok_or(Reason::Invalid)?;
    if now_s >= exp + leeway_s {
        return Err(Reason::Expired);
    }
    if claims.nbf.is_some_and(|nbf| now_s + leeway_s < nbf) {
        return Err(Reason::Invalid);
    }
    if config.issuer.is_some() && claims.iss != config.issuer {
        return Err(Reason::Invalid);
    }
    let is_meant = |audience: &String| claims.aud.as_ref().is_some_and(|a| a.names(audience));
    if !config.audience.as_ref().is_none_or(is_meant) {
        return Err(Reason::Invalid);
    }
    Ok(())
}

fn decode(part: &str) -> Result<Vec<u8>, Reason> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Reason::Invalid)
}

fn parse<T: for<'a> Deserialize<'a>>(part: &str) -> Result<T, Reason> {
    serde_json::from_slice(&decode(part)?).map_err(|_| Reason::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";
    const NOW_S: u64 = 1_000;

    fn sign(header: &str, claims: &str, secret: &str) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[track_caller]
    fn check(claims: &str, expect: Result<Option<&str>, Reason>) {
        let config = Jwt {
            secret: SECRET.into(),
            issuer: Some("me".into()),
            audience: Some("you".into()),
            leeway_seconds: 10,
        };
        let token = sign(r#"{"alg":"HS256","typ":"JWT"}"#, claims, SECRET);
        let found = verify(&token, &config, NOW_S);
        assert_eq!(found, expect.map(|subject| subject.map(str::to_owned)), "{claims}");
    }

    #[test]
    fn claims() {
        check(r#"{"iss":"me","aud":"you","exp":1001,"sub":"bob"}"#, Ok(Some("bob")));
        check(r#"{"iss":"me","aud":["x","you"],"exp":1001}"#, Ok(None));
        check(r#"{"iss":"me","aud":"you","exp":991}"#, Ok(None));
        check(r#"{"iss":"me","aud":"you","exp":990}"#, Err(Reason::Expired));
        check(r#"{"iss":"me","aud":"you"}"#, Err(Reason::Invalid));
        check(r#"{"iss":"me","aud":"you","exp":"soon"}"#, Err(Reason::Invalid));
        check(r#"{"iss":"me","aud":"you","exp":1e9,"nbf":1010}"#, Ok(None));
        check(r#"{"iss":"me","aud":"you","exp":1e9,"nbf":1011}"#, Err(Reason::Invalid));
        check(r#"{"iss":"he","aud":"you","exp":1001}"#, Err(Reason::Invalid));
        check(r#"{"aud":"you","exp":1001}"#, Err(Reason::Invalid));
        check(r#"{"iss":"me","aud":["x"],"exp":1001}"#, Err(Reason::Invalid));
        check(r#"{"iss":"me","exp":1001}"#, Err(Reason::Invalid));
    }

    #[test]
    fn signatures() {
        let config = Jwt { secret: SECRET.into(), issuer: None, audience: None, leeway_seconds: 0 };
        let verify = |token: &str| verify(token, &config, NOW_S);
        let claims = r#"{"exp":2000}"#;
        let good = sign(r#"{"alg":"HS256"}"#, claims, SECRET);
        assert_eq!(verify(&good), Ok(None));
        let other = "another key that is long enough!";
        let unsigned = good.rsplit_once('.').unwrap().0;
        let bad = [
            sign(r#"{"alg":"HS256"}"#, claims, other),
            sign(r#"{"alg":"none"}"#, claims, SECRET),
            sign(r#"{"alg":"HS256","crit":["exp"]}"#, claims, SECRET),
            sign("{", claims, SECRET),
            format!("{unsigned}."),
            unsigned.to_owned(),
            format!("{good}="),
            good[..good.len() - 4].to_owned(),
            ".".into(),
            "..".into(),
            String::new(),
        ];
        for token in bad {
            assert_eq!(verify(&token), Err(Reason::Invalid), "{token}");
        }
    }

    /// Not our own arithmetic against itself: the example of RFC 7515, appendix A.1, whose key is
    /// binary, hence checked with the primitive alone.
    #[test]
    fn hmac_of_the_rfc() {
        let key = concat!(
            "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75",
            "aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
        );
        let signed = concat!(
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkz",
            "ODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
        );
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        let mac = Hmac::<Sha256>::new_from_slice(&key).unwrap().chain_update(signed);
        let signature = URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes());
        assert_eq!(signature, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    }
}
