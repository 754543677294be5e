//! What is to become of a picture.

use serde::{Deserialize, Serialize};

use crate::format::Format;

/// What is to become of a picture.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wish {
    /// The first of these that suits the picture is written. One that has no transparency or no
    /// animation does not suit a picture with it.
    pub formats: Vec<Format>,
    /// The first format is written, whatever is lost by it: transparency becomes white, and of an
    /// animation there is the first frame.
    pub is_forced: bool,
    /// If none suits, the picture is written in the format that it came in, where something else is
    /// to be changed.
    pub keeps_format: bool,
    /// How good it is to be.
    pub quality: Quality,
    /// How alike the original it is to look at least, by SSIMULACRA2, from 1 to 100: 90 is hard to
    /// tell apart, 70 good, 50 fair. Then `quality` is the highest that is tried.
    pub score: Option<u8>,
    /// How large.
    pub size: Size,
    /// Without colours.
    pub grey: bool,
    /// Of an animation, only its first frame.
    pub still: bool,
}

/// Qualities by format, from 1 to 100; PNG loses nothing and has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quality {
    /// As rav1e understands it.
    pub avif: u8,
    /// As libwebp understands it.
    pub webp: u8,
    /// As libjpeg understands it.
    pub jpeg: u8,
}

/// How large a picture is to be, in pixels. It is never made larger than it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    /// As it is seen.
    pub width: Option<u32>,
    /// As it is seen.
    pub height: Option<u32>,
    /// What both together mean.
    pub fit: Fit,
}

/// What a width and a height together mean for a picture of another shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fit {
    /// It fits within them.
    #[default]
    Inside,
    /// It fills them, and what is too much is cut off on both sides.
    Cover,
    /// It is stretched to them.
    Fill,
}

impl Quality {
    /// Of a format; 100 where nothing is lost.
    pub const fn of(self, format: Format) -> u8 {
        match format {
            Format::Avif => self.avif,
            Format::WebP => self.webp,
            Format::Jpeg => self.jpeg,
            Format::Png => 100,
        }
    }
}

impl Default for Quality {
    /// About the same to look at: by SSIMULACRA2, 75 to 80 for photographs.
    fn default() -> Quality {
        Quality { avif: 65, webp: 80, jpeg: 80 }
    }
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            formats: Format::ALL.to_vec(),
            is_forced: false,
            keeps_format: true,
            quality: Quality::default(),
            score: None,
            size: Size::default(),
            grey: false,
            still: false,
        }
    }
}
