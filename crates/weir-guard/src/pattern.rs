//! Texts with `*` in them, which stands for anything.

use std::ops::Range;

use memchr::memmem;

/// A pattern, cut at its stars.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Glob {
    first: Box<[u8]>,
    middle: Box<[Box<[u8]>]>,
    /// `None` for a pattern without a star.
    last: Option<Box<[u8]>>,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Glob {
        let mut parts: Vec<Box<[u8]>> =
            pattern.split('*').map(|part| part.as_bytes().into()).collect();
        let first = parts.remove(0);
        let last = parts.pop();
        // Two stars say no more than one.
        parts.retain(|part| !part.is_empty());
        Glob { first, middle: parts.into(), last }
    }

    /// What every text begins with that it matches; may be empty.
    pub(crate) fn head(&self) -> &[u8] {
        &self.first
    }

    /// What every text has in it that it matches, in order and apart from each other.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let ends = [Some(&self.first), self.last.as_ref()];
        let [first, last] = ends.map(|end| end.filter(|part| !part.is_empty()));
        first.into_iter().chain(&self.middle).chain(last).map(|part| &**part)
    }

    /// Those of them that may be anywhere between the others.
    pub(crate) fn middle(&self) -> &[Box<[u8]>] {
        &self.middle
    }

    /// Whether it matches whatever has its only part in it.
    pub(crate) fn is_anywhere(&self) -> bool {
        let is_open = self.first.is_empty() && self.last.as_ref().is_some_and(|it| it.is_empty());
        is_open && self.middle.len() == 1
    }

    /// Between its ends: where the middle parts are to be. Nothing if its ends do not hold.
    pub(crate) fn between(&self, text: &[u8]) -> Option<Range<usize>> {
        let Some(last) = &self.last else {
            return (*text == *self.first).then_some(text.len()..text.len());
        };
        let range = self.first.len()..text.len().checked_sub(last.len())?;
        let holds = range.start <= range.end && text.starts_with(&self.first);
        (holds && text.ends_with(last)).then_some(range)
    }

    /// Linear in the text, whatever the number of parts: the first place where a part fits is as
    /// good as any, and what is before it is not looked at again.
    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        let Some(between) = self.between(text) else { return false };
        let mut rest = &text[between];
        for part in &self.middle {
            let Some(at) = memmem::find(rest, part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(Glob::new(pattern).is_match(text.as_bytes()), expected, "{pattern} {text}");
        };
        check("", "", true);
        check("", "a", false);
        check("a", "a", true);
        check("*", "", true);
        check("**", "anything", true);
        check("a*", "a", true);
        check("a*a", "a", false);
        check("a*a", "aa", true);
        check("*.php", "/x/y.php", true);
        check("*.php", "/x/y.php5", false);
        check("/a/*/c", "/a/b/b/c", true);
        check("/a/*/c", "/a/c", false);
        check("*ab*ab*", "abab", true);
        check("*ab*ab*", "abcb", false);
        check("*aab", "aaab", true);
        check("x*yy*z", "xyyz", true);
        check("x*yy*z", "xyz", false);
    }

    /// The definition, word for word.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skip| model(rest, &text[skip..])),
            Some((byte, rest)) => text.first() == Some(byte) && model(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(pattern in "[ab*]{0,7}", text in "[ab]{0,10}") {
            let expected = model(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Glob::new(&pattern).is_match(text.as_bytes()), expected);
        }

        #[test]
        fn what_matches_has_its_parts(pattern in "[ab*]{0,7}", text in "[ab]{0,10}") {
            let glob = Glob::new(&pattern);
            let mut at = 0;
            for part in glob.parts() {
                match memmem::find(&text.as_bytes()[at..], part) {
                    Some(found) => at += found + part.len(),
                    None => prop_assert!(!glob.is_match(text.as_bytes())),
                }
            }
            prop_assert!(!glob.is_anywhere() || text.contains(pattern.trim_matches('*')) ==
                glob.is_match(text.as_bytes()));
        }
    }
}
