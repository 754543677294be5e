//! Users of a forward proxy: their file, and who has shown to be one of them lately. To verify a
//! password takes tenths of a second, which is what it is for; so it is done on another thread, one
//! after the other, and what came of it is remembered.

mod asking;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use weir_config::Config;
use weir_guard::{KeyTable, Pace, Tag, prefix_of};

use self::asking::Queue;
pub(crate) use self::asking::{Asking, Word};
use super::Live;
use crate::error::StartError;
use crate::passwords::{self, Hash};

/// Credentials that are remembered, right or wrong. The oldest wrong ones leave first.
const KNOWN_MAX: usize = 4096;
/// How long right ones are remembered after they were last of use. A user who is taken out of the
/// file is gone with the reload.
const RIGHT_LASTS: Duration = Duration::from_secs(600);
/// How long wrong ones are.
const WRONG_LASTS: Duration = Duration::from_secs(60);

/// Wrong passwords that an address, or a /64 of IPv6, may show: ten, and one more for each minute.
/// Beyond them nothing is verified for it. People err a few times; who guesses errs always.
const ERRORS: Pace = Pace { token_ns: 60_000_000_000, bucket_ns: 10 * 60_000_000_000 };
/// Addresses that are remembered for it.
const SOURCES_MAX: usize = 4096;

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
    /// What is left to each address of [`ERRORS`].
    errors: KeyTable,
    began: Instant,
    queue: Queue,
    /// The file that they were read from, by its keyed hash.
    read: [u8; 32],
}

/// The users that a configuration names, by their file.
pub(crate) type AllUsers = HashMap<PathBuf, Arc<Users>>;

/// Reads all files of users. Who comes from one that has not changed is known as before.
///
/// # Errors
/// The first file that cannot be used.
pub(super) fn build(config: &Config, previous: Option<&Live>) -> Result<AllUsers, StartError> {
    let mut all = AllUsers::new();
    for route in config.sites.iter().flat_map(|site| &site.routes) {
        if let weir_config::Source::Forward(settings) = &route.source
            && let Some(named) = &settings.users
            && !all.contains_key(&named.file)
        {
            let known = previous.and_then(|live| live.users.get(&named.file));
            all.insert(named.file.clone(), Users::load(&named.file, known)?);
        }
    }
    Ok(all)
}

#[derive(Clone, Copy)]
struct Known {
    is_right: bool,
    since: Instant,
}

impl Users {
    /// Reads a file of lines `name:hash`; gives back the users that are `known` if it says the
    /// same.
    ///
    /// # Errors
    /// If it cannot be read, and the first line that is wrong.
    pub(super) fn load(path: &Path, known: Option<&Arc<Users>>) -> Result<Arc<Users>, StartError> {
        let wrong = |what: String| StartError::Users { path: path.to_owned(), what };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if let Some(known) = known.filter(|known| known.read == digest(&known.key, &text)) {
            return Ok(Arc::clone(known));
        }
        let by_name = passwords::users(&text).map_err(wrong)?;
        let no_random = || wrong("the system gives no random numbers".to_owned());
        let nobody = Hash::new(b"").ok_or_else(no_random)?;
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        let key = key.map_err(|_| no_random())?;
        Ok(Arc::new(Users {
            by_name,
            nobody,
            read: digest(&key, &text),
            key,
            known: Mutex::default(),
            errors: KeyTable::new(SOURCES_MAX),
            began: Instant::now(),
            queue: Queue::default(),
        }))
    }

    /// What is known of the credentials of a request, `None` for one that has none.
    pub(crate) fn judge(&self, field: Option<&HeaderValue>, client: Option<IpAddr>) -> Word {
        let known = field.and_then(|field| self.look(&self.digest(field)));
        match known {
            Some(true) => Word::Right,
            Some(false) => Word::Wrong,
            None if field.is_some() && self.has_failed(self.source(client)) => Word::TooMany,
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
        let (digest, source) = (self.digest(field), self.source(client));
        if self.look(&digest).is_some() || self.has_failed(source) {
            return None;
        }
        let (name, password) = credentials(field)?;
        Some(Asking { users: Arc::clone(self), name, password, digest, source })
    }

    fn digest(&self, field: &HeaderValue) -> [u8; 32] {
        digest(&self.key, field)
    }

    fn look(&self, digest: &[u8; 32]) -> Option<bool> {
        let mut all = self.known.lock();
        let known = all.get_mut(digest)?;
        let lasts = if known.is_right { RIGHT_LASTS } else { WRONG_LASTS };
        let is_known = known.since.elapsed() < lasts;
        if is_known && known.is_right {
            known.since = Instant::now();
        }
        is_known.then_some(known.is_right)
    }

    fn has_failed(&self, source: Option<Tag>) -> bool {
        let word = source.and_then(|source| self.errors.find(source));
        word.is_some_and(|word| ERRORS.left(word, self.now_ns()) == 0)
    }

    /// Whom [`Users::errors`] knows a client by: his address, or the /64 of IPv6 that one has.
    fn source(&self, client: Option<IpAddr>) -> Option<Tag> {
        let prefix = prefix_of(client?.to_canonical(), 32, 64);
        Some(self.errors.tag(0, prefix))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
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

    fn note_failure(&self, source: Tag) {
        let now_ns = self.now_ns();
        let word = self.errors.bucket(source, now_ns);
        // Of what is verified meanwhile, some may find none left.
        let _ = ERRORS.take(word, now_ns);
    }
}

/// A keyed hash, which tells nobody what was hashed.
fn digest(key: &hmac::Key, text: impl AsRef<[u8]>) -> [u8; 32] {
    let tag = hmac::sign(key, text.as_ref());
    // HMAC-SHA-256 has 32 bytes.
    tag.as_ref().try_into().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

    use std::task::Poll;

    use super::*;

    /// The password is `secret`; few iterations, so that the tests are quick.
    fn users() -> Arc<Users> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        let hash = crate::passwords::quick(b"secret");
        std::fs::write(&path, format!("# a comment\n\nann:{hash}\n")).unwrap();
        let users = Arc::into_inner(Users::load(&path, None).unwrap()).unwrap();
        Arc::new(Users { nobody: crate::passwords::quick(b""), ..users })
    }

    fn field(plain: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain))).unwrap()
    }

    async fn word(users: &Arc<Users>, field: &HeaderValue, client: &str) -> Word {
        let client = Some(client.parse().unwrap());
        match users.asking(field, client) {
            Some(asking) => asking.wait().await,
            None => users.judge(Some(field), client),
        }
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
        for number in 0..10 {
            let guess = field(&format!("ann:{number}"));
            assert_eq!(word(&users, &guess, "2001:db8::1").await, Word::Wrong);
        }
        let right = field("ann:secret");
        assert_eq!(word(&users, &right, "2001:db8::2").await, Word::TooMany);
        // Others are, and what is known then holds.
        assert_eq!(word(&users, &right, "2001:db8:0:1::1").await, Word::Right);
        assert_eq!(word(&users, &right, "2001:db8::2").await, Word::Right);
    }

    #[tokio::test]
    async fn those_who_give_up_are_verified_all_the_same() {
        let users = users();
        let client = Some("192.0.2.1".parse().unwrap());
        for number in 0..10 {
            // As when the client resets its stream.
            let asking = users.asking(&field(&format!("ann:{number}")), client).unwrap();
            let mut waiting = Box::pin(asking.wait());
            let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx)));
            assert!(polled.await.is_pending());
            drop(waiting);
            while !users.queue.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(word(&users, &field("ann:secret"), "192.0.2.1").await, Word::TooMany);
    }

    #[tokio::test]
    async fn the_same_is_verified_once_and_one_source_leaves_room() {
        let users = users();
        let client = Some("192.0.2.1".parse().unwrap());
        let asking = |plain: &str| users.asking(&field(plain), client).unwrap();
        let same: Vec<_> = (0..100).map(|_| tokio::spawn(asking("ann:secret").wait())).collect();
        let others = (0..100).map(|n| tokio::spawn(asking(&format!("ann:{n}")).wait()));
        let others: Vec<_> = others.collect();
        for one in same {
            assert_eq!(one.await.unwrap(), Word::Right);
        }
        let (mut busy, mut wrong) = (0, 0);
        for one in others {
            let word = one.await.unwrap();
            busy += usize::from(word == Word::Busy);
            wrong += usize::from(word == Word::Wrong);
        }
        assert!((80..100).contains(&busy), "{busy}");
        assert!(wrong <= 10, "{wrong}");
    }

    #[test]
    fn a_file_that_says_the_same_leaves_users_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, format!("ann:{}\n", crate::passwords::quick(b"a"))).unwrap();
        let first = Users::load(&path, None).unwrap();
        assert!(Arc::ptr_eq(&first, &Users::load(&path, Some(&first)).unwrap()));
        std::fs::write(&path, format!("bob:{}\n", crate::passwords::quick(b"a"))).unwrap();
        assert!(!Arc::ptr_eq(&first, &Users::load(&path, Some(&first)).unwrap()));
    }
}
