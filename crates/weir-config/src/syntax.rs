//! Looks over the text before the `kdl` crate parses it: limits, brackets, and the mistakes people
//! make in KDL, each with a message that says what to write. Leaves values and escapes to `kdl`.
//!
//! It exists because `kdl` recurses once per level, per asterisk in a comment and per error it
//! recovers from, so that a wrong file can exhaust the stack. What passes here has neither
//! comments (they are blanked out, byte for byte, so that positions stay true) nor such errors.

mod string;
mod word;

use crate::limits::NESTING_MAX;
use crate::source::{Source, Span};

/// The text without comments and commented-out nodes, ready for `kdl`; `None` after an error.
pub(crate) fn scan(source: &mut Source<'_>) -> Option<String> {
    let text = source.text();
    let mut scanner = Scanner {
        text,
        at: 0,
        source,
        open: Vec::new(),
        state: State::Name,
        glued: None,
        disabled: None,
        blank: Vec::new(),
    };
    scanner.run();
    let blank = scanner.blank;
    if source.has_errors() {
        return None;
    }
    let mut bytes = text.as_bytes().to_vec();
    for span in blank {
        bytes[span.start..span.end].fill(b' ');
    }
    // Spans begin and end at ASCII characters or text ends, so this is UTF-8 still.
    String::from_utf8(bytes).ok()
}

/// What the grammar allows next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A node's name.
    Name,
    /// An argument, property or block; the flag: an `=` may follow the last one.
    Entries(bool),
    /// A property's value.
    Value,
    /// The end of the node: its block has been closed.
    Closed,
}

struct Scanner<'t, 's, 'a> {
    text: &'t str,
    at: usize,
    source: &'s mut Source<'a>,
    /// Offsets of the braces that are open.
    open: Vec<usize>,
    state: State,
    /// The end of the last name, string or number: the next may not start there.
    glued: Option<usize>,
    /// Start and depth of a node commented out by `/-`.
    disabled: Option<(usize, usize)>,
    /// What `kdl` does not get to see.
    blank: Vec<Span>,
}

impl Scanner<'_, '_, '_> {
    fn run(&mut self) {
        if self.rest().starts_with('\u{feff}') {
            self.blank.push(Span::new(0, 3));
            self.at = 3;
        }
        while let Some(c) = self.peek() {
            if self.source.is_full() || !self.token(c) {
                return;
            }
        }
        self.end_node();
        self.end_disabled();
        for &brace in &self.open {
            self.source
                .error(Span::new(brace, brace + 1), "this block is never closed")
                .expect(["`}` after its last line"]);
        }
    }

    /// Takes one token. `false`: what follows cannot be made sense of.
    fn token(&mut self, c: char) -> bool {
        match c {
            _ if is_space(c) => self.at += c.len_utf8(),
            _ if is_newline(c) => {
                self.end_node();
                self.at += c.len_utf8();
            }
            ';' => {
                let blank = self.char_span();
                let (state, disabled) = (self.state, self.disabled);
                self.end_node();
                // One that ends nothing, or nothing that `kdl` gets to see, is an error to `kdl`.
                if state == State::Name || disabled != self.disabled {
                    self.blank.push(blank);
                }
                self.at += 1;
            }
            '{' => return self.open_block(),
            '}' => return self.close_block(),
            '=' => self.equals(),
            '/' if self.rest().starts_with("//") => self.line_comment(),
            '/' if self.rest().starts_with("/*") => return self.block_comment(),
            '/' if self.rest().starts_with("/-") => return self.slash_dash(),
            '\\' => return self.continuation(),
            '(' | ')' => {
                let span = self.char_span();
                self.source.error(span, format!("'{c}' has no place outside of quotes here"));
                self.at += 1;
            }
            _ => return self.value(),
        }
        true
    }

    /// A name, string, number or keyword.
    fn value(&mut self) -> bool {
        let start = self.at;
        let Some((end, is_name)) = self.read_value() else { return false };
        self.at = end;
        let span = Span::new(start, end);
        if self.glued == Some(start) {
            self.source.error(span, "a space is missing before this");
        }
        self.glued = Some(end);
        self.state = match self.state {
            State::Name if !is_name => {
                self.source.error(span, "a line starts with a key, not with a number");
                State::Entries(false)
            }
            State::Name | State::Value => State::Entries(false),
            State::Entries(_) => State::Entries(is_name),
            State::Closed => {
                self.source.error(span, "a line break or `;` is missing after the block");
                State::Entries(true)
            }
        };
        true
    }

    /// Reads a value: its end, and whether it is a string. `None`: the rest is unreadable.
    fn read_value(&mut self) -> Option<(usize, bool)> {
        let quotes = self.rest().trim_start_matches('#');
        if quotes.starts_with('"') {
            return string::read(self.source, self.text, self.at).map(|end| (end, true));
        }
        let end = word::end(self.text, self.at);
        let is_name = word::check(self.source, self.text, Span::new(self.at, end));
        Some((end, is_name))
    }

    fn open_block(&mut self) -> bool {
        let span = self.char_span();
        match self.state {
            State::Entries(_) => {}
            State::Closed => {
                self.source.error(span, "a second block: its key is missing");
            }
            State::Name => {
                self.source
                    .error(span, "a block without a key")
                    .expect(["the block's key on the same line as its `{`"]);
            }
            State::Value => {
                self.source.error(span, "a value is missing after `=`");
            }
        }
        if self.open.len() == NESTING_MAX {
            let message = format!("more than {NESTING_MAX} blocks inside each other");
            self.source.error(span, message);
            return false;
        }
        self.open.push(self.at);
        self.at += 1;
        self.state = State::Name;
        true
    }

    fn close_block(&mut self) -> bool {
        self.end_node();
        self.end_disabled();
        if self.open.pop().is_none() {
            let span = self.char_span();
            self.source.error(span, "this `}` closes no block");
            return false;
        }
        self.at += 1;
        self.state = State::Closed;
        true
    }

    fn equals(&mut self) {
        if self.state == State::Entries(true) {
            self.state = State::Value;
        } else {
            let span = self.char_span();
            self.source.error(span, "this `=` has no property name before it").expect([
                "`key value` for a key, or `name=value` for a property after the key's value",
            ]);
        }
        self.at += 1;
    }

    /// A newline, `;`, closing brace or the end of the text ends a node.
    fn end_node(&mut self) {
        if self.state == State::Value {
            let span = Span::new(self.at.saturating_sub(1), self.at);
            self.source.error(span, "a value is missing after `=`");
        }
        // A node commented out ends where a node at its depth ends, unless it has not begun.
        if let Some((start, depth)) = self.disabled
            && depth == self.open.len()
            && self.state != State::Name
        {
            self.blank.push(Span::new(start, self.at));
            self.disabled = None;
        }
        self.state = State::Name;
    }

    /// At the end of a block nothing may be left to switch off.
    fn end_disabled(&mut self) {
        if let Some((start, depth)) = self.disabled
            && depth == self.open.len()
        {
            self.source.error(Span::new(start, start + 2), "`/-` with nothing after it");
            self.disabled = None;
        }
    }

    fn line_comment(&mut self) {
        let start = self.at;
        let length = self.rest().find(is_newline).unwrap_or(self.rest().len());
        self.at += length;
        self.blank.push(Span::new(start, self.at));
    }

    /// Block comments nest. They are spaces, even over several lines.
    fn block_comment(&mut self) -> bool {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        while self.at < bytes.len() {
            match &bytes[self.at..bytes.len().min(self.at + 2)] {
                b"/*" => (depth, self.at) = (depth + 1, self.at + 2),
                b"*/" => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
            if depth == 0 {
                self.blank.push(Span::new(start, self.at));
                return true;
            }
        }
        let span = Span::new(start, start + 2);
        self.source.error(span, "this comment is never closed").expect(["`*/`"]);
        false
    }

    fn slash_dash(&mut self) -> bool {
        if self.state != State::Name {
            let span = Span::new(self.at, self.at + 2);
            self.source.error(span, "`/-` may only stand before a key, to switch off its line");
        } else if self.disabled.is_none() {
            self.disabled = Some((self.at, self.open.len()));
        }
        self.at += 2;
        true
    }

    /// A backslash at the end of a line continues it on the next.
    fn continuation(&mut self) -> bool {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.peek() {
            match c {
                _ if is_space(c) => self.at += c.len_utf8(),
                _ if self.rest().starts_with("//") => self.line_comment(),
                _ if is_newline(c) => {
                    let newline = if self.rest().starts_with("\r\n") { 2 } else { c.len_utf8() };
                    self.at += newline;
                    self.blank.push(Span::new(start, self.at));
                    return true;
                }
                _ => break,
            }
        }
        let span = Span::new(start, start + 1);
        self.source.error(span, "a backslash may only stand in quotes or at the end of a line");
        false
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn char_span(&self) -> Span {
        Span::new(self.at, self.at + self.peek().map_or(0, char::len_utf8))
    }
}

/// KDL's white space (the specification's table), without line ends.
fn is_space(c: char) -> bool {
    matches!(c, '\t' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
        || matches!(c, '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// KDL's line ends (the specification's table).
fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// Characters that may only be written as escapes: controls, and those that change the direction
/// of writing and so could make a line read as what it is not.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
