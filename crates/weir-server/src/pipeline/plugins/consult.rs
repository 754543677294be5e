//! What plugins say to what the cache has, to what it has not, and to what it is about to store.

use std::sync::Arc;

use http::request::Parts;
use weir_cache::Object;
use weir_config::OnFailure;
use weir_plugin::{Answer, Failure, Hooks, ResponseHead, StoredFacts, Stream, Wishes};

use super::framing::{FRAMING, announce, framed, keep};
use super::local::failed;
use super::request;
use super::{Passage, Shower, skipped, upstream};
use crate::connection::Connection;
use crate::upstream::Upstream;

/// What plugins say to a response that is about to be stored.
pub(in crate::pipeline) enum Storing {
    Store {
        /// What they have made of its head.
        head: ResponseHead,
        /// Freshness lifetime, if they have one of their own.
        lifetime_ms: Option<u64>,
    },
    /// It is sent, and not stored.
    Not,
    /// Whoever waits gets this in its place.
    Answer(Box<Answer>),
    /// Whoever waits gets nothing.
    Close,
}

/// What plugins say to what the cache has.
pub(in crate::pipeline) enum Word {
    GoOn,
    /// The stored response must be validated first.
    Validate,
    /// The cache is left alone.
    Pass,
    Answer(Box<Answer>),
    /// The client is to be gone.
    Close,
}

/// What plugins say to a request that nothing stored answers.
pub(in crate::pipeline) enum Missing {
    GoOn(Instead),
    Answer(Box<Answer>),
    /// The client is to be gone.
    Close,
}

/// What the source is asked, where that is not what was looked up.
pub(in crate::pipeline) struct Instead {
    /// The head, if they changed it.
    pub(in crate::pipeline) head: Option<Box<Parts>>,
    pub(in crate::pipeline) upstream: Option<Arc<Upstream>>,
}

impl Word {
    fn of(stream: &Stream, wishes: Result<Wishes, Failure>) -> Word {
        let generation = stream.generation();
        match wishes {
            Ok(Wishes { answer: Some(answer), .. }) => Word::Answer(Box::new(answer)),
            Ok(wishes) if wishes.close => Word::Close,
            Ok(wishes) if wishes.cache.pass => Word::Pass,
            Ok(wishes) if wishes.cache.validate => Word::Validate,
            Ok(_) => Word::GoOn,
            Err(failure) if generation.on_failure() == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                Word::GoOn
            }
            Err(failure) => {
                stream.give_up();
                Word::Answer(Box::new(failed(&failure)))
            }
        }
    }
}

impl Passage {
    /// Shows a stored response that is the answer.
    pub(in crate::pipeline) async fn hit(&self, object: &Arc<Object>, now_ms: u64) -> Word {
        let age_ms = object.age_secs(now_ms) * 1000;
        let ttl_ms = object.freshness().fresh_until_ms as i64 - now_ms as i64;
        for stream in self.with(Hooks::sees_hits) {
            let stored = StoredFacts { ttl_ms, age_ms };
            let shown = Arc::new(Shower(ResponseHead {
                status: object.status(),
                headers: object.headers().clone(),
            }));
            match Word::of(stream, stream.hit(stored, shown).await) {
                Word::GoOn => {}
                word => return word,
            }
        }
        Word::GoOn
    }

    /// Shows a request that nothing stored answers. What plugins change of it now is what the
    /// source is asked; what it was looked up as, and is stored as, stays.
    pub(in crate::pipeline) async fn miss(
        &self,
        connection: &Connection,
        head: &Parts,
        authority: &str,
    ) -> Missing {
        let mut instead = Instead { head: None, upstream: self.wishes.upstream.clone() };
        let mut authority = authority.to_owned();
        for stream in self.with(Hooks::sees_misses) {
            let now = instead.head.as_deref().unwrap_or(head);
            let shown = Shower(request::lent(now, &authority, connection.tls));
            let mut next = None;
            let seen = stream.miss(Arc::new(shown)).await.and_then(|(wishes, changed)| {
                if let Some(changed) = changed {
                    let mut now = Box::new(now.clone());
                    authority = request::change(&mut now, changed)?;
                    next = Some(now);
                }
                Ok(wishes)
            });
            if next.is_some() {
                instead.head = next;
            }
            let wanted = seen.as_ref().ok().and_then(|wishes| wishes.upstream.clone());
            match Word::of(stream, seen) {
                Word::Answer(answer) => return Missing::Answer(answer),
                Word::Close => return Missing::Close,
                // The cache has had its say.
                Word::GoOn | Word::Validate | Word::Pass => {}
            }
            if let Some(name) = wanted {
                instead.upstream = upstream(connection, &name);
            }
        }
        Missing::GoOn(instead)
    }

    /// Shows the head of a response that is about to be stored.
    pub(in crate::pipeline) async fn store(&self, mut head: ResponseHead, ttl_ms: i64) -> Storing {
        let mut lifetime_ms = None;
        for stream in self.with(Hooks::sees_stores) {
            let stored = StoredFacts { ttl_ms, age_ms: 0 };
            match stream.store(stored, Arc::new(Shower(head.clone()))).await {
                Ok((Wishes { answer: Some(answer), .. }, _)) => {
                    return Storing::Answer(Box::new(framed(answer)));
                }
                Ok((wishes, _)) if wishes.close => return Storing::Close,
                Ok((wishes, _)) if wishes.cache.no_store => return Storing::Not,
                Ok((wishes, changed)) => {
                    lifetime_ms = wishes.cache.ttl_ms.or(lifetime_ms);
                    if let Some(mut changed) = changed {
                        keep(&FRAMING, &head.headers, &mut changed.headers);
                        announce(stream, &head.headers, &mut changed.headers);
                        head = changed;
                    }
                }
                Err(failure) if stream.generation().on_failure() == OnFailure::Pass => {
                    skipped(stream.generation().name(), &failure);
                }
                Err(failure) => {
                    stream.give_up();
                    return Storing::Answer(Box::new(failed(&failure)));
                }
            }
        }
        Storing::Store { head, lifetime_ms }
    }

    /// Whether a hook runs before something is stored.
    pub(in crate::pipeline) fn sees_stores(&self) -> bool {
        self.with(Hooks::sees_stores).next().is_some()
    }
}
