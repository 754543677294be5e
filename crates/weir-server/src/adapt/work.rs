//! What adapters would do with a response: of it, a hit needs no more than what finds the variant.
//! What that is called, and the steps that lead to it, are spelled out when it is made.

use std::fmt::{self, Display, Formatter};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use weir_adapt::Step;
use weir_adapt::adapters::compress::Compress;
use weir_adapt::adapters::image::Image;

use super::html::Page;
use super::image;

/// What an adapter would do.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Tells it from whatever else the adapter might do, on this route or another.
    pub(super) key: u64,
    pub(super) work: Work,
}

/// That, by its kind.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// The response gets a content coding.
    Compress(Compress),
    /// It becomes a picture of a type that nobody knows yet.
    Image(Image),
    /// It becomes another page.
    Page(Page),
}

impl Chosen {
    /// Whether it makes another page, not the same one coded otherwise.
    pub(super) fn changes_pages(&self) -> bool {
        matches!(self.work, Work::Page(_))
    }

    /// The type that the result has, by what its helper says of it, if that may be another one.
    pub(super) fn content_type(&self) -> Option<fn(&str) -> Option<HeaderValue>> {
        let by_detail: fn(&str) -> Option<HeaderValue> = image::content_type;
        matches!(self.work, Work::Image(_)).then_some(by_detail)
    }

    /// The content coding that the result has.
    pub(super) fn coding(&self) -> Option<&'static str> {
        let compress = match &self.work {
            Work::Compress(compress) => Some(compress),
            Work::Page(page) => page.again.as_ref(),
            Work::Image(_) => None,
        };
        compress.map(|compress| compress.coding.token())
    }

    /// What its steps look things up in.
    fn table(&self) -> Option<Bytes> {
        match &self.work {
            Work::Page(page) => page.table(),
            Work::Compress(_) | Work::Image(_) => None,
        }
    }
}

/// What goes into the entity tag: letters, digits, and what else may stand there.
impl Display for Chosen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.work {
            // Another level makes other bytes.
            Work::Compress(compress) => {
                write!(f, "{}{}", compress.coding.token(), compress.level)
            }
            // What it is made into is known when it is made; what it depends on tells it apart.
            Work::Image(_) => write!(f, "image{:0digits$x}", self.key, digits = image::KEY_DIGITS),
            Work::Page(page) => f.write_str(&page.name),
        }
    }
}

/// What the result of some is called.
pub(super) fn name(chosen: &[Chosen]) -> String {
    chosen.iter().map(ToString::to_string).collect::<Vec<_>>().join("-")
}

/// What is to be done, one step after the other, to a response with these `headers`.
pub(super) fn steps(chosen: &[Chosen], headers: &HeaderMap) -> Vec<Step> {
    let mut steps = Vec::new();
    for one in chosen {
        match &one.work {
            Work::Compress(compress) => steps.push(Step::Compress(*compress)),
            Work::Image(image) => steps.push(Step::Image(image.clone())),
            Work::Page(page) => steps.extend(page.steps(headers)),
        }
    }
    steps
}

/// What those steps look things up in.
pub(super) fn tables(chosen: &[Chosen]) -> Vec<Bytes> {
    chosen.iter().filter_map(Chosen::table).collect()
}
