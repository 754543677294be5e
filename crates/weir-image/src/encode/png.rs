//! PNG: with a palette where 256 colours are enough, without colours where there are none.

use png::{BitDepth, ColorType, Compression, Encoder, Filter};

use crate::Error;
use crate::picture::{Layout, Palette, Picture};

/// Colours of which a byte holds several.
const SMALL_PALETTE: usize = 16;

/// # Errors
/// What the encoder says, which has no reason to.
pub(super) fn encode(picture: &Picture) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, picture.width, picture.height);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    let is_grey = picture.is_grey();
    let packed;
    let pixels = match (picture.layout, picture.palette()) {
        // Levels of grey are a palette that need not be written, unless a byte holds several.
        (Layout::Rgb, palette)
            if is_grey && palette.as_ref().is_none_or(|it| it.colours.len() > SMALL_PALETTE) =>
        {
            encoder.set_color(ColorType::Grayscale);
            packed = picture.pixels.iter().step_by(3).copied().collect();
            &packed
        }
        (_, Some(palette)) => {
            packed = by_palette(&mut encoder, palette, picture.width);
            &packed
        }
        (Layout::Rgb, None) => {
            encoder.set_color(ColorType::Rgb);
            &picture.pixels
        }
        (Layout::Rgba, None) => {
            encoder.set_color(ColorType::Rgba);
            &picture.pixels
        }
    };
    let failed = |error: png::EncodingError| Error::codec("png", error);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// Sets a palette, and packs indices into as few bits as they need, each row into bytes of its own.
fn by_palette(encoder: &mut Encoder<'_, &mut Vec<u8>>, palette: Palette, width: u32) -> Vec<u8> {
    let (depth, bits) = match palette.colours.len() {
        0..=2 => (BitDepth::One, 1),
        3..=4 => (BitDepth::Two, 2),
        5..=SMALL_PALETTE => (BitDepth::Four, 4),
        _ => (BitDepth::Eight, 8),
    };
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(depth);
    // A neighbour's index says little about one (the PNG specification, "Filter selection").
    encoder.set_filter(Filter::NoFilter);
    let colours = palette.colours.iter().flat_map(|colour| colour[..3].to_vec());
    encoder.set_palette(colours.collect::<Vec<u8>>());
    if palette.colours.iter().any(|colour| colour[3] != 255) {
        encoder.set_trns(palette.colours.iter().map(|colour| colour[3]).collect::<Vec<u8>>());
    }
    let per_byte = 8 / bits;
    let rows = palette.indices.chunks(width as usize);
    let packed = rows.flat_map(|row| row.chunks(per_byte)).map(|indices| {
        let shifted = indices.iter().enumerate().map(|(at, index)| index << (8 - bits * (at + 1)));
        shifted.fold(0, |byte, index| byte | index)
    });
    packed.collect()
}
