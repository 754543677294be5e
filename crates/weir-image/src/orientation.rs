//! How a picture is to be turned to be seen: as Exif and HEIF say it.

use crate::Error;
use crate::picture::Picture;

/// A picture is transposed first (row by row becomes column by column), then flipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    pub(crate) transpose: bool,
    pub(crate) flip_x: bool,
    pub(crate) flip_y: bool,
}

impl Orientation {
    const fn new(transpose: bool, flip_x: bool, flip_y: bool) -> Orientation {
        Orientation { transpose, flip_x, flip_y }
    }

    /// By the number that Exif has for it (tag 0x0112); what it does not define turns nothing.
    pub(crate) const fn of_exif(number: u16) -> Orientation {
        match number {
            2 => Orientation::new(false, true, false),
            3 => Orientation::new(false, true, true),
            4 => Orientation::new(false, false, true),
            5 => Orientation::new(true, false, false),
            6 => Orientation::new(true, true, false),
            7 => Orientation::new(true, true, true),
            8 => Orientation::new(true, false, true),
            _ => Orientation::new(false, false, false),
        }
    }

    /// By HEIF's properties (ISO/IEC 23008-12 §6.5.10 and 6.5.12): `irot`, in degrees against the
    /// clock, then `imir`, 0 for what exchanges top and bottom, 1 for left and right.
    pub(crate) const fn of_heif(angle: Option<u16>, mirror: Option<u8>) -> Orientation {
        let turned = match angle {
            Some(90) => Orientation::new(true, false, true),
            Some(180) => Orientation::new(false, true, true),
            Some(270) => Orientation::new(true, true, false),
            _ => Orientation::new(false, false, false),
        };
        match mirror {
            Some(0) => Orientation { flip_y: !turned.flip_y, ..turned },
            Some(_) => Orientation { flip_x: !turned.flip_x, ..turned },
            None => turned,
        }
    }

    /// Whether nothing is turned.
    pub(crate) fn is_upright(self) -> bool {
        self == Orientation::default()
    }

    /// Sides as they are seen, or, of sides that are seen, as they are stored.
    pub(crate) const fn turned(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transpose { (height, width) } else { (width, height) }
    }

    /// The picture as it is to be seen.
    ///
    /// # Errors
    /// [`Error::Memory`]
    pub(crate) fn apply(self, picture: Picture) -> Result<Picture, Error> {
        if self.is_upright() {
            return Ok(picture);
        }
        let (width, height) = self.turned((picture.width, picture.height));
        let mut turned = Picture::blank(width, height, picture.layout)?;
        let (channels, pitch) = (picture.layout.channels(), picture.pitch());
        let mut pixels = turned.pixels.chunks_exact_mut(channels);
        for y in 0..height {
            let y = if self.flip_y { height - 1 - y } else { y } as usize;
            for x in 0..width {
                let x = if self.flip_x { width - 1 - x } else { x } as usize;
                let (column, row) = if self.transpose { (y, x) } else { (x, y) };
                let from = row * pitch + column * channels;
                if let Some(pixel) = pixels.next() {
                    pixel.copy_from_slice(&picture.pixels[from..from + channels]);
                }
            }
        }
        Ok(turned)
    }
}
