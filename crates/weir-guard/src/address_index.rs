//! Which rules a source address may meet: all ranges of all rules cut into disjoint ones, each with
//! the list of rules that hold there. A look-up is a binary search.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use weir_config::AddressSet;

/// Rules by source address. Built once.
#[derive(Default)]
pub(crate) struct AddressIndex {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    /// Distinct lists; the first is empty.
    lists: Vec<Box<[u32]>>,
}

/// Where disjoint ranges begin, sorted, and the list that holds from there on.
#[derive(Default)]
struct Ranges<T> {
    starts: Vec<T>,
    lists: Vec<u32>,
}

/// Rules met in all ranges together. Beyond this (thousands of rules for nested ranges) the index
/// would be larger than it is worth.
pub(crate) const ENTRIES_MAX: usize = 4 << 20;

impl AddressIndex {
    /// Indexes rules by their sources. `None` if that would take too much memory.
    pub(crate) fn new(rules: &[(u32, &AddressSet)]) -> Option<AddressIndex> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (rule, set) in rules {
            for (first, last) in set.ranges() {
                match (first, last) {
                    (IpAddr::V4(first), IpAddr::V4(last)) => {
                        v4.push((first.to_bits(), last.to_bits().checked_add(1), *rule));
                    }
                    (IpAddr::V6(first), IpAddr::V6(last)) => {
                        v6.push((first.to_bits(), last.to_bits().checked_add(1), *rule));
                    }
                    _ => {}
                }
            }
        }
        let mut lists = Lists::default();
        lists.intern(&BTreeSet::new())?;
        let (v4, v6) = (Ranges::new(&v4, &mut lists)?, Ranges::new(&v6, &mut lists)?);
        Some(AddressIndex { v4, v6, lists: lists.all })
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.v4.starts.is_empty() && self.v6.starts.is_empty()
    }

    /// The rules that hold for an address.
    #[inline]
    pub(crate) fn find(&self, address: IpAddr) -> &[u32] {
        let list = match address {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        self.lists.get(list as usize).map_or(&[], |rules| rules)
    }
}

/// Lists of rules, each kept once.
#[derive(Default)]
struct Lists {
    all: Vec<Box<[u32]>>,
    known: HashMap<Box<[u32]>, u32>,
    entries: usize,
}

impl Lists {
    fn intern(&mut self, rules: &BTreeSet<u32>) -> Option<u32> {
        let list: Box<[u32]> = rules.iter().copied().collect();
        if let Some(&known) = self.known.get(&list) {
            return Some(known);
        }
        self.entries += list.len();
        if self.entries > ENTRIES_MAX {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push(list.clone());
        self.known.insert(list, number);
        Some(number)
    }
}

impl<T: Copy + Ord> Ranges<T> {
    /// Ranges with their first address, the one after their last, and their rule.
    fn new(ranges: &[(T, Option<T>, u32)], lists: &mut Lists) -> Option<Ranges<T>> {
        // Where rules begin and end, in order.
        let mut turns: Vec<(T, bool, u32)> = Vec::with_capacity(ranges.len() * 2);
        for &(first, end, rule) in ranges {
            turns.push((first, true, rule));
            turns.extend(end.map(|end| (end, false, rule)));
        }
        turns.sort_unstable();
        let (mut starts, mut numbers) = (Vec::new(), Vec::new());
        let mut holding = BTreeSet::new();
        for turns in turns.chunk_by(|a, b| a.0 == b.0) {
            // Ends come first: a rule's own ranges never overlap.
            for &(_, begins, rule) in turns {
                match begins {
                    true => holding.insert(rule),
                    false => holding.remove(&rule),
                };
            }
            starts.push(turns[0].0);
            numbers.push(lists.intern(&holding)?);
        }
        Some(Ranges { starts, lists: numbers })
    }

    #[inline]
    fn find(&self, address: T) -> u32 {
        let after = self.starts.partition_point(|start| *start <= address);
        after.checked_sub(1).map_or(0, |at| self.lists[at])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(ranges: &[(&str, &str)]) -> AddressSet {
        let ranges = ranges.iter().map(|(a, b)| (address(a), address(b))).collect();
        AddressSet::new(ranges).unwrap()
    }

    #[test]
    fn nested_and_neighbouring_ranges() {
        let sets = [
            set(&[("10.0.0.0", "10.255.255.255"), ("fd00::", "fd00::ffff")]),
            set(&[("10.1.0.0", "10.1.255.255")]),
            set(&[("10.2.0.0", "10.2.255.255")]),
            set(&[("255.255.255.255", "255.255.255.255"), ("::", "::5")]),
        ];
        let rules: Vec<_> = (0..).zip(&sets).collect();
        let index = AddressIndex::new(&rules).unwrap();
        for (text, expected) in [
            ("9.255.255.255", &[][..]),
            ("10.0.0.0", &[0]),
            ("10.1.0.0", &[0, 1]),
            ("10.1.255.255", &[0, 1]),
            ("10.2.0.0", &[0, 2]),
            ("10.3.0.0", &[0]),
            ("11.0.0.0", &[]),
            ("255.255.255.254", &[]),
            ("255.255.255.255", &[3]),
            ("::5", &[3]),
            ("::6", &[]),
            ("fd00::7", &[0]),
        ] {
            assert_eq!(index.find(address(text)), expected, "{text}");
        }
        assert!(AddressIndex::default().find(address("10.0.0.1")).is_empty());
    }

    #[test]
    fn a_hundred_thousand_prefixes() {
        let ranges = (0..100_000_u32).map(|n| {
            let first = n << 9;
            (IpAddr::from(first.to_be_bytes()), IpAddr::from((first + 255).to_be_bytes()))
        });
        let set = AddressSet::new(ranges.collect()).unwrap();
        let index = AddressIndex::new(&[(7, &set)]).unwrap();
        assert_eq!(index.find(address("0.0.2.9")), [7]);
        assert!(index.find(address("0.0.1.9")).is_empty());
    }

    proptest! {
        #[test]
        fn it_finds_what_contains(
            sets in prop::collection::vec(prop::collection::vec((0_u32..40, 0_u32..9), 1..4), 1..6),
            asked in 0_u32..60,
        ) {
            let ip = |bits: u32| IpAddr::from(bits.to_be_bytes());
            let sets: Vec<AddressSet> = sets
                .iter()
                .map(|ranges| ranges.iter().map(|(at, n)| (ip(*at), ip(at + n))).collect())
                .map(|ranges| AddressSet::new(ranges).unwrap())
                .collect();
            let rules: Vec<_> = (0..).zip(&sets).collect();
            let index = AddressIndex::new(&rules).unwrap();
            let expected: Vec<u32> =
                rules.iter().filter(|(_, set)| set.contains(ip(asked))).map(|(n, _)| *n).collect();
            prop_assert_eq!(index.find(ip(asked)), expected);
        }
    }
}
