//! Rust source with comments and literals blanked out, so that checks of code do not trip over
//! prose. A scanner for that alone, not a parser: line and column of everything else stay.

/// `source` with the characters of comments, strings and character literals replaced by spaces.
/// Line breaks and a literal's opening are kept.
pub(super) fn without_prose(source: &str) -> String {
    let mut scanner = Scanner { rest: source, out: String::with_capacity(source.len()) };
    while let Some(c) = scanner.rest.chars().next() {
        let previous = scanner.out.chars().next_back();
        let in_word = previous.is_some_and(|p| p.is_alphanumeric() || p == '_');
        if scanner.rest.starts_with("//") {
            let end = scanner.rest.find('\n').unwrap_or(scanner.rest.len());
            scanner.blank(end);
        } else if scanner.rest.starts_with("/*") {
            scanner.blank(block_comment_length(scanner.rest));
        } else if c == '"' {
            scanner.blank_literal(1, quoted_length(scanner.rest, '"'));
        } else if let Some(length) = raw_string_length(scanner.rest).filter(|_| !in_word) {
            let opening = scanner.rest.find('"').map_or(1, |at| at + 1);
            scanner.blank_literal(opening, length);
        } else if c == '\'' && is_character_literal(scanner.rest) {
            scanner.blank_literal(1, quoted_length(scanner.rest, '\''));
        } else {
            scanner.keep(c.len_utf8());
        }
    }
    scanner.out
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
}

impl Scanner<'_> {
    fn keep(&mut self, length: usize) {
        self.out += &self.rest[..length];
        self.rest = &self.rest[length..];
    }

    fn blank(&mut self, length: usize) {
        let blanks = self.rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' });
        self.out.extend(blanks);
        self.rest = &self.rest[length..];
    }

    /// Keeps what a literal begins with, so that it is still seen to be one.
    fn blank_literal(&mut self, opening: usize, length: usize) {
        self.keep(opening);
        self.blank(length - opening);
    }
}

fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Bytes of the literal that starts with `quote`, both quotes included.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        if c == '\\' {
            characters.next();
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// Bytes of `r"…"`, `r#"…"#`, `br"…"`, `cr"…"` with any number of `#`.
fn raw_string_length(rest: &str) -> Option<usize> {
    let body = ["br", "cr", "r"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body[hashes..].strip_prefix('"')?;
    let start = rest.len() - content.len();
    let end = format!("\"{}", "#".repeat(hashes));
    Some(content.find(&end).map_or(rest.len(), |at| start + at + end.len()))
}

/// `'x'` and `'\n'` are literals, `'static` is a lifetime.
fn is_character_literal(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some('\'') | None => false,
        Some(_) => characters.next() == Some('\''),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expect: &str) {
        assert_eq!(without_prose(source), expect, "{source}");
    }

    #[test]
    fn prose_is_blanked_and_code_is_kept() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d\n */ e", "a               \n    e");
        check(r#"f("a\"b", c)"#, r#"f("     , c)"#);
        check("f(r#\"a\"b\"#, c)", "f(r#\"     , c)");
        check("f(br\"a\\\", c)", "f(br\"   , c)");
        check("for x in \"é\"", "for x in \"  ");
        check("'a' + '\\'' + '\"'", "'   + '    + '  ");
        check("&'static str, 'a: 'b", "&'static str, 'a: 'b");
        check("var\"x\"", "var\"  ");
        check("\"unfinishé", "\"         ");
        check("/* unfinishé", "            ");
        check("r#\"unfinishé", "r#\"         ");
    }
}
