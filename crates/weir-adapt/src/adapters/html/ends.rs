//! Ends that a page leaves out. The parser knows an element's end by its tag alone: without it what
//! is done to `<li>` would be done to all that follows, up to the end of the list, and the next one
//! would be a part of it. So where an element ends by itself, the parser is told so by a tag that
//! the page does not have, and that is cut out of what it returns.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use memchr::{memchr, memchr_iter, memmem, memrchr};

use super::open::{Begun, Ended, Open};

/// A name that is longer is not understood, nor anything behind it.
const NAME_BYTES_MAX: usize = 64 << 10;

/// By what tags that are not the page's are known: no page can have it.
static MARK: LazyLock<String> =
    LazyLock::new(|| format!(" {:016x}>", RandomState::new().build_hasher().finish()));

/// Elements whose content is text up to their end tag (WHATWG HTML, section 13.2.6.4), for browsers
/// that run scripts.
const RAW: [&str; 9] =
    ["iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"];

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
    /// A tag, behind its name.
    Tag(Attributes, Then),
    Comment,
    /// Text of SVG or MathML that is marked as such.
    Cdata,
    /// The content of such an element.
    Raw(&'static str),
    /// What nobody understands.
    Anything,
}

/// Where in a tag (WHATWG HTML, sections 13.2.5.32 to 40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted(u8),
    Slash,
}

/// What follows a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Markup,
    /// The content of such an element.
    Raw(&'static str),
    /// That of one of SVG or MathML, which has none if its tag ends with a slash.
    Foreign,
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
    /// The beginning of a tag, up to the end of its name.
    Tag { name: &'a [u8], is_end: bool },
    /// That of a comment.
    Comment,
    /// That of text in SVG or MathML.
    Cdata,
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
        if self.held.len() > NAME_BYTES_MAX {
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
                Inside::Tag(ref mut state, _) => state.find_end(rest),
                Inside::Comment => find_comment_end(rest),
                Inside::Cdata => memmem::find(rest, b"]]>").map(|at| at + 3),
                Inside::Raw(name) => find_end(rest, name),
                Inside::Anything => None,
            };
            let Some(found) = found else {
                break bytes.len() - self.inside.kept(rest);
            };
            at += found;
            match self.inside {
                Inside::Markup => match token(&bytes[at..], &self.open) {
                    Token::Part => break at,
                    Token::Other(len) => at += len,
                    Token::Comment => {
                        self.inside = Inside::Comment;
                        at += COMMENT.len();
                    }
                    Token::Cdata => {
                        self.inside = Inside::Cdata;
                        at += CDATA.len();
                    }
                    Token::Tag { name, is_end } => {
                        let ended = self.tag(name, is_end);
                        if !ended.is_empty() {
                            tell(Part::Page(&bytes[told..at]));
                            told = at;
                            end_all(ended, tell);
                        }
                        at += 1 + usize::from(is_end) + name.len();
                    }
                },
                Inside::Tag(state, then) => self.inside = self.behind(state, then),
                // The end tag of raw text is the next token.
                _ => self.inside = Inside::Markup,
            }
        };
        if end > told {
            tell(Part::Page(&bytes[told..end]));
        }
        &bytes[end..]
    }

    /// A tag begins; what ends before it.
    fn tag(&mut self, name: &[u8], is_end: bool) -> Ended {
        let (ended, then) = match is_end {
            true => (self.open.end(name), Then::Markup),
            false => {
                let ended = self.open.start(name);
                let then = match self.open.begun() {
                    Begun::Html => raw(name).map_or(Then::Markup, Then::Raw),
                    Begun::Foreign | Begun::Followed => Then::Foreign,
                };
                (ended, then)
            }
        };
        self.inside = Inside::Tag(Attributes::BeforeName, then);
        ended
    }

    /// What follows a tag that has ended in this state.
    fn behind(&mut self, state: Attributes, then: Then) -> Inside {
        match then {
            Then::Raw(name) => return Inside::Raw(name),
            Then::Foreign if state == Attributes::Slash => self.open.end_empty(),
            Then::Foreign | Then::Markup => {}
        }
        Inside::Markup
    }
}

impl Attributes {
    /// What follows the `>` that ends the tag; until then, the state it has come to.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        use Attributes::{AfterName, BeforeName, BeforeValue, Name, Quoted, Slash, Value};
        for (at, byte) in bytes.iter().enumerate() {
            let is_space = byte.is_ascii_whitespace();
            *self = match (*self, byte) {
                (Quoted(mark), byte) if mark == *byte => BeforeName,
                (state @ Quoted(_), _) => state,
                (_, b'>') => return Some(at + 1),
                (BeforeValue, b'"' | b'\'') => Quoted(*byte),
                (state @ (BeforeName | AfterName | BeforeValue), _) if is_space => state,
                (Slash, _) if is_space => BeforeName,
                (Name, _) if is_space => AfterName,
                (Value, _) if is_space => BeforeName,
                (BeforeName | Name | AfterName | Slash, b'/') => Slash,
                (Name | AfterName, b'=') => BeforeValue,
                (BeforeName | Name | AfterName | Slash, _) => Name,
                (BeforeValue | Value, _) => Value,
            };
        }
        None
    }
}

impl Inside {
    /// Bytes at the end of a piece that may be the beginning of what is looked for.
    fn kept(self, rest: &[u8]) -> usize {
        let most = match self {
            Inside::Markup | Inside::Tag(..) | Inside::Anything => 0,
            Inside::Comment => 3,
            Inside::Cdata => 2,
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

/// What follows the end of a comment (WHATWG HTML, sections 13.2.5.50 to 52).
fn find_comment_end(bytes: &[u8]) -> Option<usize> {
    let is_end = |at: &usize| bytes[..*at].ends_with(b"--") || bytes[..*at].ends_with(b"--!");
    memchr_iter(b'>', bytes).find(is_end).map(|at| at + 1)
}

const COMMENT: &[u8] = b"<!--";
const CDATA: &[u8] = b"<![CDATA[";

/// What begins with the `<` that `bytes` begin with (WHATWG HTML, section 13.2.5.6).
fn token<'a>(bytes: &'a [u8], open: &Open) -> Token<'a> {
    let is_end = match bytes.get(1) {
        None => return Token::Part,
        Some(b'/') => true,
        Some(b'!') if bytes.starts_with(COMMENT) => return comment(bytes),
        Some(b'!') if COMMENT.starts_with(bytes) => return Token::Part,
        Some(b'!') if bytes.starts_with(CDATA) && open.is_foreign() => return Token::Cdata,
        Some(b'!') if CDATA.starts_with(bytes) && open.is_foreign() => return Token::Part,
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
    Token::Tag { name: &bytes[start..start + len], is_end }
}

/// Two comments are whole though their beginning and their end are one.
fn comment(bytes: &[u8]) -> Token<'_> {
    for whole in [&b"<!-->"[..], b"<!--->"] {
        if bytes.starts_with(whole) {
            return Token::Other(whole.len());
        }
        if whole.starts_with(bytes) {
            return Token::Part;
        }
    }
    Token::Comment
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
