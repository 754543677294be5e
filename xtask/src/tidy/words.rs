//! Words that must not appear: marks of unfinished work, traces of where and with what the work was
//! done, and empty phrases. This file is the only one that may contain them.

use super::{File, Problem};

/// What to look for, whether upper and lower case differ, and why not. A word is found where no
/// letter or digit adjoins its own letters.
const BANNED: &[(&str, Case, &str)] = &[
    ("todo!", Case::Exact, "finish it, or open an issue"),
    ("unimplemented!", Case::Exact, "finish it, or open an issue"),
    ("dbg!", Case::Exact, "left over from debugging"),
    ("TODO", Case::Exact, "finish it, or open an issue"),
    ("FIXME", Case::Exact, "fix it, or open an issue"),
    ("XXX", Case::Exact, "say what is meant"),
    ("HACK", Case::Exact, "say what is meant"),
    ("ChatGPT", Case::Any, "sources are specifications and measurements"),
    ("Copilot", Case::Any, "sources are specifications and measurements"),
    ("language model", Case::Any, "sources are specifications and measurements"),
    ("as an AI", Case::Any, "sources are specifications and measurements"),
    ("subagent", Case::Any, "how the work was divided is no reader's concern"),
    ("/work/", Case::Exact, "a path of one machine"),
    ("../shared", Case::Exact, "a path outside the repository"),
    ("/root/", Case::Exact, "a path of one machine"),
    ("utilize", Case::Any, "“use”"),
    ("utilise", Case::Any, "“use”"),
    ("leverage", Case::Any, "“use”"),
    ("leverages", Case::Any, "“uses”"),
    ("seamless", Case::Any, "say what happens"),
    ("seamlessly", Case::Any, "say what happens"),
    ("blazing", Case::Any, "give the figure"),
    ("blazingly", Case::Any, "give the figure"),
    ("cutting-edge", Case::Any, "say what is new"),
    ("state-of-the-art", Case::Any, "name the state and the art"),
    ("world-class", Case::Any, "give the figure"),
    ("delve", Case::Any, "“look”"),
    ("whitelist", Case::Any, "“allow-list”"),
    ("blacklist", Case::Any, "“deny-list”"),
];

#[derive(Clone, Copy, PartialEq)]
enum Case {
    Exact,
    Any,
}

/// Where other people's words are kept as they are.
const EXEMPT: &[&str] = &["xtask/src/tidy/words.rs", "Cargo.lock", "fuzz/corpus/", "/testdata/"];

/// Finds banned words.
pub(super) fn check(file: &File) -> Vec<Problem> {
    if EXEMPT.iter().any(|part| file.path.contains(part)) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, line) in file.lines() {
        let lower = line.to_lowercase();
        for &(word, case, why) in BANNED {
            let found = match case {
                Case::Exact => contains_word(line, word),
                Case::Any => contains_word(&lower, &word.to_lowercase()),
            };
            if found {
                problems.push(file.problem(number, format!("“{word}”: {why}")));
            }
        }
    }
    problems
}

/// Whether `word` occurs in `line` with nothing alphanumeric next to its alphanumeric ends.
pub(super) fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let joined = |inside: Option<char>, outside: Option<char>| is_part(inside) && is_part(outside);
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        !joined(word.chars().next(), before.chars().next_back())
            && !joined(word.chars().next_back(), after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::expect_lines;
    use super::*;

    #[test]
    fn banned_words() {
        expect_lines(check, "a.rs", "fn method() {}\n// the methods of TODOs\n", &[]);
        for (word, ..) in BANNED {
            expect_lines(check, "a.rs", &format!("fine\n// {word}\n"), &[2]);
        }
        expect_lines(check, "a.md", "We Utilize it.\nSeamless,\nxutilize\n", &[1, 2]);
        expect_lines(check, "a.rs", "todo!()\n mktemp(\"aXXXXXX\")\n", &[1]);
        expect_lines(check, "a.md", "see /work/main and ../shared/x\n", &[1, 1]);
        expect_lines(check, "fuzz/corpus/path/1", "/work/\n", &[]);
    }
}
