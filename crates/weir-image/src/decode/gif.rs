//! GIF and its animations.

use std::num::NonZeroU64;

use gif::{ColorOutput, DecodeOptions, Decoder, DisposalMethod, MemoryLimit, Repeat};

use super::Frames;
use crate::Error;
use crate::canvas::{Canvas, Draw, Part, Then};
use crate::colour::Colour;
use crate::format::Source;
use crate::limits::Limits;
use crate::picture::Frame;
use crate::probe::Probe;

/// Browsers show a frame so long that asks for 10 ms or less, in units of 10 ms.
const DELAY_USUAL: u16 = 10;

/// Counts frames without decoding them.
pub(crate) fn probe(input: &[u8], limits: &Limits) -> Result<Probe, Error> {
    let failed = |error: gif::DecodingError| Error::codec("gif", error);
    let mut options = DecodeOptions::new();
    options.skip_frame_decoding(true);
    let mut decoder = options.read_info(input).map_err(failed)?;
    let mut frames = 0;
    while frames <= limits.frames && decoder.next_frame_info().map_err(failed)?.is_some() {
        frames += 1;
    }
    let mut probe =
        Probe::still(Source::Gif, u32::from(decoder.width()), u32::from(decoder.height()));
    probe.frames = frames;
    probe.loops = match decoder.repeat() {
        Repeat::Infinite => 0,
        // It says how often it is repeated, not how often it is shown.
        Repeat::Finite(times) => u32::from(times) + 1,
    };
    probe.colour = Colour::of_profile(decoder.icc_profile().map(<[u8]>::to_vec));
    Ok(probe)
}

/// A GIF, whether it moves or not.
pub(crate) struct Gif<'a> {
    decoder: Decoder<&'a [u8]>,
    canvas: Canvas,
}

impl<'a> Gif<'a> {
    /// # Errors
    /// What the decoder says.
    pub(crate) fn open(input: &'a [u8], probe: &Probe, limits: &Limits) -> Result<Self, Error> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        options.allow_unknown_blocks(true);
        let bytes = NonZeroU64::new(limits.decoded_bytes).unwrap_or(NonZeroU64::MIN);
        options.set_memory_limit(MemoryLimit::Bytes(bytes));
        let decoder = options.read_info(input).map_err(|error| Error::codec("gif", error))?;
        Ok(Gif { decoder, canvas: Canvas::new(probe.width, probe.height)? })
    }
}

impl Frames for Gif<'_> {
    fn next(&mut self) -> Result<Option<Frame>, Error> {
        let frame = self.decoder.read_next_frame().map_err(|error| Error::codec("gif", error))?;
        let Some(frame) = frame else { return Ok(None) };
        let [left, top, width, height] =
            [frame.left, frame.top, frame.width, frame.height].map(u32::from);
        let then = match frame.dispose {
            DisposalMethod::Any | DisposalMethod::Keep => Then::Keep,
            DisposalMethod::Background => Then::Clear,
            DisposalMethod::Previous => Then::Restore,
        };
        let part = Part { left, top, width, height };
        let pixels = (&frame.buffer[..], width as usize * 4);
        let delay = if frame.delay <= 1 { DELAY_USUAL } else { frame.delay };
        let picture = self.canvas.draw(part, pixels, Draw::Over, then);
        Ok(Some(Frame { picture, delay_ms: u32::from(delay) * 10 }))
    }
}
