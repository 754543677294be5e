//! What the headers of a picture say, read before memory is taken for it.

use crate::Error;
use crate::colour::Colour;
use crate::decode;
use crate::format::Source;
use crate::limits::Limits;
use crate::orientation::Orientation;

/// What the headers of a picture say.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its format.
    pub source: Source,
    /// Pixels of a row, as it is stored.
    pub width: u32,
    /// Rows, as it is stored.
    pub height: u32,
    /// 1 if it does not move. No more than one above what limits allow are counted.
    pub frames: u32,
    /// How often it is played; 0 for without end.
    pub loops: u32,
    /// How it is to be turned.
    pub(crate) orientation: Orientation,
    /// What its colours mean.
    pub(crate) colour: Colour,
    /// Bytes that a decoder needs besides the pixels that come of it.
    pub(crate) beside_bytes: u64,
    /// What of it nobody here can work on.
    pub(crate) unsupported: Option<Unsupported>,
}

/// What of a picture nobody here can work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsupported {
    /// More light than a screen has white, which would have to be guessed for others.
    Hdr,
    /// A kind that is too rare.
    Kind,
}

impl Probe {
    pub(crate) fn still(source: Source, width: u32, height: u32) -> Probe {
        Probe {
            source,
            width,
            height,
            frames: 1,
            loops: 0,
            orientation: Orientation::default(),
            colour: Colour::Srgb,
            beside_bytes: 0,
            unsupported: None,
        }
    }
}

/// Reads the headers of a picture. `None` for what is none, or none that is read.
///
/// # Errors
/// [`Error::Codec`] for what begins like a picture and is damaged.
pub fn probe(input: &[u8], limits: &Limits) -> Result<Option<Probe>, Error> {
    let Some(source) = Source::of(input) else { return Ok(None) };
    let probe = match source {
        Source::Jpeg => decode::jpeg::probe(input),
        Source::Png => decode::png::probe(input),
        Source::Gif => decode::gif::probe(input, limits),
        Source::WebP => decode::webp::probe(input, limits),
        Source::Avif => decode::avif::probe(input, limits),
        Source::Pnm => decode::pnm::probe(input),
    }?;
    match (probe.width, probe.height, probe.frames) {
        (0, _, _) | (_, 0, _) | (_, _, 0) => Err(Error::codec(source.name(), "it is empty")),
        _ => Ok(Some(probe)),
    }
}
