//! The words that rules keep by key, and the keys they are found by.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_config::{BucketKey, Guard, GuardRule, PrefixLengths};

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
    /// What a source is, by the rules with penalties; each once.
    prefixes: Arc<[PrefixLengths]>,
    /// Keys that buckets and bans were made for; 0 for none.
    sizes: (usize, usize),
}

/// Prefixes that are kept out at a time, at most: a megabyte.
const BANNED_MAX: usize = 1 << 16;

impl Tables {
    /// Tables with room for as many keys as configured, `before`'s if they have it, and as few as
    /// can be if no rule needs them.
    pub(crate) fn new(guard: &Guard, before: Option<&Tables>) -> Tables {
        let mut prefixes: Vec<PrefixLengths> =
            guard.rules.iter().filter_map(|rule| Some(rule.penalty?.by)).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let has_penalties = !prefixes.is_empty();
        let prefixes = Arc::from(prefixes);
        let is_keyed = |rule: &GuardRule| rule.by != BucketKey::Rule;
        let needs = has_penalties || guard.rules.iter().any(is_keyed);
        let keys = if needs { guard.keys } else { 0 };
        let sources = if has_penalties { guard.keys.min(BANNED_MAX) } else { 0 };
        let Some(Tables { buckets, running, banned, .. }) = before else {
            return Tables {
                buckets: Arc::new(KeyTable::new(keys)),
                running: Arc::new(Running::new()),
                banned: Arc::new(KeyTable::new(sources)),
                prefixes,
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
        let running = Arc::clone(running);
        Tables { buckets, running, banned, prefixes, sizes: (keys, sources) }
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

    /// Until when a source is not let in, and by which prefix; the last of several. A penalty whose
    /// prefix is no rule's any more counts no more.
    pub(crate) fn banned(&self, source: IpAddr) -> Option<(u64, PrefixLengths)> {
        let until = |by: &PrefixLengths| {
            let until = self.banned.find(self.ban_tag(source, *by))?.load(Relaxed);
            Some((until, *by))
        };
        self.prefixes.iter().filter_map(until).max_by_key(|(until, _)| *until)
    }

    /// Lets nobody of a source's prefix in before a time.
    pub(crate) fn ban(&self, source: IpAddr, by: PrefixLengths, until_ns: u64, now_ns: u64) {
        let until = self.banned.bucket(self.ban_tag(source, by), now_ns);
        // Another rule's penalty may last longer.
        until.fetch_max(until_ns, Relaxed);
    }

    /// Whether some rule has a penalty.
    pub(crate) fn has_penalties(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Prefixes that are not let in now.
    pub(crate) fn bans(&self, now_ns: u64) -> usize {
        self.banned.busy_exactly(now_ns)
    }

    /// Prefixes there is room for.
    pub(crate) fn bans_max(&self) -> usize {
        if self.has_penalties() { self.banned.room() } else { 0 }
    }

    /// Prefixes of different lengths are different, whatever their bits.
    fn ban_tag(&self, source: IpAddr, by: PrefixLengths) -> Tag {
        let bits = if source.is_ipv4() { by.v4 } else { by.v6 };
        self.banned.tag(bits.into(), prefix_of(source, by.v4, by.v6))
    }

    /// Takes a token of the refusals that a source's prefix may have.
    pub(crate) fn refusals(
        &self,
        rule: &Rule,
        source: IpAddr,
        pace: &Pace,
        by: PrefixLengths,
        now_ns: u64,
    ) -> Taken {
        let tag = self.buckets.tag(!rule.state.owner, prefix_of(source, by.v4, by.v6));
        pace.take(self.buckets.bucket(tag, now_ns), now_ns)
    }
}
