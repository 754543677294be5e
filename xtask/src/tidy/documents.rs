//! Checks of Markdown: links lead somewhere, and the change log has a place for the next change.

use super::{File, Problem};

/// Every relative link must lead to something that `exists`, asked with a path from the root.
pub(super) fn check_links(file: &File, exists: &dyn Fn(&str) -> bool) -> Vec<Problem> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut problems = Vec::new();
    let mut in_code = false;
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if path.is_empty() || is_elsewhere {
                continue;
            }
            let path = if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") };
            if !exists(&path) {
                problems
                    .push(file.problem(number, format!("link to “{target}”, which is not there")));
            }
        }
    }
    problems
}

/// Targets of `[text](target)`, `[name]: target`, `src="target"` and `href="target"`.
fn targets(line: &str) -> Vec<&str> {
    let after = |start: &'static str, end: &'static [char]| {
        let parts = line.split(start).skip(1);
        parts.filter_map(move |rest| rest.split_once(end).map(|(target, _)| target.trim()))
    };
    let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let reference = reference.and_then(|(_, rest)| rest.split_whitespace().next());
    after("](", &[')', ' '])
        .chain(after("src=\"", &['"']))
        .chain(after("href=\"", &['"']))
        .chain(reference)
        .collect()
}

/// The change log begins with what is not released yet.
pub(super) fn check_changelog(files: &[File]) -> Option<Problem> {
    let file = files.iter().find(|file| file.path == "CHANGELOG.md")?;
    let first = file.text.lines().find(|line| line.starts_with("## "));
    if first.is_some_and(|line| line.starts_with("## [Unreleased]")) {
        return None;
    }
    Some(file.problem(0, "the first section must be `## [Unreleased]`"))
}

#[cfg(test)]
mod tests {
    use super::super::expect_lines;
    use super::*;

    #[test]
    fn links_lead_somewhere() {
        let there = |path: &str| ["there.md", "docs/there.md"].contains(&path);
        let check = |file: &File| check_links(file, &there);
        expect_lines(check, "a.md", "[x](there.md), [y](there.md#part) and [z](#part)\n", &[]);
        expect_lines(check, "docs/a.md", "[x](there.md \"title\")\n", &[]);
        expect_lines(check, "a.md", "[x](gone.md)\n", &[1]);
        expect_lines(check, "a.md", "one [x](there.md) two [y](gone.md)\n", &[1]);
        expect_lines(check, "docs/a.md", "![x](gone.png)\n", &[1]);
        expect_lines(check, "a.md", "[x]: gone.md\n<img src=\"gone.svg\">\n", &[1, 2]);
        expect_lines(check, "a.md", "[x](https://example.com/gone.md)\n", &[]);
        expect_lines(check, "a.md", "```\n[x](gone.md)\n```\n[x](gone.md)\n", &[4]);
    }

    #[test]
    fn changelog_has_a_place_for_the_next_change() {
        let check = |file: &File| {
            let copy = File { path: file.path.clone(), text: file.text.clone() };
            check_changelog(&[copy]).into_iter().collect()
        };
        expect_lines(check, "CHANGELOG.md", "# Changes\n\n## [Unreleased]\n## [0.1.0]\n", &[]);
        expect_lines(check, "CHANGELOG.md", "# Changes\n\n## [0.1.0]\n", &[0]);
        expect_lines(check, "CHANGELOG.md", "# Changes\n", &[0]);
    }
}
