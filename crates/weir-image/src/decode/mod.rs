//! Pictures decoded, a frame at a time.

pub(crate) mod avif;
pub(crate) mod gif;
pub(crate) mod jpeg;
mod jpeg_markers;
pub(crate) mod png;
pub(crate) mod pnm;
pub(crate) mod webp;
mod yuv;

use crate::Error;
use crate::colour::Colour;
use crate::format::Source;
use crate::limits::Limits;
use crate::picture::{Frame, Picture};
use crate::probe::Probe;

/// The frames of a picture, one after the other; of one that does not move, one.
pub(crate) trait Frames {
    /// # Errors
    /// What is wrong with it.
    fn next(&mut self) -> Result<Option<Frame>, Error>;

    /// What colours mean, where that is known only now.
    fn colour(&self) -> Option<Colour> {
        None
    }
}

/// Something that does not move.
struct Still(Option<Picture>, Option<Colour>);

impl Frames for Still {
    fn next(&mut self) -> Result<Option<Frame>, Error> {
        Ok(self.0.take().map(|picture| Frame { picture, delay_ms: 0 }))
    }

    fn colour(&self) -> Option<Colour> {
        self.1.clone()
    }
}

/// Begins to decode what has been probed, within limits that it keeps. A decoder that can may make
/// it smaller by `shrink`, a power of two, right away.
///
/// # Errors
/// What is wrong with it, or [`Error::Hdr`].
pub(crate) fn open<'a>(
    input: &'a [u8],
    probe: &Probe,
    shrink: u32,
    limits: &Limits,
) -> Result<Box<dyn Frames + 'a>, Error> {
    let still = |picture: Picture| -> Box<dyn Frames> { Box::new(Still(Some(picture), None)) };
    Ok(match probe.source {
        Source::Jpeg => still(jpeg::decode(input, probe, shrink)?),
        Source::Png => Box::new(png::Apng::open(input, probe, limits)?),
        Source::Gif => Box::new(gif::Gif::open(input, probe, limits)?),
        Source::WebP if probe.frames > 1 => Box::new(webp::Animation::open(input, probe)?),
        Source::WebP => still(webp::decode(input)?),
        Source::Avif => {
            let (picture, colour) = avif::decode(input, limits)?;
            Box::new(Still(Some(picture), colour))
        }
        Source::Pnm => still(pnm::decode(input)?),
    })
}
