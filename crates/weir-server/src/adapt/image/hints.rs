//! What clients say of their screens and of their wish to save data.

use http::HeaderMap;
use http::header::HeaderName;
use weir_image::{Fit, Quality, Size};

pub(super) const SAVE_DATA: HeaderName = HeaderName::from_static("save-data");
pub(super) const SEC_CH_DPR: HeaderName = HeaderName::from_static("sec-ch-dpr");
/// What it was called first; some send nothing else.
pub(super) const DPR: HeaderName = HeaderName::from_static("dpr");

pub(super) const SEC_CH_WIDTH: HeaderName = HeaderName::from_static("sec-ch-width");
/// Its first name, likewise.
pub(super) const WIDTH: HeaderName = HeaderName::from_static("width");

/// Widths that pictures are made in for those who say how wide they are shown: each is a variant of
/// every picture. Steps of about a half, so that no more than that is wasted.
const WIDTHS: [u32; 9] = [160, 320, 480, 640, 960, 1280, 1920, 2560, 3840];

/// Ratios that pictures are made for, in tenths. There are as many screens as one likes, and each
/// ratio is a variant of every picture.
const RATIOS: [u32; 5] = [10, 15, 20, 30, 40];

/// `Save-Data: on` (Save Data API §2).
pub(super) fn saves_data(headers: &HeaderMap) -> bool {
    let value = headers.get(SAVE_DATA).map(|value| value.as_bytes());
    let first = value.and_then(|value| value.split(|byte| matches!(byte, b';' | b',')).next());
    first.is_some_and(|first| first.trim_ascii().eq_ignore_ascii_case(b"on"))
}

/// Pixels of the client's screen to one of a page, in tenths: the next larger of [`RATIOS`].
pub(super) fn ratio(headers: &HeaderMap, max: u8) -> u32 {
    let value = headers.get(SEC_CH_DPR).or_else(|| headers.get(DPR));
    let number = value.and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    let tenths = number.filter(|number| number.is_finite()).map_or(10.0, |number| number * 10.0);
    let ratio = RATIOS.into_iter().find(|ratio| f64::from(*ratio) >= tenths);
    ratio.unwrap_or(RATIOS[RATIOS.len() - 1]).min(u32::from(max) * 10)
}

/// A size in pixels of a screen, of one in pixels of a page.
pub(super) fn scaled(size: Size, ratio: u32) -> Size {
    let side = |side: Option<u32>| side.map(|side| side.saturating_mul(ratio) / 10);
    Size { width: side(size.width), height: side(size.height), ..size }
}

/// Pixels of the client's screen that a picture is as wide as, if it says so and there is a next
/// larger of [`WIDTHS`].
pub(super) fn width(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get(SEC_CH_WIDTH).or_else(|| headers.get(WIDTH))?;
    let width = value.to_str().ok()?.trim().parse::<u32>().ok().filter(|width| *width > 0)?;
    WIDTHS.into_iter().find(|wide| *wide >= width)
}

/// A size no wider than so many pixels, and of the same shape where the shape is given.
pub(super) fn narrowed(size: Size, width: u32) -> Size {
    let has_shape = size.fit != Fit::Inside;
    match size.width {
        Some(most) if most <= width => size,
        Some(most) if has_shape => {
            let height = size.height.map(|height| u64::from(height) * u64::from(width));
            // No more than it was.
            let height = height.map(|height| (height / u64::from(most)).max(1) as u32);
            Size { width: Some(width), height, ..size }
        }
        _ => Size { width: Some(width), ..size },
    }
}

/// So many points less, and 1 at least.
pub(super) fn lowered(quality: Quality, less: u8) -> Quality {
    let lower = |quality: u8| quality.saturating_sub(less).max(1);
    Quality { avif: lower(quality.avif), webp: lower(quality.webp), jpeg: lower(quality.jpeg) }
}
