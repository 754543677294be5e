//! The text being parsed: byte spans → line and column, and the errors found so far. Every stage
//! reports through [`Source`], so an error looks the same whichever stage found it.

use std::path::{Path, PathBuf};

use crate::error::{ConfigError, Errors, Excerpt};
use crate::limits::ERRORS_MAX;

/// Bytes of the text that an error or a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) start: usize,
    /// One past the last byte.
    pub(crate) end: usize,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Span { start, end }
    }
}

/// The text with its name, its line starts and its errors.
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    /// Directory that relative paths in the file are relative to.
    directory: PathBuf,
    /// Byte offset of each line's first byte.
    line_starts: Vec<usize>,
    errors: Vec<(usize, ConfigError)>,
    /// Errors beyond [`ERRORS_MAX`].
    unreported: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str, directory: &Path) -> Self {
        let breaks = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Source {
            file,
            text,
            directory: directory.to_owned(),
            line_starts,
            errors: Vec::new(),
            unreported: 0,
        }
    }

    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// Reports an error; the caller may add to it what was expected.
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>) -> &mut ConfigError {
        let error = self.locate(span, message.into());
        if self.errors.len() == ERRORS_MAX {
            // The caller still gets an error to complete: the last slot, of which only the count
            // of unreported errors survives in `finish`.
            self.unreported += 1;
            self.errors.truncate(ERRORS_MAX - 1);
        }
        self.errors.push((span.start, error));
        let last = self.errors.len() - 1;
        &mut self.errors[last].1
    }

    /// Reports an error that concerns the whole file.
    pub(crate) fn whole_error(&mut self, message: impl Into<String>) -> &mut ConfigError {
        let file = self.file;
        let end = Span::new(self.text.len(), self.text.len());
        let error = self.error(end, message);
        *error = ConfigError::whole(file, std::mem::take(&mut error.message));
        error
    }

    /// True once errors are no longer kept, so that a stage may stop looking.
    pub(crate) fn is_full(&self) -> bool {
        self.unreported > 0
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// The line number (from 1) of a byte.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= at)
    }

    /// A path as written in the file, made relative to the file's directory.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// The errors in file order, or nothing if there are none.
    pub(crate) fn finish(mut self) -> Option<Errors> {
        if self.errors.is_empty() {
            return None;
        }
        self.errors.sort_by_key(|&(at, _)| at);
        let mut errors: Vec<ConfigError> = self.errors.into_iter().map(|(_, e)| e).collect();
        if self.unreported > 0 {
            let message = format!("and {} more errors", self.unreported + 1);
            errors.pop();
            errors.push(ConfigError::whole(self.file, message));
        }
        Some(Errors(errors))
    }

    fn locate(&self, span: Span, message: String) -> ConfigError {
        let start = floor_char(self.text, span.start);
        let line = self.line_of(start);
        // `line_starts` begins with 0, so every byte has a line.
        let line_start = self.line_starts[line - 1];
        let next_line = self.line_starts.get(line).copied();
        let line_end = next_line.map_or(self.text.len(), |next| next - 1).max(start);
        let end = floor_char(self.text, span.end).clamp(start, line_end);
        let before = &self.text[line_start..start];
        let after = self.text[end..line_end].trim_end_matches('\r');
        let mut error = ConfigError::whole(self.file, message);
        error.line = line;
        error.column = before.chars().count() + 1;
        error.excerpt = Excerpt::new(before, &self.text[start..end], after);
        error
    }
}

/// The start of the character that a byte belongs to; the text's end for a byte beyond it.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
