//! Proactive negotiation of content codings (RFC 9110 §12.5.3): which of the codings at hand a
//! client is to get.

use http::header::{ACCEPT_ENCODING, HeaderMap};

use crate::syntax::{split, trim};

/// A content coding that Weir can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// No coding.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl Coding {
    /// All codings in the order in which Weir prefers them: by how small they make text.
    pub const PREFERENCE: [Coding; 4] =
        [Coding::Brotli, Coding::Zstd, Coding::Gzip, Coding::Identity];

    /// The name in Content-Encoding and Accept-Encoding.
    pub const fn token(self) -> &'static str {
        match self {
            Coding::Identity => "identity",
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
        }
    }

    /// What a precompressed sibling's file name ends with; empty for identity.
    pub const fn suffix(self) -> &'static str {
        match self {
            Coding::Identity => "",
            Coding::Gzip => ".gz",
            Coding::Zstd => ".zst",
            Coding::Brotli => ".br",
        }
    }

    /// Reads a coding's name, in any case. `x-gzip` is gzip (§8.4.1.3).
    pub fn parse(token: &[u8]) -> Option<Coding> {
        let is = |name: &[u8]| token.eq_ignore_ascii_case(name);
        match token.len() {
            2 if is(b"br") => Some(Coding::Brotli),
            4 if is(b"gzip") => Some(Coding::Gzip),
            4 if is(b"zstd") => Some(Coding::Zstd),
            6 if is(b"x-gzip") => Some(Coding::Gzip),
            8 if is(b"identity") => Some(Coding::Identity),
            _ => None,
        }
    }
}

/// The best of `offered` – codings at hand, most preferred first – for a request. Without
/// Accept-Encoding that is identity if offered, else the first: anything is acceptable, but a
/// client that says nothing may be unable to decode. `None` if the client excludes all of them.
pub fn accept_encoding(request: &HeaderMap, offered: &[Coding]) -> Option<Coding> {
    let mut values = request.get_all(ACCEPT_ENCODING).iter().peekable();
    if values.peek().is_none() {
        let identity = offered.iter().find(|&&coding| coding == Coding::Identity);
        return identity.or(offered.first()).copied();
    }
    let mut weights = Weights::default();
    for value in values {
        weights.read(value.as_bytes());
    }
    weights.best(offered)
}

/// [`accept_encoding`] for one Accept-Encoding value.
pub fn best(value: &[u8], offered: &[Coding]) -> Option<Coding> {
    let mut weights = Weights::default();
    weights.read(value);
    weights.best(offered)
}

/// Weights in thousandths, as given; `None` where a coding was not named.
#[derive(Default)]
struct Weights {
    named: [Option<u16>; 4],
    any: Option<u16>,
}

impl Weights {
    /// Reads one field line. Elements that do not parse are skipped; of repeated ones the first
    /// counts.
    fn read(&mut self, value: &[u8]) {
        for element in split(value, b',') {
            let (name, weight) = match element.iter().position(|&byte| byte == b';') {
                None => (element, Some(1000)),
                Some(index) => (trim(&element[..index]), weight(trim(&element[index + 1..]))),
            };
            let Some(weight) = weight else { continue };
            if name == b"*" {
                self.any.get_or_insert(weight);
            } else if let Some(coding) = Coding::parse(name) {
                self.named[coding as usize].get_or_insert(weight);
            }
        }
    }

    fn best(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best: Option<(u32, Coding)> = None;
        for &coding in offered {
            let rank = self.rank(coding);
            if rank > 0 && best.is_none_or(|(top, _)| rank > top) {
                best = Some((rank, coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    /// 0: not acceptable. 1: identity that nobody mentioned, acceptable but asked for least.
    fn rank(&self, coding: Coding) -> u32 {
        match (self.named[coding as usize].or(self.any), coding) {
            (Some(0), _) => 0,
            (Some(weight), _) => u32::from(weight) + 1,
            (None, Coding::Identity) => 1,
            (None, _) => 0,
        }
    }
}

/// `q=0.5` in thousandths (§12.4.2).
pub(crate) fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', rest @ ..] = parameter else { return None };
    let number = trim(trim(rest).strip_prefix(b"=")?);
    let (mut thousandths, fraction) = match number {
        [b'0'] => (0, &[][..]),
        [b'1'] => (1000, &[][..]),
        [b'0', b'.', fraction @ ..] if fraction.len() <= 3 => (0, fraction),
        [b'1', b'.', fraction @ ..] if fraction.len() <= 3 => (1000, fraction),
        _ => return None,
    };
    let mut unit = 100;
    for digit in fraction {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += u16::from(digit - b'0') * unit;
        unit /= 10;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    #[test]
    fn best_of_all() {
        use Coding::*;
        let check = |value: &str, expect: Option<Coding>| {
            assert_eq!(best(value.as_bytes(), &Coding::PREFERENCE), expect, "{value}");
        };
        check("gzip, deflate, br, zstd", Some(Brotli));
        check("gzip, zstd", Some(Zstd));
        check("GZIP", Some(Gzip));
        check("x-gzip", Some(Gzip));
        check("br;q=0.5, gzip;q=0.8", Some(Gzip));
        check("br;q=0.5, gzip;q=0.500", Some(Brotli));
        check("br ; q = 0.1", Some(Brotli));
        check("", Some(Identity));
        check("deflate", Some(Identity));
        check("identity;q=1, gzip;q=0.5", Some(Identity));
        check("*", Some(Brotli));
        check("*;q=0", None);
        check("*;q=0, gzip", Some(Gzip));
        check("*;q=0, identity", Some(Identity));
        check("identity;q=0", None);
        check("identity;q=0, gzip", Some(Gzip));
        check("br;q=0, *", Some(Zstd));
        check("gzip;q=0.3, *;q=0", Some(Gzip));
        check("br;q=2", Some(Identity));
        check("br;q=0.1234", Some(Identity));
        check("br;q=.5", Some(Identity));
        check("br;q=1.001", Some(Identity));
        check("br;q=-", Some(Identity));
        check("br;q=\u{7f}.5", Some(Identity));
        check("br;level=3", Some(Identity));
        check("br;q=0, br;q=1", Some(Identity));
    }

    #[test]
    fn only_what_is_offered() {
        let offered = [Coding::Gzip, Coding::Identity];
        assert_eq!(best(b"br, gzip", &offered), Some(Coding::Gzip));
        assert_eq!(best(b"br", &offered), Some(Coding::Identity));
        assert_eq!(best(b"br", &[Coding::Gzip]), None);
        assert_eq!(best(b"br", &[]), None);
    }

    #[test]
    fn field_absent_or_on_several_lines() {
        let mut request = HeaderMap::new();
        let offered = Coding::PREFERENCE;
        assert_eq!(accept_encoding(&request, &offered), Some(Coding::Identity));
        assert_eq!(accept_encoding(&request, &[Coding::Gzip]), Some(Coding::Gzip));
        request.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0.5"));
        request.append(ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
        assert_eq!(accept_encoding(&request, &offered), Some(Coding::Zstd));
    }

    proptest! {
        #[test]
        fn chooses_among_the_offered(
            value in proptest::collection::vec(any::<u8>(), 0..64),
            count in 0..4usize,
        ) {
            let offered = &Coding::PREFERENCE[..count];
            if let Some(coding) = best(&value, offered) {
                prop_assert!(offered.contains(&coding));
            }
        }

        #[test]
        fn a_coding_with_weight_zero_is_never_chosen(
            rest in "(, (gzip|zstd|\\*)(;q=0\\.[0-9])?){0,4}",
        ) {
            let value = format!("br;q=0{rest}");
            prop_assert_ne!(best(value.as_bytes(), &Coding::PREFERENCE), Some(Coding::Brotli));
        }
    }
}
