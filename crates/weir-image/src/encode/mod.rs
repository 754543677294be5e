//! Pictures encoded, without metadata.

mod avif;
mod jpeg;
mod png;
mod webp;

use crate::Error;
use crate::format::Format;
use crate::picture::Picture;

pub(crate) use webp::Animation;

/// How a picture is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coding {
    pub(crate) format: Format,
    /// From 1 to 100, where the format has one.
    pub(crate) quality: u8,
    /// It came from a format that loses nothing: what has few colours is to lose nothing either.
    pub(crate) is_drawn: bool,
    /// It is only looked at: it need not be as small as it can be.
    pub(crate) is_trial: bool,
}

/// Writes a picture, in a format that can hold it.
///
/// # Errors
/// What the encoder says.
pub(crate) fn encode(picture: &Picture, coding: &Coding) -> Result<Vec<u8>, Error> {
    let quality = coding.quality.clamp(1, 100);
    match coding.format {
        Format::Avif => avif::encode(picture, quality, coding.is_trial),
        Format::WebP => webp::encode(picture, quality, coding.loses_nothing(picture)),
        Format::Jpeg => jpeg::encode(picture, quality),
        Format::Png => png::encode(picture),
    }
}

/// Whether it looks like what is drawn: it has few colours. A photograph without colours has few,
/// too, but is not made of surfaces.
fn is_drawing(picture: &Picture) -> bool {
    picture.palette().is_some_and(|palette| !picture.is_grey() || palette.is_flat())
}

impl Coding {
    /// Whether every pixel stays as it is.
    pub(crate) fn loses_nothing(&self, picture: &Picture) -> bool {
        match self.format {
            Format::Png => true,
            Format::WebP => self.is_drawn && is_drawing(picture),
            Format::Avif | Format::Jpeg => false,
        }
    }
}
