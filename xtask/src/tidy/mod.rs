//! House style as a test: each check is a function from files to problems, in the module of the
//! kind of file it reads. This module gathers the files and runs them all. What rustfmt and clippy
//! check is left to them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

mod code;
mod documents;
mod manifests;
mod rust;
mod text;
mod words;

/// The files that are checked, and where they are.
pub(crate) struct Tree {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Files under version control that hold UTF-8 text, by path.
    pub(crate) files: Vec<File>,
}

/// A text file.
pub(crate) struct File {
    /// From the root, with `/`.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

/// Something to put right.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    /// From 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

/// Runs every check.
pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        problems.extend(text::check(file));
        problems.extend(words::check(file));
        if file.has_extension("rs") {
            problems.extend(rust::check(file));
        }
        if file.has_extension("md") {
            problems.extend(documents::check_links(file, &|path| tree.root.join(path).exists()));
        }
    }
    problems.extend(manifests::check(&tree.files));
    problems.extend(documents::check_changelog(&tree.files));
    problems.sort();
    problems
}

impl Tree {
    /// Everything `git` tracks and that is there.
    ///
    /// # Errors
    /// Says that `git` is missing or that this is no repository of its.
    pub(crate) fn of_repository() -> Result<Tree, String> {
        let root = crate::root();
        let root = root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
        let listing = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
        let listing = listing.map_err(|e| format!("tidy asks git for the list of files: {e}"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let names = String::from_utf8_lossy(&listing.stdout);
        let read = |name: &str| {
            // Deleted but not yet committed, or not text: nothing to check.
            let text = std::fs::read_to_string(root.join(name)).ok()?;
            Some(File { path: name.to_owned(), text })
        };
        let files = names.split('\0').filter(|name| !name.is_empty()).filter_map(read).collect();
        Ok(Tree { root, files })
    }
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }

    /// The file's name without its folder.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Lines with their numbers from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    fn problem(&self, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Runs `check` on a file made of `text` and compares the numbers of the lines it complains about.
#[cfg(test)]
#[track_caller]
fn expect_lines(check: impl Fn(&File) -> Vec<Problem>, path: &str, text: &str, expect: &[usize]) {
    let problems = check(&File { path: path.into(), text: text.into() });
    let lines: Vec<usize> = problems.iter().map(|p| p.line).collect();
    assert_eq!(lines, expect, "{path}:\n{text}\n{problems:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The style check of this repository.
    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::of_repository().unwrap();
        assert!(tree.files.iter().any(|f| f.path == "xtask/src/tidy/mod.rs"), "no files found");
        let problems = check(&tree);
        let report: String = problems.iter().map(|p| format!("{p}\n")).collect();
        assert!(problems.is_empty(), "{} problems:\n{report}", problems.len());
    }

    #[test]
    fn every_kind_of_check_is_run() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let tree = Tree {
            root: crate::root(),
            files: vec![
                file("a.rs", "fn a() {}\n"),
                file("b.txt", "no line break at the end"),
                file("c.txt", concat!("util", "ize\n")),
                file("d.md", "[x](nowhere.md)\n"),
                file("crates/e/Cargo.toml", "[package]\n"),
                file("CHANGELOG.md", "# Changes\n"),
            ],
        };
        let problems = check(&tree);
        let paths: Vec<&str> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(
            paths,
            ["CHANGELOG.md", "a.rs", "b.txt", "c.txt", "crates/e/Cargo.toml", "d.md"],
            "{problems:?}"
        );
    }
}
