//! One shard of the index: keys to variants, and the keys whose responses could not be stored.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use http::HeaderMap;

use crate::key::{Key, KeyRef};
use crate::limits::{PASS_LIFETIME_MS, PASSES_PER_SHARD_MAX, VARIANTS_PER_KEY_MAX};
use crate::object::Object;
use crate::selectors::select;

/// One shard of the index.
#[derive(Default)]
pub(super) struct Index {
    entries: HashTable<Resource>,
    passes: HashTable<PassMark>,
    /// Of the next mark.
    serial: u32,
}

/// What is stored under one key.
pub(super) struct Resource {
    hash: u64,
    key: Key,
    /// The newest variant, in place: most keys have no other.
    newest: Arc<Object>,
    /// The others, newest first.
    older: Vec<Arc<Object>>,
}

/// Hit-for-miss: known by its key's hash alone. Should two keys share 64 bits, one of them is not
/// collapsed for a few seconds.
struct PassMark {
    mark: Mark,
    until_ms: u64,
}

/// The mark under which a request passes. It is the right to store the answer after all, see
/// [`Cache::lead_after_all`](crate::Cache::lead_after_all), until a purge or somebody's storable
/// answer takes the mark away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(crate) hash: u64,
    /// Tells it from earlier and later marks of the same key.
    serial: u32,
    /// Of requests that confine their response to themselves, or of all others: the first say
    /// nothing about what the rest get.
    pub(crate) confined: bool,
}

impl PassMark {
    fn is(&self, hash: u64, confined: bool) -> bool {
        self.mark.hash == hash && self.mark.confined == confined
    }
}

impl Resource {
    pub(super) fn variants(&self) -> impl Iterator<Item = &Arc<Object>> + Clone {
        std::iter::once(&self.newest).chain(&self.older)
    }

    /// The newest variant that `request` selects (RFC 9111 §4.1).
    #[inline]
    pub(super) fn select(&self, request: &HeaderMap) -> Option<&Arc<Object>> {
        select(self.variants(), |object| object.selectors(), request)
    }

    pub(super) fn newest(&self) -> &Arc<Object> {
        &self.newest
    }

    /// Makes `object` the newest variant; returns those it supersedes and those too many.
    fn push(&mut self, object: Arc<Object>) -> Vec<Arc<Object>> {
        let previous = std::mem::replace(&mut self.newest, object);
        self.older.insert(0, previous);
        let selectors = self.newest.selectors();
        let mut gone: Vec<Arc<Object>> =
            self.older.extract_if(.., |old| selectors.supersede(old.selectors())).collect();
        if self.older.len() >= VARIANTS_PER_KEY_MAX {
            gone.extend(self.older.drain(VARIANTS_PER_KEY_MAX - 1..));
        }
        if self.older.is_empty() {
            self.older = Vec::new();
        }
        gone
    }
}

impl Index {
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &KeyRef<'_>) -> Option<&Resource> {
        self.entries.find(hash, |resource| resource.hash == hash && resource.key.is(key))
    }

    /// Stores `object`; returns what it displaces.
    pub(super) fn insert(&mut self, object: Arc<Object>) -> Vec<Arc<Object>> {
        let hash = object.hash;
        self.forget_pass(hash);
        let is_key = |resource: &Resource| resource.hash == hash && resource.key == object.key;
        match self.entries.entry(hash, is_key, |resource| resource.hash) {
            Entry::Occupied(mut entry) => entry.get_mut().push(object),
            Entry::Vacant(entry) => {
                let key = object.key.clone();
                entry.insert(Resource { hash, key, newest: object, older: Vec::new() });
                Vec::new()
            }
        }
    }

    /// Takes out exactly this object, if it is still there.
    pub(super) fn unlink(&mut self, object: &Arc<Object>) -> bool {
        let is_key =
            |resource: &Resource| resource.hash == object.hash && resource.key == object.key;
        let Ok(mut entry) = self.entries.find_entry(object.hash, is_key) else {
            return false;
        };
        let resource = entry.get_mut();
        if let Some(at) = resource.older.iter().position(|old| Arc::ptr_eq(old, object)) {
            resource.older.remove(at);
            return true;
        }
        if !Arc::ptr_eq(&resource.newest, object) {
            return false;
        }
        if resource.older.is_empty() {
            entry.remove();
        } else {
            resource.newest = resource.older.remove(0);
        }
        true
    }

    /// Takes out a key with all its variants.
    pub(super) fn remove(&mut self, hash: u64, key: &KeyRef<'_>) -> Vec<Arc<Object>> {
        match self.entries.find_entry(hash, |r| r.hash == hash && r.key.is(key)) {
            Ok(entry) => entry.remove().0.variants().cloned().collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Takes out all keys for which `matches` says so, with all their variants.
    pub(super) fn remove_if(&mut self, matches: impl Fn(&Key) -> bool) -> Vec<Arc<Object>> {
        let mut gone = Vec::new();
        self.entries.retain(|resource| {
            let remove = matches(&resource.key);
            if remove {
                gone.extend(resource.variants().cloned());
            }
            !remove
        });
        gone
    }

    pub(super) fn resources(&self) -> impl Iterator<Item = (&Key, &Resource)> {
        self.entries.iter().map(|resource| (&resource.key, resource))
    }

    pub(super) fn mark(&self, hash: u64, confined: bool, now_ms: u64) -> Option<Mark> {
        let pass = self.passes.find(hash, |pass| pass.is(hash, confined))?;
        (now_ms < pass.until_ms).then_some(pass.mark)
    }

    /// Remembers that a response for the key could not be stored. When there are too many marks,
    /// those that have ended are forgotten, then all: a mark is a hint.
    pub(super) fn mark_pass(&mut self, hash: u64, confined: bool, now_ms: u64) -> Mark {
        if self.passes.len() >= PASSES_PER_SHARD_MAX {
            self.passes.retain(|pass| now_ms < pass.until_ms);
        }
        if self.passes.len() >= PASSES_PER_SHARD_MAX {
            self.passes.clear();
        }
        let until_ms = now_ms.saturating_add(PASS_LIFETIME_MS);
        match self.passes.entry(hash, |pass| pass.is(hash, confined), |pass| pass.mark.hash) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().until_ms = until_ms;
                entry.get().mark
            }
            Entry::Vacant(entry) => {
                let mark = Mark { hash, serial: self.serial, confined };
                self.serial = self.serial.wrapping_add(1);
                entry.insert(PassMark { mark, until_ms });
                mark
            }
        }
    }

    /// Takes exactly this mark away; `false` if it is gone. One whose time is over counts, too.
    pub(super) fn take_mark(&mut self, mark: Mark) -> bool {
        let found = self.passes.find_entry(mark.hash, |pass| pass.mark == mark);
        found.map(|entry| entry.remove()).is_ok()
    }

    /// Takes the marks of a key away.
    pub(super) fn forget_pass(&mut self, hash: u64) {
        for confined in [false, true] {
            if let Ok(entry) = self.passes.find_entry(hash, |pass| pass.is(hash, confined)) {
                entry.remove();
            }
        }
    }

    /// Takes all marks away.
    pub(super) fn forget_passes(&mut self) {
        self.passes.clear();
    }
}

#[cfg(test)]
impl Index {
    pub(super) fn passes_len(&self) -> usize {
        self.passes.len()
    }
}
