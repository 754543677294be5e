//! Where a request carries its token, and the request without it.

/// The token: the Authorization field's (RFC 6750, 2.1), else the cookie's. `None`: there is none
/// of that kind, whatever else there may be.
pub fn token<'a>(
    authorization: Option<&'a str>,
    cookies: Option<&'a str>,
    cookie_name: Option<&str>,
) -> Option<&'a str> {
    let bearer = authorization.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let cookie = || {
        let name = cookie_name?;
        pairs(cookies?).find(|(n, _)| *n == name).map(|(_, value)| value.trim_matches('"'))
    };
    bearer.or_else(cookie).filter(|token| !token.is_empty())
}

/// The Cookie field without `name`; empty when nothing remains.
pub fn without_cookie(cookies: &str, name: &str) -> String {
    let rest: Vec<String> =
        pairs(cookies).filter(|(n, _)| *n != name).map(|(n, v)| format!("{n}={v}")).collect();
    rest.join("; ")
}

/// Whether `target` (path and query) is one of the `open` paths. A path written in a way that
/// another server might read as another path never is.
pub fn is_open(open: &[String], target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let is_odd = ["%", "\\", "//", "/.", ";"].iter().any(|part| path.contains(part));
    !is_odd && open.iter().any(|o| o == path || (o.ends_with('/') && path.starts_with(o.as_str())))
}

fn pairs(cookies: &str) -> impl Iterator<Item = (&str, &str)> {
    cookies.split(';').filter_map(|pair| pair.trim().split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found() {
        let find = |authorization, cookies| token(authorization, cookies, Some("t"));
        assert_eq!(find(Some("Bearer abc"), None), Some("abc"));
        assert_eq!(find(Some("bEARER  abc "), Some("t=1")), Some("abc"));
        assert_eq!(find(Some("Basic abc"), None), None);
        assert_eq!(find(Some("Bearer"), None), None);
        assert_eq!(find(Some("Bearer "), None), None);
        assert_eq!(find(Some("Basic abc"), Some("a=b; t=1")), Some("1"));
        assert_eq!(find(None, Some("tt=2;t=\"1\"")), Some("1"));
        assert_eq!(find(None, Some("a; T=1")), None);
        assert_eq!(token(None, Some("t=1"), None), None);
    }

    #[test]
    fn the_cookie_is_taken_out() {
        assert_eq!(without_cookie("a=1; t=2;b=3=4", "t"), "a=1; b=3=4");
        assert_eq!(without_cookie("t=2", "t"), "");
    }

    #[test]
    fn open_paths() {
        let open = ["/health".to_owned(), "/public/".to_owned()];
        for path in ["/health", "/health?x=/../y", "/public/", "/public/a/b.css"] {
            assert!(is_open(&open, path), "{path}");
        }
        let closed = [
            "/",
            "/healthy",
            "/health/",
            "/public",
            "/public/../admin",
            "/public//x",
            "/public/%2e%2e/admin",
            "/public/..;/admin",
            "/public/\\..\\admin",
            "/x?/public/",
            "",
        ];
        for path in closed {
            assert!(!is_open(&open, path), "{path}");
        }
    }
}
