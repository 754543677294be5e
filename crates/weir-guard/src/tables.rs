//! The words that rules keep by key, and the keys they are found by.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_config::{BucketKey, Guard, GuardRule};

use crate::bucket::{Pace, Taken};
use crate::keys::{KeyTable, Tag};
use crate::rule::{By, Rule, prefix_of};
use crate::running::Running;
use crate::subject::Ends;

/// Words of keys, over all rules.
#[derive(Clone)]
pub(crate) struct Tables {
    /// Buckets.
    pub(crate) buckets: Arc<KeyTable>,
    /// Requests being served.
    pub(crate) running: Arc<Running>,
    /// When sources are let in again, in nanoseconds.
    banned: Arc<KeyTable>,
    /// Keys that buckets and bans were made for; 0 for none.
    sizes: (usize, usize),
}

/// Sources that are kept out at a time, at most: a megabyte.
const BANNED_MAX: usize = 1 << 16;

impl Tables {
    /// Tables with room for as many keys as configured, `before`'s if they have it, and as few as
    /// can be if no rule needs them.
    pub(crate) fn new(guard: &Guard, before: Option<&Tables>) -> Tables {
        let has_penalties = guard.rules.iter().any(|rule| rule.penalty.is_some());
        let is_keyed = |rule: &GuardRule| rule.by != BucketKey::Rule;
        let needs = has_penalties || guard.rules.iter().any(is_keyed);
        let keys = if needs { guard.keys } else { 0 };
        let sources = if has_penalties { guard.keys.min(BANNED_MAX) } else { 0 };
        let Some(Tables { buckets, running, banned, .. }) = before else {
            return Tables {
                buckets: Arc::new(KeyTable::new(keys)),
                running: Arc::new(Running::new()),
                banned: Arc::new(KeyTable::new(sources)),
                sizes: (keys, sources),
            };
        };
        // A table that nobody needs any more is kept: it may be needed again. Keys have the same
        // tags in a new one, so that rules and requests that are being served are known.
        let (known_keys, known_sources) = before.map_or((0, 0), |before| before.sizes);
        let sized = |table: &Arc<KeyTable>, known: usize, wanted: usize| match wanted {
            0 => (Arc::clone(table), known),
            _ if wanted == known => (Arc::clone(table), known),
            _ => (Arc::new(table.resized(wanted)), wanted),
        };
        let (buckets, keys) = sized(buckets, known_keys, keys);
        let (banned, sources) = sized(banned, known_sources, sources);
        Tables { buckets, running: Arc::clone(running), banned, sizes: (keys, sources) }
    }

    /// The key of a rule's words, none for those of the rule as a whole. Nothing if the request has
    /// nothing to keep any for.
    pub(crate) fn tag(&self, rule: &Rule, ends: &Ends, value: Option<Tag>) -> Option<Option<Tag>> {
        if rule.refuse {
            return Some(None);
        }
        match rule.by {
            By::Rule => Some(None),
            By::Value(_) => value.map(Some),
            By::Source { v4, v6 } => {
                let prefix = prefix_of(ends.source_ip()?, v4, v6);
                Some(Some(self.buckets.tag(rule.state.owner, prefix)))
            }
        }
    }

    /// When a source is let in again.
    pub(crate) fn banned_until(&self, source: IpAddr) -> u64 {
        self.banned.find(self.ban_tag(source)).map_or(0, |until| until.load(Relaxed))
    }

    /// The word for that.
    pub(crate) fn ban(&self, source: IpAddr, now_ns: u64) -> &AtomicU64 {
        self.banned.bucket(self.ban_tag(source), now_ns)
    }

    fn ban_tag(&self, source: IpAddr) -> Tag {
        self.banned.tag(0, source)
    }

    /// Takes a token of the refusals that a source may have.
    pub(crate) fn refusals(&self, rule: &Rule, source: IpAddr, pace: &Pace, now_ns: u64) -> Taken {
        let tag = self.buckets.tag(!rule.state.owner, source);
        pace.take(self.buckets.bucket(tag, now_ns), now_ns)
    }
}
