//! What a service says of itself (OPTIONS, RFC 3507 §4.10).

use std::time::Duration;

use http::HeaderMap;

/// How long that holds if the service does not say.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(3600);
/// The longest that it may hold: a service that was replaced is noticed at last.
const LIFETIME_MAX: Duration = Duration::from_secs(86_400);
/// Largest preview that is shown, whatever is asked for: it is held in memory.
const PREVIEW_BYTES_MAX: usize = 64 << 10;
/// File name extensions that are looked at, of each list.
const EXTENSIONS_MAX: usize = 1_000;

/// What a service wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Bytes of content to begin with.
    preview: Option<usize>,
    ignore: Extensions,
    complete: Extensions,
    previewed: Extensions,
    pub(crate) lifetime: Duration,
    /// Connections that it can serve at a time, if it says so.
    pub(crate) connections: Option<usize>,
}

/// Extensions of file names, or all that are in no other list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Extensions {
    named: Vec<String>,
    others: bool,
}

/// How a message is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// Not at all.
    Ignore,
    /// As a whole.
    Complete,
    /// With so many bytes of its content first.
    Preview(usize),
}

impl Options {
    pub(crate) fn new(headers: &HeaderMap) -> Options {
        let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let lifetime = number("options-ttl").map_or(LIFETIME_DEFAULT, Duration::from_secs);
        let preview = number("preview").map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        Options {
            preview: preview.map(|len| len.min(PREVIEW_BYTES_MAX)),
            ignore: Extensions::new(headers, "transfer-ignore"),
            complete: Extensions::new(headers, "transfer-complete"),
            previewed: Extensions::new(headers, "transfer-preview"),
            lifetime: lifetime.min(LIFETIME_MAX),
            // With none nothing could be asked.
            connections: number("max-connections")
                .map(|most| usize::try_from(most).unwrap_or(usize::MAX).max(1)),
        }
    }

    /// How to show a message about a path.
    pub(crate) fn transfer(&self, path: &str) -> Transfer {
        let name = path.rsplit('/').next().unwrap_or_default();
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let begin = self.preview.map_or(Transfer::Complete, Transfer::Preview);
        let lists = [
            (&self.ignore, Transfer::Ignore),
            (&self.complete, Transfer::Complete),
            (&self.previewed, begin),
        ];
        let named = lists.iter().find(|(list, _)| list.names(extension));
        let found = named.or_else(|| lists.iter().find(|(list, _)| list.others));
        found.map_or(begin, |(_, transfer)| *transfer)
    }
}

impl Extensions {
    fn new(headers: &HeaderMap, name: &str) -> Extensions {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(|value| value.split(',')).map(str::trim);
        let (others, named): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "*");
        let named = named.into_iter().filter(|word| !word.is_empty()).take(EXTENSIONS_MAX);
        Extensions {
            named: named.map(str::to_ascii_lowercase).collect(),
            others: !others.is_empty(),
        }
    }

    fn names(&self, extension: &str) -> bool {
        self.named.iter().any(|named| named.eq_ignore_ascii_case(extension))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    fn options(fields: &[(&'static str, &'static str)]) -> Options {
        let fields = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Options::new(&fields.collect())
    }

    #[test]
    fn extensions_decide() {
        let all = options(&[
            ("preview", "1024"),
            ("transfer-ignore", "gif, JPG"),
            ("transfer-complete", "exe"),
            ("transfer-preview", "*"),
        ]);
        for (path, expect) in [
            ("/a/b.gif", Transfer::Ignore),
            ("/a/b.jpg", Transfer::Ignore),
            ("/a.gif/b", Transfer::Preview(1024)),
            ("/a.tar.exe", Transfer::Complete),
            ("/", Transfer::Preview(1024)),
        ] {
            assert_eq!(all.transfer(path), expect, "{path}");
        }
        assert_eq!(options(&[]).transfer("/a.gif"), Transfer::Complete);
        let ignores = options(&[("transfer-ignore", "*"), ("transfer-complete", "exe")]);
        assert_eq!(ignores.transfer("/a.exe"), Transfer::Complete);
        assert_eq!(ignores.transfer("/a.txt"), Transfer::Ignore);
    }

    #[test]
    fn numbers_are_bounded() {
        let said = |preview, ttl| options(&[("preview", preview), ("options-ttl", ttl)]);
        let huge = said("99999999999", "99999999999");
        assert_eq!((huge.preview, huge.lifetime), (Some(PREVIEW_BYTES_MAX), LIFETIME_MAX));
        let none = said("-1", "soon");
        assert_eq!((none.preview, none.lifetime), (None, LIFETIME_DEFAULT));
        assert_eq!(said("0", "60").transfer("/"), Transfer::Preview(0));
        let most = |said| options(&[("max-connections", said)]).connections;
        assert_eq!((most("40"), most("0"), most("many")), (Some(40), Some(1), None));
    }
}
