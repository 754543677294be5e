//! Source addresses: which rules hold for which. The overlapping ranges of all rules are cut into
//! ranges that do not overlap, each with the rules that hold in all of it.

use std::collections::HashMap;
use std::net::IpAddr;

use weir_config::AddressSet;

use crate::error::KernelError;
use crate::limits::{BOUNDARIES_MAX, SETS_MAX};

/// The two kinds of addresses, which programs decide apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

/// What is asked of a rule here.
pub(crate) struct Source<'a> {
    /// `None` for all addresses.
    pub(crate) from: Option<&'a AddressSet>,
    /// All but those are meant.
    pub(crate) inverted: bool,
    /// Whether nothing after it is looked at once the source matches.
    pub(crate) ends: bool,
}

/// All addresses of a family from 0 on: where another set of rules begins to hold, and which.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    /// First addresses and indices of sets. The first is 0, and neighbours differ.
    pub(crate) starts: Vec<(u128, u32)>,
    /// Indices of rules, rising.
    pub(crate) sets: Vec<Vec<u16>>,
}

impl Sources {
    /// Cuts the ranges of rules. `applies` says which may hold in this family at all.
    pub(crate) fn new(
        family: Family,
        rules: &[Source<'_>],
        applies: impl Fn(usize) -> bool,
    ) -> Result<Sources, KernelError> {
        let everywhere = |index: &usize| {
            (rules[*index].from.is_none() || rules[*index].inverted) && applies(*index)
        };
        let mut holding: Vec<u16> =
            (0..rules.len()).filter(everywhere).map(|index| index as u16).collect();
        let mut changes = changes(family, rules, &applies)?;
        changes.sort_unstable();
        let mut sets = Interned::default();
        let mut starts: Vec<(u128, u32)> = Vec::new();
        let mut at = 0;
        for (place, index, begins) in changes.into_iter().map(Some).chain([None]).map(|change| {
            // The end of the list is a change that is none, so that the last range is closed.
            change.map_or((None, 0, false), |(place, begins, index)| (Some(place), index, begins))
        }) {
            if place != Some(at) {
                let set = sets.index(&holding, rules)?;
                if starts.last().is_none_or(|last| last.1 != set) {
                    starts.push((at, set));
                }
            }
            let Some(place) = place else { break };
            at = place;
            match (holding.binary_search(&index), begins) {
                (Err(place), true) => holding.insert(place, index),
                (Ok(place), false) => drop(holding.remove(place)),
                // Ranges of one rule neither overlap nor touch.
                (Ok(_), true) | (Err(_), false) => {}
            }
        }
        Ok(Sources { starts, sets: sets.sets })
    }
}

/// Where rules begin (`true`) and end to hold. An end comes before a beginning at the same place.
fn changes(
    family: Family,
    rules: &[Source<'_>],
    applies: impl Fn(usize) -> bool,
) -> Result<Vec<(u128, bool, u16)>, KernelError> {
    let mut changes = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(index, _)| applies(*index)) {
        for (first, last) in rule.from.map_or(&[][..], AddressSet::ranges) {
            let Some((first, last)) = range(family, *first, *last) else { continue };
            changes.push((first, !rule.inverted, index as u16));
            let is_last = family == Family::V4 && last == u128::from(u32::MAX);
            if let Some(after) = last.checked_add(1).filter(|_| !is_last) {
                changes.push((after, rule.inverted, index as u16));
            }
        }
        if changes.len() > BOUNDARIES_MAX {
            let (what, found) = ("boundaries of source ranges", changes.len());
            return Err(KernelError::TooMany { what, found, max: BOUNDARIES_MAX });
        }
    }
    Ok(changes)
}

/// Both ends of a range as numbers, if it is of this family.
pub(crate) fn range(family: Family, first: IpAddr, last: IpAddr) -> Option<(u128, u128)> {
    match (family, first, last) {
        (Family::V4, IpAddr::V4(first), IpAddr::V4(last)) => {
            Some((first.to_bits().into(), last.to_bits().into()))
        }
        (Family::V6, IpAddr::V6(first), IpAddr::V6(last)) => {
            Some((first.to_bits(), last.to_bits()))
        }
        _ => None,
    }
}

/// Sets of rules, each once.
#[derive(Default)]
struct Interned {
    sets: Vec<Vec<u16>>,
    indices: HashMap<Vec<u16>, u32>,
}

impl Interned {
    /// The index of a set, without the rules that come after one that ends the search.
    fn index(&mut self, holding: &[u16], rules: &[Source<'_>]) -> Result<u32, KernelError> {
        let end = holding.iter().position(|index| rules[usize::from(*index)].ends);
        let set = &holding[..end.map_or(holding.len(), |end| end + 1)];
        if let Some(index) = self.indices.get(set) {
            return Ok(*index);
        }
        if self.sets.len() == SETS_MAX {
            let (what, found) = ("distinct sets of rules by source", SETS_MAX + 1);
            return Err(KernelError::TooMany { what, found, max: SETS_MAX });
        }
        let index = self.sets.len() as u32;
        self.sets.push(set.to_vec());
        self.indices.insert(set.to_vec(), index);
        Ok(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(&str, &str)]) -> AddressSet {
        let parse = |(first, last): &(&str, &str)| (first.parse().unwrap(), last.parse().unwrap());
        AddressSet::new(ranges.iter().map(parse).collect()).unwrap()
    }

    #[test]
    fn overlapping_ranges_become_disjoint() {
        let wide = set(&[("10.0.0.0", "10.255.255.255"), ("::", "::ff")]);
        let narrow = set(&[("10.1.0.0", "10.1.255.255")]);
        let last = set(&[("255.255.255.0", "255.255.255.255")]);
        let rules = [
            Source { from: Some(&wide), inverted: false, ends: false },
            Source { from: Some(&narrow), inverted: false, ends: true },
            Source { from: None, inverted: false, ends: false },
            Source { from: Some(&last), inverted: false, ends: false },
        ];
        let v4 = Sources::new(Family::V4, &rules, |_| true).unwrap();
        let shown: Vec<(u32, &[u16])> = v4
            .starts
            .iter()
            .map(|(start, set)| (*start as u32, &v4.sets[*set as usize][..]))
            .collect();
        let expected: [(u32, &[u16]); 5] = [
            (0, &[2]),
            (0x0a00_0000, &[0, 2]),
            // The third is not looked at after one that ends the search.
            (0x0a01_0000, &[0, 1]),
            (0x0a02_0000, &[0, 2]),
            (0x0b00_0000, &[2]),
        ];
        assert_eq!(shown[..5], expected);
        assert_eq!(shown[5..], [(0xffff_ff00, &[2, 3][..])]);
        let v6 = Sources::new(Family::V6, &rules, |index| index != 2).unwrap();
        let shown: Vec<(u128, usize)> =
            v6.starts.iter().map(|(start, set)| (*start, v6.sets[*set as usize].len())).collect();
        assert_eq!(shown, [(0, 1), (0x100, 0)]);
    }

    #[test]
    fn all_but_some_are_meant() {
        let few = set(&[("0.0.0.0", "0.0.0.9"), ("10.0.0.0", "10.0.0.0"), ("::5", "::6")]);
        let rules = [Source { from: Some(&few), inverted: true, ends: false }];
        let cut = |family| {
            let sources = Sources::new(family, &rules, |_| true).unwrap();
            let is_meant = |set: u32| !sources.sets[set as usize].is_empty();
            sources.starts.iter().map(|(start, set)| (*start, is_meant(*set))).collect::<Vec<_>>()
        };
        let v4 = [(0, false), (10, true), (0x0a00_0000, false), (0x0a00_0001, true)];
        assert_eq!(cut(Family::V4), v4);
        assert_eq!(cut(Family::V6), [(0, true), (5, false), (7, true)]);
    }
}
