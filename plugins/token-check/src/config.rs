//! The configuration: read from JSON and checked once, so that nothing needs checking per request.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Bytes of a signing key at least (RFC 7518, 3.2: as many as the digest has).
const SECRET_BYTES_MIN: usize = 32;

/// How long another server may take unless configured, in milliseconds.
const TIMEOUT_MS_DEFAULT: u64 = 1000;

/// Everything the plugin is configured with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// What the challenge names.
    #[serde(default = "default_realm")]
    pub realm: String,
    /// Cookie that holds the token where there is no Authorization field.
    pub cookie: Option<String>,
    /// Paths that need no token; one that ends with `/` stands for all below it.
    #[serde(default)]
    pub open: Vec<String>,
    /// Who → SHA-256 of the token, in hexadecimal.
    #[serde(default)]
    pub tokens: BTreeMap<String, Digest>,
    /// Signed tokens.
    pub jwt: Option<Jwt>,
    /// Another server that knows more tokens.
    pub remote: Option<Remote>,
    /// Request field that tells the application whose token it was.
    pub subject_header: Option<String>,
    /// Whether the application does not see the token.
    #[serde(default)]
    pub strip: bool,
}

/// Signed, expiring tokens: JWT (RFC 7519) with HS256.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Jwt {
    /// The signing key, shared with whoever issues the tokens.
    pub secret: String,
    /// What `iss` must be.
    pub issuer: Option<String>,
    /// What `aud` must name.
    pub audience: Option<String>,
    /// How far clocks may be apart, in seconds.
    #[serde(default)]
    pub leeway_seconds: u64,
}

/// Another server: 2xx accepts a token, 401 and 403 refuse it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Remote {
    /// The proxy's name for it.
    pub upstream: String,
    /// Path and query to ask.
    pub path: String,
    /// Host to ask for; the upstream's name unless given.
    pub authority: Option<String>,
    /// How long it may take.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Fields of its answer that the application gets.
    #[serde(default)]
    pub pass: Vec<String>,
}

/// SHA-256 of a token.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(hex: String) -> Result<Digest, String> {
        let error = || format!("“{hex}” is no SHA-256 digest: 64 hexadecimal digits");
        if hex.len() != 64 || !hex.is_ascii() {
            return Err(error());
        }
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            let digits = &hex[2 * at..2 * at + 2];
            // `from_str_radix` would take a sign.
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(error());
            }
            *byte = u8::from_str_radix(digits, 16).map_err(|_| error())?;
        }
        Ok(Digest(digest))
    }
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(json: &[u8]) -> Result<Config, String> {
        let mut config: Config = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if config.tokens.is_empty() && config.jwt.is_none() && config.remote.is_none() {
            return Err(
                "one of “tokens”, “jwt” and “remote” must say which tokens are valid".into()
            );
        }
        if !config.realm.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\') {
            return Err("“realm” must be plain ASCII without quotes".into());
        }
        if let Some(path) = config.open.iter().find(|path| !path.starts_with('/')) {
            return Err(format!("“open”: “{path}” must begin with “/”"));
        }
        if let Some(jwt) = &config.jwt
            && jwt.secret.len() < SECRET_BYTES_MIN
        {
            return Err(format!("“jwt”: “secret” must have at least {SECRET_BYTES_MIN} bytes"));
        }
        if let Some(cookie) = &config.cookie {
            check_name("cookie", cookie)?;
        }
        let passed = config.remote.iter_mut().flat_map(|remote| &mut remote.pass);
        for name in config.subject_header.iter_mut().chain(passed) {
            name.make_ascii_lowercase();
            check_name("header", name)?;
        }
        Ok(config)
    }

    /// Request fields that this plugin alone may set: what a client sends there is a lie.
    pub fn own_fields(&self) -> impl Iterator<Item = &str> {
        let passed = self.remote.iter().flat_map(|remote| &remote.pass);
        self.subject_header.iter().chain(passed).map(String::as_str)
    }
}

/// A token in RFC 9110's sense, as names of fields and cookies are.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("“{name}” is no name of a {what}"));
    }
    Ok(())
}

fn default_realm() -> String {
    "weir".into()
}

fn default_timeout_ms() -> u64 {
    TIMEOUT_MS_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuses(json: &str, expect: &str) {
        let error = Config::parse(json.as_bytes()).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        refuses("", "EOF");
        refuses("{}", "must say which tokens are valid");
        refuses(r#"{"token": {}}"#, "token");
        refuses(r#"{"tokens": {"a": "12"}}"#, "no SHA-256 digest");
        refuses(&format!(r#"{{"tokens": {{"a": "+1{}"}}}}"#, "0".repeat(62)), "no SHA-256 digest");
        refuses(r#"{"jwt": {"secret": "short"}}"#, "at least 32 bytes");
        let with = |more: &str| {
            format!(r#"{{"remote": {{"upstream": "a", "path": "/", "pass": ["X"]}}, {more}}}"#)
        };
        refuses(&with(r#""open": ["public"]"#), "must begin with");
        refuses(&with(r#""realm": "a\"b""#), "realm");
        refuses(&with(r#""cookie": "a b""#), "name of a cookie");
        refuses(&with(r#""subject-header": "a:""#), "name of a header");
        let config = Config::parse(with(r#""subject-header": "X-User""#).as_bytes()).unwrap();
        assert_eq!(config.own_fields().collect::<Vec<_>>(), ["x-user", "x"]);
        assert_eq!(config.remote.unwrap().timeout_ms, TIMEOUT_MS_DEFAULT);
    }

    #[test]
    fn digests() {
        let digest = Digest::try_from(format!("0fFF{}", "00".repeat(30))).unwrap();
        assert_eq!(digest.0[..3], [0x0f, 0xff, 0]);
    }
}
