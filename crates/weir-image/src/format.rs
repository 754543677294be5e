//! Formats of pictures: those that are read, known by their first bytes, and those that are
//! written.

use serde::{Deserialize, Serialize};

/// A file type box is looked at as far as this: brands of four bytes each, of which nobody has
/// many.
const BRANDS_BYTES_MAX: usize = 256;

/// A format that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// ITU-T T.81.
    Jpeg,
    /// With its animations (APNG).
    Png,
    /// Versions 87a and 89a.
    Gif,
    /// RFC 9649.
    WebP,
    /// AV1 Image File Format.
    Avif,
    /// PPM and PGM, as text or binary.
    Pnm,
}

/// Media types of what is read, and what some call them.
const MEDIA_TYPES: [(&str, Source); 10] = [
    ("image/jpeg", Source::Jpeg),
    ("image/jpg", Source::Jpeg),
    ("image/pjpeg", Source::Jpeg),
    ("image/png", Source::Png),
    ("image/gif", Source::Gif),
    ("image/webp", Source::WebP),
    ("image/avif", Source::Avif),
    ("image/x-portable-pixmap", Source::Pnm),
    ("image/x-portable-graymap", Source::Pnm),
    ("image/x-portable-anymap", Source::Pnm),
];

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// AV1 Image File Format.
    Avif,
    /// RFC 9649.
    WebP,
    /// ITU-T T.81.
    Jpeg,
    /// Third edition.
    Png,
}

impl Source {
    /// The types that are read.
    pub fn media_types() -> impl Iterator<Item = &'static str> {
        MEDIA_TYPES.iter().map(|(name, _)| *name)
    }

    /// The format that a media type, without parameters, says that something has.
    pub fn of_media_type(media_type: &[u8]) -> Option<Source> {
        let mut known = MEDIA_TYPES.iter();
        known.find(|(name, _)| media_type.eq_ignore_ascii_case(name.as_bytes())).map(|it| it.1)
    }

    /// The format that bytes begin like.
    pub fn of(bytes: &[u8]) -> Option<Source> {
        match bytes {
            [0xff, 0xd8, 0xff, ..] => Some(Source::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Source::Png),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Source::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Source::WebP),
            [b'P', b'2' | b'3' | b'5' | b'6', b' ' | b'\t' | b'\r' | b'\n', ..] => {
                Some(Source::Pnm)
            }
            [_, _, _, _, b'f', b't', b'y', b'p', ..] if has_avif_brand(bytes) => Some(Source::Avif),
            _ => None,
        }
    }

    /// Its name in errors and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Jpeg => "jpeg",
            Source::Png => "png",
            Source::Gif => "gif",
            Source::WebP => "webp",
            Source::Avif => "avif",
            Source::Pnm => "pnm",
        }
    }

    /// What is written for whoever takes this, and takes nothing else.
    pub(crate) const fn own(self) -> Format {
        match self {
            Source::Jpeg => Format::Jpeg,
            Source::Png | Source::Gif | Source::Pnm => Format::Png,
            Source::WebP => Format::WebP,
            Source::Avif => Format::Avif,
        }
    }

    /// Whether every pixel is as somebody drew it.
    pub(crate) const fn is_lossless(self) -> bool {
        matches!(self, Source::Png | Source::Gif | Source::Pnm)
    }
}

impl Format {
    /// All of them, those that need the fewest bytes first.
    pub const ALL: [Format; 4] = [Format::Avif, Format::WebP, Format::Jpeg, Format::Png];

    /// Its name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Avif => "avif",
            Format::WebP => "webp",
            Format::Jpeg => "jpeg",
            Format::Png => "png",
        }
    }

    /// Its media type (RFC 9110 §8.3.1).
    pub const fn media_type(self) -> &'static str {
        match self {
            Format::Avif => "image/avif",
            Format::WebP => "image/webp",
            Format::Jpeg => "image/jpeg",
            Format::Png => "image/png",
        }
    }

    /// The longest side that it has a number for, in pixels, or that its codec takes.
    pub const fn side_max(self) -> u32 {
        match self {
            Format::Avif => 65_535,
            Format::WebP => 16_383,
            Format::Jpeg => 65_500,
            Format::Png => i32::MAX as u32,
        }
    }

    /// Whether it is a good one for what came in another: JPEG spoils edges that somebody drew, and
    /// PNG has no way to be small for a photograph.
    pub const fn suits(self, source: Source) -> bool {
        match self {
            Format::Avif | Format::WebP => true,
            Format::Jpeg => !matches!(source, Source::Png | Source::Gif),
            Format::Png => source.is_lossless(),
        }
    }
}

/// ISO/IEC 14496-12 §4.3: the major brand, a version, and compatible ones.
fn has_avif_brand(bytes: &[u8]) -> bool {
    let len = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let end = len.min(bytes.len()).min(BRANDS_BYTES_MAX);
    let brands = bytes.get(8..end).unwrap_or_default();
    brands.chunks_exact(4).any(|brand| brand == b"avif" || brand == b"avis")
}
