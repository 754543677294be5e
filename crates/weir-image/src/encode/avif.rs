//! AVIF, by rav1e, with ten bits: they cost nothing, and there are no bands in skies.

use imgref::ImgRef;
use ravif::{AlphaColorMode, BitDepth, Encoder};
use rgb::{FromSlice, RGB8, RGBA8};

use crate::Error;
use crate::picture::{Layout, Picture};

/// From 1, the strongest, to 10, the quickest. What lies below costs several times as much, for a
/// few parts of a hundred.
const SPEED: u8 = 8;

/// For pictures of more than [`LARGE_PIXELS`], so that they are done in the time of a job.
const SPEED_LARGE: u8 = 10;

/// About 1200 × 800.
const LARGE_PIXELS: u64 = 1_000_000;

/// # Errors
/// What rav1e says.
pub(super) fn encode(picture: &Picture, quality: u8) -> Result<Vec<u8>, Error> {
    let pixels = u64::from(picture.width) * u64::from(picture.height);
    let speed = if pixels > LARGE_PIXELS { SPEED_LARGE } else { SPEED };
    let encoder = Encoder::new()
        .with_quality(f32::from(quality))
        .with_alpha_quality(f32::from(quality))
        .with_alpha_color_mode(AlphaColorMode::UnassociatedClean)
        .with_bit_depth(BitDepth::Ten)
        .with_speed(speed)
        // Or it would ask how many there are, which a helper may not.
        .with_num_threads(Some(1));
    let (width, height) = (picture.width as usize, picture.height as usize);
    let encoded = match picture.layout {
        Layout::Rgb => {
            let pixels: &[RGB8] = picture.pixels.as_rgb();
            encoder.encode_rgb(ImgRef::new(pixels, width, height))
        }
        Layout::Rgba => {
            let pixels: &[RGBA8] = picture.pixels.as_rgba();
            encoder.encode_rgba(ImgRef::new(pixels, width, height))
        }
    };
    encoded.map(|encoded| encoded.avif_file).map_err(|error| Error::codec("avif", error))
}
