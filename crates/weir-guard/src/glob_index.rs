//! Which of many globs match a text. One automaton (Aho and Corasick, 1975) finds in one pass which
//! of their literal parts are in it, of each glob the one that tells texts apart best; only globs
//! whose part is there are looked at further.
//!
//! What a text can cost is bounded, whoever wrote it: a pass takes a step for each byte, with at
//! most [`KEY_BYTES_MAX`] parts found at its end; globs that need a search of the text are
//! searched for one by one up to [`SEARCHES_MAX`], and all together in a second pass if there are
//! more. So it is linear in the text and in the parts of all globs, and never the product of both.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind, StartKind};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::pattern::Glob;
use crate::seen::Seen;

/// Bytes of a part by which a glob is found: of longer ones the beginning says enough.
const KEY_BYTES_MAX: usize = 32;

/// Globs that are searched for one by one in a text: beyond this, finding the parts of all of them
/// costs less.
const SEARCHES_MAX: usize = 32;

/// Globs, known by their place.
#[derive(Default)]
pub(crate) struct GlobIndex {
    globs: Box<[Glob]>,
    /// Those without a literal part: `*`, or nothing.
    any: Box<[u32]>,
    /// For the parts that globs are found by.
    automaton: Option<AhoCorasick>,
    /// Globs by such a part.
    by_key: Lists,
    /// By glob: its key's presence is all that it asks for.
    is_proved: Box<[bool]>,
    /// By key: it is so of all that are found by it.
    is_settled: Box<[bool]>,
    places: Option<Places>,
}

/// Lists of numbers, one after the other.
#[derive(Default)]
struct Lists {
    starts: Vec<u32>,
    all: Vec<u32>,
}

/// Finds where all parts are that need a search.
struct Places {
    automaton: AhoCorasick,
    /// By glob: its middle parts.
    parts: Lists,
    part_bytes: Box<[usize]>,
}

impl GlobIndex {
    /// Indexes globs.
    pub(crate) fn new(globs: Vec<Glob>) -> GlobIndex {
        if globs.is_empty() {
            return GlobIndex::default();
        }
        let keys = keys(&globs);
        let (mut any, mut texts, mut numbers) = (Vec::new(), Texts::default(), Vec::new());
        let mut is_proved = Vec::with_capacity(globs.len());
        for ((glob, key), at) in globs.iter().zip(&keys).zip(0..) {
            match key {
                None => any.push(at),
                Some(key) => numbers.push((texts.number(key), at)),
            }
            is_proved.push(glob.is_anywhere() && glob.middle()[0].len() <= KEY_BYTES_MAX);
        }
        let by_key = Lists::new(texts.all.len(), &numbers);
        let searched = globs.iter().filter(|glob| needs_search(glob)).count();
        let places = (searched > SEARCHES_MAX).then(|| Places::new(&globs)).flatten();
        let automaton = automaton(&texts.all);
        if automaton.is_none() {
            any = (0..globs.len() as u32).collect();
        }
        let is_settled = |key| by_key.of(key).iter().all(|glob| is_proved[*glob as usize]);
        GlobIndex {
            is_settled: (0..by_key.len() as u32).map(is_settled).collect(),
            is_proved: is_proved.into(),
            any: any.into(),
            automaton,
            globs: globs.into(),
            by_key,
            places,
        }
    }

    /// Shows the globs that match a text, each once. Those of keys that are in `done`, which begins
    /// empty, were shown for another text and need not be shown again.
    #[inline]
    pub(crate) fn find(&self, text: &[u8], done: &mut Seen, mut see: impl FnMut(u32)) {
        let matching = |at: &&u32| self.globs[**at as usize].is_match(text);
        self.any.iter().filter(matching).for_each(|at| see(*at));
        let Some(automaton) = &self.automaton else { return };
        let (mut seen, mut searched) = (Seen::default(), SmallVec::<[u32; SEARCHES_MAX]>::new());
        for hit in automaton.find_overlapping_iter(text) {
            let key = hit.pattern().as_u32();
            if done.has(key) || !seen.insert(key, self.by_key.len()) {
                continue;
            }
            if self.is_settled[key as usize] {
                done.insert(key, self.by_key.len());
            }
            for &at in self.by_key.of(key) {
                let glob = &self.globs[at as usize];
                if self.is_proved[at as usize] {
                    see(at);
                } else if glob.between(text).is_some() {
                    match glob.middle().is_empty() {
                        true => see(at),
                        false => searched.push(at),
                    }
                }
            }
        }
        match &self.places {
            Some(places) if searched.len() > SEARCHES_MAX => {
                places.search(&self.globs, text, &searched, see);
            }
            _ => searched.iter().filter(matching).for_each(|at| see(*at)),
        }
    }
}

impl Places {
    fn new(globs: &[Glob]) -> Option<Places> {
        let (mut texts, mut numbers) = (Texts::default(), Vec::new());
        for (glob, at) in globs.iter().zip(0..).filter(|(glob, _)| needs_search(glob)) {
            numbers.extend(glob.middle().iter().map(|part| (at, texts.number(part))));
        }
        let part_bytes = texts.all.iter().map(|text| text.len()).collect();
        let parts = Lists::new(globs.len(), &numbers);
        Some(Places { automaton: automaton(&texts.all)?, parts, part_bytes })
    }

    /// Shows those of some globs, whose ends hold, that match a text.
    fn search(&self, globs: &[Glob], text: &[u8], wanted: &[u32], mut see: impl FnMut(u32)) {
        let (mut parts, count) = (Seen::default(), self.part_bytes.len());
        for part in wanted.iter().flat_map(|glob| self.parts.of(*glob)) {
            parts.insert(*part, count);
        }
        let hits = self.automaton.find_overlapping_iter(text);
        let hits = hits.filter(|hit| parts.has(hit.pattern().as_u32()));
        let mut places: Vec<(u32, usize)> =
            hits.map(|hit| (hit.pattern().as_u32(), hit.start())).collect();
        places.sort_unstable();
        for &at in wanted {
            let Some(between) = globs[at as usize].between(text) else { continue };
            let place = |from: usize, part: &u32| {
                let next = places.partition_point(|place| *place < (*part, from));
                let (found, start) = places.get(next)?;
                (found == part).then(|| start + self.part_bytes[*part as usize])
            };
            let end = self.parts.of(at).iter().try_fold(between.start, place);
            if end.is_some_and(|end| end <= between.end) {
                see(at);
            }
        }
    }
}

impl Lists {
    /// From pairs of a list and a number that belongs to it.
    fn new(lists: usize, pairs: &[(u32, u32)]) -> Lists {
        let mut pairs: Vec<_> = pairs.to_vec();
        // Stable: parts of a glob stay in order.
        pairs.sort_by_key(|(list, _)| *list);
        let start = |list| pairs.partition_point(|pair| pair.0 < list) as u32;
        let starts = (0..=lists as u32).map(start).collect();
        Lists { starts, all: pairs.iter().map(|pair| pair.1).collect() }
    }

    fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn of(&self, list: u32) -> &[u32] {
        let (from, to) = (self.starts[list as usize], self.starts[list as usize + 1]);
        &self.all[from as usize..to as usize]
    }
}

/// Different texts, numbered.
#[derive(Default)]
struct Texts<'t> {
    all: Vec<&'t [u8]>,
    numbers: HashMap<&'t [u8], u32, RandomState>,
}

impl<'t> Texts<'t> {
    fn number(&mut self, text: &'t [u8]) -> u32 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() as u32 - 1
        })
    }
}

/// Whether a glob whose ends hold and whose key is there may yet not match.
fn needs_search(glob: &Glob) -> bool {
    !glob.middle().is_empty() && !glob.is_anywhere()
}

/// By glob: the part that it is found by, or what that begins with. Parts of many globs are as bad
/// as those that many texts have by chance, which short ones are.
fn keys(globs: &[Glob]) -> Vec<Option<&[u8]>> {
    let cut = |part: &'_ [u8]| part.len().min(KEY_BYTES_MAX);
    let mut shares: HashMap<&[u8], u64, RandomState> = HashMap::default();
    for part in globs.iter().flat_map(Glob::parts) {
        *shares.entry(&part[..cut(part)]).or_default() += 1;
    }
    let cost = |part: &&[u8]| {
        let chance = match part.len() {
            0 | 1 => 64,
            2 => 8,
            _ => 1,
        };
        (shares[part] * chance, std::cmp::Reverse(part.len()))
    };
    let key = |glob| Glob::parts(glob).map(|part| &part[..cut(part)]).min_by_key(cost);
    globs.iter().map(key).collect()
}

/// Nothing only for more texts than a configuration can hold.
fn automaton(texts: &[&[u8]]) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::Standard).start_kind(StartKind::Unanchored);
    builder.build(texts).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(patterns: &[String], text: &str) {
        let globs: Vec<Glob> = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
        let matches = |glob: &Glob| glob.is_match(text.as_bytes());
        let expected: Vec<u32> =
            (0..).zip(&globs).filter(|(_, glob)| matches(glob)).map(|(at, _)| at).collect();
        let index = GlobIndex::new(globs);
        let mut found = Vec::new();
        index.find(text.as_bytes(), &mut Seen::default(), |at| found.push(at));
        found.sort_unstable();
        assert_eq!(found, expected, "{patterns:?} {text:?}");
    }

    #[test]
    fn long_parts_are_found_by_their_beginning() {
        let long = "a".repeat(KEY_BYTES_MAX);
        let patterns = [format!("*{long}b*"), format!("*{long}*"), format!("{long}c"), "*".into()];
        for text in [format!("x{long}b"), format!("{long}{long}c"), format!("{long}c"), "b".into()]
        {
            check(&patterns, &text);
        }
    }

    /// More than are searched for one by one, all of them found by what is in the text.
    #[test]
    fn many_globs_are_searched_for_together() {
        let globs = 0..2 * SEARCHES_MAX;
        let patterns: Vec<String> = globs.map(|n| format!("*<{n}>*({n})*<{n}>*")).collect();
        let once: String = (0..patterns.len()).map(|n| format!("<{n}>({n})")).collect();
        check(&patterns, &once);
        check(&patterns, &format!("{once}{once}"));
        check(&patterns, &format!("{}({})<{}>", once, 7, 8));
    }

    #[test]
    fn no_glob_is_no_work() {
        for index in [GlobIndex::default(), GlobIndex::new(Vec::new())] {
            index.find(b"text", &mut Seen::default(), |_| panic!("there is none"));
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_looking_at_every_glob_finds(
            patterns in prop::collection::vec("[ab*]{0,7}", 0..120),
            text in "[ab]{0,24}",
        ) {
            check(&patterns, &text);
        }
    }
}
