//! Which of many rules a request may meet. Each rule is kept under one of its conditions, one that
//! few others share, and found by it; whether its other conditions hold is for
//! [`crate::conditions`]. Ten thousand rules cost a request what a dozen do.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use smallvec::SmallVec;
use weir_config::AddressSet;

use crate::address_index::AddressIndex;
use crate::conditions::{Check, Conditions, Name, Path, media_type};
use crate::field::{Field, ValueIndex, ValueRules};
use crate::path_index::{PathIndex, Patterns};
use crate::values::{Names, Values};

/// A rule that may be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate(u32);

/// Rules that may be met, in order.
pub(crate) type Candidates = SmallVec<[Candidate; 32]>;

/// So few rules, and values that they list, are looked at one after the other: about what the index
/// costs.
const FEW: usize = 8;

/// Rules by a text.
type Texts = HashMap<Box<str>, Vec<Candidate>, RandomState>;

/// Some of a set's rules, by what they are found by.
#[derive(Default)]
pub(crate) struct Index {
    /// Found by nothing.
    always: Vec<Candidate>,
    /// There are others.
    has_more: bool,
    /// All are found by paths, or have conditions on them.
    is_of_paths: bool,
    fields: FieldsIndex,
    paths: PathIndex,
    sources: AddressIndex,
    destinations: AddressIndex,
    sites: Texts,
    verdicts: Texts,
    server_names: Texts,
    /// `.example` for `*.example`.
    server_names_below: Texts,
}

/// Rules by named values.
#[derive(Default)]
struct FieldsIndex {
    /// What is to be looked up of a request for them.
    asked: Vec<usize>,
    /// By slot: which of `all`, if any.
    by_slot: Vec<Option<u32>>,
    all: Vec<ValueIndex>,
    /// For media types, and the slot of their field.
    content_types: Option<(usize, ValueIndex)>,
}

/// What the parts of an index are built from.
#[derive(Default)]
struct Parts<'c> {
    patterns: Patterns,
    sources: Vec<(u32, &'c AddressSet)>,
    destinations: Vec<(u32, &'c AddressSet)>,
    fields: BTreeMap<usize, ValueRules>,
    content_types: Option<(usize, ValueRules)>,
}

impl Candidate {
    /// A rule that was found by a condition which is thus known to hold. Rules are fewer than half
    /// of what can be numbered.
    pub(crate) fn proved(rule: u32) -> Candidate {
        Candidate(rule << 1)
    }

    /// A rule of which no condition is known to hold. It is sorted after the same one proved.
    pub(crate) fn possible(rule: u32) -> Candidate {
        Candidate(rule << 1 | 1)
    }

    #[inline]
    pub(crate) fn rule(self) -> u32 {
        self.0 >> 1
    }

    /// Whether the condition that it was found by holds.
    #[inline]
    pub(crate) fn is_proved(self) -> bool {
        self.0 & 1 == 0
    }
}

/// Adds rules that were found, which are mostly none.
#[inline]
pub(crate) fn add(found: &mut Candidates, rules: &[Candidate]) {
    if !rules.is_empty() {
        push(found, rules);
    }
}

#[inline(never)]
fn push(found: &mut Candidates, rules: &[Candidate]) {
    for rule in rules {
        found.push(*rule);
    }
}

impl Index {
    /// Indexes rules, which come in order, by the keys chosen for them.
    pub(crate) fn new<'c>(
        rules: impl Iterator<Item = (u32, &'c Conditions)>,
        names: &Names,
    ) -> Index {
        let rules: Vec<_> = rules.collect();
        let is_of_paths = rules.iter().all(|(_, on)| matches!(on.key(), Some(Check::Path(_))));
        let mut index = Index { is_of_paths, ..Index::default() };
        let values = rules.iter().map(|(_, on)| on.key().map_or(1, Check::len));
        if values.sum::<usize>() <= FEW {
            index.always = rules.iter().map(|(rule, _)| Candidate::possible(*rule)).collect();
            return index;
        }
        let mut parts = Parts::default();
        for (rule, on) in rules {
            match on.key() {
                Some(check) => index.insert(rule, check, &mut parts),
                None => index.always.push(Candidate::possible(rule)),
            }
        }
        index.sources = index.addresses(&parts.sources);
        index.destinations = index.addresses(&parts.destinations);
        index.paths = PathIndex::new(parts.patterns);
        index.fields = FieldsIndex::new(parts.fields, parts.content_types, names);
        index.has_more = !(index.fields.asked.is_empty()
            && index.paths.is_empty()
            && index.sources.is_empty()
            && index.destinations.is_empty()
            && [&index.sites, &index.verdicts, &index.server_names, &index.server_names_below]
                .iter()
                .all(|texts| texts.is_empty()));
        index
    }

    fn insert<'c>(&mut self, rule: u32, check: &'c Check, parts: &mut Parts<'c>) {
        let insert = |texts: &mut Texts, text: Box<str>| {
            texts.entry(text).or_default().push(Candidate::proved(rule));
        };
        match check {
            Check::Path(paths) => {
                paths.iter().for_each(|path| add_path(&mut parts.patterns, path, rule));
            }
            Check::Field(Field { slot, tests, .. }) => {
                let rules = parts.fields.entry(*slot).or_default();
                tests.iter().for_each(|test| rules.add(test, rule));
            }
            Check::ContentType(slot, types) => {
                let (_, rules) =
                    parts.content_types.get_or_insert_with(|| (*slot, ValueRules::default()));
                types.iter().for_each(|glob| rules.add_glob(glob, rule));
            }
            Check::From(from) => parts.sources.push((rule, from)),
            Check::To(to) => parts.destinations.push((rule, to)),
            Check::Site(sites) => {
                sites.iter().for_each(|site| insert(&mut self.sites, site.clone()));
            }
            Check::Verdict(verdicts) => {
                verdicts.iter().for_each(|text| insert(&mut self.verdicts, text.clone()));
            }
            Check::ServerName(names) => names.iter().for_each(|name| match name {
                Name::Exact(name) => {
                    insert(&mut self.server_names, name.to_ascii_lowercase().into());
                }
                Name::Below(suffix) => {
                    insert(&mut self.server_names_below, suffix.to_ascii_lowercase().into());
                }
            }),
            Check::Method(_) | Check::Port(_) | Check::FromPort(_) => {
                self.always.push(Candidate::possible(rule));
            }
        }
    }

    /// An index by addresses, unless that would be too large.
    fn addresses(&mut self, rules: &[(u32, &AddressSet)]) -> AddressIndex {
        AddressIndex::new(rules).unwrap_or_else(|| {
            self.always.extend(rules.iter().map(|(rule, _)| Candidate::possible(*rule)));
            AddressIndex::default()
        })
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.always.is_empty() && !self.has_more
    }

    /// The rules that a request may meet; `found` is room for them.
    #[inline]
    pub(crate) fn find<'f>(
        &'f self,
        values: &mut Values<'_, '_>,
        found: &'f mut Candidates,
    ) -> &'f [Candidate] {
        if !self.has_more {
            return &self.always;
        }
        add(found, &self.always);
        let subject = values.subject();
        if !self.paths.is_empty() {
            self.paths.find(subject.path, found);
        }
        for (addresses, end) in [
            (&self.sources, subject.ends.source_ip()),
            (&self.destinations, subject.ends.destination_ip()),
        ] {
            if let Some(end) = end.filter(|_| !addresses.is_empty()) {
                found.extend(addresses.find(end).iter().copied().map(Candidate::proved));
            }
        }
        for (texts, text) in [(&self.sites, subject.site), (&self.verdicts, subject.verdict)] {
            if !texts.is_empty()
                && let Some(rules) = texts.get(text)
            {
                add(found, rules);
            }
        }
        if let Some(name) = subject.server_name
            && !(self.server_names.is_empty() && self.server_names_below.is_empty())
        {
            self.find_server_name(name, found);
        }
        self.fields.find(values, found);
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup_by_key(|candidate| candidate.rule());
        }
        found
    }

    /// The rules that a request for a path may meet, if whatever else it has cannot add to them.
    pub(crate) fn find_by_path<'f>(
        &'f self,
        path: &str,
        found: &'f mut Candidates,
    ) -> Option<&'f [Candidate]> {
        if !self.is_of_paths {
            return None;
        }
        if !self.has_more {
            return Some(&self.always);
        }
        self.paths.find(path, found);
        found.sort_unstable();
        found.dedup_by_key(|candidate| candidate.rule());
        Some(found)
    }

    fn find_server_name(&self, name: &str, found: &mut Candidates) {
        // A DNS name has at most 255 bytes (RFC 1035 §2.3.4), and so have dots to look at.
        let name = name.to_ascii_lowercase();
        add(found, self.server_names.get(&*name).map_or(&[], |rules| rules));
        for (at, _) in name.match_indices('.').filter(|(at, _)| *at > 0) {
            add(found, self.server_names_below.get(&name[at..]).map_or(&[], |rules| rules));
        }
    }
}

impl FieldsIndex {
    fn new(
        fields: BTreeMap<usize, ValueRules>,
        content_types: Option<(usize, ValueRules)>,
        names: &Names,
    ) -> FieldsIndex {
        let slots = fields.keys().copied().chain(content_types.iter().map(|(slot, _)| *slot));
        let mut index = FieldsIndex { asked: names.representing(slots), ..FieldsIndex::default() };
        for (slot, rules) in fields {
            index.by_slot.resize(slot + 1, None);
            index.by_slot[slot] = Some(index.all.len() as u32);
            index.all.push(rules.into_index());
        }
        index.content_types = content_types.map(|(slot, rules)| (slot, rules.into_index()));
        index
    }

    #[inline]
    fn find(&self, values: &mut Values<'_, '_>, found: &mut Candidates) {
        if self.asked.is_empty() {
            return;
        }
        self.asked.iter().for_each(|slot| values.look_up(*slot));
        for (slot, of_name) in values.by_name() {
            if let Some(Some(at)) = self.by_slot.get(slot) {
                self.all[*at as usize].find(of_name.iter().map(|(_, value)| &**value), found);
            }
            if let Some((_, types)) = self.content_types.as_ref().filter(|(of, _)| *of == slot) {
                let types_given = of_name.iter().map(|(_, value)| media_type(value));
                types_given.for_each(|given| types.find([&*given].into_iter(), found));
            }
        }
    }
}

fn add_path(patterns: &mut Patterns, path: &Path, rule: u32) {
    match path {
        Path::Exact(path) => patterns.add_exact(path, rule),
        Path::Prefix(prefix) => patterns.add_prefix(prefix, rule),
        Path::Glob(glob) => patterns.add_glob(glob, rule),
    }
}
