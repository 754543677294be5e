//! AVIF: the container by its boxes, AV1 by rav1d.

use re_rav1d::dav1d::{Decoder, Error as Av1Error, Picture as Planes, Settings};
use zenavif_parse::{AvifParser, ColorInformation, DecodeConfig};

use super::yuv;
use crate::Error;
use crate::colour::{self, Colour};
use crate::format::Source;
use crate::limits::Limits;
use crate::orientation::Orientation;
use crate::picture::{Layout, Picture};
use crate::probe::{Probe, Unsupported};

/// Calls of the decoder for one frame; it needs two.
const CALLS_MAX: usize = 64;

/// Bytes beside the pixels that come of a frame, each: three planes of 16 bits, and what its
/// filters need.
const BESIDE_BYTES: u64 = 8;

pub(crate) fn probe(input: &[u8], limits: &Limits) -> Result<Probe, Error> {
    let parser = parse(input, limits)?;
    let frames = parser.animation_info().map_or(1, |info| info.frame_count.max(1));
    let metadata = parser.primary_metadata().map_err(failed)?;
    let (width, height) = (metadata.max_frame_width.get(), metadata.max_frame_height.get());
    let mut probe = Probe::still(Source::Avif, width, height);
    probe.frames = u32::try_from(frames).unwrap_or(u32::MAX);
    let angle = parser.rotation().map(|rotation| rotation.angle);
    probe.orientation = Orientation::of_heif(angle, parser.mirror().map(|mirror| mirror.axis));
    let pixels = u64::from(width) * u64::from(height);
    probe.beside_bytes = pixels.saturating_mul(BESIDE_BYTES);
    // Pictures of several parts, and parts of pictures.
    if parser.grid_config().is_some() || parser.clean_aperture().is_some() {
        probe.unsupported = Some(Unsupported::Kind);
    }
    match parser.color_info() {
        Some(ColorInformation::Nclx { color_primaries, transfer_characteristics, .. }) => {
            let code = |number: u16| u8::try_from(number).unwrap_or(2);
            let (primaries, transfer) = (code(*color_primaries), code(*transfer_characteristics));
            probe.colour = Colour::of_cicp(primaries, transfer);
            if colour::is_hdr(transfer) {
                probe.unsupported = Some(Unsupported::Hdr);
            }
        }
        Some(ColorInformation::IccProfile(profile)) => {
            probe.colour = Colour::of_profile(Some(profile.clone()));
        }
        None => {}
    }
    Ok(probe)
}

/// # Errors
/// What container or decoder say.
pub(crate) fn decode(input: &[u8], limits: &Limits) -> Result<Picture, Error> {
    let parser = parse(input, limits)?;
    let pixels = u32::try_from(limits.pixels).unwrap_or(u32::MAX);
    let planes = frame(&parser.primary_data().map_err(failed)?, pixels)?;
    let matrix = match parser.color_info() {
        Some(ColorInformation::Nclx { matrix_coefficients, full_range, .. }) => {
            yuv::Matrix::by_number(*matrix_coefficients, *full_range)
        }
        _ => yuv::Matrix::of(&planes),
    };
    let matrix = matrix.ok_or_else(|| failed("its matrix of colours is a rare one"))?;
    let mut picture = yuv::picture(&planes, &matrix)?;
    if let Some(alpha) = parser.alpha_data() {
        let alpha = frame(&alpha.map_err(failed)?, pixels)?;
        if (alpha.width(), alpha.height()) != (planes.width(), planes.height()) {
            return Err(failed("its transparency has another size"));
        }
        picture = with_alpha(picture, &yuv::luma(&alpha)?, parser.premultiplied_alpha());
    }
    Ok(picture)
}

fn parse<'a>(input: &'a [u8], limits: &Limits) -> Result<AvifParser<'a>, Error> {
    let config = DecodeConfig::default()
        .with_peak_memory_limit(limits.decoded_bytes)
        .with_max_animation_frames(limits.frames.saturating_add(1))
        .lenient(true);
    let never = &webpx::Unstoppable;
    AvifParser::from_bytes_with_config(input, &config, never).map_err(failed)
}

/// Decodes one frame of AV1, on this thread.
fn frame(data: &[u8], pixels_max: u32) -> Result<Planes, Error> {
    let mut settings = Settings::new();
    settings.set_n_threads(1);
    settings.set_max_frame_delay(1);
    settings.set_frame_size_limit(pixels_max);
    let mut decoder = Decoder::with_settings(&settings).map_err(failed)?;
    let mut sent = decoder.send_data(data.to_vec(), None, None, None);
    for _ in 0..CALLS_MAX {
        match sent {
            Ok(()) | Err(Av1Error::Again) => {}
            Err(error) => return Err(failed(error)),
        }
        match decoder.get_picture() {
            Ok(planes) => return Ok(planes),
            Err(Av1Error::Again) => sent = decoder.send_pending_data(),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failed("there is no picture in it"))
}

fn with_alpha(picture: Picture, alpha: &[u8], is_premultiplied: bool) -> Picture {
    let mut pixels = Vec::with_capacity(alpha.len() * 4);
    for (colour, alpha) in picture.pixels.chunks_exact(3).zip(alpha) {
        let full = |channel: u8| match (is_premultiplied, *alpha) {
            (false, _) | (true, 0) => channel,
            (true, alpha) => (u32::from(channel) * 255 / u32::from(alpha)).min(255) as u8,
        };
        pixels.extend([full(colour[0]), full(colour[1]), full(colour[2]), *alpha]);
    }
    Picture { layout: Layout::Rgba, pixels, ..picture }
}

fn failed(cause: impl ToString) -> Error {
    Error::codec("avif", cause)
}
