//! Content codings of precompressed siblings: `app.js.br`, `app.js.zst`, `app.js.gz`.
//!
//! A sibling is served in place of its original while it is not older than it. nginx and Caddy
//! serve a sibling whatever its age, and so last year's text when somebody edited the original and
//! forgot to compress it again. Compressors copy the original's time, some cut to whole seconds; a
//! time that is older only by such a cut counts as equal. An empty sibling is no valid stream of
//! any coding (a compressor died, or has just begun) and is passed over.

use http::HeaderMap;
use weir_http::negotiate::{Coding, accept_encoding};

use super::facts::Facts;

/// The codings a file may be stored in beside its original, by how small they make text.
pub(super) const SIBLINGS: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// The content codings a client takes, best first. Small and `Copy`, so that a stamp may keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Those preferred to identity.
    codings: [Option<Coding>; SIBLINGS.len()],
}

impl Accepted {
    /// Reads `Accept-Encoding` (RFC 9110 §12.5.3). A client that sends none gets the original, as
    /// does one that excludes it where nothing else exists.
    pub fn of_request(headers: &HeaderMap) -> Accepted {
        let mut offered = Coding::PREFERENCE.to_vec();
        let mut accepted = Vec::with_capacity(offered.len());
        while let Some(best) = accept_encoding(headers, &offered) {
            offered.retain(|&coding| coding != best);
            accepted.push(best);
        }
        Accepted::new(&accepted)
    }

    /// From a list, best first; what follows identity is not preferred to it and so never chosen.
    pub fn new(accepted: &[Coding]) -> Accepted {
        let mut codings = [None; SIBLINGS.len()];
        let mut count = 0;
        for &coding in accepted.iter().take_while(|&&coding| coding != Coding::Identity) {
            if !codings.contains(&Some(coding)) {
                // In bounds: there are as many places as there are codings but identity.
                codings[count] = Some(coding);
                count += 1;
            }
        }
        Accepted { codings }
    }

    /// Every list that differs from the others.
    pub fn all() -> Vec<Accepted> {
        let mut all = vec![Accepted::default()];
        // Grown by one coding at a time: each list is extended by each coding it lacks.
        let mut from = 0;
        while from < all.len() {
            let list = all[from];
            from += 1;
            let longer =
                SIBLINGS.into_iter().filter(|coding| !list.codings.contains(&Some(*coding)));
            all.extend(longer.map(|coding| list.and(coding)).collect::<Vec<_>>());
        }
        all
    }

    /// A number that no other list has; 0 for the empty one. Less than 64.
    pub fn fingerprint(&self) -> u64 {
        let digit = |coding: &Option<Coding>| match coding {
            Some(coding) => SIBLINGS.iter().position(|known| known == coding).map_or(0, |i| i + 1),
            None => 0,
        };
        self.codings.iter().fold(0, |number, coding| number * 4 + digit(coding) as u64)
    }

    fn and(mut self, coding: Coding) -> Accepted {
        if let Some(place) = self.codings.iter_mut().find(|place| place.is_none()) {
            *place = Some(coding);
        }
        self
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Coding> + '_ {
        self.codings.iter().flatten().copied()
    }
}

/// Whether a sibling with the facts `sibling` may stand in for `original`.
pub(super) fn stands_in(sibling: &Facts, original: &Facts) -> bool {
    if sibling.size == 0 && original.size != 0 {
        return false;
    }
    let grain_ns = [1_000_000_000, 1_000_000, 1_000]
        .into_iter()
        .find(|grain| sibling.modified_ns % grain == 0)
        .unwrap_or(1);
    sibling.modified_ns >= original.modified_ns - original.modified_ns.rem_euclid(grain_ns)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_list_has_a_fingerprint_of_its_own() {
        let all = Accepted::all();
        let fingerprints: HashSet<u64> = all.iter().map(Accepted::fingerprint).collect();
        // None, 3 single ones, 6 pairs, 6 orders of all three.
        assert_eq!((all.len(), fingerprints.len()), (16, 16));
        assert!(fingerprints.iter().all(|&number| number < 64));
        assert_eq!(Accepted::default().fingerprint(), 0);
        assert!(all.contains(&Accepted::new(&[Coding::Gzip, Coding::Brotli])));
    }
}
