//! PGM and PPM, as text and binary, of 8 and 16 bits (Netpbm's pgm(5) and ppm(5)).

use crate::Error;
use crate::format::Source;
use crate::picture::{Layout, Picture};
use crate::probe::Probe;

/// What stands before the pixels.
struct Header<'a> {
    is_text: bool,
    channels: usize,
    width: u32,
    height: u32,
    /// The number for white.
    most: u32,
    pixels: &'a [u8],
}

pub(crate) fn probe(input: &[u8]) -> Result<Probe, Error> {
    let header = header(input)?;
    Ok(Probe::still(Source::Pnm, header.width, header.height))
}

/// # Errors
/// What is wrong with it.
pub(crate) fn decode(input: &[u8]) -> Result<Picture, Error> {
    let Header { is_text, channels, width, height, most, mut pixels } = header(input)?;
    let samples = u64::from(width) * u64::from(height) * channels as u64;
    let sample_bytes = if is_text || most < 256 { 1 } else { 2 };
    // A number as text has a digit and a separator at least, but for the last.
    let least = if is_text { 2 * samples - 1 } else { sample_bytes * samples };
    if (pixels.len() as u64) < least {
        return Err(Error::codec("pnm", "it ends too early"));
    }
    let mut next = || -> Result<u8, Error> {
        let number = match (is_text, sample_bytes) {
            (true, _) => number(&mut pixels)?,
            (false, 1) => u32::from(take(&mut pixels)),
            (false, _) => u32::from(take(&mut pixels)) << 8 | u32::from(take(&mut pixels)),
        };
        Ok(((number.min(most) * 255 + most / 2) / most) as u8)
    };
    let mut picture = Picture::blank(width, height, Layout::Rgb)?;
    for pixel in picture.pixels.chunks_exact_mut(3) {
        match channels {
            1 => pixel.fill(next()?),
            _ => {
                for channel in pixel {
                    *channel = next()?;
                }
            }
        }
    }
    Ok(picture)
}

fn header(input: &[u8]) -> Result<Header<'_>, Error> {
    let kind = input.get(1).copied().unwrap_or_default();
    let mut rest = input.get(2..).unwrap_or_default();
    let (width, height) = (number(&mut rest)?, number(&mut rest)?);
    let most = number(&mut rest)?;
    if !(1..=65_535).contains(&most) {
        return Err(Error::codec("pnm", format!("a white of {most}")));
    }
    let is_text = matches!(kind, b'2' | b'3');
    // One character of white space, and no comment, stands between header and pixels.
    let pixels = if is_text { rest } else { rest.get(1..).unwrap_or_default() };
    let channels = if matches!(kind, b'2' | b'5') { 1 } else { 3 };
    Ok(Header { is_text, channels, width, height, most, pixels })
}

/// The next number, after white space and comments.
fn number(rest: &mut &[u8]) -> Result<u32, Error> {
    loop {
        *rest = rest.trim_ascii_start();
        let Some(comment) = rest.strip_prefix(b"#") else { break };
        let end = comment.iter().position(|byte| *byte == b'\n').unwrap_or(comment.len());
        *rest = &comment[end..];
    }
    let digits = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = rest.split_at(digits);
    *rest = after;
    let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
    number.ok_or_else(|| Error::codec("pnm", "a number is missing or too large"))
}

/// A byte; there are as many as are asked for.
fn take(rest: &mut &[u8]) -> u8 {
    rest.split_off_first().copied().unwrap_or_default()
}
