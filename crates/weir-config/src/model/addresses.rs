//! Sets of addresses: what `from` and `to` lines and the lists they name come to.

use std::net::IpAddr;
use std::sync::Arc;

/// Addresses from the first to the last, both included.
pub type AddressRange = (IpAddr, IpAddr);

/// Addresses as disjoint ranges with both ends, sorted, IPv4 before IPv6. No range is empty, and
/// none mixes families. The set itself is empty only where it is made of lists in which there is
/// nothing: it contains no address then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    ranges: Arc<[AddressRange]>,
    /// What it is made of, for those that name lists.
    parts: Option<Arc<Parts>>,
}

/// What a set was written as.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Parts {
    /// What is written out, as disjoint ranges.
    pub(crate) own: Vec<AddressRange>,
    /// Names of lists.
    pub(crate) lists: Vec<String>,
}

impl AddressSet {
    /// The set of all addresses in these ranges. `None` for a range whose ends are of different
    /// families or in the wrong order, or for no range at all.
    pub fn new(ranges: Vec<AddressRange>) -> Option<AddressSet> {
        let is_range =
            |(first, last): &AddressRange| first.is_ipv4() == last.is_ipv4() && first <= last;
        if ranges.is_empty() || !ranges.iter().all(is_range) {
            return None;
        }
        Some(AddressSet { ranges: disjoint(ranges).into(), parts: None })
    }

    /// The set of these ranges, which are valid, and of lists that are not known yet.
    pub(crate) fn with_lists(own: Vec<AddressRange>, lists: Vec<String>) -> AddressSet {
        let own = disjoint(own);
        let ranges = own.as_slice().into();
        let parts = (!lists.is_empty()).then(|| Arc::new(Parts { own, lists }));
        AddressSet { ranges, parts }
    }

    /// The same set with other contents of its lists.
    pub(crate) fn filled(&self, lists: &[&AddressSet]) -> AddressSet {
        let own = self.own_ranges();
        let ranges = match (own, lists) {
            // Many rules may name one large list.
            ([], [list]) => Arc::clone(&list.ranges),
            _ => {
                let of_lists = lists.iter().flat_map(|list| list.ranges.iter());
                disjoint(own.iter().chain(of_lists).copied().collect()).into()
            }
        };
        AddressSet { ranges, parts: self.parts.clone() }
    }

    /// What the set is made of, if it names lists.
    pub(crate) fn parts(&self) -> Option<&Arc<Parts>> {
        self.parts.as_ref()
    }

    /// The ranges without those of lists.
    pub(crate) fn own_ranges(&self) -> &[AddressRange] {
        self.parts.as_ref().map_or(&*self.ranges, |parts| &parts.own)
    }

    /// The ranges.
    pub fn ranges(&self) -> &[AddressRange] {
        &self.ranges
    }

    /// Names of the lists that the set is made of, among other addresses.
    pub fn lists(&self) -> &[String] {
        self.parts.as_ref().map_or(&[], |parts| &parts.lists)
    }

    /// Whether an address is in the set. An IPv4 address that a socket of IPv6 shows counts as the
    /// IPv4 address it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let after = self.ranges.partition_point(|(first, _)| *first <= address);
        after > 0 && address <= self.ranges[after - 1].1
    }
}

/// Ranges in order, those that overlap or touch as one.
fn disjoint(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    // Sets put together are runs in order, which this sort finds.
    ranges.sort();
    let mut disjoint: Vec<AddressRange> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match disjoint.last_mut() {
            Some(before) if touches(before.1, first) => before.1 = before.1.max(last),
            _ => disjoint.push((first, last)),
        }
    }
    disjoint
}

/// Whether a range that begins with `first` joins one that ends with `last`, which begins earlier.
fn touches(last: IpAddr, first: IpAddr) -> bool {
    match (last, first) {
        (IpAddr::V4(last), IpAddr::V4(first)) => {
            first.to_bits() <= last.to_bits().saturating_add(1)
        }
        (IpAddr::V6(last), IpAddr::V6(first)) => {
            first.to_bits() <= last.to_bits().saturating_add(1)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(&str, &str)]) -> Vec<AddressRange> {
        let parse = |(first, last): &(&str, &str)| (first.parse().unwrap(), last.parse().unwrap());
        ranges.iter().map(parse).collect()
    }

    fn set(of: &[(&str, &str)]) -> Option<AddressSet> {
        AddressSet::new(ranges(of))
    }

    fn shown(set: &AddressSet) -> Vec<String> {
        set.ranges().iter().map(|(a, b)| format!("{a}-{b}")).collect()
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let joined = set(&[
            ("10.0.0.0", "10.0.0.255"),
            ("10.0.1.0", "10.0.1.9"),
            ("10.0.0.5", "10.0.0.7"),
            ("255.255.255.255", "255.255.255.255"),
            ("::", "::1"),
            ("::2", "::2"),
        ])
        .unwrap();
        assert_eq!(
            shown(&joined),
            ["10.0.0.0-10.0.1.9", "255.255.255.255-255.255.255.255", "::-::2"]
        );
        for (address, expected) in [
            ("10.0.0.0", true),
            ("10.0.1.9", true),
            ("10.0.1.10", false),
            ("9.255.255.255", false),
            ("::ffff:10.0.0.1", true),
            ("::2", true),
            ("::3", false),
        ] {
            assert_eq!(joined.contains(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn what_is_no_range_makes_no_set() {
        assert_eq!(set(&[]), None);
        assert_eq!(set(&[("10.0.0.2", "10.0.0.1")]), None);
        assert_eq!(set(&[("10.0.0.2", "::1")]), None);
    }

    #[test]
    fn lists_are_part_of_a_set_once_they_are_known() {
        let inside = "10.0.0.9".parse().unwrap();
        let list = set(&[("10.0.0.5", "10.0.0.9")]).unwrap();
        let alone = AddressSet::with_lists(Vec::new(), vec!["a".to_owned()]);
        assert!(!alone.contains(inside) && alone.ranges().is_empty());
        assert!(alone.filled(&[&list]).contains(inside));
        assert!(Arc::ptr_eq(&alone.filled(&[&list]).ranges, &list.ranges));
        assert_eq!(alone.filled(&[&list]).filled(&[&AddressSet::default()]), alone);

        let own = ranges(&[("10.0.0.0", "10.0.0.4")]);
        let both = AddressSet::with_lists(own.clone(), vec!["a".to_owned()]);
        assert_eq!(
            (shown(&both), both.lists()),
            (vec!["10.0.0.0-10.0.0.4".to_owned()], &["a".to_owned()][..])
        );
        assert_eq!(shown(&both.filled(&[&list])), ["10.0.0.0-10.0.0.9"]);
        assert_eq!(both.filled(&[&list]).filled(&[]), both);
        assert_eq!(AddressSet::with_lists(own.clone(), Vec::new()), AddressSet::new(own).unwrap());
    }
}
