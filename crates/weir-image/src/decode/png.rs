//! PNG and its animations.

use std::io::Cursor;

use png::{
    BlendOp, ColorType, Decoder, DecodingError, DisposeOp, Info, Limits as Memory, Reader,
    Transformations,
};

use super::Frames;
use crate::Error;
use crate::canvas::{Canvas, Draw, Part, Then};
use crate::colour::{self, Colour};
use crate::exif;
use crate::format::Source;
use crate::limits::Limits;
use crate::picture::{Frame, Layout, Picture, zeroed};
use crate::probe::{Probe, Unsupported};

/// What the decoder may take for chunks before the first pixel: palette, profile, Exif.
const CHUNKS_BYTES_MAX: usize = 16 << 20;

/// Pixels of a row that the decoder has room for beside chunks, with eight bytes each. Whatever is
/// wider is for limits to refuse, by its header.
const WIDTH_MAX: u32 = (CHUNKS_BYTES_MAX / 8) as u32;

type Input<'a> = Cursor<&'a [u8]>;

pub(crate) fn probe(input: &[u8]) -> Result<Probe, Error> {
    let mut decoder = decoder(input, CHUNKS_BYTES_MAX);
    let header = decoder.read_header_info().map_err(failed)?;
    if header.width > WIDTH_MAX {
        return Ok(Probe::still(Source::Png, header.width, header.height));
    }
    let reader = decoder.read_info().map_err(failed)?;
    let info = reader.info();
    let mut probe = Probe::still(Source::Png, info.width, info.height);
    if let Some(animation) = info.animation_control() {
        (probe.frames, probe.loops) = (animation.num_frames, animation.num_plays);
    }
    probe.orientation = info.exif_metadata.as_deref().map(exif::orientation).unwrap_or_default();
    probe.colour = colour(info);
    if info.coding_independent_code_points.is_some_and(|c| colour::is_hdr(c.transfer_function)) {
        probe.unsupported = Some(Unsupported::Hdr);
    }
    Ok(probe)
}

fn decoder(input: &[u8], bytes: usize) -> Decoder<Input<'_>> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(input), Memory { bytes });
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder
}

fn failed(error: DecodingError) -> Error {
    Error::codec("png", error)
}

/// The order in which the third edition's §4.3 has them count. Gamma alone is not taken into
/// account: nearly all that have it say that of sRGB.
fn colour(info: &Info<'_>) -> Colour {
    match (&info.coding_independent_code_points, &info.icc_profile, info.srgb) {
        (Some(points), _, _) => Colour::of_cicp(points.color_primaries, points.transfer_function),
        (None, Some(profile), None) => Colour::of_profile(Some(profile.to_vec())),
        _ => Colour::Srgb,
    }
}

/// A PNG, whether it moves or not.
pub(crate) struct Apng<'a> {
    reader: Reader<Input<'a>>,
    /// For those that move.
    canvas: Option<Canvas>,
    buffer: Vec<u8>,
    frames_left: u32,
}

impl<'a> Apng<'a> {
    /// # Errors
    /// What the decoder says.
    pub(crate) fn open(input: &'a [u8], probe: &Probe, limits: &Limits) -> Result<Self, Error> {
        let bytes = usize::try_from(limits.decoded_bytes).unwrap_or(usize::MAX);
        let decoder = decoder(input, bytes.saturating_add(CHUNKS_BYTES_MAX));
        let mut reader = decoder.read_info().map_err(failed)?;
        let len = reader.output_buffer_size().ok_or(Error::Memory { bytes: usize::MAX })?;
        let mut buffer = zeroed(len)?;
        let moves = probe.frames > 1;
        if moves && reader.info().frame_control().is_none() {
            // What is shown to those who do not know animations.
            reader.next_frame(&mut buffer).map_err(failed)?;
        }
        let canvas = moves.then(|| Canvas::new(probe.width, probe.height)).transpose()?;
        Ok(Apng { reader, canvas, buffer, frames_left: probe.frames })
    }
}

impl Frames for Apng<'_> {
    fn next(&mut self) -> Result<Option<Frame>, Error> {
        if self.frames_left == 0 {
            return Ok(None);
        }
        self.frames_left -= 1;
        let output = self.reader.next_frame(&mut self.buffer).map_err(failed)?;
        let info = self.reader.info();
        let (width, height) = (output.width, output.height);
        // Interlaced ones are written into rows as long as those of the whole.
        let line = match info.interlaced {
            true => self.reader.output_line_size(info.width).unwrap_or(output.line_size),
            false => output.line_size,
        };
        let rows = self.buffer.chunks(line.max(1)).take(height as usize);
        let picture = picture(output.color_type, (width, height), rows)?;
        let Some(canvas) = &mut self.canvas else {
            return Ok(Some(Frame { picture, delay_ms: 0 }));
        };
        let control = *info.frame_control().ok_or(Error::codec("png", "no frame control"))?;
        let part = Part { left: control.x_offset, top: control.y_offset, width, height };
        let draw = match control.blend_op {
            BlendOp::Source => Draw::Instead,
            BlendOp::Over => Draw::Over,
        };
        let then = match control.dispose_op {
            DisposeOp::None => Then::Keep,
            DisposeOp::Background => Then::Clear,
            DisposeOp::Previous => Then::Restore,
        };
        // 0 stands for 100 (§11.3.6.2).
        let per_second = if control.delay_den == 0 { 100 } else { u32::from(control.delay_den) };
        let delay_ms = 1000 * u32::from(control.delay_num) / per_second;
        let drawn = with_alpha(picture);
        let picture = canvas.draw(part, (&drawn.pixels, drawn.pitch()), draw, then);
        Ok(Some(Frame { picture, delay_ms }))
    }
}

fn with_alpha(picture: Picture) -> Picture {
    if picture.layout == Layout::Rgba {
        return picture;
    }
    let pixels = picture.pixels.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]);
    Picture { layout: Layout::Rgba, pixels: pixels.collect(), ..picture }
}

/// Rows of whatever a PNG consists of, as colours.
fn picture<'a>(
    from: ColorType,
    (width, height): (u32, u32),
    rows: impl Iterator<Item = &'a [u8]>,
) -> Result<Picture, Error> {
    let layout = match from {
        ColorType::GrayscaleAlpha | ColorType::Rgba => Layout::Rgba,
        ColorType::Grayscale | ColorType::Rgb | ColorType::Indexed => Layout::Rgb,
    };
    let mut picture = Picture::blank(width, height, layout)?;
    let pitch = picture.pitch();
    for (to, row) in picture.pixels.chunks_exact_mut(pitch).zip(rows) {
        match from {
            ColorType::Rgb | ColorType::Rgba => {
                let len = pitch.min(row.len());
                to[..len].copy_from_slice(&row[..len]);
            }
            ColorType::Grayscale | ColorType::Indexed => {
                to.chunks_exact_mut(3).zip(row).for_each(|(pixel, grey)| pixel.fill(*grey));
            }
            ColorType::GrayscaleAlpha => {
                for (pixel, from) in to.chunks_exact_mut(4).zip(row.chunks_exact(2)) {
                    pixel[..3].fill(from[0]);
                    pixel[3] = from[1];
                }
            }
        }
    }
    Ok(picture)
}
