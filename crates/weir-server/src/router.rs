//! Host → site and path → route. Exact matches are one hash look-up; among wildcards and prefixes
//! the most specific wins, whatever their order in the file.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use weir_config::Pattern;

/// Sites by host name.
pub(crate) struct Hosts<T> {
    exact: HashMap<Box<str>, T, RandomState>,
    /// `*.example` as `.example`, longest first.
    suffixes: Vec<(Box<str>, T)>,
    /// `*`
    any: Option<T>,
}

impl<T: Clone> Hosts<T> {
    /// Adds a name, `*.name` or `*`. The first site to claim a name keeps it.
    pub(crate) fn insert(&mut self, name: &str, site: T) {
        if name == "*" {
            self.any.get_or_insert(site);
        } else if let Some(suffix) = name.strip_prefix('*') {
            let at = self.suffixes.partition_point(|(known, _)| known.len() >= suffix.len());
            self.suffixes.insert(at, (suffix.into(), site));
        } else {
            self.exact.entry(name.into()).or_insert(site);
        }
    }

    /// The site of a host name in lower case, without port.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<&T> {
        if let Some(site) = self.exact.get(name) {
            return Some(site);
        }
        // At least one character must stand for the star.
        let under = |suffix: &str| name.len() > suffix.len() && name.ends_with(suffix);
        let wildcard = self.suffixes.iter().find(|(suffix, _)| under(suffix));
        wildcard.map(|(_, site)| site).or(self.any.as_ref())
    }
}

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Hosts { exact: HashMap::default(), suffixes: Vec::new(), any: None }
    }
}

/// Routes by path.
pub(crate) struct Paths<T> {
    exact: HashMap<Box<str>, T, RandomState>,
    /// Longest first.
    prefixes: Vec<(Box<str>, T)>,
}

impl<T> Paths<T> {
    pub(crate) fn insert(&mut self, pattern: &Pattern, route: T) {
        match pattern {
            Pattern::Exact(path) => {
                self.exact.insert(path.as_str().into(), route);
            }
            Pattern::Prefix(prefix) => {
                let at = self.prefixes.partition_point(|(known, _)| known.len() >= prefix.len());
                self.prefixes.insert(at, (prefix.as_str().into(), route));
            }
        }
    }

    /// Every route.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.prefixes.iter().map(|(_, route)| route))
    }

    /// The route of a normalised path.
    #[inline]
    pub(crate) fn find(&self, path: &str) -> Option<&T> {
        if !self.exact.is_empty()
            && let Some(route) = self.exact.get(path)
        {
            return Some(route);
        }
        self.prefixes.iter().find(|(prefix, _)| path.starts_with(&**prefix)).map(|(_, r)| r)
    }
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Paths { exact: HashMap::default(), prefixes: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_host_wins() {
        let mut hosts = Hosts::default();
        for name in ["*", "*.example", "*.shop.example", "shop.example", "*.example"] {
            hosts.insert(name, name.to_owned());
        }
        let check = |host: &str, expected: &str| {
            assert_eq!(hosts.find(host).map(String::as_str), Some(expected), "{host}");
        };
        check("shop.example", "shop.example");
        check("a.shop.example", "*.shop.example");
        check("a.b.shop.example", "*.shop.example");
        check("other.example", "*.example");
        check("example", "*");
        check(".example", "*");
        check("elsewhere", "*");
    }

    #[test]
    fn the_most_specific_path_wins() {
        let mut paths = Paths::default();
        for pattern in [
            Pattern::Prefix("/".into()),
            Pattern::Prefix("/images/large/".into()),
            Pattern::Prefix("/images/".into()),
            Pattern::Exact("/images/".into()),
            Pattern::Exact("/about".into()),
        ] {
            paths.insert(&pattern, format!("{pattern:?}"));
        }
        let check = |path: &str, expected: Pattern| {
            assert_eq!(paths.find(path), Some(&format!("{expected:?}")), "{path}");
        };
        check("/about", Pattern::Exact("/about".into()));
        check("/about/x", Pattern::Prefix("/".into()));
        check("/images/", Pattern::Exact("/images/".into()));
        check("/images/a", Pattern::Prefix("/images/".into()));
        check("/images/large/a", Pattern::Prefix("/images/large/".into()));
        check("/images", Pattern::Prefix("/".into()));
    }
}
