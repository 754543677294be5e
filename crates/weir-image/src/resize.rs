//! Other sizes: Lanczos, with transparency taken into account.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{PixelType, ResizeOptions, Resizer};

use crate::Error;
use crate::picture::{Layout, Picture};
use crate::size::Geometry;

/// Brings a part of a picture to a size. `geometry` is that of the picture as it was before a
/// decoder made it smaller.
///
/// # Errors
/// [`Error::Memory`]
pub(crate) fn resize(
    resizer: &mut Resizer,
    picture: Picture,
    stored: (u32, u32),
    geometry: &Geometry,
) -> Result<Picture, Error> {
    if geometry.is_whole((picture.width, picture.height)) {
        return Ok(picture);
    }
    let failed = |cause: &dyn std::fmt::Display| Error::codec("resize", cause);
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let (by_x, by_y) = (width / f64::from(stored.0), height / f64::from(stored.1));
    let (left, top) = (geometry.left * by_x, geometry.top * by_y);
    // What rounding adds must not lie outside.
    let part_width = (geometry.part_width * by_x).min(width - left);
    let part_height = (geometry.part_height * by_y).min(height - top);
    let options = ResizeOptions::new().crop(left, top, part_width, part_height);
    let pixel_type = match picture.layout {
        Layout::Rgb => PixelType::U8x3,
        Layout::Rgba => PixelType::U8x4,
    };
    let from = ImageRef::new(picture.width, picture.height, &picture.pixels, pixel_type);
    let from = from.map_err(|error| failed(&error))?;
    let mut resized = Picture::blank(geometry.width, geometry.height, picture.layout)?;
    let (width, height) = (resized.width, resized.height);
    let to = Image::from_slice_u8(width, height, &mut resized.pixels, pixel_type);
    let mut to = to.map_err(|error| failed(&error))?;
    resizer.resize(&from, &mut to, &options).map_err(|error| failed(&error))?;
    Ok(resized)
}
