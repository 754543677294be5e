//! Cookie fields, as HTTP/2 splits them.

use http::HeaderValue;
use http::header::{COOKIE, HeaderMap};

/// Makes one `Cookie` field of several. HTTP/2 may split it so that its parts compress better, and
/// nothing but HTTP/2 may see that (RFC 9113 §8.2.3).
pub fn join(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut joined = first.to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb);
    }
    // Values that stood in a field are a value when joined.
    if let Ok(joined) = HeaderValue::try_from(joined) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_become_one_field() {
        for (crumbs, expect) in [
            (&[][..], &[][..]),
            (&["a=1"], &["a=1"]),
            (&["a=1", "b=2"], &["a=1; b=2"]),
            (&["a=1; b=2", "", "c=3"], &["a=1; b=2; ; c=3"]),
        ] {
            let mut headers = HeaderMap::new();
            for crumb in crumbs {
                headers.append(COOKIE, HeaderValue::from_static(crumb));
            }
            join(&mut headers);
            let got: Vec<_> = headers.get_all(COOKIE).iter().collect();
            assert_eq!(got, expect, "{crumbs:?}");
        }
    }
}
