//! The primary cache key, borrowed for lookups and owned for storage. What belongs into the scope
//! (site, route, scheme) is the caller's choice; the secondary key is in `selectors`.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// A key that borrows its parts from the request, so that a lookup allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRef<'a> {
    /// The cache partition. Keys of different scopes never meet; a caller that serves http and
    /// https differently puts the scheme in here.
    pub scope: u64,
    /// Host and optional port, normalised (lower case, no default port).
    pub authority: &'a str,
    /// Path and query, normalised.
    pub path_and_query: &'a str,
}

impl KeyRef<'_> {
    /// The key as a value of its own; one allocation.
    pub fn to_key(self) -> Key {
        let mut text = String::with_capacity(self.authority.len() + self.path_and_query.len());
        text.push_str(self.authority);
        text.push_str(self.path_and_query);
        Key { scope: self.scope, authority_len: self.authority.len(), text: text.into() }
    }

    /// Hashes the key in one pass over its bytes.
    pub(crate) fn hash_with(&self, state: &impl BuildHasher) -> u64 {
        let mut hasher = state.build_hasher();
        hasher.write_u64(self.scope);
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        hasher.write_usize(self.authority.len());
        hasher.write(self.authority.as_bytes());
        hasher.write(self.path_and_query.as_bytes());
        hasher.finish()
    }
}

/// A key that owns its parts; cloning it copies a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    scope: u64,
    authority_len: usize,
    /// Authority, then path and query.
    text: Arc<str>,
}

impl Key {
    /// The key in borrowed form.
    pub fn borrow(&self) -> KeyRef<'_> {
        let (authority, path_and_query) = self.text.split_at(self.authority_len);
        KeyRef { scope: self.scope, authority, path_and_query }
    }

    /// The cache partition.
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// Bytes of the key's text.
    pub(crate) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Whether `other` is this key.
    pub(crate) fn is(&self, other: &KeyRef<'_>) -> bool {
        let text = self.text.as_bytes();
        self.scope == other.scope
            && self.authority_len == other.authority.len()
            && text.len() == self.authority_len + other.path_and_query.len()
            && text[self.authority_len..] == *other.path_and_query.as_bytes()
            && text[..self.authority_len] == *other.authority.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_borrowed_form_and_no_other() {
        let parts = [
            (1, "a.example", "/x"),
            (2, "a.example", "/x"),
            (1, "a.example/", "x"),
            (1, "a.example", "/x?"),
            (1, "", "a.example/x"),
        ];
        let state = foldhash::quality::RandomState::default();
        for (i, a) in parts.iter().enumerate() {
            for (j, b) in parts.iter().enumerate() {
                let a = KeyRef { scope: a.0, authority: a.1, path_and_query: a.2 };
                let b = KeyRef { scope: b.0, authority: b.1, path_and_query: b.2 };
                assert_eq!(a.to_key().is(&b), i == j, "{a:?} {b:?}");
                assert_eq!(a.to_key().borrow(), a);
                assert_eq!(a.hash_with(&state) == b.hash_with(&state), i == j, "{a:?} {b:?}");
            }
        }
    }
}
