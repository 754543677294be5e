//! Verifying what is not known yet: beside the workers, one after the other, to the end. Whoever
//! asked may give up meanwhile; the work is done and counted all the same, or guessing would cost
//! whoever guesses nothing, and the server everything.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use weir_guard::Tag;

use super::Users;

/// Credentials that may wait for their verification, at a tenth of a second or two each. Others are
/// turned away.
const WAITING_MAX: usize = 32;
/// Of them, those of one address: it cannot keep others from their turn.
const WAITING_OF_SOURCE_MAX: usize = 8;

/// What is known of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Right,
    Wrong,
    /// Too many wrong ones have come from there.
    TooMany,
    /// Too many wait for their turn.
    Busy,
}

/// Credentials that are to be verified.
pub(crate) struct Asking {
    pub(super) users: Arc<Users>,
    pub(super) name: String,
    pub(super) password: Vec<u8>,
    pub(super) digest: [u8; 32],
    pub(super) source: Option<Tag>,
}

/// Who waits for a verification.
pub(super) struct Queue {
    turn: Semaphore,
    waiting: Mutex<HashMap<[u8; 32], Waiting>>,
}

struct Waiting {
    source: Option<Tag>,
    said: watch::Receiver<Option<Word>>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { turn: Semaphore::new(1), waiting: Mutex::default() }
    }
}

impl Queue {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

impl Asking {
    /// Waits until it is known what they are.
    pub(crate) async fn wait(self) -> Word {
        let Some(mut said) = self.begin() else { return Word::Busy };
        let word = said.wait_for(Option::is_some).await;
        // Without a word the server itself ends.
        word.ok().and_then(|word| *word).unwrap_or(Word::Busy)
    }

    /// Has them verified, once for all who wait for the same; `None` if too many others are.
    fn begin(self) -> Option<watch::Receiver<Option<Word>>> {
        let (users, digest, source) = (Arc::clone(&self.users), self.digest, self.source);
        let mut waiting = users.queue.waiting.lock();
        if let Some(same) = waiting.get(&digest) {
            return Some(same.said.clone());
        }
        let of_source = waiting.values().filter(|other| source.is_some() && other.source == source);
        if waiting.len() >= WAITING_MAX || of_source.count() >= WAITING_OF_SOURCE_MAX {
            return None;
        }
        let (sender, said) = watch::channel(None);
        waiting.insert(digest, Waiting { source, said: said.clone() });
        let verifier = Arc::clone(&users);
        tokio::spawn(async move {
            let word = self.verify().await;
            verifier.queue.waiting.lock().remove(&digest);
            // Nobody may be left who wants to know.
            let _ = sender.send(Some(word));
        });
        Some(said)
    }

    async fn verify(self) -> Word {
        let Asking { users, name, password, digest, source } = self;
        // Nobody closes it.
        let Ok(_turn) = users.queue.turn.acquire().await else { return Word::Busy };
        // Whoever was before may have asked the same, or too often.
        match users.look(&digest) {
            Some(true) => return Word::Right,
            Some(false) => return Word::Wrong,
            None if users.has_failed(source) => return Word::TooMany,
            None => {}
        }
        let verifier = Arc::clone(&users);
        let verifying = tokio::task::spawn_blocking(move || match verifier.by_name.get(&name) {
            Some(hash) => hash.is(&password),
            None => {
                let _ = verifier.nobody.is(&password);
                false
            }
        });
        // A thread that ended without a word has found out nothing.
        let Ok(is_right) = verifying.await else { return Word::Busy };
        users.remember(digest, is_right);
        if let Some(source) = source.filter(|_| !is_right) {
            users.note_failure(source);
        }
        if is_right { Word::Right } else { Word::Wrong }
    }
}
