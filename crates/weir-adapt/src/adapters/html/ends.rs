//! Ends that a page leaves out. The parser knows an element's end by its tag alone: without it what
//! is done to `<li>` would be done to all that follows, up to the end of the list, and the next one
//! would be a part of it. So where an element ends by itself, the parser is told so by a tag that
//! the page does not have, and that is cut out of what it returns.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use memchr::{memchr, memmem, memrchr};

use super::open::{Ended, Open};

/// A tag that is longer is not understood, nor anything behind it.
const TAG_BYTES_MAX: usize = 64 << 10;

/// By what tags that are not the page's are known: no page can have it.
static MARK: LazyLock<String> =
    LazyLock::new(|| format!(" {:016x}>", RandomState::new().build_hasher().finish()));

/// Elements whose content is text up to their end tag (WHATWG HTML, section 13.2.6.4).
const RAW: [&str; 8] =
    ["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"];

/// Finds the ends that a page leaves out, on its way to the parser.
#[derive(Debug, Default)]
pub(super) struct Ends {
    open: Open,
    inside: Inside,
    /// What has not been understood yet, such as half a tag.
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Markup,
    Comment,
    /// The content of such an element.
    Raw(&'static str),
    /// What nobody understands.
    Anything,
}

/// What the parser is told.
pub(super) enum Part<'a> {
    /// Bytes of the page.
    Page(&'a [u8]),
    /// The tag of an end that the page leaves out.
    End(String),
}

/// Something that begins with `<`.
enum Token<'a> {
    Tag {
        name: &'a [u8],
        is_end: bool,
        bytes: usize,
    },
    /// The beginning of a comment.
    Comment,
    /// Text, or what browsers pass over; so many bytes.
    Other(usize),
    /// Not all of it has come.
    Part,
}

impl Ends {
    /// The next piece of the page.
    pub(super) fn push(&mut self, piece: &[u8], tell: &mut impl FnMut(Part<'_>)) {
        if self.held.is_empty() {
            let left = self.walk(piece, tell);
            self.held.extend_from_slice(left);
        } else {
            let mut bytes = std::mem::take(&mut self.held);
            bytes.extend_from_slice(piece);
            let left = self.walk(&bytes, tell).len();
            bytes.drain(..bytes.len() - left);
            self.held = bytes;
        }
        if self.held.len() > TAG_BYTES_MAX {
            self.inside = Inside::Anything;
            tell(Part::Page(&std::mem::take(&mut self.held)));
        }
    }

    /// The page ends.
    pub(super) fn finish(&mut self, tell: &mut impl FnMut(Part<'_>)) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            tell(Part::Page(&held));
        }
        if self.inside == Inside::Markup {
            end_all(self.open.finish(), tell);
        }
    }

    /// Tells of all that can be understood, and returns what is left.
    fn walk<'a>(&mut self, bytes: &'a [u8], tell: &mut impl FnMut(Part<'_>)) -> &'a [u8] {
        let (mut told, mut at) = (0, 0);
        let end = loop {
            let rest = &bytes[at..];
            let found = match self.inside {
                Inside::Markup => memchr(b'<', rest),
                Inside::Comment => memmem::find(rest, b"-->"),
                Inside::Raw(name) => find_end(rest, name),
                Inside::Anything => None,
            };
            let Some(found) = found else {
                break bytes.len() - self.inside.kept(rest);
            };
            at += found;
            match self.inside {
                Inside::Markup => match token(&bytes[at..]) {
                    Token::Part => break at,
                    Token::Other(len) => at += len,
                    Token::Comment => {
                        self.inside = Inside::Comment;
                        // `<!-->` is a whole one.
                        at += 2;
                    }
                    Token::Tag { name, is_end, bytes: len } => {
                        let ended = match is_end {
                            true => self.open.end(name),
                            false => self.open.start(name),
                        };
                        if !ended.is_empty() {
                            tell(Part::Page(&bytes[told..at]));
                            told = at;
                            end_all(ended, tell);
                        }
                        at += len;
                        if !is_end && let Some(name) = raw(name) {
                            self.inside = Inside::Raw(name);
                        }
                    }
                },
                Inside::Comment => {
                    self.inside = Inside::Markup;
                    at += 3;
                }
                // Its end tag is the next token.
                Inside::Raw(_) | Inside::Anything => self.inside = Inside::Markup,
            }
        };
        if end > told {
            tell(Part::Page(&bytes[told..end]));
        }
        &bytes[end..]
    }
}

impl Inside {
    /// Bytes at the end of a piece that may be the beginning of what is looked for.
    fn kept(self, rest: &[u8]) -> usize {
        let most = match self {
            Inside::Markup | Inside::Anything => 0,
            Inside::Comment => 2,
            // `</`, the name, and what stands behind it.
            Inside::Raw(name) => name.len() + 2,
        };
        most.min(rest.len())
    }
}

fn end_all(ended: Ended, tell: &mut impl FnMut(Part<'_>)) {
    for tag in ended {
        tell(Part::End(format!("</{}{}", tag.name(), *MARK)));
    }
}

fn raw(name: &[u8]) -> Option<&'static str> {
    RAW.into_iter().find(|raw| raw.as_bytes().eq_ignore_ascii_case(name))
}

/// Where the end tag of a raw element begins.
fn find_end(bytes: &[u8], name: &str) -> Option<usize> {
    memmem::find_iter(bytes, b"</").find(|at| {
        let rest = &bytes[at + 2..];
        let is_name = |start: &[u8]| start.eq_ignore_ascii_case(name.as_bytes());
        let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
        rest.get(..name.len()).is_some_and(is_name) && rest.get(name.len()).is_some_and(ends)
    })
}

/// What begins with the `<` that `bytes` begin with (WHATWG HTML, section 13.2.5.6).
fn token(bytes: &[u8]) -> Token<'_> {
    let is_end = match bytes.get(1) {
        None => return Token::Part,
        Some(b'/') => true,
        Some(b'!') if bytes.starts_with(b"<!--") => return Token::Comment,
        Some(b'!') if b"<!--".starts_with(bytes) => return Token::Part,
        Some(b'!' | b'?') => return up_to_end(bytes),
        Some(byte) if byte.is_ascii_alphabetic() => false,
        Some(_) => return Token::Other(1),
    };
    let start = 1 + usize::from(is_end);
    match bytes.get(start) {
        None => return Token::Part,
        Some(byte) if !byte.is_ascii_alphabetic() => return up_to_end(bytes),
        Some(_) => {}
    }
    let ends_name = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>');
    let Some(len) = bytes[start..].iter().position(ends_name) else { return Token::Part };
    let name = &bytes[start..start + len];
    let attributes = &bytes[start + len..];
    end_of_tag(attributes).map_or(Token::Part, |at| {
        let bytes = start + len + at + 1;
        Token::Tag { name, is_end, bytes }
    })
}

/// Where in a tag's attributes the `>` is that ends it (WHATWG HTML, sections 13.2.5.32 to 40).
fn end_of_tag(attributes: &[u8]) -> Option<usize> {
    enum At {
        BeforeName,
        Name,
        AfterName,
        BeforeValue,
        Value,
        Quoted(u8),
    }
    let mut state = At::BeforeName;
    for (at, byte) in attributes.iter().enumerate() {
        let is_space = byte.is_ascii_whitespace();
        state = match (state, byte) {
            (At::Quoted(mark), byte) if mark == *byte => At::BeforeName,
            (state @ At::Quoted(_), _) => state,
            (_, b'>') => return Some(at),
            (At::BeforeValue, b'"' | b'\'') => At::Quoted(*byte),
            (state @ (At::BeforeName | At::AfterName | At::BeforeValue), _) if is_space => state,
            (At::Name, _) if is_space => At::AfterName,
            (At::Value, _) if is_space => At::BeforeName,
            (At::BeforeName | At::Name | At::AfterName, b'/') => At::BeforeName,
            (At::Name | At::AfterName, b'=') => At::BeforeValue,
            (At::BeforeName | At::Name | At::AfterName, _) => At::Name,
            (At::BeforeValue | At::Value, _) => At::Value,
        };
    }
    None
}

fn up_to_end(bytes: &[u8]) -> Token<'_> {
    memchr(b'>', bytes).map_or(Token::Part, |at| Token::Other(at + 1))
}

/// Cuts tags that are not the page's out of what was returned.
pub(super) fn cut_ends(bytes: &mut Vec<u8>) {
    let mut from = 0;
    while let Some(at) = memmem::find(&bytes[from..], MARK.as_bytes()) {
        let mark = from + at;
        from = memrchr(b'<', &bytes[..mark]).unwrap_or(mark);
        bytes.drain(from..mark + MARK.len());
    }
}
