//! What is made of a response while it comes.

use http::HeaderMap;
use weir_adapt::Step;
use weir_adapt::adapters::decode;
use weir_adapt::stream::Chain;

use super::work::{self, Chosen};

/// What a request gets of a response that is not stored as it gets it.
pub(crate) struct Streamed {
    /// In the order in which it is done; something.
    pub(super) chosen: Vec<Chosen>,
    /// The same, spelled out.
    pub(super) steps: Vec<Step>,
}

impl Streamed {
    /// `headers` are those of the response.
    pub(super) fn new(chosen: Vec<Chosen>, headers: &HeaderMap) -> Streamed {
        Streamed { steps: work::steps(&chosen, headers), chosen }
    }

    /// Whether it is another page then, not the same one coded otherwise.
    pub(crate) fn changes_pages(&self) -> bool {
        self.chosen.iter().any(Chosen::changes_pages)
    }

    /// What it is called then.
    pub(crate) fn name(&self) -> String {
        work::name(&self.chosen)
    }

    /// The content coding that it has then.
    pub(crate) fn coding(&self) -> Option<&'static str> {
        self.chosen.last()?.coding()
    }

    /// What is done, for the header field that tells so.
    pub(crate) fn detail(&self) -> String {
        let words = self.steps.iter().filter_map(|step| match step {
            Step::Html(_) => Some("html;stream".to_owned()),
            Step::Compress(compress) => {
                Some(format!("{};q={};stream", compress.coding.token(), compress.level))
            }
            _ => None,
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// Whether what begins like this may be what it says that it is: otherwise it would end where
    /// it is decoded.
    pub(crate) fn may_take(&self, beginning: &[u8]) -> bool {
        let outermost = self.steps.iter().filter_map(|step| match step {
            Step::Decode(codings) => codings.last(),
            _ => None,
        });
        outermost.take(1).all(|coding| decode::may_be(*coding, beginning))
    }

    /// What it goes through; `None` if that cannot be done while it comes.
    pub(crate) fn chain(&self) -> Option<Chain> {
        Chain::new(&self.steps, &work::tables(&self.chosen))
    }
}
