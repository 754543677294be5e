//! WebP, by libwebp.

use webpx::{AnimationEncoder, Encoder, Unstoppable};

use crate::Error;
use crate::picture::{Frame, Layout, Picture};

/// How hard it is tried, from 0 to 6; 6 takes twice as long as 4, for two parts of a hundred.
const METHOD: u8 = 4;

/// The longest that a frame may be shown (24 bits).
const DELAY_MS_MAX: u32 = (1 << 24) - 1;

/// # Errors
/// What libwebp says.
pub(super) fn encode(picture: &Picture, quality: u8, is_lossless: bool) -> Result<Vec<u8>, Error> {
    let (width, height) = (picture.width, picture.height);
    let encoder = match picture.layout {
        Layout::Rgb => Encoder::new_rgb(&picture.pixels, width, height),
        Layout::Rgba => Encoder::new_rgba(&picture.pixels, width, height),
    };
    let encoder = encoder.quality(f32::from(quality)).method(METHOD).lossless(is_lossless);
    encoder.encode(Unstoppable).map_err(failed)
}

/// A WebP that moves, a frame after the other.
pub(crate) struct Animation {
    encoder: AnimationEncoder,
    /// When the next frame begins.
    at_ms: i32,
}

impl Animation {
    /// # Errors
    /// What libwebp says.
    pub(crate) fn new(
        (width, height): (u32, u32),
        quality: u8,
        loops: u32,
    ) -> Result<Animation, Error> {
        // What has more than it can say goes on without end, as good as.
        let loops = if loops > u32::from(u16::MAX) { 0 } else { loops };
        let mut encoder =
            AnimationEncoder::with_options(width, height, true, loops).map_err(failed)?;
        encoder.set_quality(f32::from(quality));
        Ok(Animation { encoder, at_ms: 0 })
    }

    /// # Errors
    /// What libwebp says, which does not take frames of another size.
    pub(crate) fn add(&mut self, frame: &Frame) -> Result<(), Error> {
        let (pixels, at_ms) = (&frame.picture.pixels, self.at_ms);
        let added = match frame.picture.layout {
            Layout::Rgb => self.encoder.add_frame_rgb(pixels, at_ms),
            Layout::Rgba => self.encoder.add_frame_rgba(pixels, at_ms),
        };
        added.map_err(failed)?;
        let delay = frame.delay_ms.min(DELAY_MS_MAX) as i32;
        self.at_ms = at_ms.checked_add(delay).ok_or_else(|| failed("it is shown for too long"))?;
        Ok(())
    }

    /// # Errors
    /// What libwebp says.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Error> {
        self.encoder.finish(self.at_ms).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::codec("webp", error)
}
