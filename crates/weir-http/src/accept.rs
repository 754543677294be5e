//! Proactive negotiation of media types (RFC 9110 §12.5.1): how much a client likes one.

use http::header::{ACCEPT, HeaderMap};

use crate::negotiate::weight;
use crate::syntax::{split, trim};

/// How a client takes a media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// In thousandths; 0 if it is not taken.
    pub weight: u16,
    /// It is named itself, not by `image/*`, `*/*` or by saying nothing.
    pub is_named: bool,
}

/// How a client takes a media type, given as type and subtype in lower case. Of ranges that match,
/// the most specific counts; those with parameters are about something else. Without Accept
/// anything is taken.
pub fn taken(request: &HeaderMap, (kind, subtype): (&str, &str)) -> Taken {
    let mut lines = request.get_all(ACCEPT).iter().peekable();
    if lines.peek().is_none() {
        return Taken { weight: 1000, is_named: false };
    }
    let is = |part: &[u8], name: &str| part.eq_ignore_ascii_case(name.as_bytes());
    let mut best: Option<(u8, u16)> = None;
    for element in lines.flat_map(|line| split(line.as_bytes(), b',')) {
        let mut parameters = split(element, b';');
        let Some(range) = parameters.next() else { continue };
        let Some(slash) = range.iter().position(|byte| *byte == b'/') else { continue };
        let specific = match (trim(&range[..slash]), trim(&range[slash + 1..])) {
            (b"*", b"*") => 1,
            (named, b"*") if is(named, kind) => 2,
            (named, exactly) if is(named, kind) && is(exactly, subtype) => 3,
            _ => continue,
        };
        // What follows the weight were extensions once (RFC 7231 §5.3.2).
        let weight = parameters.next().map_or(Some(1000), weight);
        // Of two that say the same, the first counts.
        if let Some(weight) = weight
            && best.is_none_or(|(other, _)| specific > other)
        {
            best = Some((specific, weight));
        }
    }
    match best {
        Some((specific, weight)) => Taken { weight, is_named: specific == 3 },
        None => Taken { weight: 0, is_named: false },
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn webp(lines: &[&'static str]) -> (u16, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, HeaderValue::from_static(line));
        }
        let Taken { weight, is_named } = taken(&headers, ("image", "webp"));
        (weight, is_named)
    }

    #[test]
    fn the_most_specific_range_counts() {
        for (lines, expected) in [
            (&[][..], (1000, false)),
            (&["image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"], (1000, true)),
            (&["*/*"], (1000, false)),
            (&["image/*;q=0.5, */*"], (500, false)),
            (&["*/*;q=0.9", "Image/WebP;Q=0.3"], (300, true)),
            (&["image/webp;q=0, image/*"], (0, true)),
            (&["text/html, image/png"], (0, false)),
            (&["image/webp;level=1"], (0, false)),
            (&["image/webp;q=0.7;a=b"], (700, true)),
            (&["image/webp;q=2"], (0, false)),
            (&["image/webp;q=0.2, image/webp;q=0.9"], (200, true)),
            (&["image, /webp, image/, */webp"], (0, false)),
            (&[""], (0, false)),
        ] {
            assert_eq!(webp(lines), expected, "{lines:?}");
        }
    }
}
