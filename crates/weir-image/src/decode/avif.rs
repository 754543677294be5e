//! AVIF: the container by its boxes, AV1 by rav1d.

use std::borrow::Cow;

use re_rav1d::dav1d::{Decoder, Error as Av1Error, Picture as Planes, Settings};
use zenavif_parse::{AV1Metadata, AvifParser, ColorInformation, DecodeConfig};

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

/// `lsel` for all layers (AVIF §2.3.2.2).
const ALL_LAYERS: u16 = 0xffff;

/// Bytes beside the pixels that come of a frame, each: three planes of 16 bits, and what its
/// filters need.
const BESIDE_BYTES: u64 = 8;

pub(crate) fn probe(input: &[u8], limits: &Limits) -> Result<Probe, Error> {
    let parser = parse(input, limits)?;
    let frames = parser.animation_info().map_or(1, |info| info.frame_count.max(1));
    if let Some(grid) = parser.grid_config() {
        // It need not say how large it is: nobody puts it together here.
        let (width, height) = (grid.output_width.max(1), grid.output_height.max(1));
        let mut probe = Probe::still(Source::Avif, width, height);
        probe.unsupported = Some(Unsupported::Kind);
        return Ok(probe);
    }
    let first = first(&parser)?;
    let metadata = AV1Metadata::parse_av1_bitstream(&first.colour).map_err(failed)?;
    let (width, height) = (metadata.max_frame_width.get(), metadata.max_frame_height.get());
    let mut probe = Probe::still(Source::Avif, width, height);
    probe.frames = u32::try_from(frames).unwrap_or(u32::MAX);
    let angle = parser.rotation().map(|rotation| rotation.angle);
    probe.orientation = Orientation::of_heif(angle, parser.mirror().map(|mirror| mirror.axis));
    let pixels = u64::from(width) * u64::from(height);
    probe.beside_bytes = pixels.saturating_mul(BESIDE_BYTES);
    // Parts of pictures, and what is not the best of several layers.
    let is_layer = parser.layer_selector().is_some_and(|layer| layer.layer_id != ALL_LAYERS);
    let is_point = parser.operating_point().is_some_and(|point| point.op_index != 0);
    if parser.clean_aperture().is_some() || is_layer || is_point {
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

/// Decodes what is shown first. Where the container says nothing of colours, what AV1 says of them
/// comes with it.
///
/// # Errors
/// What container or decoder say; [`Error::Hdr`], where only AV1 says so.
pub(crate) fn decode(input: &[u8], limits: &Limits) -> Result<(Picture, Option<Colour>), Error> {
    let parser = parse(input, limits)?;
    let pixels = u32::try_from(limits.pixels).unwrap_or(u32::MAX);
    let first = first(&parser)?;
    let planes = frame(&first.colour, pixels)?;
    let (primaries, transfer) = (planes.color_primaries(), planes.transfer_characteristic());
    let own = (primaries as u8, transfer as u8);
    let own = parser.color_info().is_none().then_some(own);
    if own.is_some_and(|(_, transfer)| colour::is_hdr(transfer)) {
        return Err(Error::Hdr);
    }
    let own = own.map(|(primaries, transfer)| Colour::of_cicp(primaries, transfer));
    let matrix = match parser.color_info() {
        Some(ColorInformation::Nclx { matrix_coefficients, full_range, .. }) => {
            yuv::Matrix::by_number(*matrix_coefficients, *full_range)
        }
        _ => yuv::Matrix::of(&planes),
    };
    let matrix = matrix.ok_or_else(|| failed("its matrix of colours is a rare one"))?;
    let mut picture = yuv::picture(&planes, &matrix)?;
    if let Some(alpha) = &first.alpha {
        let alpha = frame(alpha, pixels)?;
        if (alpha.width(), alpha.height()) != (planes.width(), planes.height()) {
            return Err(failed("its transparency has another size"));
        }
        picture = with_alpha(picture, &yuv::luma(&alpha)?, parser.premultiplied_alpha());
    }
    Ok((picture, own))
}

/// AV1 that is shown first.
struct First<'a> {
    colour: Cow<'a, [u8]>,
    alpha: Option<Cow<'a, [u8]>>,
}

/// The primary item, or, of a sequence that has none, its first frame.
fn first<'a>(parser: &'a AvifParser<'_>) -> Result<First<'a>, Error> {
    let colour = parser.primary_data();
    let has_primary = colour.as_ref().is_ok_and(|colour| !colour.is_empty());
    if parser.animation_info().is_some() && !has_primary {
        let frame = parser.frame(0).map_err(failed)?;
        return Ok(First { colour: frame.data, alpha: frame.alpha_data });
    }
    let alpha = parser.alpha_data().transpose();
    Ok(First { colour: colour.map_err(failed)?, alpha: alpha.map_err(failed)? })
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
    // Of several layers the last one.
    settings.set_all_layers(false);
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
