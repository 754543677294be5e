//! What lists of ads and trackers hide in a page: by a style sheet of the page's own, which its
//! browser knows best how to read; and elements that such a list names by class or id alone are
//! taken out, so that they are not even loaded.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use lol_html::HandlerResult;
use lol_html::html_content::ContentType::Html as Markup;
use lol_html::html_content::DocumentEnd;
use lol_html::send::{DocumentContentHandlers, Settings};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::handlers::on;
use super::rewriter::Counts;

/// Selectors that a page's own classes and ids have brought, at most.
const FOUND_MAX: usize = 256;

/// What is hidden in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hide {
    /// A style sheet for the page's head; may be empty.
    pub style: String,
    /// Elements that are taken out, by selectors that lol_html knows.
    pub remove: Vec<String>,
    /// Which of the job's tables has what is hidden by class and id on any page ([`Hidden`]).
    pub table: Option<usize>,
    /// Selectors of that table that do not hold for this page.
    pub exceptions: BTreeSet<String>,
}

/// What is hidden by class or id on any page: lines `.name` or `#name`, or such a name, a tab, and
/// a selector that it begins; in order, so that they are found by bisection where they lie.
#[derive(Clone, Debug)]
pub struct Hidden(Bytes);

impl Hidden {
    /// The table of such lines.
    pub fn of(lines: impl IntoIterator<Item = String>) -> Hidden {
        let lines: BTreeSet<String> = lines.into_iter().collect();
        let mut bytes = Vec::new();
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        Hidden(bytes.into())
    }

    /// A table from where it was written.
    pub fn copied(bytes: &[u8]) -> Hidden {
        Hidden(Bytes::copy_from_slice(bytes))
    }

    /// A table where it lies.
    pub fn placed(bytes: Bytes) -> Hidden {
        Hidden(bytes)
    }

    /// As it is handed on.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The selectors that a name, with its `.` or `#`, begins.
    fn of_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let mut at = self.first(name);
        std::iter::from_fn(move || {
            let rest = self.0.get(at..).filter(|rest| !rest.is_empty())?;
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            at += end + 1;
            let line = std::str::from_utf8(&rest[..end]).ok()?;
            let after = line.strip_prefix(name)?;
            match after.strip_prefix('\t') {
                Some(selector) => Some(selector),
                None => after.is_empty().then_some(line),
            }
        })
    }

    /// Where the lines of a name begin, or would.
    fn first(&self, name: &str) -> usize {
        let (mut low, mut high) = (0, self.0.len());
        // What is before `low` is less, what is from `high` on is not.
        while low < high {
            let middle = low + (high - low) / 2;
            let begin = self.0[low..middle].iter().rposition(|byte| *byte == b'\n');
            let begin = begin.map_or(low, |at| low + at + 1);
            let rest = &self.0[begin..];
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let key = rest[..end].split(|byte| *byte == b'\t').next().unwrap_or_default();
            match key < name.as_bytes() {
                true => low = (begin + end + 1).min(high),
                false => high = begin,
            }
        }
        low
    }
}

/// Has a page rid of what is hidden.
///
/// # Errors
/// A selector that the parser does not know.
pub(super) fn add(
    mut settings: Settings<'static, 'static>,
    hide: &Hide,
    nonce: Option<&str>,
    hidden: Option<Hidden>,
    counts: &Arc<Counts>,
) -> Result<Settings<'static, 'static>, String> {
    if !hide.style.is_empty() {
        let (style, counts) = (style(&hide.style, nonce), Arc::clone(counts));
        let mut is_in = false;
        settings = settings.append_element_content_handler(on("head", move |head| {
            if !std::mem::replace(&mut is_in, true) {
                counts.changed.fetch_add(1, Relaxed);
                head.append(&style, Markup);
            }
            HandlerResult::Ok(())
        })?);
    }
    for selector in &hide.remove {
        let counts = Arc::clone(counts);
        settings = settings.append_element_content_handler(on(selector, move |element| {
            if !element.removed() {
                counts.hidden.fetch_add(1, Relaxed);
                element.remove();
            }
            HandlerResult::Ok(())
        })?);
    }
    match hidden {
        Some(hidden) => by_name(settings, hide, nonce, hidden, counts),
        None => Ok(settings),
    }
}

/// What a page's own classes and ids bring.
fn by_name(
    mut settings: Settings<'static, 'static>,
    hide: &Hide,
    nonce: Option<&str>,
    hidden: Hidden,
    counts: &Arc<Counts>,
) -> Result<Settings<'static, 'static>, String> {
    let found: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let seen: Arc<Mutex<HashSet<String>>> = Arc::default();
    let exceptions = Arc::new(hide.exceptions.clone());
    for (selector, attribute, sign) in [("[class]", "class", '.'), ("[id]", "id", '#')] {
        let (hidden, exceptions) = (hidden.clone(), Arc::clone(&exceptions));
        let (found, seen, counts) = (Arc::clone(&found), Arc::clone(&seen), Arc::clone(counts));
        settings = settings.append_element_content_handler(on(selector, move |element| {
            let value = element.get_attribute(attribute).unwrap_or_default();
            for name in value.split_ascii_whitespace() {
                let name = format!("{sign}{name}");
                if seen.lock().contains(&name) {
                    continue;
                }
                let mut is_hidden = false;
                for selector in hidden.of_name(&name).filter(|one| !exceptions.contains(*one)) {
                    if selector == name {
                        is_hidden = true;
                    } else if found.lock().len() < FOUND_MAX {
                        found.lock().insert(selector.to_owned());
                    }
                }
                if is_hidden && !element.removed() {
                    counts.hidden.fetch_add(1, Relaxed);
                    element.remove();
                } else if !is_hidden && seen.lock().len() < SEEN_MAX {
                    seen.lock().insert(name);
                }
            }
            HandlerResult::Ok(())
        })?);
    }
    let (nonce, counts) = (nonce.map(str::to_owned), Arc::clone(counts));
    let end = move |end: &mut DocumentEnd<'_>| {
        let found = found.lock();
        if !found.is_empty() {
            counts.changed.fetch_add(1, Relaxed);
            end.append(&style(&sheet(found.iter().map(String::as_str)), nonce.as_deref()), Markup);
        }
        HandlerResult::Ok(())
    };
    Ok(settings.append_document_content_handler(DocumentContentHandlers::default().end(end)))
}

/// Names of a page that bring nothing, which are not looked up again, at most.
const SEEN_MAX: usize = 4096;

/// A style sheet that hides what selectors select, one rule for each: a browser that does not know
/// one of them leaves out that one alone.
pub(crate) fn sheet<'a>(selectors: impl IntoIterator<Item = &'a str>) -> String {
    let mut sheet = String::new();
    for selector in selectors {
        // What would end the element, or its rule, is no selector.
        if !selector.contains(['{', '}', '<']) {
            sheet.push_str(selector);
            sheet.push_str("{display:none!important}");
        }
    }
    sheet
}

fn style(sheet: &str, nonce: Option<&str>) -> String {
    match nonce {
        Some(nonce) => format!("<style nonce=\"{nonce}\">{sheet}</style>"),
        None => format!("<style>{sheet}</style>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_table() {
        let lines = [".ad", ".ad\t.ad > img", ".ad-b", "#ad", "#x\t#x .y", ".zz", ".a b"];
        let table = Hidden::of(lines.map(str::to_owned));
        for (name, expected) in [
            (".ad", &[".ad", ".ad > img"][..]),
            (".ad-b", &[".ad-b"]),
            ("#ad", &["#ad"]),
            ("#x", &["#x .y"]),
            (".zz", &[".zz"]),
            (".a", &[]),
            (".", &[]),
            ("~", &[]),
            (".ad-", &[]),
            (".zzz", &[]),
        ] {
            assert_eq!(table.of_name(name).collect::<Vec<_>>(), expected, "{name}");
        }
        assert_eq!(Hidden::of([]).of_name(".ad").count(), 0);
    }

    #[test]
    fn every_line_of_a_large_table_is_found() {
        let names: Vec<String> = (0..2000).map(|number| format!(".ad{}", number * 7)).collect();
        let table = Hidden::of(names.iter().cloned());
        for name in &names {
            assert_eq!(table.of_name(name).collect::<Vec<_>>(), [name]);
            assert_eq!(table.of_name(&format!("{name}-")).count(), 0);
        }
    }
}
