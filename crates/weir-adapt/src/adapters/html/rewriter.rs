//! The rewriter itself: takes a page piece by piece, and gives what has become of it as soon as
//! that is known. Its memory is bounded: what needs more is left as it was from there on.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use lol_html::send::Settings;
use lol_html::{AsciiCompatibleEncoding, OutputSink, send};
use parking_lot::Mutex;

use super::ends::{Ends, Part, cut_ends};
use super::{Hidden, Rewriting, handlers, strip};

/// Memory of the parser: elements that are open, and a tag that has not ended.
pub(super) const MEMORY_BYTES_MAX: usize = 2 << 20;

/// Why a page cannot be rewritten.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsuited {
    /// Its encoding is none that has ASCII in it, such as UTF-16, or is not known.
    Charset,
    /// A selector is not known; what is wrong with it.
    Selector(String),
}

/// What has been done to a page so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Elements that were changed, and what was taken out.
    pub(super) changed: AtomicU64,
    /// Elements that a list of ads had taken out.
    pub(super) hidden: AtomicU64,
}

/// Rewrites one page.
pub struct Rewriter {
    /// Makes white space thin, before anything else is done.
    space: Option<Pass>,
    page: Pass,
    counts: Arc<Counts>,
}

/// A parser at work.
struct Pass {
    /// Without one the page passes as it is.
    inner: Option<send::HtmlRewriter<'static, Sink>>,
    /// Finds ends that the page leaves out, if somebody cares.
    ends: Option<Box<Ends>>,
    /// It was told of some.
    has_told_ends: bool,
    output: Arc<Mutex<Vec<u8>>>,
    has_bailed_out: bool,
}

/// Where the parser puts what it is done with.
struct Sink(Arc<Mutex<Vec<u8>>>);

impl OutputSink for Sink {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        self.0.lock().extend_from_slice(chunk);
    }
}

impl Rewriter {
    /// A rewriter for a page that begins with `beginning`, which is only looked at.
    ///
    /// # Errors
    /// If that page, or any, cannot be rewritten.
    pub fn new(
        rewriting: &Rewriting,
        hidden: Option<Hidden>,
        beginning: &[u8],
    ) -> Result<Rewriter, Unsuited> {
        let encoding = encoding(rewriting, beginning).ok_or(Unsuited::Charset)?;
        let counts = Arc::new(Counts::default());
        let settings = handlers::settings(rewriting, hidden, &counts);
        let settings = settings.map_err(Unsuited::Selector)?;
        let page = settings
            .with_encoding(encoding)
            .with_adjust_charset_on_meta_tag(rewriting.charset.is_none());
        let space = match rewriting.html.strip.space {
            true => Some(Pass::of_space()?),
            false => None,
        };
        let ends = rewriting.needs_ends().then(Box::default);
        Ok(Rewriter { space, page: Pass { ends, ..Pass::new(page) }, counts })
    }

    /// Takes the next piece, and appends what is ready to `output`.
    pub fn push(&mut self, piece: &[u8], output: &mut Vec<u8>) {
        let Some(space) = &mut self.space else { return self.page.push(piece, output) };
        let mut thin = Vec::with_capacity(piece.len());
        space.push(piece, &mut thin);
        self.page.push(&thin, output);
    }

    /// The page ends: appends what is left.
    pub fn finish(&mut self, output: &mut Vec<u8>) {
        if let Some(space) = &mut self.space {
            let mut thin = Vec::new();
            space.finish(&mut thin);
            self.page.push(&thin, output);
        }
        self.page.finish(output);
    }

    /// Whether the page needed more memory than there is, so that its end is as it was.
    pub fn has_bailed_out(&self) -> bool {
        self.page.has_bailed_out || self.space.as_ref().is_some_and(|space| space.has_bailed_out)
    }

    /// Elements that lists of ads and trackers have had taken out so far.
    pub fn hidden(&self) -> u64 {
        self.counts.hidden.load(Relaxed)
    }

    /// What was done, for the header field that tells so.
    pub fn detail(&self) -> String {
        let mut detail = format!("html;changed={}", self.counts.changed.load(Relaxed));
        match self.hidden() {
            0 => {}
            hidden => detail.push_str(&format!(";hidden={hidden}")),
        }
        if self.has_bailed_out() {
            detail.push_str(";partial");
        }
        detail
    }
}

impl Pass {
    fn new(settings: Settings<'static, 'static>) -> Pass {
        let output = Arc::default();
        let sink = Sink(Arc::clone(&output));
        let inner = Some(send::HtmlRewriter::new(settings, sink));
        Pass { inner, ends: None, has_told_ends: false, output, has_bailed_out: false }
    }

    /// Text that is looked at is decoded and coded again, and what is none in the page's encoding
    /// would not come back. White space is the same bytes in all encodings that pages may have, and
    /// no part of another character: so they are read in one in which each byte is a character
    /// (WHATWG Encoding, section 9).
    fn of_space() -> Result<Pass, Unsuited> {
        let bytes = AsciiCompatibleEncoding::new(WINDOWS_1252).ok_or(Unsuited::Charset)?;
        let settings = strip::space(handlers::nothing()).map_err(Unsuited::Selector)?;
        let settings = settings.with_encoding(bytes).with_adjust_charset_on_meta_tag(false);
        Ok(Pass::new(settings))
    }

    fn push(&mut self, piece: &[u8], output: &mut Vec<u8>) {
        match self.ends.take() {
            None => self.tell(&Part::Page(piece)),
            Some(mut ends) => {
                ends.push(piece, &mut |part| self.tell(&part));
                self.ends = Some(ends);
            }
        }
        self.take(output);
    }

    /// Appends what there is to `output`.
    fn take(&mut self, output: &mut Vec<u8>) {
        let mut ready = self.output.lock();
        if self.has_told_ends {
            cut_ends(&mut ready);
        }
        output.append(&mut ready);
    }

    fn tell(&mut self, part: &Part<'_>) {
        let told = match (&mut self.inner, part) {
            (Some(inner), Part::Page(bytes)) => inner.write(bytes),
            (Some(inner), Part::End(tag)) => {
                self.has_told_ends = true;
                inner.write(tag.as_bytes())
            }
            (None, Part::Page(bytes)) => return self.output.lock().extend_from_slice(bytes),
            (None, Part::End(_)) => return,
        };
        if told.is_err() {
            // What it had taken in has gone out as it was, this part's end included.
            self.inner = None;
            self.has_bailed_out = true;
        }
    }

    fn finish(&mut self, output: &mut Vec<u8>) {
        if let Some(mut ends) = self.ends.take() {
            ends.finish(&mut |part| self.tell(&part));
        }
        if let Some(inner) = self.inner.take() {
            self.has_bailed_out |= inner.end().is_err();
        }
        self.take(output);
    }
}

impl std::fmt::Debug for Rewriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rewriter").field("detail", &self.detail()).finish_non_exhaustive()
    }
}

/// Whether pages can be rewritten whose response says what this has of them, as far as that is
/// known before they come.
pub fn is_suited(rewriting: &Rewriting) -> bool {
    encoding(rewriting, b"").is_some()
}

/// A byte order mark goes before what the response says (WHATWG Encoding, section 6).
fn encoding(rewriting: &Rewriting, beginning: &[u8]) -> Option<AsciiCompatibleEncoding> {
    let encoding = match (Encoding::for_bom(beginning), &rewriting.charset) {
        (Some((encoding, _)), _) => encoding,
        (None, Some(label)) => Encoding::for_label_no_replacement(label.as_bytes())?,
        (None, None) => UTF_8,
    };
    AsciiCompatibleEncoding::new(encoding)
}
