//! Which rules a path meets: a radix tree over paths and their beginnings, in which a look-up walks
//! down one way whatever the number of rules, and an index of the patterns whose beginning says too
//! little.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::glob_index::GlobIndex;
use crate::index::{Candidate, Candidates};
use crate::pattern::Glob;
use crate::seen::Seen;

/// A pattern is found by what it begins with if that has so many bytes at least, and so many
/// patterns have it at most: each is looked at then. The other index reads the whole path.
const HEAD_BYTES_MIN: usize = 2;
const HEADS_ALIKE_MAX: u32 = 4;

/// Rules by path. Built once.
#[derive(Default)]
pub(crate) struct PathIndex {
    beginnings: Tree,
    /// Globs that are found by their beginnings.
    begun: Box<[(Glob, Candidate)]>,
    globs: GlobIndex,
    /// By glob.
    finds: Box<[Candidate]>,
}

/// What an index is built from.
#[derive(Default)]
pub(crate) struct Patterns {
    beginnings: Vec<Text>,
    globs: Vec<Glob>,
    finds: Vec<Candidate>,
}

/// A literal text, and who is found by it.
struct Text {
    bytes: Box<[u8]>,
    /// A path is to be this, not only to begin so.
    is_whole: bool,
    finds: Find,
}

/// What is found by a text.
#[derive(Clone, Copy, Debug)]
enum Find {
    /// A rule, which has no more to ask of the path.
    Rule(Candidate),
    /// One of [`PathIndex::begun`].
    Glob(u32),
}

impl Patterns {
    /// A rule for one path.
    pub(crate) fn add_exact(&mut self, path: &str, rule: u32) {
        let bytes = path.as_bytes().into();
        let finds = Find::Rule(Candidate::proved(rule));
        self.beginnings.push(Text { bytes, is_whole: true, finds });
    }

    /// A rule for all paths that begin so.
    pub(crate) fn add_prefix(&mut self, prefix: &str, rule: u32) {
        let bytes = prefix.as_bytes().into();
        let finds = Find::Rule(Candidate::proved(rule));
        self.beginnings.push(Text { bytes, is_whole: false, finds });
    }

    /// A rule for a pattern.
    pub(crate) fn add_glob(&mut self, glob: &Glob, rule: u32) {
        self.globs.push(glob.clone());
        self.finds.push(Candidate::proved(rule));
    }
}

impl PathIndex {
    /// Indexes patterns.
    pub(crate) fn new(patterns: Patterns) -> PathIndex {
        let Patterns { mut beginnings, globs, finds } = patterns;
        let mut alike: HashMap<&[u8], u32, RandomState> = HashMap::default();
        globs.iter().for_each(|glob| *alike.entry(glob.head()).or_default() += 1);
        let is_begun = |glob: &Glob| {
            glob.head().len() >= HEAD_BYTES_MIN && alike[glob.head()] <= HEADS_ALIKE_MAX
        };
        let (mut begun, mut others, mut finds_of_others) = (Vec::new(), Vec::new(), Vec::new());
        for (glob, find) in globs.iter().zip(finds) {
            if is_begun(glob) {
                let (bytes, finds) = (glob.head().into(), Find::Glob(begun.len() as u32));
                beginnings.push(Text { bytes, is_whole: false, finds });
                begun.push((glob.clone(), find));
            } else {
                others.push(glob.clone());
                finds_of_others.push(find);
            }
        }
        PathIndex {
            beginnings: Tree::new(beginnings),
            begun: begun.into(),
            globs: GlobIndex::new(others),
            finds: finds_of_others.into(),
        }
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.beginnings.is_empty() && self.finds.is_empty()
    }

    /// Adds the rules whose pattern matches.
    #[inline]
    pub(crate) fn find(&self, path: &str, found: &mut Candidates) {
        if !self.beginnings.is_empty() {
            let see = |finds: &[Find]| {
                if !finds.is_empty() {
                    self.add(finds, path, found);
                }
            };
            self.beginnings.walk(path.as_bytes(), see);
        }
        if !self.finds.is_empty() {
            let see = |glob| found.push(self.finds[glob as usize]);
            self.globs.find(path.as_bytes(), &mut Seen::default(), see);
        }
    }
}

impl PathIndex {
    #[inline(never)]
    fn add(&self, finds: &[Find], path: &str, found: &mut Candidates) {
        for find in finds {
            match find {
                Find::Rule(rule) => found.push(*rule),
                Find::Glob(at) => {
                    let (glob, rule) = &self.begun[*at as usize];
                    if glob.is_match(path.as_bytes()) {
                        found.push(*rule);
                    }
                }
            }
        }
    }
}

/// A radix tree, in which nodes come level by level. Whatever belongs to one, in whichever of the
/// lists, begins where its entry says and ends where the next one's begins: 16 bytes a node, and a
/// walk down touches little memory.
#[derive(Default)]
struct Tree {
    /// The first is the root; one more than there are nodes.
    nodes: Box<[Node]>,
    /// By node: the byte that leads to it from above, which the root has no use for.
    firsts: Box<[u8]>,
    /// What must follow, byte by byte, before there is a choice again.
    labels: Box<[u8]>,
    finds: Box<[Find]>,
}

/// Where a node's own begin. All are fewer than bytes of a configuration.
#[derive(Clone, Copy)]
struct Node {
    /// Of labels.
    label: u32,
    /// Of nodes: those below it.
    below: u32,
    /// Of what is found: by texts that begin so.
    all: u32,
    /// Likewise, by texts that end here.
    whole: u32,
}

impl Tree {
    fn new(mut texts: Vec<Text>) -> Tree {
        if texts.is_empty() {
            return Tree::default();
        }
        texts.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        let (mut nodes, mut firsts) = (Vec::new(), vec![0]);
        let (mut labels, mut finds) = (Vec::new(), Vec::new());
        // Nodes to be made: the texts that go through each, and how much of them leads to it.
        let mut plan = vec![(&texts[..], 0)];
        while let Some(&(through, above)) = plan.get(nodes.len()) {
            let depth = shared(through);
            let label = labels.len() as u32;
            labels.extend_from_slice(&through[0].bytes[above..depth]);
            // What ends here is sorted before all that goes on.
            let (here, on) = through.split_at(through.partition_point(|t| t.bytes.len() == depth));
            let of = |is_whole| here.iter().filter(move |t| t.is_whole == is_whole);
            let all = finds.len() as u32;
            finds.extend(of(false).map(|text| text.finds));
            let whole = finds.len() as u32;
            finds.extend(of(true).map(|text| text.finds));
            nodes.push(Node { label, below: plan.len() as u32, all, whole });
            for below in on.chunk_by(|a, b| a.bytes[depth] == b.bytes[depth]) {
                firsts.push(below[0].bytes[depth]);
                plan.push((below, depth + 1));
            }
        }
        let (label, below, all) = (labels.len() as u32, nodes.len() as u32, finds.len() as u32);
        nodes.push(Node { label, below, all, whole: all });
        let (nodes, firsts) = (nodes.into(), firsts.into());
        Tree { nodes, firsts, labels: labels.into(), finds: finds.into() }
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[inline]
    fn walk(&self, text: &[u8], mut see: impl FnMut(&[Find])) {
        let (mut at, mut rest) = (0, text);
        loop {
            let (node, next) = (self.nodes[at], self.nodes[at + 1]);
            let label = &self.labels[node.label as usize..next.label as usize];
            let Some(after) = rest.strip_prefix(label) else { return };
            see(&self.finds[node.all as usize..node.whole as usize]);
            let Some((first, after)) = after.split_first() else {
                return see(&self.finds[node.whole as usize..next.all as usize]);
            };
            let below = &self.firsts[node.below as usize..next.below as usize];
            // Mostly a few, which is too few to be halved.
            let Some(way) = below.iter().position(|byte| byte == first) else { return };
            (at, rest) = (node.below as usize + way, after);
        }
    }
}

/// Bytes that all of some sorted texts begin with.
fn shared(texts: &[Text]) -> usize {
    let (Some(first), Some(last)) = (texts.first(), texts.last()) else { return 0 };
    first.bytes.iter().zip(&last.bytes).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(index: &PathIndex, path: &str) -> Vec<u32> {
        let mut found = Candidates::new();
        index.find(path, &mut found);
        assert!(found.iter().all(|it| it.is_proved()), "what is found is known to match");
        let mut found: Vec<_> = found.iter().map(|it| it.rule()).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn paths_find_their_rules() {
        let mut patterns = Patterns::default();
        patterns.add_exact("/search", 0);
        patterns.add_prefix("/search/", 1);
        patterns.add_prefix("/", 2);
        patterns.add_exact("/sea", 3);
        patterns.add_glob(&Glob::new("*.php"), 4);
        patterns.add_glob(&Glob::new("*admin*"), 5);
        patterns.add_glob(&Glob::new("/a/*/x"), 6);
        patterns.add_prefix("", 7);
        for rule in 8..16 {
            patterns.add_glob(&Glob::new(&format!("/many/*/{rule}")), rule);
        }
        let index = PathIndex::new(patterns);
        for (path, expected) in [
            ("/search", &[0, 2, 7][..]),
            ("/search/", &[1, 2, 7]),
            ("/sea", &[2, 3, 7]),
            ("/se", &[2, 7]),
            ("/x.php", &[2, 4, 7]),
            ("/x.php5", &[2, 7]),
            ("/a/b", &[2, 7]),
            ("/a/b/x", &[2, 6, 7]),
            ("/administrator", &[2, 5, 7]),
            ("/many/a/9", &[2, 7, 9]),
            ("/many/9", &[2, 7]),
            ("", &[7]),
        ] {
            assert_eq!(found(&index, path), expected, "{path}");
        }
        assert!(PathIndex::new(Patterns::default()).is_empty());
    }

    proptest! {
        #[test]
        fn every_pattern_is_found_by_what_it_matches(
            patterns in prop::collection::vec("[ab*]{0,5}", 1..20),
            path in "[ab]{0,8}",
        ) {
            let mut all = Patterns::default();
            for (rule, pattern) in patterns.iter().enumerate() {
                match pattern.contains('*') {
                    true => all.add_glob(&Glob::new(pattern), rule as u32),
                    false if rule % 2 == 0 => all.add_prefix(pattern, rule as u32),
                    false => all.add_exact(pattern, rule as u32),
                }
            }
            let found = found(&PathIndex::new(all), &path);
            for (rule, pattern) in patterns.iter().enumerate() {
                let matches = match pattern.contains('*') {
                    true => Glob::new(pattern).is_match(path.as_bytes()),
                    false if rule % 2 == 0 => path.starts_with(pattern),
                    false => path == *pattern,
                };
                prop_assert_eq!(found.contains(&(rule as u32)), matches, "{}", pattern);
            }
        }
    }
}
