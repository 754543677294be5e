//! HTML, rewritten as it streams by: elements are found by CSS selector and changed, images get
//! hints, hosts in URLs others, and what a list of ads hides is taken out. Whatever nothing is to
//! be done to stays as it is, to the byte.

mod ends;
mod handlers;
mod hide;
mod hosts;
mod images;
mod open;
mod rewriter;
mod shared;
mod strip;

use serde::{Deserialize, Serialize};

use super::{AdaptError, Adapted};
use crate::job::Limits;
use crate::wire::Why;

pub(crate) use hide::sheet;
pub use hide::{Hidden, Hide};
pub use rewriter::{Rewriter, Unsuited, is_suited};
pub use shared::Shared;

/// What stands for the nonce in texts of rules.
pub const NONCE: &str = "{nonce}";

/// Input is handed over by pieces of this size: what the parser has not understood yet is copied.
const PIECE_BYTES: usize = 32 << 10;

/// What is done to one page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rewriting {
    /// What is done to any page of its kind.
    pub html: Shared<Html>,
    /// What lists of ads and trackers hide.
    pub hide: Option<Shared<Hide>>,
    /// What its Content-Security-Policy asks scripts and styles for.
    pub nonce: Option<String>,
    /// As the response has it; without one it is what the page says, or UTF-8.
    pub charset: Option<String>,
}

/// What is done to pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Html {
    /// In this order; a later one does not see what an earlier one has put in.
    pub rules: Vec<Rule>,
    /// Hosts in URLs, and what becomes of them.
    pub hosts: Vec<Host>,
    /// What images are given.
    pub images: Images,
    /// What is taken out.
    pub strip: Strip,
}

/// Something to do with elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// A CSS selector that lol_html knows.
    pub selector: String,
    /// What is done with those it selects.
    pub action: Action,
}

/// What is done with an element. Texts are HTML.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Puts a text before it.
    Before(String),
    /// Puts a text after it.
    After(String),
    /// Puts a text before its content.
    Prepend(String),
    /// Puts a text after its content.
    Append(String),
    /// Puts a text in its place.
    Replace(String),
    /// Puts a text in the place of its content.
    Content(String),
    /// Takes it out.
    Remove,
    /// Takes it out, and leaves its content.
    Unwrap,
    /// Gives it an attribute, by name and value.
    Set(String, String),
    /// Takes an attribute away.
    Unset(String),
}

/// A host in URLs, and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Host {
    /// Host, and port if it has one, in lower case.
    pub from: String,
    /// What is written instead: `shop.example`; `https://shop.example` if the scheme changes, too;
    /// nothing for a URL without scheme and host.
    pub to: String,
}

/// What images are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Images {
    /// `loading="lazy"`, but for so many at the beginning of the page.
    pub lazy_after: Option<u32>,
    /// Several widths to choose from.
    pub srcset: Option<Srcset>,
}

/// Several widths of an image, which the query of its URL asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Srcset {
    /// The query's parameter.
    pub parameter: String,
    /// In pixels.
    pub widths: Vec<u32>,
    /// How wide an image is shown whose page does not say so; `None`: those stay as they are.
    pub sizes: Option<String>,
}

/// What is taken out of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strip {
    /// Comments, but for those that somebody evaluates.
    pub comments: bool,
    /// White space beyond what separates words.
    pub space: bool,
}

impl Rewriting {
    /// Whether it matters where elements end.
    fn needs_ends(&self) -> bool {
        self.hide.is_some() || self.html.rules.iter().any(Rule::needs_ends)
    }
}

impl Html {
    /// Whether a text has a place for the nonce.
    pub fn wants_nonce(&self) -> bool {
        self.rules.iter().any(|rule| rule.action.text().is_some_and(|text| text.contains(NONCE)))
    }
}

impl Rule {
    /// Whether it matters where elements end: something is done there, or what is asked for is
    /// more than one element's own.
    fn needs_ends(&self) -> bool {
        let is_begun = matches!(
            self.action,
            Action::Before(_) | Action::Prepend(_) | Action::Set(..) | Action::Unset(_)
        );
        !is_begun || self.selector.contains([' ', '>', ':'])
    }
}

impl Action {
    /// The same with the nonce in its places.
    fn with_nonce(self, nonce: &str) -> Action {
        let put = |text: String| match text.contains(NONCE) {
            true => text.replace(NONCE, nonce),
            false => text,
        };
        match self {
            Action::Before(text) => Action::Before(put(text)),
            Action::After(text) => Action::After(put(text)),
            Action::Prepend(text) => Action::Prepend(put(text)),
            Action::Append(text) => Action::Append(put(text)),
            Action::Replace(text) => Action::Replace(put(text)),
            Action::Content(text) => Action::Content(put(text)),
            Action::Set(name, text) => Action::Set(name, put(text)),
            other @ (Action::Remove | Action::Unwrap | Action::Unset(_)) => other,
        }
    }

    /// The text that it puts in.
    pub fn text(&self) -> Option<&str> {
        match self {
            Action::Before(text)
            | Action::After(text)
            | Action::Prepend(text)
            | Action::Append(text)
            | Action::Replace(text)
            | Action::Content(text)
            | Action::Set(_, text) => Some(text),
            Action::Remove | Action::Unwrap | Action::Unset(_) => None,
        }
    }
}

/// Rewrites a whole page. `tables` are the job's, of which [`Hide::table`] may be one.
///
/// # Errors
/// [`AdaptError::TooLarge`].
pub fn rewrite(
    input: &[u8],
    rewriting: &Rewriting,
    tables: &[&[u8]],
    limits: &Limits,
) -> Result<Adapted, AdaptError> {
    let at = rewriting.hide.as_ref().and_then(|hide| hide.table);
    let hidden = at.and_then(|at| tables.get(at)).map(|table| Hidden::copied(table));
    let mut rewriter = match Rewriter::new(rewriting, hidden, input) {
        Ok(rewriter) => rewriter,
        Err(Unsuited::Charset) => return Ok(Adapted::Original(Why::Charset)),
        Err(Unsuited::Selector(what)) => {
            return Err(AdaptError::Codec { what: "html", cause: what });
        }
    };
    let mut output = Vec::with_capacity(input.len() + input.len() / 8);
    for piece in input.chunks(PIECE_BYTES) {
        rewriter.push(piece, &mut output);
        if output.len() as u64 > limits.output_bytes {
            return Err(AdaptError::TooLarge { limit_bytes: limits.output_bytes });
        }
    }
    rewriter.finish(&mut output);
    if output.len() as u64 > limits.output_bytes {
        return Err(AdaptError::TooLarge { limit_bytes: limits.output_bytes });
    }
    if output == input {
        return Ok(Adapted::Original(Why::Unchanged));
    }
    Ok(Adapted::Made(output, rewriter.detail()))
}

#[cfg(test)]
mod tests;
