//! Invalidation (RFC 9111 §4.4): what a successful unsafe request makes of stored responses.

use http::header::{self, HeaderMap};
use http::{Method, StatusCode, Uri};

/// The target of a request, normalised as in the cache's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and optional port.
    pub authority: &'a str,
    /// Path and query.
    pub path_and_query: &'a str,
}

/// The paths (with query) at the target's own authority whose stored responses are to be purged
/// after this exchange: the target's, and those that Location and Content-Location name if they
/// are of the same origin. Empty for safe methods and for failures.
pub fn invalidated(
    method: &Method,
    target: &Target<'_>,
    status: StatusCode,
    response: &HeaderMap,
) -> Vec<String> {
    if method.is_safe() || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let mut paths = vec![target.path_and_query.to_owned()];
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        let reference = response.get(name).and_then(|value| value.to_str().ok());
        if let Some(path) = reference.and_then(|reference| same_origin_path(target, reference))
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    paths
}

/// Resolves a reference (RFC 3986 §5.2) against the target. `None` if it leads elsewhere.
fn same_origin_path(target: &Target<'_>, reference: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let base_path = target.path_and_query.split('?').next().unwrap_or("/");
    if let Some(network_path) = reference.strip_prefix("//") {
        return absolute(target, &format!("{}://{network_path}", target.scheme));
    }
    if has_scheme(reference) {
        return absolute(target, reference);
    }
    if reference.is_empty() {
        return Some(target.path_and_query.to_owned());
    }
    if reference.starts_with('?') {
        return Some(format!("{base_path}{reference}"));
    }
    let (path, query) = split_query(reference);
    let path = match path.starts_with('/') {
        true => without_dots(path),
        false => {
            let directory = base_path.rfind('/').map_or("/", |at| &base_path[..=at]);
            without_dots(&format!("{directory}{path}"))
        }
    };
    Some(path + query)
}

fn absolute(target: &Target<'_>, reference: &str) -> Option<String> {
    let uri: Uri = reference.parse().ok()?;
    let scheme = uri.scheme_str()?;
    let default_port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let authority = uri.authority()?.as_str().to_ascii_lowercase();
    let bare = |authority: &str| {
        authority.strip_suffix(default_port).unwrap_or(authority).to_ascii_lowercase()
    };
    let same =
        scheme.eq_ignore_ascii_case(target.scheme) && bare(&authority) == bare(target.authority);
    let (path, query) = split_query(uri.path_and_query().map_or("/", |pq| pq.as_str()));
    let path = if path.is_empty() { "/" } else { path };
    same.then(|| without_dots(path) + query)
}

/// The path, and the query with its question mark.
fn split_query(text: &str) -> (&str, &str) {
    text.split_at(text.find('?').unwrap_or(text.len()))
}

fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// RFC 3986 §5.2.4, for paths that begin with a slash.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        let dots = matches!(segment, "." | "..");
        if segment == ".." {
            kept.pop();
        }
        if !dots {
            kept.push(segment);
        } else if segments.peek().is_none() {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::headers;

    const TARGET: Target<'_> =
        Target { scheme: "http", authority: "a.example", path_and_query: "/dir/x?q=1" };

    #[test]
    fn rfc9111_4_4_which_exchanges_invalidate() {
        for (method, status, expect) in [
            ("POST", 200, true),
            ("PUT", 204, true),
            ("DELETE", 303, true),
            ("PATCH", 201, true),
            // A method that is not known is not known to be safe.
            ("FROB", 200, true),
            ("POST", 404, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("HEAD", 200, false),
            ("OPTIONS", 200, false),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let status = StatusCode::from_u16(status).unwrap();
            let paths = invalidated(&method, &TARGET, status, &HeaderMap::new());
            assert_eq!(!paths.is_empty(), expect, "{method} {status}");
            assert!(paths.iter().all(|path| path == "/dir/x?q=1"));
        }
    }

    #[test]
    fn rfc9111_4_4_which_references_count() {
        for (reference, expect) in [
            ("/y", Some("/y")),
            ("y", Some("/dir/y")),
            ("../y?z", Some("/y?z")),
            ("./y/..", Some("/dir/")),
            ("?z", Some("/dir/x?z")),
            ("#f", Some("/dir/x?q=1")),
            ("/a/./b/../../../c", Some("/c")),
            ("http://a.example/y#f", Some("/y")),
            ("http://A.Example:80/y?b", Some("/y?b")),
            ("http://a.example", Some("/")),
            ("//a.example/y", Some("/y")),
            ("https://a.example/y", None),
            ("http://b.example/y", None),
            ("http://a.example:8080/y", None),
            ("//b.example/y", None),
            ("mailto:x@a.example", None),
        ] {
            assert_eq!(same_origin_path(&TARGET, reference).as_deref(), expect, "{reference}");
        }
        let response = headers("location: /y\ncontent-location: /y");
        let paths = invalidated(&Method::POST, &TARGET, StatusCode::CREATED, &response);
        assert_eq!(paths, ["/dir/x?q=1", "/y"]);
    }
}
