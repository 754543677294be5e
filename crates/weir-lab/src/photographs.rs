//! Pictures like photographs, made by code: patches of all sizes, the larger the stronger, as what
//! is seen in nature has them. The same in every run.

use weir_image::{Converted, Format, Limits, Quality, Wish, convert};

use crate::error::{Error, Result};

/// What a camera makes: twelve megapixels.
pub const CAMERA: (u32, u32) = (4_000, 3_000);
/// How good its files are.
pub const CAMERA_QUALITY: u8 = 90;
/// The original's pictures had so many bytes.
pub const SMALL_SIZE: usize = 8 << 10;

/// A small picture.
const SMALL: (u32, u32) = (320, 240);
/// Patches of so many pixels and twice, four times as many …
const PATCH_MIN: u32 = 2;
/// … up to so many.
const PATCH_MAX: u32 = 512;
/// Colours have coarser patches than brightness.
const COLOUR_PATCH_MIN: u32 = 16;
/// Amplitude of the largest patches, of 255; each size has so much of the next larger one's.
const AMPLITUDE: f32 = 60.0;
const FALL: f32 = 0.72;
/// Bytes of a comment's number.
const NUMBER_WIDTH: usize = 12;

/// A picture as binary PPM.
#[must_use]
pub fn ppm((width, height): (u32, u32)) -> Vec<u8> {
    let mut out = format!("P6\n{width} {height}\n255\n").into_bytes();
    out.reserve(3 * (width * height) as usize);
    let layers: [Vec<Layer>; 3] =
        [layers(1, PATCH_MIN), layers(2, COLOUR_PATCH_MIN), layers(3, COLOUR_PATCH_MIN)];
    let mut rows =
        [vec![0.0; width as usize], vec![0.0; width as usize], vec![0.0; width as usize]];
    for y in 0..height {
        for (row, layers) in rows.iter_mut().zip(&layers) {
            row.fill(0.0);
            layers.iter().for_each(|layer| layer.add(y, row));
        }
        let [light, blue, red] = &rows;
        for ((light, blue), red) in light.iter().zip(blue).zip(red) {
            let byte = |value: f32| value.clamp(0.0, 255.0) as u8;
            let light = 120.0 + light;
            out.extend(
                [light + red / 2.0, light - red / 4.0 - blue / 8.0, light + blue / 2.0].map(byte),
            );
        }
    }
    out
}

/// Patches of one size.
struct Layer {
    seed: u32,
    patch: u32,
    amplitude: f32,
}

fn layers(seed: u32, least: u32) -> Vec<Layer> {
    let sizes = std::iter::successors(Some(PATCH_MAX), |patch| Some(patch / 2));
    let sizes = sizes.take_while(|patch| *patch >= least).enumerate();
    let layer = |(index, patch)| Layer {
        seed: seed.wrapping_mul(0x9E37_79B9).wrapping_add(patch),
        patch,
        amplitude: AMPLITUDE * FALL.powi(index as i32),
    };
    sizes.map(layer).collect()
}

impl Layer {
    /// Adds its part of row `y`: between the corners of a patch it changes steadily.
    fn add(&self, y: u32, row: &mut [f32]) {
        let (top, part) = (y / self.patch, (y % self.patch) as f32 / self.patch as f32);
        let corner = |x: u32| {
            let (above, below) = (self.value(x, top), self.value(x, top + 1));
            (above + (below - above) * part) * self.amplitude
        };
        let (mut left, mut right) = (corner(0), corner(1));
        for (number, piece) in row.chunks_mut(self.patch as usize).enumerate() {
            if number > 0 {
                (left, right) = (right, corner(number as u32 + 1));
            }
            let step = (right - left) / self.patch as f32;
            let mut value = left;
            for pixel in piece {
                *pixel += value;
                value += step;
            }
        }
    }

    /// Of a corner, from -1 to 1.
    fn value(&self, x: u32, y: u32) -> f32 {
        let mut mixed = self.seed ^ x.wrapping_mul(0x85EB_CA6B) ^ y.wrapping_mul(0xC2B2_AE35);
        mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x2C1B_3C6D);
        mixed = (mixed ^ (mixed >> 12)).wrapping_mul(0x297A_2D39);
        mixed ^= mixed >> 15;
        mixed as f32 / u32::MAX as f32 * 2.0 - 1.0
    }
}

/// A picture as JPEG.
///
/// # Errors
/// What the encoder says.
pub fn jpeg(ppm: &[u8], quality: u8) -> Result<Vec<u8>> {
    let wish = Wish {
        formats: vec![Format::Jpeg],
        is_forced: true,
        quality: Quality { jpeg: quality, ..Quality::default() },
        ..Wish::default()
    };
    let limits = Limits { source_bytes: u64::MAX, ..Limits::default() };
    match convert(ppm, &wish, &limits) {
        Ok(Converted::Made(made)) => Ok(made.bytes),
        Ok(Converted::Kept(why)) => Err(failed(why.as_str())),
        Err(error) => Err(failed(&error.to_string())),
    }
}

/// A small picture of [`SMALL_SIZE`] bytes at most, and not much less.
///
/// # Errors
/// What the encoder says.
pub fn small() -> Result<Vec<u8>> {
    let picture = ppm(SMALL);
    let mut best = jpeg(&picture, 1)?;
    let (mut low, mut high) = (1_u8, 100);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let tried = jpeg(&picture, middle)?;
        if tried.len() + comment(0).len() <= SMALL_SIZE {
            (low, best) = (middle, tried);
        } else {
            high = middle - 1;
        }
    }
    Ok(best)
}

/// The same picture as another file: a comment says its number.
#[must_use]
pub fn numbered(jpeg: &[u8], number: u64) -> Vec<u8> {
    // Behind the marker that every file begins with.
    let (start, rest) = jpeg.split_at(2.min(jpeg.len()));
    [start, &comment(number), rest].concat()
}

/// A segment of its own: marker, length with itself, text (ITU-T T.81, B.2.4.5).
fn comment(number: u64) -> Vec<u8> {
    let text = format!("{number:0NUMBER_WIDTH$}");
    let length = (text.len() as u16 + 2).to_be_bytes();
    [&[0xFF, 0xFE], &length[..], text.as_bytes()].concat()
}

fn failed(cause: &str) -> Error {
    Error::Answer(format!("making a picture: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pictures_have_the_size_of_the_originals_and_differ_by_number() {
        let small = small().unwrap();
        assert!((6_000..=SMALL_SIZE).contains(&small.len()), "{}", small.len());
        let (one, other) = (numbered(&small, 1), numbered(&small, 2));
        assert!(one.len() == other.len() && one != other && one.len() <= SMALL_SIZE);
        assert!(one.starts_with(&[0xFF, 0xD8, 0xFF, 0xFE, 0, 14]), "{:?}", &one[..8]);
        let probe = weir_image::probe(&one, &Limits::default()).unwrap().unwrap();
        assert_eq!((probe.width, probe.height), SMALL);
    }

    #[test]
    fn pictures_have_patches_of_all_sizes() {
        let picture = ppm((256, 64));
        let pixels = &picture[picture.len() - 3 * 256 * 64..];
        let green = |x: usize, y: usize| i32::from(pixels[3 * (y * 256 + x) + 1]);
        let mean = |distance: usize| {
            let pairs = (0..64).flat_map(|y| (0..100).map(move |x| (x, y)));
            let sum: i32 = pairs.map(|(x, y)| (green(x, y) - green(x + distance, y)).abs()).sum();
            f64::from(sum) / 6_400.0
        };
        let (near, far) = (mean(1), mean(128));
        assert!(near > 0.5 && far > 3.0 * near, "{near} and {far}");
    }
}
