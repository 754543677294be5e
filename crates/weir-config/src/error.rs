//! What is wrong with a configuration: errors that name file, line and column, show the line, and
//! say what was expected. Collecting them is [`crate::source`]'s job.

use std::fmt;

use serde::Serialize;

/// One thing that is wrong with a configuration.
///
/// Serialised (for `--json`) as `{file, line, column, message, expected, suggestion}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file as it was named to the parser.
    pub file: String,
    /// Line, from 1; 0 when the error concerns the whole file.
    pub line: usize,
    /// Column in characters, from 1; 0 when the error concerns the whole file.
    pub column: usize,
    /// What is wrong, as a phrase without a full stop.
    pub message: String,
    /// What would be right: the keys or values allowed here, or one description of them.
    pub expected: Vec<String>,
    /// What the author probably meant.
    pub suggestion: Option<String>,
    /// The line of the file that the error points at.
    #[serde(skip)]
    pub(crate) excerpt: Excerpt,
}

impl ConfigError {
    /// An error that concerns a whole file, or something that is no file (a URL, a directory).
    pub(crate) fn whole(file: impl Into<String>, message: impl Into<String>) -> Self {
        ConfigError {
            file: file.into(),
            line: 0,
            column: 0,
            message: message.into(),
            expected: Vec::new(),
            suggestion: None,
            excerpt: Excerpt::default(),
        }
    }

    /// Adds what the author probably meant.
    pub(crate) fn suggest(&mut self, suggestion: Option<impl Into<String>>) -> &mut Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }

    /// Adds what would have been right.
    pub(crate) fn expect<T: Into<String>>(&mut self, items: impl IntoIterator<Item = T>) {
        self.expected = items.into_iter().map(Into::into).collect();
    }

    fn headline(&self, f: &mut impl fmt::Write) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message)?,
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message)?,
        }
        let mut separator = ";";
        if let Some(suggestion) = &self.suggestion {
            // KDL's keywords are written without quotes; all else is safe in them.
            let quote = if suggestion.starts_with('#') { '`' } else { '"' };
            write!(f, "; did you mean {quote}{suggestion}{quote}?")?;
            separator = "";
        }
        match self.expected.as_slice() {
            [] => Ok(()),
            [one] => write!(f, "{separator} expected {one}"),
            several => write!(f, "{separator} expected one of {}", several.join(", ")),
        }
    }
}

impl fmt::Display for ConfigError {
    /// In the style of a compiler: the error, the source line, a caret under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(&mut Visible(f))?;
        if self.line == 0 {
            return Ok(());
        }
        let Excerpt { before, place, after } = &self.excerpt;
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // A tab before the place is kept as a tab, so that the caret stands where the eye looks
        // whatever the terminal's tab width.
        let indent: String = before.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(place.chars().count().max(1));
        write!(f, "\n{margin} |\n{number} | {before}{place}{after}\n{margin} | {indent}{carets}")
    }
}

impl std::error::Error for ConfigError {}

/// Writes control characters as escapes: values quoted in a message may contain them, and an error
/// must not write escape codes to a terminal.
struct Visible<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c.is_control() {
            true => write!(self.0, "{}", c.escape_default()),
            false => self.0.write_char(c),
        })
    }
}

/// The part of a line that an error shows, without controls: an error must not write escape codes
/// to a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    before: String,
    /// What is underlined.
    place: String,
    after: String,
}

/// Characters shown before, at and after the place of an error.
const BEFORE_MAX: usize = 80;
const PLACE_MAX: usize = 80;
const AFTER_MAX: usize = 60;

impl Excerpt {
    /// The line in three parts, each cut to what is worth showing.
    pub(crate) fn new(before: &str, place: &str, after: &str) -> Self {
        let plain = |c: char| if c.is_control() && c != '\t' { ' ' } else { c };
        let skip = before.char_indices().rev().nth(BEFORE_MAX - 1).map_or(0, |(at, _)| at);
        Excerpt {
            before: before[skip..].chars().map(plain).collect(),
            place: place.chars().take(PLACE_MAX).map(plain).collect(),
            after: after.chars().take(AFTER_MAX).map(plain).collect(),
        }
    }
}

/// All that is wrong with a configuration, in file order; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Errors(pub(crate) Vec<ConfigError>);

impl Errors {
    /// The errors in file order.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }

    /// Number of errors.
    #[expect(clippy::len_without_is_empty, reason = "a value of this type is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<ConfigError> for Errors {
    fn from(error: ConfigError) -> Self {
        Errors(vec![error])
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
