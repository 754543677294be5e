//! Unquoted words: names, numbers and keywords, and what should have been quoted.

use crate::source::{Source, Span};

use super::{is_forbidden, is_newline, is_space};

/// KDL's keywords. Others that start with `#` do not exist.
const KEYWORDS: [&str; 6] = ["#true", "#false", "#null", "#inf", "#-inf", "#nan"];
/// Words that KDL refuses without a `#`, so that nobody takes them for strings.
const RESERVED: [&str; 6] = ["true", "false", "null", "inf", "-inf", "nan"];

/// The end of the word that starts at `at`.
pub(super) fn end(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let stop = |c: char| {
        is_space(c) || is_newline(c) || matches!(c, '{' | '}' | '(' | ')' | ';' | '"' | '=' | '\\')
    };
    // At least one character, so that the scanner moves on whatever it met.
    let first = rest.chars().next().map_or(0, char::len_utf8);
    at + first + rest[first..].find(stop).unwrap_or(rest.len() - first)
}

/// Reports a word that KDL does not know; tells whether it is a string rather than a number or
/// keyword.
pub(super) fn check(source: &mut Source<'_>, text: &str, span: Span) -> bool {
    let word = &text[span.start..span.end];
    if KEYWORDS.contains(&word) || is_number(word) {
        return false;
    }
    if RESERVED.contains(&word) {
        let message = format!("`{word}` needs a number sign");
        source.error(span, message).suggest(Some(format!("#{word}")));
    } else if let Some(c) = word.chars().find(|&c| is_forbidden(c)) {
        source.error(span, format!("the control character U+{:04X} may not stand here", c as u32));
    } else if word.contains(['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}']) {
        source.error(span, "typographic quotes").expect(["straight quotes: \"…\""]);
    } else if word.contains('\'') {
        source.error(span, "a string in single quotes").expect(["double quotes: \"…\""]);
    } else if word.contains(['/', '[', ']', '#']) || starts_like_number(word) {
        let message = format!("`{word}` must be in quotes");
        source.error(span, message).expect([format!("\"{word}\"")]);
    }
    true
}

/// An integer or decimal number as KDL writes them.
fn is_number(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    let digits = |text: &str, is_digit: fn(&char) -> bool| {
        text.starts_with(|c| is_digit(&c)) && text.chars().all(|c| c == '_' || is_digit(&c))
    };
    if let Some(hex) = unsigned.strip_prefix("0x") {
        return digits(hex, char::is_ascii_hexdigit);
    }
    if let Some(octal) = unsigned.strip_prefix("0o") {
        return digits(octal, |c| matches!(c, '0'..='7'));
    }
    if let Some(binary) = unsigned.strip_prefix("0b") {
        return digits(binary, |c| matches!(c, '0' | '1'));
    }
    let decimal = |text: &str| digits(text, char::is_ascii_digit);
    match unsigned.split_once('.') {
        Some((whole, fraction)) => decimal(whole) && decimal(fraction),
        None => decimal(unsigned),
    }
}

/// KDL reads a word that starts like this as a number and nothing else.
fn starts_like_number(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    let first = unsigned.strip_prefix('.').unwrap_or(unsigned);
    first.starts_with(|c: char| c.is_ascii_digit())
}
