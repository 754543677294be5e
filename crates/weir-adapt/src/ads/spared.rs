//! Pages that lists spare: exceptions about whole pages, of which the engine knows only
//! `$generichide`. A request tells the host of its page and no more, so they are understood where
//! they name a host: `@@||news.example^$document`.

use std::collections::HashMap;

/// What holds for the pages of hosts.
#[derive(Debug, Default)]
pub(super) struct Spared {
    hosts: HashMap<String, Spares>,
}

/// What does not hold for the pages of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spares {
    /// Nothing does (`$document`).
    pub(super) all: bool,
    /// Nothing is hidden (`$elemhide`).
    pub(super) hiding: bool,
    /// What is hidden on pages of certain hosts (`$specifichide`).
    pub(super) own: bool,
}

impl Spared {
    /// Takes a line of a list; whether it is of this kind.
    pub(super) fn add(&mut self, line: &str) -> bool {
        let Some((host, spares)) = parse(line) else { return false };
        let known = self.hosts.entry(host).or_default();
        known.all |= spares.all;
        known.hiding |= spares.hiding;
        known.own |= spares.own;
        true
    }

    /// What does not hold for pages of a host, which a rule may name by one that it is a part of.
    pub(super) fn of(&self, host: &str) -> Spares {
        let mut spares = Spares::default();
        if self.hosts.is_empty() {
            return spares;
        }
        let mut rest = Some(host.split(':').next().unwrap_or_default());
        while let Some(name) = rest {
            if let Some(known) = self.hosts.get(name) {
                spares.all |= known.all;
                spares.hiding |= known.all || known.hiding;
                spares.own |= known.own;
            }
            rest = name.split_once('.').map(|(_, parent)| parent);
        }
        spares
    }
}

fn parse(line: &str) -> Option<(String, Spares)> {
    let (pattern, options) = line.strip_prefix("@@||")?.split_once('$')?;
    let host = pattern.strip_suffix('^').or(pattern.strip_suffix('/')).unwrap_or(pattern);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-') || !c.is_ascii();
    if host.is_empty() || !host.chars().all(is_part) {
        return None;
    }
    let mut spares = Spares::default();
    let mut is_generic = false;
    for option in options.split(',') {
        match option.trim() {
            "document" | "doc" => spares.all = true,
            "elemhide" | "ehide" => spares.hiding = true,
            "specifichide" | "shide" => spares.own = true,
            "generichide" | "ghide" => is_generic = true,
            _ => return None,
        }
    }
    // What is hidden anywhere, and what is hidden on certain hosts: that is all.
    spares.hiding |= is_generic && spares.own;
    (spares != Spares::default()).then(|| (host.to_ascii_lowercase(), spares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_spared_by_host() {
        let mut spared = Spared::default();
        for line in [
            "@@||News.example^$document",
            "@@||quiet.example$elemhide",
            "@@||own.example/$shide",
            "@@||both.example^$generichide,specifichide",
        ] {
            assert!(spared.add(line), "{line}");
        }
        for line in [
            "||news.example^$document",
            "@@||x.example^$generichide",
            "@@||x.example/path$document",
            "@@||x.example^$document,image",
            "@@||x.example^$document,domain=y.example",
            "@@||*.example^$elemhide",
            "@@x$elemhide",
            "@@||$elemhide",
        ] {
            assert!(!spared.add(line), "{line}");
        }
        let (all, hiding, own) = (true, true, true);
        let none = Spares::default();
        assert_eq!(spared.of("www.news.example:8080"), Spares { all, hiding, own: false });
        assert_eq!(spared.of("quiet.example"), Spares { hiding, ..none });
        assert_eq!(spared.of("own.example"), Spares { own, ..none });
        assert_eq!(spared.of("both.example"), Spares { hiding, own, ..none });
        assert_eq!(spared.of("example"), none);
        assert_eq!(spared.of("notquiet.example"), none);
    }
}
