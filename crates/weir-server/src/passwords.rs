//! Passwords as files keep them: derived by PBKDF2 with HMAC-SHA-256 (RFC 8018), so that a file
//! that leaks does not tell them.
//!
//! The form is that of the Password Hashing Competition: `$pbkdf2-sha256$i=600000$SALT$KEY`, salt
//! and key in base64 without padding.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive, verify};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// What OWASP's Password Storage Cheat Sheet recommends for this function (2023): about 0.2 s.
const ITERATIONS: u32 = 600_000;
/// What files may say. Fewer protect nothing; more would take a minute.
const ITERATIONS_MIN: u32 = 10_000;
const ITERATIONS_MAX: u32 = 10_000_000;

const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// Longest salt in a file.
const SALT_BYTES_MAX: usize = 64;

const NAME: &str = "pbkdf2-sha256";

/// A password that can be recognised, and not read.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    key: [u8; KEY_BYTES],
}

impl Hash {
    /// Derives it from a password, with a salt of its own. `None` if the system gives no random
    /// numbers.
    pub fn new(password: &[u8]) -> Option<Hash> {
        let mut salt = vec![0; SALT_BYTES];
        rand::fill(&mut salt).ok()?;
        Some(Hash::with(password, salt, NonZeroU32::new(ITERATIONS)?))
    }

    fn with(password: &[u8], salt: Vec<u8>, iterations: NonZeroU32) -> Hash {
        let mut key = [0; KEY_BYTES];
        derive(PBKDF2_HMAC_SHA256, iterations, &salt, password, &mut key);
        Hash { iterations, salt, key }
    }

    /// Whether a password is this one, in a time that does not depend on how much of it is right.
    /// Takes some tenths of a second of work.
    pub fn is(&self, password: &[u8]) -> bool {
        verify(PBKDF2_HMAC_SHA256, self.iterations, &self.salt, password, &self.key).is_ok()
    }
}

impl FromStr for Hash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Hash, &'static str> {
        let mut parts = text.split('$');
        if parts.next() != Some("") || parts.next() != Some(NAME) {
            return Err("its password is not as `weir password` prints it");
        }
        let iterations = parts.next().and_then(|part| part.strip_prefix("i="));
        let iterations = iterations.and_then(|digits| digits.parse().ok());
        let iterations = iterations.ok_or("its number of iterations is none")?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
            return Err("its iterations are not between 10,000 and 10,000,000");
        }
        let mut decoded = || STANDARD_NO_PAD.decode(parts.next()?).ok();
        let salt = decoded().filter(|salt| (8..=SALT_BYTES_MAX).contains(&salt.len()));
        let salt = salt.ok_or("its salt is not of 8 to 64 bytes in base64")?;
        let key = decoded().and_then(|key| key.try_into().ok());
        let key = key.ok_or("its key is not of 32 bytes in base64")?;
        if parts.next().is_some() {
            return Err("something follows its key");
        }
        // Not 0, as was checked.
        let iterations = NonZeroU32::new(iterations).ok_or("its number of iterations is none")?;
        Ok(Hash { iterations, salt, key })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, key) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(self.key));
        write!(f, "${NAME}$i={}${salt}${key}", self.iterations)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash")
    }
}

/// Users by their names, as a file has them: lines `name:hash`, empty ones, and those that begin
/// with `#`.
///
/// # Errors
/// What is wrong, with the number of the line.
pub fn users(text: &str) -> Result<HashMap<String, Hash>, String> {
    let mut users = HashMap::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("line {number}: {what}");
        let (name, hash) = line.split_once(':').ok_or_else(|| wrong("it is not name:hash"))?;
        let hash = hash.trim().parse::<Hash>().map_err(&wrong)?;
        if name.is_empty() {
            return Err(wrong("its name is missing"));
        }
        if users.insert(name.to_owned(), hash).is_some() {
            return Err(wrong(&format!("there is a user {name:?} already")));
        }
    }
    match users.is_empty() {
        true => Err("it names no user; `weir password NAME` prints a line for it".to_owned()),
        false => Ok(users),
    }
}

/// One that is verified quickly, for tests of what is around it.
#[cfg(test)]
pub(crate) fn quick(password: &[u8]) -> Hash {
    // Not 0.
    let few = NonZeroU32::new(ITERATIONS_MIN).unwrap_or(NonZeroU32::MIN);
    Hash::with(password, b"saltsalt".to_vec(), few)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;

    /// RFC 7914, section 11.
    #[test]
    fn keys_are_derived_as_the_standard_says() {
        let one = NonZeroU32::new(1).unwrap();
        let hash = Hash::with(b"passwd", b"salt".to_vec(), one);
        assert_eq!(hash.key[..8], [0x55, 0xac, 0x04, 0x6e, 0x56, 0xe3, 0x08, 0x9f]);
    }

    #[test]
    fn what_is_written_is_read() {
        let few = NonZeroU32::new(ITERATIONS_MIN).unwrap();
        let hash = Hash::with("pä$$:word".as_bytes(), vec![7; SALT_BYTES], few);
        let again: Hash = hash.to_string().parse().unwrap();
        assert!(again == hash && again.is("pä$$:word".as_bytes()));
        assert!(!again.is(b"password") && !again.is(b""));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let key = "A".repeat(43);
        let salt = "c2FsdHNhbHQ";
        assert!(format!("$pbkdf2-sha256$i=10000${salt}${key}").parse::<Hash>().is_ok());
        for wrong in [
            "secret".to_owned(),
            "{SHA}c2VjcmV0".to_owned(),
            format!("$pbkdf2-sha512$i=10000${salt}${key}"),
            format!("$pbkdf2-sha256$i=1${salt}${key}"),
            format!("$pbkdf2-sha256$i=99999999${salt}${key}"),
            format!("$pbkdf2-sha256$10000${salt}${key}"),
            format!("$pbkdf2-sha256$i=10000$c2FsdA${key}"),
            format!("$pbkdf2-sha256$i=10000${salt}$AAAA"),
            format!("$pbkdf2-sha256$i=10000${salt}${key}$"),
        ] {
            assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_are_read_strictly() {
        let hash = quick(b"x").to_string();
        let wrong = |text: &str| users(text).unwrap_err();
        assert!(wrong("# nobody\n").starts_with("it names no user"));
        assert!(wrong("ann\n").starts_with("line 1: it is not name:hash"));
        assert!(wrong("\nann:secret\n").starts_with("line 2: its password"));
        assert!(wrong(&format!(":{hash}")).contains("its name is missing"));
        assert!(wrong(&format!("ann:{hash}\nann:{hash}")).contains("line 2: there is a user"));
    }
}
