//! AVIF, by rav1e, with ten bits: they cost nothing, and there are no bands in skies.

use imgref::ImgRef;
use ravif::{AlphaColorMode, BitDepth, Encoder};
use rgb::{FromSlice, RGB8, RGBA8};

use crate::Error;
use crate::picture::{Layout, Picture};

/// From 1, the strongest, to 10, the quickest. 6 and 8 take twice as long, and what they make is as
/// large, within one part of a hundred.
const SPEED: u8 = 9;

/// For pictures of more than [`LARGE_PIXELS`], so that they are done in a third of the time that a
/// job may take, without assembler, too; and for trials. A tenth larger, and 1 more or less by
/// SSIMULACRA2.
const SPEED_LARGE: u8 = 10;

/// At [`SPEED`] a million pixels take 1.2 s.
const LARGE_PIXELS: u64 = 2_000_000;

/// # Errors
/// What rav1e says.
pub(super) fn encode(picture: &Picture, quality: u8, is_trial: bool) -> Result<Vec<u8>, Error> {
    let pixels = u64::from(picture.width) * u64::from(picture.height);
    let speed = if is_trial || pixels > LARGE_PIXELS { SPEED_LARGE } else { SPEED };
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
