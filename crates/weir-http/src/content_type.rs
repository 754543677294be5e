//! Content-Type values for media types found by file name.

use http::HeaderValue;

/// The Content-Type for media type `essence` (`type/subtype`): textual types that lack a charset
/// get UTF-8, because without it browsers guess. `None` if it is not a valid field value.
pub fn with_charset(essence: &str) -> Option<HeaderValue> {
    let known = COMMON.iter().find(|(name, _)| *name == essence);
    if let Some((_, value)) = known {
        return Some(HeaderValue::from_static(value));
    }
    if !is_text(essence) || essence.contains(';') {
        return HeaderValue::from_str(essence).ok();
    }
    HeaderValue::from_str(&format!("{essence}; charset=utf-8")).ok()
}

/// The types a site serves most, ready made.
const COMMON: [(&str, &str); 6] = [
    ("text/html", "text/html; charset=utf-8"),
    ("text/css", "text/css; charset=utf-8"),
    ("text/javascript", "text/javascript; charset=utf-8"),
    ("text/plain", "text/plain; charset=utf-8"),
    ("application/octet-stream", "application/octet-stream"),
    ("application/json", "application/json"),
];

/// JSON is missing on purpose: it is UTF-8 by definition and has no charset parameter (RFC 8259).
fn is_text(essence: &str) -> bool {
    essence.starts_with("text/")
        || matches!(
            essence,
            "application/javascript"
                | "application/xml"
                | "application/xhtml+xml"
                | "image/svg+xml"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gets_a_charset() {
        for (essence, expect) in [
            ("text/html", "text/html; charset=utf-8"),
            ("text/markdown", "text/markdown; charset=utf-8"),
            ("image/svg+xml", "image/svg+xml; charset=utf-8"),
            ("text/plain;charset=latin1", "text/plain;charset=latin1"),
            ("application/json", "application/json"),
            ("image/png", "image/png"),
        ] {
            assert_eq!(with_charset(essence).unwrap(), expect);
        }
        assert_eq!(with_charset("text/\n"), None);
    }
}
