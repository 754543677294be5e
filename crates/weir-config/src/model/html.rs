//! What routes do to HTML, and to ads and trackers.

use std::path::PathBuf;
use std::time::Duration;

/// `html` in a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Html {
    /// What is done with elements, in file order.
    pub rules: Vec<HtmlRule>,
    /// Hosts in URLs, and what is written instead.
    pub hosts: Vec<HtmlHost>,
    /// `loading="lazy"` for all images but so many at the beginning of a page.
    pub lazy_after: Option<u32>,
    /// Widths for images to choose from.
    pub srcset: Option<Srcset>,
    /// Comments are left out.
    pub strip_comments: bool,
    /// White space beyond what separates words is left out.
    pub strip_space: bool,
    /// How long a request may wait for its variant, rather than have the original at once.
    pub wait: Duration,
    /// What is not stored, or not changed yet, is changed as it is sent.
    pub stream: bool,
}

impl Default for Html {
    fn default() -> Html {
        Html {
            rules: Vec::new(),
            hosts: Vec::new(),
            lazy_after: None,
            srcset: None,
            strip_comments: false,
            strip_space: false,
            wait: Duration::ZERO,
            stream: true,
        }
    }
}

/// One line of the `html` block that is about elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HtmlRule {
    /// Which elements: a CSS selector.
    pub selector: String,
    /// What is done with them.
    pub action: HtmlAction,
}

/// What is done with an element. Texts are HTML.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HtmlAction {
    /// A text before it.
    Before(String),
    /// A text after it.
    After(String),
    /// A text before its content.
    Prepend(String),
    /// A text after its content.
    Append(String),
    /// A text in its place.
    Replace(String),
    /// A text in the place of its content.
    Content(String),
    /// Nothing in its place.
    Remove,
    /// Its content in its place.
    Unwrap,
    /// An attribute, by name and value.
    Set(String, String),
    /// An attribute less.
    Unset(String),
}

/// A host in URLs, and what is written instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HtmlHost {
    /// Host, and port if it has one, in lower case.
    pub from: String,
    /// A host, a scheme and a host, or nothing: then URLs have neither.
    pub to: String,
}

/// `srcset`: an image in several widths, which the query of its URL asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Srcset {
    /// In pixels, the least first.
    pub widths: Vec<u32>,
    /// The query's parameter.
    pub parameter: String,
    /// How wide an image is shown whose page does not say so; `None`: those stay as they are.
    pub sizes: Option<String>,
}

/// `ads` in a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Ads {
    /// Files of rules, at least one.
    pub lists: Vec<PathBuf>,
    /// Requests that they block are not asked of anybody.
    pub block: bool,
    /// What they hide is taken out of pages.
    pub hide: bool,
    /// How long a request may wait for its variant, rather than have the original at once.
    pub wait: Duration,
    /// Pages that are not stored, or not changed yet, are changed as they are sent.
    pub stream: bool,
}

impl HtmlAction {
    /// The text that it puts in.
    pub fn text(&self) -> Option<&str> {
        match self {
            HtmlAction::Before(text)
            | HtmlAction::After(text)
            | HtmlAction::Prepend(text)
            | HtmlAction::Append(text)
            | HtmlAction::Replace(text)
            | HtmlAction::Content(text)
            | HtmlAction::Set(_, text) => Some(text),
            HtmlAction::Remove | HtmlAction::Unwrap | HtmlAction::Unset(_) => None,
        }
    }
}
