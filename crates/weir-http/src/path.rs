//! Paths of request targets: one normal form for routing and cache keys, one for forwarding, and
//! the decoded segments that name a file. Queries are left as they are, but for [`encode`].

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

use crate::Malformed;

/// A path without dot segments, in the forms the rest of Weir needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normalised<'a> {
    routing: Cow<'a, str>,
    forward: Cow<'a, str>,
}

/// Normalises the path of a request target (without query).
///
/// Dot segments, encoded or not, are removed (RFC 3986 §5.2.4), but `..` above the root is an
/// error, since the client and an origin would disagree about where it leads. A path that needs
/// no change is borrowed after a single scan.
///
/// # Errors
///
/// [`Malformed`]'s `Path…` variants: not starting with `/`, invalid percent-encoding, NUL, raw
/// control characters, `..` above the root.
pub fn normalise(raw: &str) -> Result<Normalised<'_>, Malformed> {
    if is_normal(raw.as_bytes()) {
        return Ok(Normalised { routing: Cow::Borrowed(raw), forward: Cow::Borrowed(raw) });
    }
    if !raw.starts_with('/') {
        return Err(Malformed::PathStart);
    }
    check_encoding(raw.as_bytes())?;
    let segments = remove_dot_segments(&raw[1..])?;
    let mut routing = Vec::with_capacity(raw.len());
    let mut forward = String::with_capacity(raw.len());
    for segment in &segments {
        routing.push(b'/');
        push_routing(&mut routing, segment.as_bytes());
        forward.push('/');
        forward.push_str(&encode(segment));
    }
    // Whatever is not a plain ASCII character was written as a percent-encoding.
    let routing = String::from_utf8(routing).map_err(|_| Malformed::PathEncoding)?;
    let forward = if forward == raw { Cow::Borrowed(raw) } else { Cow::Owned(forward) };
    Ok(Normalised { routing: Cow::Owned(routing), forward })
}

impl<'a> Normalised<'a> {
    /// The form for routing, rules and cache keys. Characters that may stand in a segment are
    /// decoded; all others – `%2F`, `%25`, `%5C`, spaces, non-ASCII – are percent-encoded in upper
    /// case, so that no two paths that a server could tell apart become one. Duplicate slashes
    /// are kept.
    pub fn as_str(&self) -> &str {
        &self.routing
    }

    /// The form for an origin: the client's own spelling without dot segments, and with a
    /// percent-encoding for every character that may not stand in a path.
    pub fn forward(&self) -> &str {
        &self.forward
    }

    /// Whether [`Normalised::forward`] is what the client sent, so that the target can be
    /// forwarded untouched.
    pub fn is_verbatim(&self) -> bool {
        matches!(self.forward, Cow::Borrowed(_))
    }

    /// Whether the path names a directory by its trailing slash.
    pub fn is_directory(&self) -> bool {
        self.routing.ends_with('/')
    }

    /// The decoded, non-empty segments, for looking up a file. Duplicate slashes collapse.
    ///
    /// A segment never contains `/` or NUL and is never `.` or `..`. One that would, or that
    /// contains a backslash, yields [`Malformed::PathFile`].
    pub fn segments(&self) -> impl Iterator<Item = Result<Cow<'_, [u8]>, Malformed>> {
        segments(&self.routing)
    }

    /// The segments joined by `/`, without a slash at either end: a path relative to a root
    /// directory. Empty for the root itself. `prefix`, whole segments in routing form, is left
    /// out where the path starts with it.
    ///
    /// # Errors
    ///
    /// [`Malformed::PathFile`] where a segment cannot name a file.
    pub fn relative(&self, prefix: &str) -> Result<Cow<'_, [u8]>, Malformed> {
        let plain = strip_segments(&self.routing, prefix).trim_matches('/');
        if !plain.contains('%') && !plain.contains("//") {
            // Without an encoding there is nothing left to decode, and dot segments are gone.
            return Ok(Cow::Borrowed(plain.as_bytes()));
        }
        let mut relative = Vec::with_capacity(plain.len());
        for segment in segments(plain) {
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(&segment?);
        }
        Ok(Cow::Owned(relative))
    }

    /// Whether a segment starts with a dot: a hidden file, or something inside a hidden directory.
    pub fn has_hidden_segment(&self) -> bool {
        // Dots are always decoded in the routing form.
        self.routing.as_bytes().windows(2).any(|pair| pair == b"/.")
    }
}

/// `path` without `prefix`, unless that ends in the middle of a segment.
fn strip_segments<'p>(path: &'p str, prefix: &str) -> &'p str {
    match path.strip_prefix(prefix) {
        Some(rest) if prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/') => rest,
        _ => path,
    }
}

fn segments(path: &str) -> impl Iterator<Item = Result<Cow<'_, [u8]>, Malformed>> {
    path.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
        let name = Cow::from(percent_decode(segment.as_bytes()));
        let unsafe_byte = name.iter().any(|&byte| matches!(byte, b'/' | b'\\' | 0));
        if unsafe_byte || matches!(&*name, b"." | b"..") {
            return Err(Malformed::PathFile);
        }
        Ok(name)
    })
}

/// Percent-encodes what may stand neither in a path nor in a query (RFC 3986 §3.3, §3.4) and
/// leaves everything else, existing percent-encodings included. Browsers send such characters
/// in queries; an origin gets them in their one safe form.
pub fn encode(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, FORBIDDEN).into()
}

/// Visible ASCII that the URI grammar does not allow outside a percent-encoding.
const FORBIDDEN: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Characters that may stand in a segment (RFC 3986 §3.3, `pchar` without percent-encodings).
const fn is_segment_byte(byte: u8) -> bool {
    matches!(byte,
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'.' | b'_' | b'~'
        | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        | b':' | b'@')
}

/// Classes of bytes for [`is_normal`].
const OTHER: u8 = 1;
const SLASH: u8 = 2;
const SLASH_OR_DOT: u8 = SLASH << 1;

static CLASSES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'/' => SLASH | SLASH_OR_DOT,
            b'.' => SLASH_OR_DOT,
            segment if is_segment_byte(segment) => 0,
            _ => OTHER,
        };
        byte += 1;
    }
    table
};

/// Whether normalising would change nothing; may say no for a path that is normal ("//", dot
/// files). One look-up a byte and no branches: that is several times faster than stopping early,
/// and nearly every path is normal.
fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    let mut found = 0;
    for &byte in path {
        let class = CLASSES[byte as usize];
        found |= (class & OTHER) | ((previous & SLASH) << 1 & class);
        previous = class;
    }
    found == 0 && path.first() == Some(&b'/')
}

fn check_encoding(path: &[u8]) -> Result<(), Malformed> {
    let mut index = 0;
    while index < path.len() {
        match path[index] {
            b'%' => {
                let byte = decode_pair(&path[index + 1..]).ok_or(Malformed::PathEncoding)?;
                if byte == 0 {
                    return Err(Malformed::PathNul);
                }
                index += 2;
            }
            0 => return Err(Malformed::PathNul),
            1..b' ' | 0x7f => return Err(Malformed::PathControl),
            _ => {}
        }
        index += 1;
    }
    Ok(())
}

fn decode_pair(text: &[u8]) -> Option<u8> {
    let [high, low, ..] = text else { return None };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// RFC 3986 §5.2.4 on the segments after the first slash. A dot segment at the end leaves the
/// slash before it.
fn remove_dot_segments(path: &str) -> Result<Vec<&str>, Malformed> {
    let mut kept = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let dots = dot_count(segment);
        if dots == 2 && kept.pop().is_none() {
            return Err(Malformed::PathClimbs);
        }
        if dots == 0 {
            kept.push(segment);
        } else if segments.peek().is_none() {
            kept.push("");
        }
    }
    Ok(kept)
}

/// 1 for `.`, 2 for `..`, encoded or not; 0 for any other segment.
fn dot_count(segment: &str) -> usize {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() {
        let after = rest.strip_prefix('.');
        let after = after.or_else(|| rest.strip_prefix("%2e")).or_else(|| rest.strip_prefix("%2E"));
        match after {
            Some(after) if dots < 2 => rest = after,
            _ => return 0,
        }
        dots += 1;
    }
    dots
}

/// Writes a segment, whose encodings were checked, in the routing form.
fn push_routing(out: &mut Vec<u8>, segment: &[u8]) {
    for byte in percent_decode(segment) {
        if is_segment_byte(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(percent_encoding::percent_encode_byte(byte).as_bytes());
        }
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
