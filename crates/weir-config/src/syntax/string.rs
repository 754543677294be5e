//! Quoted strings of KDL: `"…"`, `#"…"#`, and `"""` over several lines. Finds where one ends and
//! reports what is wrong inside.

use crate::source::{Source, Span};

use super::{is_forbidden, is_newline, is_space};

/// Reads the string that starts at `start` (with its number signs, if it is a raw one): its end,
/// or `None` if it has none.
pub(super) fn read(source: &mut Source<'_>, text: &str, start: usize) -> Option<usize> {
    let rest = &text[start..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let several_lines = rest[hashes..].starts_with("\"\"\"");
    let quotes = if several_lines { "\"\"\"" } else { "\"" };
    let opening = Span::new(start, start + hashes + quotes.len());
    let closing = format!("{quotes}{}", "#".repeat(hashes));
    let body = opening.end;
    let Some(length) = body_length(&text[body..], &closing, hashes > 0, several_lines) else {
        source.error(opening, "this string is not closed").expect([if several_lines {
            format!("`{closing}` after its last line")
        } else {
            format!("`{closing}` on the same line")
        }]);
        return None;
    };
    let end = body + length;
    let raw = hashes > 0;
    check_characters(source, text, Span::new(body, end), raw, several_lines);
    if several_lines {
        check_indent(source, text, opening, end);
    }
    Some(end + closing.len())
}

/// Bytes up to the closing quotes.
fn body_length(text: &str, closing: &str, raw: bool, several_lines: bool) -> Option<usize> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if text[at..].starts_with(closing) {
            return Some(at);
        }
        if is_newline(c) && !several_lines {
            return None;
        }
        if c == '\\' && !raw {
            chars.next();
        }
    }
    None
}

fn check_characters(
    source: &mut Source<'_>,
    text: &str,
    body: Span,
    raw: bool,
    several_lines: bool,
) {
    let mut chars = text[body.start..body.end].char_indices();
    while let Some((offset, c)) = chars.next() {
        let at = body.start + offset;
        if is_forbidden(c) {
            let code = c as u32;
            source
                .error(Span::new(at, at + 1), format!("the character U+{code:04X} in a string"))
                .expect([format!("\\u{{{code:x}}}")]);
        }
        if c != '\\' || raw {
            continue;
        }
        let escaped = chars.next().map_or(' ', |(_, c)| c);
        let known = match escaped {
            '\\' | '"' | 'b' | 'f' | 'n' | 'r' | 't' | 's' => true,
            'u' => is_unicode_escape(&text[at + 2..body.end]),
            // A break in a string over several lines would escape from the indentation rule.
            _ => (is_space(escaped) || is_newline(escaped)) && !several_lines,
        };
        if !known {
            let span = Span::new(at, at + 1 + escaped.len_utf8());
            source.error(span, "unknown escape in a string").expect([
                "`\\\\` for a backslash",
                "`\\\"`",
                "`\\n`",
                "`\\t`",
                "`\\u{…}`",
            ]);
        }
    }
}

/// `{…}` with one to six hexadecimal digits that are a character.
fn is_unicode_escape(text: &str) -> bool {
    let digits = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    digits.is_some_and(|(digits, _)| {
        (1..=6).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && u32::from_str_radix(digits, 16).is_ok_and(|code| char::from_u32(code).is_some())
    })
}

/// The lines of a string over several lines start with the white space before its closing quotes,
/// which stand on a line of their own.
fn check_indent(source: &mut Source<'_>, text: &str, opening: Span, end: usize) {
    let body = &text[opening.end..end];
    if !body.starts_with(is_newline) {
        source.error(opening, "text after `\"\"\"`").expect(["the string's text on the next line"]);
        return;
    }
    let last = body.rfind(is_newline).map_or(0, |at| at + newline_length(&body[at..]));
    let indent = &body[last..];
    if !indent.chars().all(is_space) {
        let closing = Span::new(end, end + 3);
        source
            .error(closing, "text before the closing `\"\"\"`")
            .expect(["the closing quotes on a line of their own"]);
        return;
    }
    let mut at = opening.end;
    for line in body[..last].split_inclusive(is_newline) {
        let blank = line.chars().all(|c| is_space(c) || is_newline(c));
        if !blank && !line.starts_with(indent) {
            source
                .error(Span::new(at, at + 1), "less indented than the string's closing quotes")
                .expect(["the same white space before every line"]);
            return;
        }
        at += line.len();
    }
}

fn newline_length(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}
