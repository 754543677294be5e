//! Shorthands of the unit tests.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields written one a line, `name: value`.
pub(crate) fn headers(text: &str) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let name = HeaderName::from_bytes(name.trim().as_bytes()).unwrap();
        map.append(name, HeaderValue::from_str(value.trim()).unwrap());
    }
    map
}
