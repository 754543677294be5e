//! Lexical helpers shared by the field parsers: token characters, optional white space, lists.

/// Whether `byte` may be part of a token (RFC 9110 §5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8,
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\''
            | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// Whether `text` is a non-empty token.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// `text` without optional white space (space and tab) at either end.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The non-empty elements of a list, trimmed. A separator inside a quoted-string does not
/// separate; a quoted-string left open runs to the end.
pub(crate) fn split(text: &[u8], separator: u8) -> Split<'_> {
    Split { rest: text, separator }
}

/// Iterator made by [`split`].
pub(crate) struct Split<'a> {
    rest: &'a [u8],
    separator: u8,
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = element_end(self.rest, self.separator);
            let element = trim(&self.rest[..end]);
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

/// Index of the first `separator` outside a quoted-string, or the length.
fn element_end(text: &[u8], separator: u8) -> usize {
    let mut quoted = false;
    let mut index = 0;
    while index < text.len() {
        match text[index] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => index += 1,
            byte if byte == separator && !quoted => return index,
            _ => {}
        }
        index += 1;
    }
    text.len()
}

/// The content of a quoted-string that spans all of `text`, unescaped; `None` if it is not one.
pub(crate) fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.strip_prefix(b"\"")?.iter();
    let mut content = Vec::with_capacity(text.len());
    loop {
        match bytes.next()? {
            b'"' => break,
            b'\\' => content.push(*bytes.next()?),
            &byte => content.push(byte),
        }
    }
    bytes.as_slice().is_empty().then_some(content)
}

/// A decimal number without sign; saturates instead of overflowing. `None` if not all digits.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| match byte {
        b'0'..=b'9' => Some(number.saturating_mul(10).saturating_add(u64::from(byte - b'0'))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_respect_quotes_and_skip_empty_elements() {
        let check = |text: &str, expect: &[&str]| {
            let found: Vec<_> = split(text.as_bytes(), b',').collect();
            let expect: Vec<_> = expect.iter().map(|element| element.as_bytes()).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("", &[]);
        check(" , ,", &[]);
        check("a, b ,\tc", &["a", "b", "c"]);
        check(r#"a="x,y", b"#, &[r#"a="x,y""#, "b"]);
        check(r#"a="x\",y", b"#, &[r#"a="x\",y""#, "b"]);
        check(r#"a="x, b"#, &[r#"a="x, b"#]);
        check(r#"a="x\"#, &[r#"a="x\"#]);
    }

    #[test]
    fn quoted_strings() {
        assert_eq!(unquote(br#""a\"b""#).as_deref(), Some(&br#"a"b"#[..]));
        assert_eq!(unquote(br#""""#).as_deref(), Some(&b""[..]));
        for bad in [&b""[..], b"\"", b"a", b"\"a", b"\"a\"b", b"\"\\\""] {
            assert_eq!(unquote(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(digits(b"0012"), Some(12));
        assert_eq!(digits(b"99999999999999999999999"), Some(u64::MAX));
        for bad in [&b""[..], b"+1", b"-1", b"1 ", b"0x1"] {
            assert_eq!(digits(bad), None, "{bad:?}");
        }
    }
}
