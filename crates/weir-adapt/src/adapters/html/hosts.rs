//! Hosts in the URLs of a page: in attributes that are URLs, or lists of them. Not in scripts,
//! styles and text, whose meaning is not known here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lol_html::send::Settings;

use super::Host;
use super::handlers::{Element, on};
use super::rewriter::Counts;

/// Attributes that are a URL.
const URLS: [&str; 12] = [
    "href",
    "src",
    "action",
    "formaction",
    "poster",
    "data",
    "cite",
    "background",
    "longdesc",
    "manifest",
    "data-src",
    "xlink:href",
];

/// Attributes that are several: candidates of images, separated by commas.
const LISTS: [&str; 3] = ["srcset", "imagesrcset", "data-srcset"];

/// Elements whose URL is in an attribute that is none elsewhere: redirections and previews.
const CONTENT: &str = "meta[content]";

/// Elements with such attributes. One selector for each attribute: the parser is quicker at
/// telling them apart than at handing over every element.
const SELECTORS: [&str; 14] = [
    "[href]",
    "[src]",
    "[action]",
    "[formaction]",
    "[poster]",
    "object[data]",
    "[cite]",
    "[background]",
    "[longdesc]",
    "[manifest]",
    "[srcset]",
    "[imagesrcset]",
    "[data-src]",
    "[xlink\\:href]",
];

/// Has URLs of hosts written otherwise.
///
/// # Errors
/// None: the selectors are known.
pub(super) fn add(
    mut settings: Settings<'static, 'static>,
    hosts: &[Host],
    counts: &Arc<Counts>,
) -> Result<Settings<'static, 'static>, String> {
    let hosts: Arc<[Host]> = hosts.into();
    for selector in SELECTORS.into_iter().chain(["[data-srcset]", CONTENT]) {
        let (hosts, counts) = (Arc::clone(&hosts), Arc::clone(counts));
        settings = settings.append_element_content_handler(on(selector, move |element| {
            if change(element, &hosts)? {
                counts.changed.fetch_add(1, Relaxed);
            }
            Ok(())
        })?);
    }
    Ok(settings)
}

/// Writes an element's URLs otherwise; all of them at once, so that a second call for another of
/// its attributes finds nothing to do.
fn change(
    element: &mut Element<'_, '_>,
    hosts: &[Host],
) -> Result<bool, lol_html::errors::AttributeNameError> {
    let is_meta = element.tag_name() == "meta";
    let mut changes: Vec<(String, String)> = Vec::new();
    let attributes = element.attributes();
    for (at, attribute) in attributes.iter().enumerate() {
        let name = attribute.name();
        // Browsers take the first of several.
        if attributes[..at].iter().any(|before| before.name() == name) {
            continue;
        }
        let is_url = URLS.contains(&&*name) || (is_meta && name == "content");
        let is_list = LISTS.contains(&&*name);
        if !is_url && !is_list {
            continue;
        }
        let value = attribute.value();
        let changed = match (is_list, is_meta) {
            (true, _) => list(&value, hosts),
            (false, true) => redirection(&value, hosts),
            (false, false) => url(&value, hosts),
        };
        changes.extend(changed.map(|value| (name, value)));
    }
    for (name, value) in &changes {
        element.set_attribute(name, value)?;
    }
    Ok(!changes.is_empty())
}

/// A URL with another host; `None` if its host stays.
fn url(text: &str, hosts: &[Host]) -> Option<String> {
    let trimmed = text.trim_ascii_start();
    let (scheme, rest) = match trimmed.split_once("//") {
        Some((scheme @ "", rest)) => (scheme, rest),
        Some((scheme, rest))
            if scheme.eq_ignore_ascii_case("http:") || scheme.eq_ignore_ascii_case("https:") =>
        {
            (scheme, rest)
        }
        _ => return None,
    };
    let ends = |letter: char| letter.is_ascii_whitespace() || "/?#\\".contains(letter);
    let end = rest.find(ends).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = hosts.iter().find(|host| host.from.eq_ignore_ascii_case(authority))?;
    Some(match host.to.as_str() {
        "" if begins_host(path) => format!("/.{path}"),
        "" if !path.starts_with('/') => format!("/{path}"),
        "" => path.to_owned(),
        to if to.contains("//") => format!("{to}{path}"),
        to => format!("{scheme}//{to}{path}"),
    })
}

/// Whether a path might be a host without anything before it: by two slashes, which may be the
/// other way round, written as references, or have what browsers pass over between them (WHATWG
/// URL, section 4.4).
fn begins_host(path: &str) -> bool {
    let rest = path.strip_prefix('/').unwrap_or(path);
    let is_harmless =
        |letter: char| letter.is_ascii_alphanumeric() || "-._~%?#@:!$()*+,;= ".contains(letter);
    !rest.is_empty() && !rest.starts_with(is_harmless)
}

/// `url 2x, url 400w`: each candidate ends with a comma that follows white space or the descriptor;
/// commas inside a URL are left alone, since no host follows them.
fn list(text: &str, hosts: &[Host]) -> Option<String> {
    let mut changed = false;
    let parts = text.split(',').map(|part| {
        let lead = part.len() - part.trim_ascii_start().len();
        match url(&part[lead..], hosts) {
            None => part.to_owned(),
            Some(new) => {
                changed = true;
                format!("{}{new}", &part[..lead])
            }
        }
    });
    let joined = parts.collect::<Vec<_>>().join(",");
    changed.then_some(joined)
}

/// `5; url=https://…` (WHATWG HTML, section 4.2.5.3), or a URL alone.
fn redirection(text: &str, hosts: &[Host]) -> Option<String> {
    let after_time =
        text.trim_ascii_start().trim_start_matches(|at: char| at.is_ascii_digit() || at == '.');
    let has_time = after_time.len() < text.trim_ascii_start().len();
    if !has_time {
        return url(text, hosts);
    }
    let rest =
        after_time.trim_start_matches(|at: char| at.is_ascii_whitespace() || ";,".contains(at));
    let named = rest.get(..3).filter(|name| name.eq_ignore_ascii_case("url"));
    let named = named.and_then(|_| rest[3..].trim_ascii_start().strip_prefix('='));
    let tail = named.unwrap_or(rest).trim_start_matches(['\'', '"', ' ']);
    let head = &text[..text.len() - tail.len()];
    url(tail, hosts).map(|new| format!("{head}{new}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<Host> {
        let host = |from: &str, to: &str| Host { from: from.to_owned(), to: to.to_owned() };
        vec![
            host("old.example", "new.example"),
            host("10.0.0.5:8080", "https://shop.example"),
            host("here.example", ""),
        ]
    }

    #[test]
    fn hosts_of_urls_are_changed_and_nothing_else() {
        for (text, expected) in [
            ("https://old.example/a?b#c", Some("https://new.example/a?b#c")),
            ("HTTP://OLD.example", Some("HTTP://new.example")),
            ("//old.example/x", Some("//new.example/x")),
            (" https://old.example/", Some("https://new.example/")),
            ("http://10.0.0.5:8080/cart?id=1", Some("https://shop.example/cart?id=1")),
            ("https://here.example/a/b", Some("/a/b")),
            ("https://here.example", Some("/")),
            ("https://here.example?q", Some("/?q")),
            ("https://here.example//evil.example/", Some("/.//evil.example/")),
            ("https://here.example/\\evil.example/", Some("/./\\evil.example/")),
            ("https://here.example\\evil.example/", Some("/.\\evil.example/")),
            ("https://here.example/&#47;evil.example/", Some("/./&#47;evil.example/")),
            ("https://here.example/\t/evil.example/", Some("/./\t/evil.example/")),
            ("https://here.example#a", Some("/#a")),
            ("https://old.example\n", Some("https://new.example\n")),
            ("https://old.example:443/", None),
            ("https://old.example.evil.example/", None),
            ("https://not-old.example/", None),
            ("https://user@old.example/", None),
            ("/old.example/", None),
            ("https:old.example/", None),
            ("mailto:a@old.example", None),
            ("ftp://old.example/", None),
            ("javascript:'//old.example/'", None),
            ("", None),
        ] {
            assert_eq!(url(text, &hosts()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn lists_and_redirections_are_read() {
        let old = "https://old.example/a,b.jpg 1x, /c.jpg 2x,//old.example/d 3x";
        let new = "https://new.example/a,b.jpg 1x, /c.jpg 2x,//new.example/d 3x";
        assert_eq!(list(old, &hosts()).as_deref(), Some(new));
        assert_eq!(list("/a 1x, /b 2x", &hosts()), None);
        for (old, new) in [
            ("3; URL=https://old.example/x", Some("3; URL=https://new.example/x")),
            ("0;url='//old.example/'", Some("0;url='//new.example/'")),
            ("5; Url = https://old.example/", Some("5; Url = https://new.example/")),
            ("5;https://old.example/", Some("5;https://new.example/")),
            ("5", None),
            ("https://old.example/card.png", Some("https://new.example/card.png")),
            ("a text about https://old.example/", None),
        ] {
            assert_eq!(redirection(old, &hosts()).as_deref(), new, "{old}");
        }
    }
}
