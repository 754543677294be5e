//! The crate's one error type. A message names the file, program or value and what was expected.

use std::io;
use std::path::PathBuf;

/// Why an experiment, or a part of one, could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, and to what.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program is not installed.
    #[error("{contender} is not installed: none of {looked_for}; {remedy}")]
    Missing {
        /// Name of the contender.
        contender: &'static str,
        /// Programs looked for.
        looked_for: String,
        /// What the user can do.
        remedy: String,
    },
    /// A contender did not come up.
    #[error("{contender} did not answer: {reason}; the end of its output:\n{output}")]
    Start {
        /// Name of the contender.
        contender: &'static str,
        /// What went wrong last.
        reason: String,
        /// Tail of what it printed.
        output: String,
    },
    /// A peer answered with something other than what was expected.
    #[error("{0}")]
    Answer(String),
    /// A template asks for a value nobody gave.
    #[error("template {template}: no value for {{{{{name}}}}}")]
    Template {
        /// File name of the template.
        template: &'static str,
        /// Name in double braces.
        name: String,
    },
    /// A result file that cannot be read or written.
    #[error("{path}: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// Something that this system or user does not allow; other experiments may still run.
    #[error("{0}")]
    Unavailable(String),
    /// A command line that makes no sense.
    #[error("{0}")]
    Usage(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds what was being done to a system error.
pub trait Doing<T> {
    /// Wraps the error with `doing`, which is only evaluated on failure.
    ///
    /// # Errors
    /// The wrapped error, if there is one.
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: doing(), source: source.into() })
    }
}
