//! JPEG, by libjpeg-turbo: progressive, with codes of its own.

use turbojpeg::{Colorspace, Compressor, Image, PixelFormat, Subsamp};

use crate::Error;
use crate::picture::{Layout, Picture};

/// From here on colours are as sharp as luminance.
const SHARP_QUALITY: u8 = 90;

/// # Errors
/// What libjpeg-turbo says.
pub(super) fn encode(picture: &Picture, quality: u8) -> Result<Vec<u8>, Error> {
    let failed = |error: turbojpeg::Error| Error::codec("jpeg", error);
    let mut compressor = Compressor::new().map_err(failed)?;
    compressor.set_quality(i32::from(quality)).map_err(failed)?;
    compressor.set_progressive(true).map_err(failed)?;
    compressor.set_optimize(true).map_err(failed)?;
    let subsamp = match quality {
        _ if picture.is_grey() => Subsamp::Gray,
        SHARP_QUALITY.. => Subsamp::None,
        _ => Subsamp::Sub2x2,
    };
    compressor.set_subsamp(subsamp).map_err(failed)?;
    if subsamp == Subsamp::Gray {
        compressor.set_colorspace(Colorspace::Gray).map_err(failed)?;
    }
    let format = match picture.layout {
        Layout::Rgb => PixelFormat::RGB,
        Layout::Rgba => PixelFormat::RGBX,
    };
    let (width, height) = (picture.width as usize, picture.height as usize);
    let pixels = &picture.pixels[..];
    let image = Image { pixels, width, pitch: picture.pitch(), height, format };
    compressor.compress_to_vec(image).map_err(failed)
}
