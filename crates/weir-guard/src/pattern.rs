//! Texts with `*` in them, which stands for anything.

use memchr::memmem;

/// A pattern, cut at its stars.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// What every text begins with that it matches.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.first
    }

    /// What every such text ends with.
    pub(crate) fn suffix(&self) -> &[u8] {
        self.last.as_deref().unwrap_or(&self.first)
    }

    /// Linear in the text for each part: the first place where a part fits is as good as any.
    pub(crate) fn is_match(&self, text: &[u8]) -> bool {
        let Some(last) = &self.last else { return *text == *self.first };
        let Some(mut rest) = text.strip_prefix(&*self.first) else { return false };
        for part in &self.middle {
            let Some(at) = memmem::find(rest, part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
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
        fn what_matches_has_its_ends(pattern in "[ab*]{0,7}", text in "[ab]{0,10}") {
            let glob = Glob::new(&pattern);
            if glob.is_match(text.as_bytes()) {
                prop_assert!(text.as_bytes().starts_with(glob.prefix()));
                prop_assert!(text.as_bytes().ends_with(glob.suffix()));
            }
        }
    }
}
