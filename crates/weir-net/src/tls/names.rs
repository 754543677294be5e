//! From a server name to the certificates that may answer it: exact names before wildcards
//! (RFC 6125, section 6.4.3: the wildcard stands for exactly one label).

use std::collections::HashMap;

/// Positions of certificates by lower-case name, each list in configuration order.
#[derive(Debug, Default)]
pub(super) struct Names {
    exact: HashMap<String, Vec<usize>>,
    /// Keyed by what follows `*.`.
    wildcard: HashMap<String, Vec<usize>>,
}

impl Names {
    /// Lets `position` answer `name`, which may begin with `*.`. A lone `*` names no one.
    pub(super) fn add(&mut self, name: &str, position: usize) {
        let name = normal(name);
        let (table, key) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcard, parent),
            None if name == "*" => return,
            None => (&mut self.exact, name.as_str()),
        };
        let positions = table.entry(key.to_owned()).or_default();
        if !positions.contains(&position) {
            positions.push(position);
        }
    }

    /// The certificates for `name`, best first.
    pub(super) fn find(&self, name: &str) -> impl Iterator<Item = usize> {
        let name = normal(name);
        let exact = self.exact.get(&name);
        let wildcard = name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        exact.into_iter().chain(wildcard).flatten().copied()
    }
}

/// Lower case, without the root's dot.
fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &[&str], ask: &str, expect: &[usize]) {
        let mut names = Names::default();
        for (position, name) in table.iter().enumerate() {
            names.add(name, position);
        }
        assert_eq!(names.find(ask).collect::<Vec<_>>(), expect, "{ask} in {table:?}");
    }

    #[test]
    fn exact_before_wildcard_and_one_label_only() {
        check(&["a.example"], "a.example", &[0]);
        check(&["a.example"], "A.Example.", &[0]);
        check(&["A.EXAMPLE"], "a.example", &[0]);
        check(&["a.example"], "b.example", &[]);
        check(&["*.example"], "b.example", &[0]);
        check(&["*.example"], "example", &[]);
        check(&["*.example"], "c.b.example", &[]);
        check(&["*.example", "b.example"], "b.example", &[1, 0]);
        check(&["b.example", "b.example"], "b.example", &[0, 1]);
        check(&["*"], "b.example", &[]);
        check(&["*"], "*", &[]);
        check(&["a.example"], "", &[]);
    }
}
