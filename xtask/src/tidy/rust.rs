//! Checks of Rust source that neither rustfmt nor clippy makes.

use super::code::without_prose;
use super::words::contains_word;
use super::{File, Problem};

/// Lines of a file. Most are under 250; beyond this a file holds more than one thing.
const FILE_LINES_MAX: usize = 500;

/// Lines of a function, signature to closing brace: one screen. Tests are tables and may be longer.
const FUNCTION_LINES_MAX: usize = 70;

/// Columns of a line. rustfmt leaves comments and long strings alone.
const COLUMNS_MAX: usize = 100;

/// Columns of a line with a string: one that is broken cannot be found by searching for it.
const COLUMNS_WITH_STRING_MAX: usize = 130;

/// Files that may be longer, and why.
const LONG_FILES: &[(&str, &str)] = &[];

/// Functions that may be longer (`path: name`), and why.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Crates that may contain unsafe code, and for what.
pub(super) const UNSAFE_CRATES: &[(&str, &str)] = &[
    ("weir-arena", "shared memory"),
    ("weir-net", "socket calls that no library wraps"),
    ("weir-kernel", "bpf(2)"),
    ("weir-plugin", "loading code that was compiled before"),
    ("weir-plugin-sdk", "memory shared with the host, from within the sandbox"),
];

/// All checks of one source file.
pub(super) fn check(file: &File) -> Vec<Problem> {
    let code = without_prose(&file.text);
    let code: Vec<&str> = code.lines().collect();
    let mut problems = Vec::new();
    problems.extend(check_length(file));
    problems.extend(check_columns(file, &code));
    problems.extend(check_head(file));
    problems.extend(check_attributes(file, &code));
    problems.extend(check_unsafe(file, &code));
    problems.extend(check_functions(file, &code));
    problems
}

/// Test code is exempt from what concerns readers of the product.
fn is_test(file: &File) -> bool {
    let name = file.name();
    file.path.contains("/tests/") || name == "tests.rs" || name.ends_with("_tests.rs")
}

fn check_length(file: &File) -> Option<Problem> {
    let lines = file.text.lines().count();
    if lines <= FILE_LINES_MAX || LONG_FILES.iter().any(|(path, _)| *path == file.path) {
        return None;
    }
    Some(file.problem(0, format!("{lines} lines; at most {FILE_LINES_MAX}: split it by concept")))
}

fn check_columns(file: &File, code: &[&str]) -> Vec<Problem> {
    let is_long = |line: &str, code: &str| {
        let columns_max = if code.contains('"') { COLUMNS_WITH_STRING_MAX } else { COLUMNS_MAX };
        // Neither a link nor a table's row can be broken.
        let is_unbreakable = line.contains("://") || line.contains("//! |");
        line.chars().count() > columns_max && !is_unbreakable
    };
    let lines = file.lines().zip(code).filter(|((_, line), code)| is_long(line, code));
    lines
        .map(|((n, line), _)| file.problem(n, format!("{} columns wide", line.chars().count())))
        .collect()
}

fn check_head(file: &File) -> Option<Problem> {
    let first = file.text.lines().find(|line| !line.starts_with("#!"));
    let has_head = first.is_some_and(|line| line.starts_with("//! "));
    if has_head || is_test(file) {
        return None;
    }
    let message =
        "must start with `//!` lines: what the module is for and what it leaves to others";
    Some(file.problem(1, message))
}

fn check_attributes(file: &File, code: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, attribute) in attributes(code) {
        let silences = ["allow", "expect"]
            .iter()
            .any(|name| attribute.contains(&format!("{name}(")) && contains_word(&attribute, name));
        if silences && !contains_word(&attribute, "reason") {
            problems.push(file.problem(number, "silences a lint without `reason = \"…\"`"));
        }
        if contains_word(&attribute, "ignore") {
            problems.push(file.problem(number, "an ignored test tests nothing: fix or remove it"));
        }
    }
    problems
}

/// Every `#[…]` and `#![…]` with the number of its first line.
fn attributes(code: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in code.iter().enumerate() {
        let trimmed = line.trim_start();
        if !trimmed.starts_with("#[") && !trimmed.starts_with("#![") {
            continue;
        }
        let mut attribute = String::new();
        let mut depth = 0_i32;
        for c in code[index..].iter().flat_map(|line| line.chars().chain(['\n'])) {
            depth += i32::from(c == '[') - i32::from(c == ']');
            attribute.push(c);
            if c == ']' && depth == 0 {
                break;
            }
        }
        found.push((index + 1, attribute));
    }
    found
}

fn check_unsafe(file: &File, code: &[&str]) -> Vec<Problem> {
    let folder = file.path.strip_prefix("crates/").and_then(|path| path.split('/').next());
    if UNSAFE_CRATES.iter().any(|(name, _)| Some(*name) == folder) {
        return Vec::new();
    }
    let lines = (1..).zip(code).filter(|(_, line)| contains_word(line, "unsafe"));
    lines
        .map(|(n, _)| file.problem(n, "unsafe code belongs in the crates that may hold it"))
        .collect()
}

/// Relies on rustfmt: a function ends at the first `}` that is indented as its first line is.
fn check_functions(file: &File, code: &[&str]) -> Vec<Problem> {
    if is_test(file) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (start, line) in code.iter().enumerate() {
        if line.trim() == "mod tests {" {
            break;
        }
        let Some(name) = function_name(line) else { continue };
        if !has_body(&code[start..]) {
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_end = |line: &&str| {
            let rest = line.strip_prefix(indent).unwrap_or_default().trim_end();
            rest == "}" || (rest.ends_with('}') && function_name(line).is_some())
        };
        let lines = code[start..].iter().position(is_end).map_or(0, |end| end + 1);
        let key = format!("{}: {name}", file.path);
        let is_exempt = LONG_FUNCTIONS.iter().any(|(allowed, _)| *allowed == key);
        if lines > FUNCTION_LINES_MAX && !is_exempt {
            let message = format!("`{name}` has {lines} lines; at most {FUNCTION_LINES_MAX}");
            problems.push(file.problem(start + 1, message));
        }
    }
    problems
}

/// Whether the function that starts here has a body; a trait's method may not. A `;` inside
/// brackets is an array's.
fn has_body(code: &[&str]) -> bool {
    let mut depth = 0;
    for c in code.iter().flat_map(|line| line.chars()) {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' => return true,
            ';' if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// The name that a line defines as a function.
fn function_name(line: &str) -> Option<&str> {
    const QUALIFIERS: &[&str] =
        &["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern"];
    let mut words = line.trim_start().split(' ');
    let first = words.find(|w| !QUALIFIERS.contains(w) && !w.starts_with(['"', '(']))?;
    if first != "fn" {
        return None;
    }
    words.next().and_then(|word| word.split(['(', '<']).next())
}

#[cfg(test)]
mod tests {
    use super::super::expect_lines;
    use super::*;

    const HEAD: &str = "//! Head.\n";

    #[test]
    fn files_have_a_length_and_a_head() {
        let lines = |count: usize| HEAD.to_owned() + &"\n".repeat(count - 1);
        expect_lines(check, "a.rs", &lines(FILE_LINES_MAX), &[]);
        expect_lines(check, "a.rs", &lines(FILE_LINES_MAX + 1), &[0]);
        expect_lines(check, "a.rs", "fn a() {}\n", &[1]);
        expect_lines(check, "a.rs", "// Not a head.\n", &[1]);
        expect_lines(check, "a.rs", "//!\n", &[1]);
        expect_lines(check, "a.rs", "#![no_main]\n//! Head.\n", &[]);
        expect_lines(check, "crates/x/tests/a.rs", "fn a() {}\n", &[]);
        expect_lines(check, "crates/x/src/a_tests.rs", "fn a() {}\n", &[]);
    }

    #[test]
    fn lines_have_a_width() {
        let line = |columns: usize| format!("{HEAD}//{}\n", "é".repeat(columns - 2));
        expect_lines(check, "a.rs", &line(COLUMNS_MAX), &[]);
        expect_lines(check, "a.rs", &line(COLUMNS_MAX + 1), &[2]);
        let link = format!("{HEAD}// https://example.com/{}\n", "x".repeat(100));
        expect_lines(check, "a.rs", &link, &[]);
        let string = |columns: usize| format!("{HEAD}\"{}\"\n", "x".repeat(columns - 2));
        expect_lines(check, "a.rs", &string(COLUMNS_WITH_STRING_MAX), &[]);
        expect_lines(check, "a.rs", &string(COLUMNS_WITH_STRING_MAX + 1), &[2]);
        let quote = format!("{HEAD}// \"{}\"\n", "x".repeat(100));
        expect_lines(check, "a.rs", &quote, &[2]);
    }

    #[test]
    fn silenced_lints_have_a_reason() {
        let check = |text: &str, expect: &[usize]| {
            expect_lines(check, "a.rs", &format!("{HEAD}{text}\n"), expect);
        };
        check("#[allow(x)]", &[2]);
        check("#![allow(x)]", &[2]);
        check("#[expect(\n    x,\n)]", &[2]);
        check("#[cfg_attr(test, allow(x))]", &[2]);
        check("#[allow(x, reason = \"y\")]", &[]);
        check("#[expect(\n    x,\n    reason = \"y\"\n)]", &[]);
        check("// #[allow(x)]", &[]);
        check("let x = y.expect(\"z\");", &[]);
        // The word in a comment is no reason.
        check("#[allow(x)] // reason", &[2]);
    }

    #[test]
    fn tests_are_not_ignored() {
        expect_lines(check, "crates/x/tests/a.rs", "#[test]\n#[ignore]\nfn a() {}\n", &[2]);
        expect_lines(check, "crates/x/tests/a.rs", "#[ignore = \"slow\"]\nfn a() {}\n", &[1]);
        expect_lines(check, "crates/x/tests/a.rs", "#[test]\nfn ignore() {}\n", &[]);
    }

    #[test]
    fn unsafe_code_has_its_crates() {
        let text = format!("{HEAD}fn f() {{\n    unsafe {{ g() }}\n}}\n");
        expect_lines(check, "crates/weir-http/src/a.rs", &text, &[3]);
        expect_lines(check, "xtask/src/a.rs", &text, &[3]);
        expect_lines(check, "crates/weir-arena/src/a.rs", &text, &[]);
        let prose = format!("{HEAD}// unsafe\nlet x = \"unsafe\";\n#[x(unsafe_code)]\n");
        expect_lines(check, "crates/weir-http/src/a.rs", &prose, &[]);
    }

    #[test]
    fn functions_fit_a_screen() {
        let function = |lines: usize, signature: &str| {
            format!("{HEAD}{signature} {{\n{}}}\n", "    x;\n".repeat(lines - 2))
        };
        for signature in ["fn f()", "pub(crate) async fn f<T>(t: T) -> u8", "const fn f()"] {
            let longest = function(FUNCTION_LINES_MAX, signature);
            expect_lines(check, "a.rs", &longest, &[]);
            let longer = function(FUNCTION_LINES_MAX + 1, signature);
            expect_lines(check, "a.rs", &longer, &[2]);
        }
        // In a test module, in another function's neighbourhood, without a body.
        let in_tests = function(90, "fn f()").replace(HEAD, "//! Head.\nmod tests {\n");
        expect_lines(check, "a.rs", &in_tests, &[]);
        let bodiless = format!("{HEAD}trait T {{\n    fn f();\n{}}}\n", "    // x\n".repeat(90));
        expect_lines(check, "a.rs", &bodiless, &[]);
        let array = function(FUNCTION_LINES_MAX + 1, "fn f(x: [u8; 4])");
        expect_lines(check, "a.rs", &array, &[2]);
        let one_line = format!("{HEAD}fn f() {{}}\n{}}}\n", "\n".repeat(90));
        expect_lines(check, "a.rs", &one_line, &[]);
    }
}
