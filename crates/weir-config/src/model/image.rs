//! What routes do to pictures.

use std::path::PathBuf;
use std::time::Duration;

/// `image` in a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Formats that are made, the most preferred first. Each once, and at least one.
    pub formats: Vec<ImageFormat>,
    /// In pixels; of a page, with [`Image::dpr`].
    pub max_width: Option<u32>,
    /// In pixels; of a page, with [`Image::dpr`].
    pub max_height: Option<u32>,
    /// What both together mean.
    pub fit: ImageFit,
    /// Colours are left out.
    pub grey: bool,
    /// What moves becomes its first frame.
    pub still: bool,
    /// How good.
    pub quality: ImageQuality,
    /// How much like the original, by SSIMULACRA2; then `quality` is the highest that is tried.
    pub target: Option<u8>,
    /// `Save-Data` is looked at: so many points of quality less.
    pub save_data: Option<u8>,
    /// Device pixel ratios are looked at, up to this one.
    pub dpr: Option<u8>,
    /// Whether clients say how wide pictures are shown.
    pub width_hint: bool,
    /// What queries may ask for.
    pub query: Option<ImageQuery>,
    /// How long a request may wait for its variant, rather than have the original at once.
    pub wait: Duration,
}

/// `query` in the block: what the query of a URL may ask of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageQuery {
    /// What is allowed.
    pub by: ImageQueryBy,
    /// Whatever else is asked is refused, rather than ignored.
    pub refuses: bool,
}

/// What a query may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageQueryBy {
    /// What is listed.
    Listed {
        /// Widths, the least first, at least one; formats are the route's.
        widths: Vec<u32>,
    },
    /// What is signed.
    Signed {
        /// The file that has the key.
        key: PathBuf,
    },
}

/// A format that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageFormat {
    /// AV1 Image File Format.
    Avif,
    /// RFC 9649.
    WebP,
    /// ITU-T T.81.
    Jpeg,
    /// Third edition.
    Png,
}

/// What a width and a height together mean for pictures of another shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImageFit {
    /// They fit within them.
    #[default]
    Inside,
    /// They fill them, and what is too much is cut off.
    Cover,
    /// They are stretched to them.
    Fill,
}

/// Qualities by format, from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageQuality {
    /// Of AVIF.
    pub avif: u8,
    /// Of WebP.
    pub webp: u8,
    /// Of JPEG.
    pub jpeg: u8,
}

/// `image` in the `adapt` block: what pictures may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of an original.
    pub source_bytes: u64,
    /// Pixels of a frame.
    pub pixels: u64,
    /// Pixels of the longer side.
    pub side: u32,
    /// Frames.
    pub frames: u32,
    /// Bytes of all frames, decoded.
    pub decoded: u64,
}

impl ImageFormat {
    /// All of them, those that need the fewest bytes first.
    pub const ALL: [ImageFormat; 4] =
        [ImageFormat::Avif, ImageFormat::WebP, ImageFormat::Jpeg, ImageFormat::Png];

    /// As configuration writes it.
    pub const fn name(self) -> &'static str {
        match self {
            ImageFormat::Avif => "avif",
            ImageFormat::WebP => "webp",
            ImageFormat::Jpeg => "jpeg",
            ImageFormat::Png => "png",
        }
    }

    /// Reads a name, in any case.
    pub fn parse(name: &str) -> Option<ImageFormat> {
        ImageFormat::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }
}

impl ImageFit {
    /// All of them.
    pub const ALL: [ImageFit; 3] = [ImageFit::Inside, ImageFit::Cover, ImageFit::Fill];

    /// As configuration writes it.
    pub const fn name(self) -> &'static str {
        match self {
            ImageFit::Inside => "inside",
            ImageFit::Cover => "cover",
            ImageFit::Fill => "fill",
        }
    }

    /// Reads a name.
    pub fn parse(name: &str) -> Option<ImageFit> {
        ImageFit::ALL.into_iter().find(|fit| fit.name() == name)
    }
}

impl Default for Image {
    fn default() -> Image {
        Image {
            formats: vec![ImageFormat::Avif, ImageFormat::WebP],
            max_width: None,
            max_height: None,
            fit: ImageFit::Inside,
            grey: false,
            still: false,
            quality: ImageQuality::default(),
            target: None,
            save_data: None,
            dpr: None,
            width_hint: false,
            query: None,
            wait: Duration::ZERO,
        }
    }
}

impl Default for ImageQuality {
    fn default() -> ImageQuality {
        ImageQuality { avif: 65, webp: 80, jpeg: 80 }
    }
}

impl Default for ImageLimits {
    fn default() -> ImageLimits {
        ImageLimits {
            source_bytes: 32 << 20,
            pixels: 50_000_000,
            side: 16_384,
            frames: 1000,
            decoded: 512 << 20,
        }
    }
}
