//! Which of many rules a request may meet. Each rule is kept under one of its conditions, the one
//! that tells most requests apart, and found by it; whether its other conditions hold is for
//! [`crate::conditions`]. Ten thousand rules cost a request what a dozen do.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::address_index::AddressIndex;
use crate::conditions::{Conditions, Field, Path, Test};
use crate::path_index::PathIndex;
use crate::values::Values;

/// Rules that may be met, in order.
pub(crate) type Candidates = SmallVec<[u32; 32]>;

/// So few rules are looked at one after the other: about what the index costs.
const FEW: usize = 8;

/// Some of a set's rules, by what they are found by.
#[derive(Default)]
pub(crate) struct Index {
    /// Found by nothing.
    always: Vec<u32>,
    /// By named values.
    fields: Vec<FieldIndex>,
    paths: PathIndex,
    addresses: AddressIndex,
    sites: HashMap<Box<str>, Vec<u32>, RandomState>,
}

/// Rules for values of one name.
struct FieldIndex {
    slot: usize,
    exact: HashMap<Box<[u8]>, Vec<u32>, RandomState>,
    /// For more values than can be listed.
    present: Vec<u32>,
}

impl Index {
    /// Indexes rules, which come in order.
    pub(crate) fn new<'c>(rules: impl Iterator<Item = (u32, &'c Conditions)>) -> Index {
        let rules: Vec<_> = rules.collect();
        let mut index = Index::default();
        if rules.len() <= FEW {
            index.always = rules.iter().map(|(rule, _)| *rule).collect();
            return index;
        }
        let mut by_address = Vec::new();
        for (rule, on) in rules {
            match on.from() {
                _ if index.insert(rule, on) => {}
                Some(from) => by_address.push((rule, from)),
                None => index.always.push(rule),
            }
        }
        match AddressIndex::new(&by_address) {
            Some(addresses) => index.addresses = addresses,
            None => index.always.extend(by_address.iter().map(|(rule, _)| *rule)),
        }
        index
    }

    /// Keeps a rule under a named value, its paths or its sites. `false` if it has none of these.
    fn insert(&mut self, rule: u32, on: &Conditions) -> bool {
        if let Some(field) = on.fields.iter().find(|field| field.tests.iter().all(is_exact)) {
            self.insert_field(rule, field);
        } else if !on.paths.is_empty() {
            for path in &on.paths {
                match path {
                    Path::Exact(path) => self.paths.insert_exact(path, rule),
                    Path::Prefix(prefix) => self.paths.insert_prefix(prefix, rule),
                    Path::Glob(glob) => self.paths.insert_glob(glob, rule),
                }
            }
        } else if let Some(field) =
            on.fields.iter().find(|field| !field.tests.iter().any(is_absent))
        {
            self.insert_field(rule, field);
        } else if on.from().is_none() && !on.sites().is_empty() {
            for site in on.sites() {
                self.sites.entry(site.clone()).or_default().push(rule);
            }
        } else {
            return false;
        }
        true
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
                Test::Exact(value) => index.exact.entry(value.clone()).or_default().push(rule),
                Test::Present | Test::Glob(_) | Test::Absent => index.present.push(rule),
            }
        }
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.always.is_empty()
            && self.fields.is_empty()
            && self.paths.is_empty()
            && self.addresses.is_empty()
            && self.sites.is_empty()
    }

    /// The rules that a request may meet.
    #[inline]
    pub(crate) fn find(&self, values: &mut Values<'_, '_>) -> Candidates {
        let mut found = Candidates::from_slice(&self.always);
        let subject = values.subject();
        if !self.paths.is_empty() {
            self.paths.find(subject.path, |rules| found.extend_from_slice(rules));
        }
        if !self.addresses.is_empty()
            && let Some(source) = subject.ends.source_ip()
        {
            found.extend_from_slice(self.addresses.find(source));
        }
        if !self.sites.is_empty()
            && let Some(rules) = self.sites.get(subject.site)
        {
            found.extend_from_slice(rules);
        }
        for field in &self.fields {
            let values = values.of(field.slot);
            if !values.is_empty() {
                found.extend_from_slice(&field.present);
            }
            for value in values {
                found.extend_from_slice(field.exact.get(&**value).map_or(&[], |rules| rules));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn is_exact(test: &Test) -> bool {
    matches!(test, Test::Exact(_))
}

fn is_absent(test: &Test) -> bool {
    matches!(test, Test::Absent)
}
