//! Conditions on the values of one name: of a header field, a cookie or a parameter.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use weir_config::ValueMatch;

use crate::glob_index::GlobIndex;
use crate::index::{Candidate, Candidates, add};
use crate::pattern::Glob;
use crate::seen::Seen;
use crate::values::{Kind, Values};

/// A named value, and what it may be: any of these.
pub(crate) struct Field {
    pub(crate) slot: usize,
    pub(crate) kind: Kind,
    pub(crate) tests: Box<[Test]>,
    /// The same, where they are too many to be looked at one by one.
    many: Option<Box<Many>>,
}

pub(crate) enum Test {
    Present,
    Absent,
    Exact(Box<[u8]>),
    Glob(Glob),
}

struct Many {
    exact: HashSet<Box<[u8]>, RandomState>,
    globs: GlobIndex,
}

/// So many tests are looked at one by one.
const FEW: usize = 8;

/// Rules for values of one name, by these.
#[derive(Default)]
pub(crate) struct ValueIndex {
    exact: HashMap<Box<[u8]>, u32, RandomState>,
    /// By number of an exact value.
    lists: Vec<Vec<Candidate>>,
    /// For any value.
    present: Vec<Candidate>,
    globs: GlobIndex,
    /// By glob.
    finds: Vec<Candidate>,
}

/// What such an index is built from.
#[derive(Default)]
pub(crate) struct ValueRules {
    index: ValueIndex,
    globs: Vec<Glob>,
}

impl Field {
    pub(crate) fn new(slot: usize, kind: Kind, tests: Vec<Test>) -> Field {
        let many = (tests.len() > FEW).then(|| {
            let exact = tests.iter().filter_map(Test::exact).map(Box::from).collect();
            let globs = tests.iter().filter_map(Test::glob).cloned().collect();
            Box::new(Many { exact, globs: GlobIndex::new(globs) })
        });
        Field { slot, kind, tests: tests.into(), many }
    }

    #[inline]
    pub(crate) fn holds(&self, values: &mut Values<'_, '_>) -> bool {
        let Some(many) = &self.many else {
            return self.tests.iter().any(|test| test.holds(values.of(self.slot)));
        };
        let mut open = self.tests.iter().filter(|t| matches!(t, Test::Present | Test::Absent));
        open.any(|test| test.holds(values.of(self.slot)))
            || values.of(self.slot).any(|value| many.has(value))
    }
}

impl Many {
    fn has(&self, value: &[u8]) -> bool {
        let mut is_found = self.exact.contains(value);
        if !is_found {
            self.globs.find(value, &mut Seen::default(), |_| is_found = true);
        }
        is_found
    }
}

impl Test {
    pub(crate) fn new(value: &ValueMatch) -> Test {
        match value {
            ValueMatch::Present => Test::Present,
            ValueMatch::Absent => Test::Absent,
            ValueMatch::Exact(text) => Test::Exact(text.as_bytes().into()),
            ValueMatch::Glob(pattern) => Test::Glob(Glob::new(pattern)),
        }
    }

    fn exact(&self) -> Option<&[u8]> {
        match self {
            Test::Exact(text) => Some(text),
            _ => None,
        }
    }

    fn glob(&self) -> Option<&Glob> {
        match self {
            Test::Glob(glob) => Some(glob),
            _ => None,
        }
    }

    pub(crate) fn is_exact(&self) -> bool {
        matches!(self, Test::Exact(_))
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Test::Absent)
    }

    #[inline]
    fn holds<'v>(&self, mut found: impl Iterator<Item = &'v [u8]>) -> bool {
        match self {
            Test::Present => found.next().is_some(),
            Test::Absent => found.next().is_none(),
            Test::Exact(text) => found.any(|value| *value == **text),
            Test::Glob(glob) => found.any(|value| glob.is_match(value)),
        }
    }
}

impl ValueRules {
    /// Adds a rule that is found by a test; by none that asks for absence.
    pub(crate) fn add(&mut self, test: &Test, rule: u32) {
        let finds = Candidate::proved(rule);
        match test {
            Test::Exact(value) => {
                let ValueIndex { exact, lists, .. } = &mut self.index;
                let list = *exact.entry(value.clone()).or_insert_with(|| {
                    lists.push(Vec::new());
                    lists.len() as u32 - 1
                });
                lists[list as usize].push(finds);
            }
            Test::Glob(glob) => self.add_glob(glob, rule),
            Test::Present | Test::Absent => self.index.present.push(finds),
        }
    }

    pub(crate) fn add_glob(&mut self, glob: &Glob, rule: u32) {
        self.globs.push(glob.clone());
        self.index.finds.push(Candidate::proved(rule));
    }

    pub(crate) fn into_index(self) -> ValueIndex {
        ValueIndex { globs: GlobIndex::new(self.globs), ..self.index }
    }
}

impl ValueIndex {
    /// Adds the rules that some of a name's values, of which there is one at least, meet.
    #[inline]
    pub(crate) fn find<'v>(&self, values: impl Iterator<Item = &'v [u8]>, found: &mut Candidates) {
        add(found, &self.present);
        // Whoever sends a value a thousand times has it looked at a thousand times, but its rules
        // only once.
        let (mut lists, mut keys, mut globs) = (Seen::default(), Seen::default(), Seen::default());
        for value in values {
            if let Some(list) = self.exact.get(value)
                && lists.insert(*list, self.lists.len())
            {
                add(found, &self.lists[*list as usize]);
            }
            self.globs.find(value, &mut keys, |glob| {
                if globs.insert(glob, self.finds.len()) {
                    found.push(self.finds[glob as usize]);
                }
            });
        }
    }
}
