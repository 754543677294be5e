//! WebP, by libwebp.

use webpx::{AnimationDecoder, ColorMode, Decoder, DecoderConfig, Limits as Unlimited};

use super::Frames;
use crate::Error;
use crate::colour::Colour;
use crate::exif;
use crate::format::Source;
use crate::limits::Limits;
use crate::picture::{Frame, Layout, Picture};
use crate::probe::Probe;

/// Chunks that there may be, besides frames: files have up to six.
const CHUNKS_MAX: u32 = 256;

/// Reads the chunks (RFC 9649 §2.3 to 2.7).
pub(crate) fn probe(input: &[u8], limits: &Limits) -> Result<Probe, Error> {
    let info = webpx::ImageInfo::from_webp(input).map_err(failed)?;
    let mut probe = Probe::still(Source::WebP, info.width, info.height);
    let (mut frames, mut others) = (0, 0);
    let mut rest = input.get(12..).unwrap_or_default();
    while let Some((name, content, after)) = chunk(rest) {
        rest = after;
        match name {
            b"ANMF" => frames += 1,
            b"ANIM" => {
                let loops = content.get(4..6).and_then(|loops| loops.try_into().ok());
                probe.loops = u32::from(loops.map_or(0, u16::from_le_bytes));
            }
            b"ICCP" => probe.colour = Colour::of_profile(Some(content.to_vec())),
            b"EXIF" => probe.orientation = exif::orientation(content),
            _ => others += 1,
        }
        if frames > limits.frames {
            break;
        }
        // What lies behind them would not be counted.
        if others > CHUNKS_MAX {
            return Err(failed(format_args!("more than {CHUNKS_MAX} chunks beside frames")));
        }
    }
    if info.has_animation {
        probe.frames = frames;
    }
    Ok(probe)
}

/// A chunk's name and content, and what follows.
fn chunk(rest: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (name, rest) = rest.split_first_chunk::<4>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    let content = rest.get(..len)?;
    // A byte is put in where the length is odd.
    Some((name, content, rest.get(len + len % 2..).unwrap_or_default()))
}

/// # Errors
/// What libwebp says.
pub(crate) fn decode(input: &[u8]) -> Result<Picture, Error> {
    // What is allowed has been judged by the headers.
    let config = DecoderConfig::new().limits(Unlimited::none());
    let decoder = Decoder::new(input).map_err(failed)?.config(config);
    let has_alpha = decoder.info().has_alpha;
    let (layout, decoded) = match has_alpha {
        true => (Layout::Rgba, decoder.decode_rgba_raw()),
        false => (Layout::Rgb, decoder.decode_rgb_raw()),
    };
    let (pixels, width, height) = decoded.map_err(failed)?;
    Ok(Picture { width, height, layout, pixels })
}

/// A WebP that moves.
pub(crate) struct Animation {
    decoder: AnimationDecoder,
    frames_left: u32,
}

impl Animation {
    /// # Errors
    /// What libwebp says.
    pub(crate) fn open(input: &[u8], probe: &Probe) -> Result<Animation, Error> {
        let (mode, limits) = (ColorMode::Rgba, Unlimited::none());
        let decoder = AnimationDecoder::with_options_limits(input, mode, false, &limits);
        Ok(Animation { decoder: decoder.map_err(failed)?, frames_left: probe.frames })
    }
}

impl Frames for Animation {
    fn next(&mut self) -> Result<Option<Frame>, Error> {
        let Some(frame) = self.decoder.next_frame().map_err(failed)? else { return Ok(None) };
        let left = self.frames_left.checked_sub(1);
        self.frames_left = left.ok_or_else(|| failed("more frames than were counted"))?;
        let (width, height, pixels) = (frame.width, frame.height, frame.data);
        let picture = Picture { width, height, layout: Layout::Rgba, pixels };
        Ok(Some(Frame { picture, delay_ms: frame.duration_ms }))
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::codec("webp", error)
}
