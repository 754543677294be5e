//! The hit path: one hash, one shared lock, one comparison of integers.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;

use super::{Cache, Inner, Mark};
use crate::key::KeyRef;
use crate::object::Object;
use crate::policy::{RequestDirectives, Reuse, StaleBecause, Staleness, is_confined};

/// What the cache has for a request.
#[derive(Debug)]
pub enum Lookup {
    /// A response that may be sent as it is.
    Fresh(Arc<Object>),
    /// A response that needs validation first, or may be sent in the circumstances it names.
    Stale(Stale),
    /// The key is known, but no stored variant is selected by this request.
    VaryMiss,
    /// Nothing is stored under the key.
    Miss,
    /// A recent response for this key could not be stored: go to the source, do not collapse.
    Pass(Mark),
}

/// A stored response that needs validation.
#[derive(Clone, Debug)]
pub struct Stale {
    /// The response.
    pub object: Arc<Object>,
    /// What calls for validation.
    pub because: StaleBecause,
    /// It may answer at once, if a validation is started in the background.
    pub while_revalidating: bool,
    /// It may answer if the source fails.
    pub on_error: bool,
}

impl Stale {
    fn new(object: Arc<Object>, staleness: Staleness) -> Stale {
        let Staleness { because, while_revalidating, on_error } = staleness;
        Stale { object, because, while_revalidating, on_error }
    }
}

impl Cache {
    /// Finds what may answer a request. `request` is read for the fields that Vary names;
    /// `directives` are the request's own wishes, or the default to disregard them. HEAD is looked
    /// up as GET.
    pub fn lookup(
        &self,
        key: &KeyRef<'_>,
        request: &HeaderMap,
        directives: &RequestDirectives,
        now_ms: u64,
    ) -> Lookup {
        let hash = self.inner.hash(key);
        let found = self.inner.find(hash, key, request, directives, now_ms);
        let counters = &self.inner.shard(hash).counters;
        let counter = match &found {
            Lookup::Fresh(object) => {
                self.inner.ranking.touch(&object.usage, now_ms);
                &counters.hits
            }
            Lookup::Stale(stale) => {
                self.inner.ranking.touch(&stale.object.usage, now_ms);
                &counters.stale
            }
            Lookup::VaryMiss | Lookup::Miss => &counters.misses,
            Lookup::Pass(_) => &counters.passes,
        };
        counter.fetch_add(1, Relaxed);
        found
    }

    /// Finds a response that may be sent as it is and that the caller can use. Anything else counts
    /// for nothing: the caller goes on to [`Cache::lookup`].
    pub fn fresh(
        &self,
        key: &KeyRef<'_>,
        request: &HeaderMap,
        now_ms: u64,
        is_usable: impl FnOnce(&Object) -> bool,
    ) -> Option<Arc<Object>> {
        let hash = self.inner.hash(key);
        let directives = RequestDirectives::default();
        match self.inner.find(hash, key, request, &directives, now_ms) {
            Lookup::Fresh(object) if is_usable(&object) => {
                self.inner.ranking.touch(&object.usage, now_ms);
                self.inner.shard(hash).counters.hits.fetch_add(1, Relaxed);
                Some(object)
            }
            _ => None,
        }
    }

    /// Finds what was made from another stored response, whose [`crate::Body::id`] is `from`. That
    /// one answers for its freshness; this counts as a use of it, and as no look-up.
    pub fn derived(&self, key: &KeyRef<'_>, from: NonZeroU64, now_ms: u64) -> Option<Arc<Object>> {
        let hash = self.inner.hash(key);
        let object = {
            let index = self.inner.shard(hash).index.read();
            let mut variants = index.find(hash, key)?.variants();
            Arc::clone(variants.find(|object| object.derived_from() == Some(from))?)
        };
        self.inner.ranking.touch(&object.usage, now_ms);
        Some(object)
    }
}

impl Inner {
    pub(crate) fn hash(&self, key: &KeyRef<'_>) -> u64 {
        key.hash_with(&self.hashing)
    }

    /// A lookup that leaves no trace.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        key: &KeyRef<'_>,
        request: &HeaderMap,
        directives: &RequestDirectives,
        now_ms: u64,
    ) -> Lookup {
        let index = self.shard(hash).index.read();
        let or_pass = |otherwise: Lookup| {
            let mark = index.mark(hash, is_confined(request, directives), now_ms);
            mark.map_or(otherwise, Lookup::Pass)
        };
        let Some(resource) = index.find(hash, key) else { return or_pass(Lookup::Miss) };
        match resource.select(request) {
            Some(object) => match object.reuse(now_ms, directives) {
                Reuse::Fresh => Lookup::Fresh(Arc::clone(object)),
                // Its successors could not be stored: validating it one request at a time would
                // only make the others wait.
                Reuse::Stale(staleness) => {
                    or_pass(Lookup::Stale(Stale::new(Arc::clone(object), staleness)))
                }
            },
            None => or_pass(Lookup::VaryMiss),
        }
    }

    /// The newest object stored under the key: its Vary is the best guess at the next one's.
    pub(crate) fn newest(&self, hash: u64, key: &KeyRef<'_>) -> Option<Arc<Object>> {
        let index = self.shard(hash).index.read();
        index.find(hash, key).map(|resource| Arc::clone(resource.newest()))
    }
}
