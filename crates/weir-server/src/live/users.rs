//! Users of a forward proxy: their file, and who has shown to be one of them lately. To verify a
//! password takes tenths of a second, which is what it is for; so it is done on another thread, one
//! after the other, and what came of it is remembered.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::error::StartError;
use crate::passwords::Hash;

/// Credentials that are remembered, right or wrong. The oldest wrong ones leave first.
const KNOWN_MAX: usize = 4096;
/// How long right ones are remembered. A user who is taken out of the file is gone with the reload.
const RIGHT_LASTS: Duration = Duration::from_secs(600);
/// How long wrong ones are.
const WRONG_LASTS: Duration = Duration::from_secs(60);

/// Wrong passwords from one address, or one /64 of IPv6, in [`FAILURES_WINDOW`]; after that nothing
/// is verified for it until the window is over. People err a few times; who guesses errs always.
const FAILURES_MAX: u32 = 10;
const FAILURES_WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered for it.
const SOURCES_MAX: usize = 4096;

/// Who may wait for a verification, at a tenth of a second or two each. Others are turned away.
const WAITING_MAX: usize = 32;

/// Bytes of credentials: longer ones are wrong without a look.
const CREDENTIALS_MAX: usize = 1024;

/// Users and users to be of one proxy.
pub(crate) struct Users {
    by_name: HashMap<String, Hash>,
    /// Takes as long to verify as anybody's, so that nobody learns which names there are.
    nobody: Hash,
    /// Credentials are remembered by a hash that depends on this, and never themselves.
    key: hmac::Key,
    known: Mutex<HashMap<[u8; 32], Known>>,
    failures: Mutex<HashMap<IpAddr, Failures>>,
    turn: Semaphore,
    waiting: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Known {
    is_right: bool,
    since: Instant,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    since: Instant,
}

/// What is known of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Right,
    Wrong,
    /// Too many wrong ones have come from there.
    TooMany,
}

/// Credentials that are to be verified.
pub(crate) struct Asking {
    users: Arc<Users>,
    name: String,
    password: Vec<u8>,
    digest: [u8; 32],
    source: Option<IpAddr>,
}

impl Users {
    /// Reads a file of lines `name:hash`.
    ///
    /// # Errors
    /// If it cannot be read, and the first line that is wrong.
    pub(crate) fn load(path: &Path) -> Result<Users, StartError> {
        let wrong = |what: String| StartError::Users { path: path.to_owned(), what };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let by_name = parse(&text).map_err(wrong)?;
        let no_random = || wrong("the system gives no random numbers".to_owned());
        let nobody = Hash::new(b"").ok_or_else(no_random)?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        Ok(Users {
            by_name,
            nobody,
            key: key.map_err(|_| no_random())?,
            known: Mutex::default(),
            failures: Mutex::default(),
            turn: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
        })
    }

    /// What is known of the credentials of a request, `None` for one that has none.
    pub(crate) fn judge(&self, field: Option<&HeaderValue>, client: Option<IpAddr>) -> Word {
        let known = field.and_then(|field| self.look(&self.digest(field)));
        match known {
            Some(true) => Word::Right,
            Some(false) => Word::Wrong,
            None if field.is_some() && self.has_failed(client) => Word::TooMany,
            None => Word::Wrong,
        }
    }

    /// What is to be verified before a request with credentials can be judged; nothing if that is
    /// known, or will not be done.
    pub(crate) fn asking(
        self: &Arc<Self>,
        field: &HeaderValue,
        client: Option<IpAddr>,
    ) -> Option<Asking> {
        let digest = self.digest(field);
        if self.look(&digest).is_some() || self.has_failed(client) {
            return None;
        }
        let (name, password) = credentials(field)?;
        let source = client.map(source);
        Some(Asking { users: Arc::clone(self), name, password, digest, source })
    }

    fn digest(&self, field: &HeaderValue) -> [u8; 32] {
        let tag = hmac::sign(&self.key, field.as_bytes());
        // HMAC-SHA-256 has 32 bytes.
        tag.as_ref().try_into().unwrap_or_default()
    }

    fn look(&self, digest: &[u8; 32]) -> Option<bool> {
        let known = *self.known.lock().get(digest)?;
        let lasts = if known.is_right { RIGHT_LASTS } else { WRONG_LASTS };
        (known.since.elapsed() < lasts).then_some(known.is_right)
    }

    fn has_failed(&self, client: Option<IpAddr>) -> bool {
        let Some(client) = client else { return false };
        let failures = self.failures.lock();
        let of_source = failures.get(&source(client));
        of_source.is_some_and(|failed| {
            failed.count >= FAILURES_MAX && failed.since.elapsed() < FAILURES_WINDOW
        })
    }

    fn remember(&self, digest: [u8; 32], is_right: bool) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            let first = known.iter().min_by_key(|(_, known)| (known.is_right, known.since));
            let first = first.map(|(digest, _)| *digest);
            first.and_then(|first| known.remove(&first));
        }
        known.insert(digest, Known { is_right, since: Instant::now() });
    }

    fn note_failure(&self, source: IpAddr) {
        let mut failures = self.failures.lock();
        if failures.len() >= SOURCES_MAX {
            failures.retain(|_, failed| failed.since.elapsed() < FAILURES_WINDOW);
        }
        if failures.len() >= SOURCES_MAX {
            let first = failures.iter().min_by_key(|(_, failed)| failed.since);
            let first = first.map(|(source, _)| *source);
            first.and_then(|first| failures.remove(&first));
        }
        let now = Instant::now();
        let failed = failures.entry(source).or_insert(Failures { count: 0, since: now });
        if failed.since.elapsed() >= FAILURES_WINDOW {
            *failed = Failures { count: 0, since: now };
        }
        failed.count += 1;
    }
}

/// Somebody who waits, also one who gives up.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl Waiting<'_> {
    fn new(count: &AtomicUsize) -> Waiting<'_> {
        Waiting { count, before: count.fetch_add(1, Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

impl Asking {
    /// Verifies, when it is its turn; what came of it is known afterwards, unless too many wait.
    pub(crate) async fn wait(self) {
        let users = Arc::clone(&self.users);
        let waiting = Waiting::new(&users.waiting);
        if waiting.before < WAITING_MAX {
            self.verify().await;
        }
    }

    async fn verify(self) {
        let Asking { users, name, password, digest, source } = self;
        // Nobody closes it.
        let Ok(_turn) = users.turn.acquire().await else { return };
        // Whoever was before may have asked the same, or too often.
        if users.look(&digest).is_some() || users.has_failed(source) {
            return;
        }
        let verifier = Arc::clone(&users);
        let verifying = tokio::task::spawn_blocking(move || match verifier.by_name.get(&name) {
            Some(hash) => hash.is(&password),
            None => {
                let _ = verifier.nobody.is(&password);
                false
            }
        });
        let is_right = verifying.await.unwrap_or(false);
        users.remember(digest, is_right);
        if let Some(source) = source.filter(|_| !is_right) {
            users.note_failure(source);
        }
    }
}

/// User and password of `Basic` (RFC 7617).
fn credentials(field: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let text = field.to_str().ok().filter(|text| text.len() <= CREDENTIALS_MAX)?;
    let (scheme, coded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = STANDARD.decode(coded.trim()).ok()?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(plain[..colon].to_vec()).ok()?;
    Some((name, plain[colon + 1..].to_vec()))
}

/// The address, or the /64 of IPv6 that one client has.
fn source(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

fn parse(text: &str) -> Result<HashMap<String, Hash>, String> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use super::*;

    /// The password is `secret`; few iterations, so that the tests are quick.
    fn users() -> Arc<Users> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        let hash = crate::passwords::quick(b"secret");
        std::fs::write(&path, format!("# a comment\n\nann:{hash}\n")).unwrap();
        let users = Users::load(&path).unwrap();
        Arc::new(Users { nobody: crate::passwords::quick(b""), ..users })
    }

    fn field(plain: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).unwrap()
    }

    async fn word(users: &Arc<Users>, field: &HeaderValue, client: &str) -> Word {
        let client = Some(client.parse().unwrap());
        if let Some(asking) = users.asking(field, client) {
            asking.wait().await;
        }
        users.judge(Some(field), client)
    }

    #[tokio::test]
    async fn users_are_known_by_their_passwords() {
        let users = users();
        for (plain, expected) in [
            ("ann:secret", Word::Right),
            ("ann:Secret", Word::Wrong),
            ("ann:", Word::Wrong),
            ("ann", Word::Wrong),
            ("bob:secret", Word::Wrong),
            (":secret", Word::Wrong),
        ] {
            assert_eq!(word(&users, &field(plain), "192.0.2.1").await, expected, "{plain}");
        }
        for other in ["Bearer abc", "Basic !", "Basic", ""] {
            let other = HeaderValue::from_static(other);
            assert_eq!(word(&users, &other, "192.0.2.1").await, Word::Wrong, "{other:?}");
        }
        assert_eq!(users.judge(None, None), Word::Wrong);
        // What is known is not verified again.
        assert!(users.asking(&field("ann:secret"), None).is_none());
    }

    #[tokio::test]
    async fn who_guesses_is_not_heard_for_a_while() {
        let users = users();
        for number in 0..FAILURES_MAX {
            let guess = field(&format!("ann:{number}"));
            assert_eq!(word(&users, &guess, "2001:db8::1").await, Word::Wrong);
        }
        let right = field("ann:secret");
        assert_eq!(word(&users, &right, "2001:db8::2").await, Word::TooMany);
        // Others are, and what is known then holds.
        assert_eq!(word(&users, &right, "2001:db8:0:1::1").await, Word::Right);
        assert_eq!(word(&users, &right, "2001:db8::2").await, Word::Right);
    }

    #[test]
    fn files_are_read_strictly() {
        let hash = crate::passwords::quick(b"x").to_string();
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(wrong("# nobody\n").starts_with("it names no user"));
        assert!(wrong("ann\n").starts_with("line 1: it is not name:hash"));
        assert!(wrong("\nann:secret\n").starts_with("line 2: its password"));
        assert!(wrong(&format!(":{hash}")).contains("its name is missing"));
        assert!(wrong(&format!("ann:{hash}\nann:{hash}")).contains("line 2: there is a user"));
    }
}
