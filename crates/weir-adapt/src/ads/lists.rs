//! Lists of ads and trackers from their files: read, measured, and counted, so that what is not
//! understood is known.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use adblock::filters::cosmetic::CosmeticFilterMask;
use adblock::lists::{ParseOptions, ParsedLine, parse_filter};

use super::spared::Spared;

/// Bytes of a list. The largest in use have 6 MB.
pub const LIST_BYTES_MAX: u64 = 64 << 20;

/// Rules of all lists of a route. EasyList has 76,000.
pub const RULES_MAX: usize = 1_000_000;

/// Bytes of a rule: those of lists in use have up to 2,000, and a longer one is a mistake.
const RULE_BYTES_MAX: usize = 8192;

/// Rules that are regular expressions. Where no part of one is fixed it is tried for every URL;
/// all lists in use together have some hundreds.
const REGEX_MAX: usize = 2000;

/// Unknown lines that are told of, for each list.
const SHOWN_MAX: usize = 3;

/// What was found in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListReport {
    /// Its file.
    pub path: PathBuf,
    /// Rules about requests.
    pub network: usize,
    /// Rules about elements of pages.
    pub cosmetic: usize,
    /// Lines that are no rules, or none that are known.
    pub unknown: usize,
    /// The first of these, with their numbers.
    pub shown: Vec<String>,
}

/// Why lists cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// One of them cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// One of them is longer than [`LIST_BYTES_MAX`].
    #[error("{path}: longer than {} bytes", LIST_BYTES_MAX)]
    Size {
        /// Which.
        path: PathBuf,
    },
    /// Together they have more than [`RULES_MAX`].
    #[error("more than {} rules", RULES_MAX)]
    Rules,
}

/// What lists say, before an engine is made of it.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Rules that are known, a text for each list.
    pub(super) texts: Vec<String>,
    pub(super) reports: Vec<ListReport>,
    /// What is hidden by class or id on any page, as lines of a table of such.
    pub(super) hidden: BTreeSet<String>,
    rules: usize,
    regexes: usize,
    /// Selectors that lists say are not to be hidden on any page.
    pub(super) unhidden: BTreeSet<String>,
    /// Pages that are spared.
    pub(super) spared: Spared,
}

impl Gathered {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Gathered, ListError> {
        let mut gathered = Gathered::default();
        for path in paths {
            let text = read(path)?;
            gathered.add(path, &text)?;
        }
        Ok(gathered)
    }

    pub(super) fn add(&mut self, path: &Path, text: &str) -> Result<(), ListError> {
        let mut report = ListReport { path: path.to_owned(), ..ListReport::default() };
        let mut known = String::with_capacity(text.len());
        for (number, line) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
            let line = line.trim();
            let is_comment =
                line.starts_with('!') || (line.starts_with('[') && line.ends_with(']'));
            if line.is_empty() || is_comment {
                continue;
            }
            // An exception of every page's, which the engine does not know.
            if let Some(selector) = line.strip_prefix("#@#").filter(|it| !it.starts_with('+')) {
                self.unhidden.insert(selector.to_owned());
                report.cosmetic += 1;
                continue;
            }
            if self.spared.add(line) {
                report.network += 1;
            } else if self.rule(line, &mut report) {
                known.push_str(line);
                known.push('\n');
                self.rules += 1;
                if self.rules > RULES_MAX {
                    return Err(ListError::Rules);
                }
            } else {
                report.unknown += 1;
                if report.shown.len() < SHOWN_MAX {
                    let start: String = line.chars().take(60).collect();
                    report.shown.push(format!("line {number}: {start}"));
                }
            }
        }
        self.texts.push(known);
        self.reports.push(report);
        Ok(())
    }

    /// Looks at a line. Whether it is a rule.
    fn rule(&mut self, line: &str, report: &mut ListReport) -> bool {
        if line.len() > RULE_BYTES_MAX {
            return false;
        }
        match parse_filter(line, false, ParseOptions::default()) {
            Ok(ParsedLine::Network(_)) => {
                let pattern = line.strip_prefix("@@").unwrap_or(line);
                let is_regex =
                    pattern.starts_with('/') && (pattern.ends_with('/') || pattern.contains("/$"));
                self.regexes += usize::from(is_regex);
                if is_regex && self.regexes > REGEX_MAX {
                    return false;
                }
                report.network += 1;
            }
            Ok(ParsedLine::Cosmetic(filter)) => {
                report.cosmetic += 1;
                let is_plain = filter.action.is_none()
                    && !filter.mask.contains(CosmeticFilterMask::SCRIPT_INJECT)
                    && !filter.has_hostname_constraint();
                if let Some(selector) = filter.plain_css_selector().filter(|_| is_plain) {
                    self.hidden.extend(hidden_line(selector));
                }
            }
            Err(_) => return false,
        }
        true
    }
}

fn read(path: &Path) -> Result<String, ListError> {
    let failed = |cause| ListError::Read { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LIST_BYTES_MAX {
        return Err(ListError::Size { path: path.to_owned() });
    }
    // A line that is no text is no rule.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The line of a selector that begins with a class or an id, in the table of these; those that do
/// not are in the style sheet of every page.
fn hidden_line(selector: &str) -> Option<String> {
    let begin = selector.strip_prefix(['.', '#'])?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || !c.is_ascii();
    let mut end = begin.find(|c| !is_name(c)).unwrap_or(begin.len());
    let mut name = format!("{}{}", &selector[..1], &begin[..end]);
    // An escaped character stands for itself: those that are used are `:`, `/`, `.` and their like.
    while let Some(escaped) = begin[end..].strip_prefix('\\') {
        let one = escaped.chars().next().filter(|c| !c.is_ascii_hexdigit())?;
        name.push(one);
        end += 1 + one.len_utf8();
        let more = begin[end..].find(|c| !is_name(c)).unwrap_or(begin.len() - end);
        name.push_str(&begin[end..end + more]);
        end += more;
    }
    if name.len() < 2 || name.contains(['\t', '\n', ' ']) {
        return None;
    }
    if name == selector { Some(name) } else { Some(format!("{name}\t{selector}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_known_by_what_they_begin_with() {
        for (selector, expected) in [
            (".ad", Some(".ad")),
            ("#ad-top_1", Some("#ad-top_1")),
            (".ad > img", Some(".ad\t.ad > img")),
            (".ad.large", Some(".ad\t.ad.large")),
            (".md\\:ad", Some(".md:ad\t.md\\:ad")),
            ("div.ad", None),
            ("[class='ad']", None),
            (".", None),
        ] {
            assert_eq!(hidden_line(selector).as_deref(), expected, "{selector}");
        }
    }

    #[test]
    fn lines_are_counted_and_unknown_ones_told() {
        let text = "[Adblock Plus 2.0]\n! Title: x\n||ads.example^\n@@||ads.example/ok^\n##.ad\n\
                    a.example##.b\n#@#.c\n##.c\n||x^$nonsense-option\n\n##^script:has-text(x)\n";
        let mut gathered = Gathered::default();
        gathered.add(Path::new("a.txt"), text).unwrap();
        let report = &gathered.reports[0];
        assert_eq!((report.network, report.unknown), (2, 2), "{report:?}");
        assert_eq!(report.cosmetic, 4);
        assert!(report.shown[0].starts_with("line 9: ||x^$nonsense"), "{report:?}");
        assert_eq!(gathered.hidden.iter().collect::<Vec<_>>(), [".ad", ".c"]);
        assert!(gathered.unhidden.contains(".c"));
    }

    #[test]
    fn what_is_too_much_is_not_taken() {
        let mut gathered = Gathered::default();
        let regexes: String =
            (0..REGEX_MAX + 10).map(|number| format!("/a{number}.*b/\n")).collect();
        let text = format!("{regexes}||{}^\n", "x".repeat(RULE_BYTES_MAX));
        gathered.add(Path::new("a.txt"), &text).unwrap();
        assert_eq!((gathered.reports[0].network, gathered.reports[0].unknown), (REGEX_MAX, 11));
    }
}
