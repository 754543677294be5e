//! Checks of any text file: line ends, tabs and trailing space.

use super::{File, Problem};

/// Files kept byte for byte as they are: inputs of tests, and what tools write.
const VERBATIM: &[&str] =
    &["fuzz/corpus/", "Cargo.lock", ".proptest-regressions", "package-lock.json", "go.sum"];

/// Trailing white space, carriage returns, tabs for indentation, the last line's end.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if is_verbatim(file) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(file.text.split('\n')) {
        if line.ends_with('\r') {
            problems.push(file.problem(number, "line ends with a carriage return"));
        } else if line != line.trim_end() {
            problems.push(file.problem(number, "white space at the end of the line"));
        }
        if line.starts_with('\t') && !wants_tabs(file) {
            problems.push(file.problem(number, "indented by a tab; the house style is spaces"));
        }
    }
    let text = &file.text;
    if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
        let last = text.lines().count();
        problems.push(file.problem(last, "the file must end with exactly one line break"));
    }
    problems
}

/// `make` demands them, and `gofmt` writes them.
fn wants_tabs(file: &File) -> bool {
    let extensions = ["mk", "go", "mod"];
    extensions.iter().any(|e| file.has_extension(e)) || file.name() == "Makefile"
}

fn is_verbatim(file: &File) -> bool {
    let is_test_data = file.path.contains("/tests/") && !file.has_extension("rs");
    is_test_data || VERBATIM.iter().any(|part| file.path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::super::expect_lines;
    use super::*;

    #[test]
    fn line_ends() {
        expect_lines(check, "a.md", "", &[]);
        expect_lines(check, "a.md", "good\n\nbetter\n", &[]);
        expect_lines(check, "a.md", "good\nbad \n", &[2]);
        expect_lines(check, "a.md", "bad\t\nbad\r\n", &[1, 2]);
        expect_lines(check, "a.md", "good\nunfinished", &[2]);
        expect_lines(check, "a.md", "good\n\n", &[2]);
        expect_lines(check, "a.sh", "if\n\tthen\n", &[2]);
        expect_lines(check, "Makefile", "all:\n\tcc\n", &[]);
        expect_lines(check, "a.go", "if x {\n\ty()\n}\n", &[]);
        expect_lines(check, "go.mod", "require (\n\tx v1\n)\n", &[]);
        expect_lines(check, "crates/x/tests/a.rs", "a \n", &[1]);
        expect_lines(check, "fuzz/corpus/range/1", "bytes=0- ", &[]);
        expect_lines(check, "crates/x/tests/cases/1.http", "a\r\n", &[]);
    }
}
