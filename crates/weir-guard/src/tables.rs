//! The words that rules keep by key, and the keys they are found by.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_config::{BucketKey, Guard};

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
    keys: usize,
}

impl Tables {
    /// Tables with room for as many keys as configured, `before`'s if they have it, and as few as
    /// can be if no rule needs them.
    pub(crate) fn new(guard: &Guard, before: Option<&Tables>) -> Tables {
        let is_keyed = |by: &BucketKey| *by != BucketKey::Rule;
        let needs = guard.rules.iter().any(|rule| is_keyed(&rule.by) || rule.penalty.is_some());
        let keys = if needs { guard.keys } else { 0 };
        if let Some(before) = before.filter(|before| before.keys == keys || keys == 0) {
            return before.clone();
        }
        match before {
            // Keys have the same tags, so that rules and requests that are being served are known.
            Some(Tables { buckets, running, banned, .. }) => Tables {
                buckets: Arc::new(buckets.resized(keys)),
                running: Arc::clone(running),
                banned: Arc::new(banned.resized(keys)),
                keys,
            },
            None => Tables {
                buckets: Arc::new(KeyTable::new(keys)),
                running: Arc::new(Running::new()),
                banned: Arc::new(KeyTable::new(keys)),
                keys,
            },
        }
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
