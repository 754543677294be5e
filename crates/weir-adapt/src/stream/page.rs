//! A page rewritten while it comes.

use crate::adapters::html::{Hidden, Rewriter, Rewriting};

/// A byte order mark is no longer than this (WHATWG Encoding, section 6).
const MARK_BYTES: usize = 3;

/// A page on its way.
pub(super) enum Page {
    /// Less than a byte order mark has come.
    Beginning(Box<Beginning>),
    Rewritten(Box<Rewriter>),
    /// It cannot be rewritten.
    AsItIs,
}

pub(super) struct Beginning {
    rewriting: Rewriting,
    hidden: Option<Hidden>,
    bytes: Vec<u8>,
}

impl Page {
    pub(super) fn new(rewriting: Rewriting, hidden: Option<Hidden>) -> Page {
        Page::Beginning(Box::new(Beginning { rewriting, hidden, bytes: Vec::new() }))
    }

    /// Takes the next piece, and appends what is ready to `text`.
    pub(super) fn push(&mut self, piece: &[u8], text: &mut Vec<u8>) {
        match self {
            Page::AsItIs => text.extend_from_slice(piece),
            Page::Rewritten(rewriter) => rewriter.push(piece, text),
            Page::Beginning(beginning) => {
                beginning.bytes.extend_from_slice(piece);
                if beginning.bytes.len() >= MARK_BYTES {
                    self.begin(text);
                }
            }
        }
    }

    /// The page ends: appends what is left, and returns what was done.
    pub(super) fn finish(&mut self, text: &mut Vec<u8>) -> Option<String> {
        if let Page::Beginning(_) = self {
            self.begin(text);
        }
        let Page::Rewritten(rewriter) = self else { return None };
        rewriter.finish(text);
        Some(rewriter.detail())
    }

    fn begin(&mut self, text: &mut Vec<u8>) {
        let Page::Beginning(beginning) = std::mem::replace(self, Page::AsItIs) else { return };
        let Beginning { rewriting, hidden, bytes } = *beginning;
        match Rewriter::new(&rewriting, hidden, &bytes) {
            Ok(rewriter) => *self = Page::Rewritten(Box::new(rewriter)),
            Err(why) => tracing::debug!(?why, "a page is sent as it is"),
        }
        self.push(&bytes, text);
    }
}
