//! Which of many rules a request may meet. Each rule is kept under one of its conditions, the one
//! that tells most requests apart, and found by it; whether its other conditions hold is for
//! [`crate::conditions`]. Ten thousand rules cost a request what a dozen do.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::address_index::AddressIndex;
use crate::conditions::{Check, Conditions, Field, Path, Test};
use crate::path_index::{PathIndex, Patterns};
use crate::values::Values;

/// A rule that may be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate(u32);

/// Rules that may be met, in order.
pub(crate) type Candidates = SmallVec<[Candidate; 32]>;

/// So few rules are looked at one after the other: about what the index costs.
const FEW: usize = 8;

/// Some of a set's rules, by what they are found by.
#[derive(Default)]
pub(crate) struct Index {
    /// Found by nothing.
    always: Vec<Candidate>,
    /// There are others.
    has_more: bool,
    /// By named values.
    fields: Vec<FieldIndex>,
    paths: PathIndex,
    addresses: AddressIndex,
    sites: HashMap<Box<str>, Vec<Candidate>, RandomState>,
}

/// Rules for values of one name.
struct FieldIndex {
    slot: usize,
    exact: HashMap<Box<[u8]>, Vec<Candidate>, RandomState>,
    /// For more values than can be listed.
    present: Vec<Candidate>,
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
    /// Indexes rules, which come in order.
    pub(crate) fn new<'c>(rules: impl Iterator<Item = (u32, &'c Conditions)>) -> Index {
        let rules: Vec<_> = rules.collect();
        let mut index = Index::default();
        if rules.len() <= FEW {
            index.always = rules.iter().map(|(rule, _)| Candidate::possible(*rule)).collect();
            return index;
        }
        let (mut patterns, mut by_address) = (Patterns::default(), Vec::new());
        for (rule, on) in rules {
            match on.key() {
                Some(Check::Path(paths)) => {
                    paths.iter().for_each(|path| add_path(&mut patterns, path, rule));
                }
                Some(Check::Field(field)) => index.insert_field(rule, field),
                Some(Check::From(from)) => by_address.push((rule, from)),
                Some(Check::Site(sites)) => {
                    for site in sites {
                        let rules = index.sites.entry(site.clone()).or_default();
                        rules.push(Candidate::proved(rule));
                    }
                }
                _ => index.always.push(Candidate::possible(rule)),
            }
        }
        match AddressIndex::new(&by_address) {
            Some(addresses) => index.addresses = addresses,
            None => index.always.extend(by_address.iter().map(|(r, _)| Candidate::possible(*r))),
        }
        index.paths = PathIndex::new(patterns);
        index.has_more = !(index.fields.is_empty()
            && index.paths.is_empty()
            && index.addresses.is_empty()
            && index.sites.is_empty());
        index
    }

    fn insert_field(&mut self, rule: u32, field: &Field) {
        let known = self.fields.iter().position(|known| known.slot == field.slot);
        let at = known.unwrap_or_else(|| {
            let (exact, present) = (HashMap::default(), Vec::new());
            self.fields.push(FieldIndex { slot: field.slot, exact, present });
            self.fields.len() - 1
        });
        let index = &mut self.fields[at];
        for test in &field.tests {
            match test {
                Test::Exact(value) => {
                    let rules = index.exact.entry(value.clone()).or_default();
                    rules.push(Candidate::proved(rule));
                }
                Test::Present | Test::Glob(_) | Test::Absent => {
                    index.present.push(Candidate::possible(rule));
                }
            }
        }
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
        if !self.addresses.is_empty()
            && let Some(source) = subject.ends.source_ip()
        {
            found.extend(self.addresses.find(source).iter().copied().map(Candidate::proved));
        }
        if !self.sites.is_empty()
            && let Some(rules) = self.sites.get(subject.site)
        {
            add(found, rules);
        }
        for field in &self.fields {
            let mut is_there = false;
            for value in values.of(field.slot) {
                is_there = true;
                add(found, field.exact.get(value).map_or(&[], |rules| rules));
            }
            if is_there {
                add(found, &field.present);
            }
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup_by_key(|candidate| candidate.rule());
        }
        found
    }
}

fn add_path(patterns: &mut Patterns, path: &Path, rule: u32) {
    match path {
        Path::Exact(path) => patterns.add_exact(path, rule),
        Path::Prefix(prefix) => patterns.add_prefix(prefix, rule),
        Path::Glob(glob) => patterns.add_glob(glob, rule),
    }
}
