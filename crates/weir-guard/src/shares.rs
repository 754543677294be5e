//! How many rules ask for the same. A rule is best found by what few others ask for: ten thousand
//! rules for one path and as many clients are found by the client, not by the path.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::RandomState;

use crate::conditions::{Check, Conditions, Name, Path};
use crate::field::Test;

/// Conditions that as few rules share are as good as one that is a rule's own.
const FEW: u32 = 8;

/// Ranges of a set of addresses that tell it from others: sets may have millions.
const RANGES_COMPARED: usize = 4;

/// Rules by each value that their conditions list.
#[derive(Default)]
pub(crate) struct Shares {
    /// Values by their hash: two that are taken for one make a rule a little dearer to find.
    rules: HashMap<u64, u32, RandomState>,
    hasher: RandomState,
}

impl Shares {
    /// Counts.
    pub(crate) fn new<'c>(rules: impl Iterator<Item = &'c Conditions>) -> Shares {
        let mut shares = Shares::default();
        for check in rules.flat_map(Conditions::checks) {
            let Shares { rules, hasher } = &mut shares;
            each_value(hasher, check, |value| *rules.entry(value).or_default() += 1);
        }
        shares
    }

    /// About how many rules are found with one that is found by a condition: in powers of two.
    pub(crate) fn of(&self, check: &Check) -> u32 {
        let mut most = 0;
        each_value(&self.hasher, check, |value| {
            most = most.max(self.rules.get(&value).copied().unwrap_or(0));
        });
        most.checked_div(FEW).and_then(u32::checked_ilog2).map_or(0, |log| log + 1)
    }
}

/// Shows hashes of what a condition lists.
fn each_value(hasher: &RandomState, check: &Check, mut see: impl FnMut(u64)) {
    let of = |kind: u8, slot: usize, value: &dyn Fn(&mut dyn Hasher)| {
        let mut state = hasher.build_hasher();
        (kind, slot).hash(&mut state);
        value(&mut state);
        state.finish()
    };
    let text = |kind: u8, slot: usize, text: &[u8]| of(kind, slot, &|state| state.write(text));
    match check {
        Check::Path(paths) => paths.iter().for_each(|path| {
            see(match path {
                Path::Exact(path) => text(1, 0, path.as_bytes()),
                Path::Prefix(prefix) => text(2, 0, prefix.as_bytes()),
                Path::Glob(glob) => of(3, 0, &|mut state| glob.hash(&mut state)),
            });
        }),
        Check::Field(field) => field.tests.iter().for_each(|test| {
            see(match test {
                Test::Present => text(4, field.slot, b""),
                Test::Absent => text(5, field.slot, b""),
                Test::Exact(value) => text(6, field.slot, value),
                Test::Glob(glob) => of(7, field.slot, &|mut state| glob.hash(&mut state)),
            });
        }),
        Check::From(set) | Check::To(set) => {
            let kind = if matches!(check, Check::From(_)) { 8 } else { 9 };
            see(of(kind, set.ranges().len(), &|mut state| {
                set.ranges().iter().take(RANGES_COMPARED).for_each(|it| it.hash(&mut state));
            }));
        }
        Check::Site(texts) | Check::Verdict(texts) => {
            let kind = if matches!(check, Check::Site(_)) { 10 } else { 11 };
            texts.iter().for_each(|name| see(text(kind, 0, name.as_bytes())));
        }
        Check::ServerName(names) => names.iter().for_each(|name| {
            see(match name {
                Name::Exact(name) => text(12, 0, name.as_bytes()),
                Name::Below(suffix) => text(13, 0, suffix.as_bytes()),
            });
        }),
        Check::ContentType(_, types) => types.iter().for_each(|glob| {
            see(of(14, 0, &|mut state| glob.hash(&mut state)));
        }),
        Check::Method(_) | Check::Port(_) | Check::FromPort(_) => {}
    }
}
