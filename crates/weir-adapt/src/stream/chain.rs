//! What a stream goes through: codings undone, a page rewritten, a coding made.

use bytes::Bytes;

use super::decoder::Decoder;
use super::encoder::Encoder;
use super::page::Page;
use crate::adapters::AdaptError;
use crate::adapters::compress::Compress;
use crate::adapters::decode::{self, CODINGS_MAX};
use crate::adapters::html::Hidden;
use crate::job::Step;

/// Bytes that go from one stage to the next at a time.
const PIECE_BYTES: usize = 32 << 10;

/// Bytes that are worked through before others have their turn, decoded: some 1 ms. However much a
/// piece stands for, no more of it lies in memory.
const TURN_BYTES: usize = 128 << 10;

/// The stages of a stream. It holds at most some MB, and with zstd's or brotli's largest windows to
/// undo 8 or 16 MB more.
pub struct Chain {
    /// The outermost first.
    decoders: Vec<Decoder>,
    page: Option<Page>,
    coding: Coding,
    /// What came and was not worked on yet.
    input: Bytes,
    /// Bytes that came.
    taken: u64,
    /// All that comes, where that is known before anything is coded.
    expected: Option<usize>,
    has_more: bool,
    is_finished: bool,
    /// What has become of the page.
    detail: Option<String>,
}

/// The last stage.
enum Coding {
    Nothing,
    /// Nothing has come yet.
    Wished(Compress),
    Made(Box<Encoder>),
}

impl Chain {
    /// A stream that goes through these steps; `None` if they cannot be done while it comes.
    /// `tables` are what they look things up in. Nothing is made before the first work.
    #[must_use]
    pub fn new(steps: &[Step], tables: &[Bytes]) -> Option<Chain> {
        let mut chain = Chain {
            decoders: Vec::new(),
            page: None,
            coding: Coding::Nothing,
            input: Bytes::new(),
            taken: 0,
            expected: None,
            has_more: false,
            is_finished: false,
            detail: None,
        };
        for step in steps {
            let is_coded = matches!(chain.coding, Coding::Wished(_));
            match step {
                Step::Decode(codings) if chain.page.is_none() && !is_coded => {
                    chain.decoders.extend(codings.iter().rev().map(|coding| Decoder::new(*coding)));
                }
                Step::Html(rewriting) if chain.page.is_none() && !is_coded => {
                    let at = rewriting.hide.as_ref().and_then(|hide| hide.table);
                    let table = at.and_then(|at| tables.get(at)).cloned();
                    chain.page = Some(Page::new(rewriting.clone(), table.map(Hidden::placed)));
                }
                Step::Compress(compress) if !is_coded => {
                    chain.coding = Coding::Wished(*compress);
                }
                _ => return None,
            }
        }
        (chain.decoders.len() <= CODINGS_MAX).then_some(chain)
    }

    /// Works on a piece; returns what there is of the result. There must be [no
    /// more](Chain::has_more) of what came before.
    ///
    /// # Errors
    /// [`AdaptError::Codec`] for what cannot be decoded, [`AdaptError::Bomb`] for what becomes too
    /// much: the stream cannot go on.
    pub fn code(&mut self, piece: Bytes) -> Result<Vec<u8>, AdaptError> {
        self.taken += piece.len() as u64;
        self.input = piece;
        self.go_on()
    }

    /// Goes on with what has come already.
    ///
    /// # Errors
    /// As [`Chain::code`].
    pub fn go_on(&mut self) -> Result<Vec<u8>, AdaptError> {
        let (mut output, mut worked) = (Vec::new(), 0);
        self.has_more = true;
        while worked < TURN_BYTES {
            let piece = pull(&mut self.decoders, &mut self.input, self.taken)?;
            if piece.is_empty() {
                self.has_more = false;
                break;
            }
            worked += piece.len();
            self.pass(&piece, &mut output)?;
        }
        Ok(output)
    }

    /// Whether there is work left of what has come.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Everything that can be known of what has come: whoever has it can decode it.
    ///
    /// # Errors
    /// Want of memory.
    pub fn flush(&mut self) -> Result<Vec<u8>, AdaptError> {
        match &mut self.coding {
            Coding::Made(encoder) => {
                let mut output = Vec::new();
                encoder.flush(&mut output).map_err(failed)?;
                Ok(output)
            }
            Coding::Nothing | Coding::Wished(_) => Ok(Vec::new()),
        }
    }

    /// The end.
    ///
    /// # Errors
    /// As [`Chain::code`], also for what is cut off.
    pub fn finish(&mut self) -> Result<Vec<u8>, AdaptError> {
        self.decoders.iter().try_for_each(Decoder::end)?;
        let mut output = Vec::new();
        if let Some(mut page) = self.page.take() {
            let mut text = Vec::new();
            self.detail = page.finish(&mut text);
            self.encode(&text, &mut output)?;
        }
        self.encode(&[], &mut output)?;
        if let Coding::Made(encoder) = std::mem::replace(&mut self.coding, Coding::Nothing) {
            encoder.finish(&mut output).map_err(failed)?;
        }
        self.is_finished = true;
        Ok(output)
    }

    /// Works on the last piece, and ends if that leaves [no more](Chain::has_more) of it.
    ///
    /// # Errors
    /// As [`Chain::code`] and [`Chain::finish`].
    pub fn code_last(&mut self, piece: Bytes) -> Result<Vec<u8>, AdaptError> {
        self.expected = (self.taken == 0 && self.decoders.is_empty()).then_some(piece.len());
        let mut output = self.code(piece)?;
        if !self.has_more {
            output.append(&mut self.finish()?);
        }
        Ok(output)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// What has become of a page, once it has ended: as [`Rewriter::detail`].
    ///
    /// [`Rewriter::detail`]: crate::adapters::html::Rewriter::detail
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    fn pass(&mut self, piece: &[u8], output: &mut Vec<u8>) -> Result<(), AdaptError> {
        let Some(page) = &mut self.page else { return self.encode(piece, output) };
        let mut text = Vec::with_capacity(piece.len());
        page.push(piece, &mut text);
        self.encode(&text, output)
    }

    fn encode(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<(), AdaptError> {
        if let Coding::Wished(compress) = &self.coding {
            let encoder = Encoder::new(compress, self.expected).map_err(failed)?;
            self.coding = Coding::Made(Box::new(encoder));
        }
        match &mut self.coding {
            Coding::Made(encoder) => encoder.code(text, output).map_err(failed)?,
            Coding::Nothing | Coding::Wished(_) => output.extend_from_slice(text),
        }
        Ok(())
    }
}

/// The next piece behind all decoders; nothing if they need more input.
fn pull(decoders: &mut [Decoder], input: &mut Bytes, taken: u64) -> Result<Bytes, AdaptError> {
    let Some((last, before)) = decoders.split_last_mut() else {
        return Ok(input.split_to(input.len().min(PIECE_BYTES)));
    };
    let mut piece = vec![0; PIECE_BYTES];
    // Each turn but the last brings input, of which there is so much.
    loop {
        let made = last.take(&mut piece)?;
        if made > 0 {
            decode::judge_ratio(last.made, taken)?;
            piece.truncate(made);
            return Ok(piece.into());
        }
        let more = pull(before, input, taken)?;
        if more.is_empty() {
            return Ok(Bytes::new());
        }
        last.put(more);
    }
}

fn failed(error: std::io::Error) -> AdaptError {
    AdaptError::Codec { what: "compress", cause: error.to_string() }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
