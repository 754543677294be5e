//! Which rules a path may meet: a radix tree over the literal beginnings of their patterns, and
//! another over the literal ends of those that begin with a star. A look-up walks down one path of
//! each, whatever the number of rules.

use smallvec::SmallVec;

use crate::pattern::Glob;

/// Rules by path.
#[derive(Default)]
pub(crate) struct PathIndex {
    beginnings: Tree,
    /// Spelled backwards.
    ends: Tree,
    /// Patterns with a star at both ends.
    anywhere: Vec<u32>,
}

/// A path is copied to be read backwards; longer ones need an allocation.
const PATH_BYTES: usize = 256;

impl PathIndex {
    /// A rule for one path.
    pub(crate) fn insert_exact(&mut self, path: &str, rule: u32) {
        let node = self.beginnings.node(path.as_bytes());
        self.beginnings.nodes[node].exact.push(rule);
    }

    /// A rule for all paths that begin so.
    pub(crate) fn insert_prefix(&mut self, prefix: &str, rule: u32) {
        self.insert_beginning(prefix.as_bytes(), rule);
    }

    /// A rule for a pattern.
    pub(crate) fn insert_glob(&mut self, glob: &Glob, rule: u32) {
        if !glob.prefix().is_empty() {
            return self.insert_beginning(glob.prefix(), rule);
        }
        if glob.suffix().is_empty() {
            return self.anywhere.push(rule);
        }
        let backwards: Vec<u8> = glob.suffix().iter().rev().copied().collect();
        let node = self.ends.node(&backwards);
        self.ends.nodes[node].all.push(rule);
    }

    fn insert_beginning(&mut self, beginning: &[u8], rule: u32) {
        let node = self.beginnings.node(beginning);
        self.beginnings.nodes[node].all.push(rule);
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.anywhere.is_empty() && self.beginnings.is_empty() && self.ends.is_empty()
    }

    /// Shows the rules whose pattern may match.
    pub(crate) fn find(&self, path: &str, mut see: impl FnMut(&[u32])) {
        see(&self.anywhere);
        self.beginnings.walk(path.as_bytes(), &mut see);
        if !self.ends.is_empty() {
            let backwards: SmallVec<[u8; PATH_BYTES]> = path.bytes().rev().collect();
            self.ends.walk(&backwards, &mut see);
        }
    }
}

/// A radix tree. The first node is the root.
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// What leads here from the node above.
    label: Box<[u8]>,
    /// Nodes below by the first byte of their labels, sorted.
    below: Vec<(u8, u32)>,
    /// Rules for texts that begin so.
    all: Vec<u32>,
    /// Rules for texts that end here.
    exact: Vec<u32>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { nodes: vec![Node::default()] }
    }
}

impl Tree {
    fn is_empty(&self) -> bool {
        self.nodes.len() == 1 && self.nodes[0].all.is_empty() && self.nodes[0].exact.is_empty()
    }

    /// The node of a text, made if there is none.
    fn node(&mut self, text: &[u8]) -> usize {
        let (mut at, mut rest) = (0, text);
        while let Some(&first) = rest.first() {
            let Some(below) = self.nodes[at].below(first) else {
                return self.add(at, rest);
            };
            let label = &self.nodes[below].label;
            let shared = label.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if shared < label.len() {
                self.split(below, shared);
            }
            (at, rest) = (below, &rest[shared..]);
        }
        at
    }

    fn add(&mut self, above: usize, label: &[u8]) -> usize {
        let new = self.nodes.len();
        self.nodes.push(Node { label: label.into(), ..Node::default() });
        let below = &mut self.nodes[above].below;
        let at = below.partition_point(|(byte, _)| *byte < label[0]);
        // Nodes are fewer than bytes of a configuration.
        below.insert(at, (label[0], new as u32));
        new
    }

    /// Cuts a node's label in two; the node keeps the first part.
    fn split(&mut self, node: usize, at: usize) {
        let new = self.nodes.len() as u32;
        let node = &mut self.nodes[node];
        let (head, tail) = node.label.split_at(at);
        let (head, tail) = (Box::from(head), Box::<[u8]>::from(tail));
        let first = tail[0];
        let lower = Node {
            label: tail,
            below: std::mem::take(&mut node.below),
            all: std::mem::take(&mut node.all),
            exact: std::mem::take(&mut node.exact),
        };
        node.label = head;
        node.below.push((first, new));
        self.nodes.push(lower);
    }

    #[inline]
    fn walk(&self, text: &[u8], see: &mut impl FnMut(&[u32])) {
        let (mut node, mut rest) = (&self.nodes[0], text);
        loop {
            see(&node.all);
            let Some(&first) = rest.first() else { return see(&node.exact) };
            let Some(below) = node.below(first) else { return };
            node = &self.nodes[below];
            let Some(after) = rest.strip_prefix(&*node.label) else { return };
            rest = after;
        }
    }
}

impl Node {
    #[inline]
    fn below(&self, first: u8) -> Option<usize> {
        let at = self.below.binary_search_by_key(&first, |(byte, _)| *byte).ok()?;
        Some(self.below[at].1 as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(index: &PathIndex, path: &str) -> Vec<u32> {
        let mut found = Vec::new();
        index.find(path, |rules| found.extend_from_slice(rules));
        found.sort_unstable();
        found
    }

    #[test]
    fn paths_find_their_rules() {
        let mut index = PathIndex::default();
        index.insert_exact("/search", 0);
        index.insert_prefix("/search/", 1);
        index.insert_prefix("/", 2);
        index.insert_exact("/sea", 3);
        index.insert_glob(&Glob::new("*.php"), 4);
        index.insert_glob(&Glob::new("*admin*"), 5);
        index.insert_glob(&Glob::new("/a/*/x"), 6);
        index.insert_prefix("", 7);
        for (path, expected) in [
            ("/search", &[0, 2, 5, 7][..]),
            ("/search/", &[1, 2, 5, 7]),
            ("/sea", &[2, 3, 5, 7]),
            ("/se", &[2, 5, 7]),
            ("/x.php", &[2, 4, 5, 7]),
            // A glob that was found by its beginning is yet to be matched.
            ("/a/b", &[2, 5, 6, 7]),
            ("", &[5, 7]),
        ] {
            assert_eq!(found(&index, path), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_pattern_is_found_by_what_it_matches(
            patterns in prop::collection::vec("[ab*]{0,5}", 1..20),
            path in "[ab]{0,8}",
        ) {
            let mut index = PathIndex::default();
            for (rule, pattern) in patterns.iter().enumerate() {
                match pattern.contains('*') {
                    true => index.insert_glob(&Glob::new(pattern), rule as u32),
                    false if rule % 2 == 0 => index.insert_prefix(pattern, rule as u32),
                    false => index.insert_exact(pattern, rule as u32),
                }
            }
            let found = found(&index, &path);
            for (rule, pattern) in patterns.iter().enumerate() {
                let is_found = found.contains(&(rule as u32));
                match pattern.contains('*') {
                    true => prop_assert!(is_found || !Glob::new(pattern).is_match(path.as_bytes())),
                    false if rule % 2 == 0 => prop_assert_eq!(is_found, path.starts_with(pattern)),
                    false => prop_assert_eq!(is_found, path == *pattern),
                }
            }
        }
    }
}
