//! The lowest quality at which a picture still looks like what it was made of, by SSIMULACRA2.

use fast_ssim2::{PixelDescriptor, PixelSlice, Ssimulacra2Reference};

use crate::Error;
use crate::decode;
use crate::encode::{Coding, encode};
use crate::format::Format;
use crate::limits::Limits;
use crate::picture::{Layout, Picture};
use crate::probe::probe;

/// The lowest quality that is tried: below, blocks are seen whatever a metric says.
const QUALITY_MIN: u8 = 20;

/// A quality is found as exactly as this.
const STEP: u8 = 2;

/// Sides of the part that larger pictures are judged by, from their middle: what is found for a
/// million pixels holds for the others, and each try takes a tenth of a second or two.
const JUDGED_SIDE_MAX: u32 = 1024;

/// The same for AVIF, which takes ten times as long.
const JUDGED_SIDE_MAX_AVIF: u32 = 512;

/// A quality, and how alike it makes a picture look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) quality: u8,
    pub(crate) score: i32,
}

/// Finds the lowest quality, up to that of `coding`, at which a picture has a score; the highest if
/// none has.
///
/// # Errors
/// What an encoder says.
pub(crate) fn find(picture: &Picture, coding: &Coding, score: u8) -> Result<Found, Error> {
    let side_max =
        if coding.format == Format::Avif { JUDGED_SIDE_MAX_AVIF } else { JUDGED_SIDE_MAX };
    let part = middle(picture, side_max)?;
    let opaque = part.clone().over([255; 3]);
    let reference = slice(&opaque).and_then(|slice| {
        Ssimulacra2Reference::new(&slice).map_err(|error| Error::codec("ssimulacra2", error))
    })?;
    let judge = |quality: u8| -> Result<Found, Error> {
        let made = encode(&part, &Coding { quality, is_trial: true, ..*coding })?;
        let seen = decoded(&made)?.over([255; 3]);
        let score = reference.compare(&slice(&seen)?);
        let score = score.map_err(|error| Error::codec("ssimulacra2", error))?;
        Ok(Found { quality, score: score.round() as i32 })
    };
    let mut best = judge(coding.quality)?;
    let (mut low, mut high) = (QUALITY_MIN.min(coding.quality), coding.quality);
    // What the highest cannot reach, none can.
    while best.score >= i32::from(score) && high - low > STEP {
        let found = judge(low.midpoint(high))?;
        if found.score >= i32::from(score) {
            (best, high) = (found, found.quality);
        } else {
            low = found.quality;
        }
    }
    Ok(best)
}

/// The middle of a picture, or all of it.
fn middle(picture: &Picture, side_max: u32) -> Result<Picture, Error> {
    let (width, height) = (picture.width.min(side_max), picture.height.min(side_max));
    if (width, height) == (picture.width, picture.height) {
        return Ok(picture.clone());
    }
    let mut part = Picture::blank(width, height, picture.layout)?;
    let (left, top) = ((picture.width - width) / 2, (picture.height - height) / 2);
    let (pitch, left) = (part.pitch(), left as usize * picture.layout.channels());
    let rows = picture.pixels.chunks_exact(picture.pitch()).skip(top as usize);
    for (to, row) in part.pixels.chunks_exact_mut(pitch).zip(rows) {
        to.copy_from_slice(&row[left..left + pitch]);
    }
    Ok(part)
}

fn decoded(made: &[u8]) -> Result<Picture, Error> {
    let limits = Limits::default();
    let missing = || Error::codec("ssimulacra2", "nothing to compare with");
    let probe = probe(made, &limits)?.ok_or_else(missing)?;
    let frame = decode::open(made, &probe, 1, &limits)?.next()?;
    frame.map(|frame| frame.picture).ok_or_else(missing)
}

fn slice(picture: &Picture) -> Result<PixelSlice<'_>, Error> {
    debug_assert_eq!(picture.layout, Layout::Rgb);
    let (width, height, pitch) = (picture.width, picture.height, picture.pitch());
    let descriptor = PixelDescriptor::RGB8_SRGB;
    let slice = PixelSlice::new(&picture.pixels, width, height, pitch, descriptor);
    slice.map_err(|error| Error::codec("ssimulacra2", error))
}
