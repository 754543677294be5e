//! What numbers of pixels mean as colours, brought to sRGB: what has no profile is taken for it
//! everywhere.

use moxcms::{
    CicpColorPrimaries, CicpProfile, ColorProfile, DataColorSpace, Layout as Channels,
    MatrixCoefficients, TransferCharacteristics, TransformOptions,
};

use crate::Error;
use crate::picture::{Layout, Picture, zeroed};

/// The largest profile that is read: those for print have one or two megabytes of tables.
pub(crate) const PROFILE_BYTES_MAX: usize = 4 << 20;

/// What numbers of pixels mean as colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Srgb,
    /// As a profile says (ICC.1).
    Profile(Vec<u8>),
    /// By code points of ITU-T H.273.
    Cicp {
        primaries: u8,
        transfer: u8,
    },
}

impl Colour {
    /// By code points, of which some are sRGB in other words, or nobody makes a difference.
    pub(crate) fn of_cicp(primaries: u8, transfer: u8) -> Colour {
        match (primaries, transfer) {
            // BT.709 or unknown, by the curves of BT.709, BT.601, sRGB and BT.2020 for 8 bits.
            (1 | 2, 1 | 2 | 6 | 13 | 14 | 15) => Colour::Srgb,
            _ => Colour::Cicp { primaries, transfer },
        }
    }

    /// By a profile; one that is too large is none.
    pub(crate) fn of_profile(profile: Option<Vec<u8>>) -> Colour {
        let profile = profile.filter(|profile| profile.len() <= PROFILE_BYTES_MAX);
        profile.map_or(Colour::Srgb, Colour::Profile)
    }

    fn profile(&self) -> Option<ColorProfile> {
        match self {
            Colour::Srgb => None,
            Colour::Profile(profile) => ColorProfile::new_from_slice(profile).ok(),
            Colour::Cicp { primaries, transfer } => {
                let profile = ColorProfile::new_from_cicp(CicpProfile {
                    color_primaries: CicpColorPrimaries::try_from(*primaries).ok()?,
                    transfer_characteristics: TransferCharacteristics::try_from(*transfer).ok()?,
                    matrix_coefficients: MatrixCoefficients::Identity,
                    full_range: true,
                });
                profile.red_trc.is_some().then_some(profile)
            }
        }
    }
}

/// Whether a transfer function of H.273 is one of high dynamic range: PQ or HLG.
pub(crate) const fn is_hdr(transfer: u8) -> bool {
    matches!(transfer, 16 | 18)
}

/// Brings a picture to sRGB. What a profile says that cannot be understood is not taken into
/// account, as browsers do it.
///
/// # Errors
/// [`Error::Memory`]
pub(crate) fn to_srgb(picture: Picture, colour: &Colour) -> Result<Picture, Error> {
    let Some(profile) = colour.profile() else { return Ok(picture) };
    let channels = match (profile.color_space, picture.layout) {
        (DataColorSpace::Rgb, Layout::Rgb) => Channels::Rgb,
        (DataColorSpace::Rgb, Layout::Rgba) => Channels::Rgba,
        // One for greys says nothing of colours.
        (DataColorSpace::Gray, _) if picture.is_grey() => return from_grey(picture, &profile),
        _ => return Ok(picture),
    };
    let srgb = ColorProfile::new_srgb();
    let options = TransformOptions::default();
    let Ok(transform) = profile.create_transform_8bit(channels, &srgb, channels, options) else {
        return Ok(picture);
    };
    let mut pixels = zeroed(picture.pixels.len())?;
    match transform.transform(&picture.pixels, &mut pixels) {
        Ok(()) => Ok(Picture { pixels, ..picture }),
        Err(_) => Ok(picture),
    }
}

/// Greys by a profile for one channel.
fn from_grey(mut picture: Picture, profile: &ColorProfile) -> Result<Picture, Error> {
    let (grey, rgb) = (Channels::Gray, Channels::Rgb);
    let options = TransformOptions::default();
    let srgb = ColorProfile::new_srgb();
    let Ok(transform) = profile.create_transform_8bit(grey, &srgb, rgb, options) else {
        return Ok(picture);
    };
    // Whatever the picture is, a grey can only become one of so many.
    let levels: [u8; 256] = std::array::from_fn(|level| level as u8);
    let mut table = [0; 256 * 3];
    if transform.transform(&levels, &mut table).is_err() {
        return Ok(picture);
    }
    for pixel in picture.pixels.chunks_exact_mut(picture.layout.channels()) {
        let at = 3 * usize::from(pixel[0]);
        pixel[..3].copy_from_slice(&table[at..at + 3]);
    }
    Ok(picture)
}

/// Brings inks, 0 for none of it, to sRGB.
///
/// # Errors
/// [`Error::Memory`]
pub(crate) fn from_inks(
    width: u32,
    height: u32,
    inks: &[u8],
    colour: &Colour,
) -> Result<Picture, Error> {
    let mut picture = Picture::blank(width, height, Layout::Rgb)?;
    let profile = colour.profile().filter(|profile| profile.color_space == DataColorSpace::Cmyk);
    let transform = profile.and_then(|profile| {
        let (srgb, options) = (ColorProfile::new_srgb(), TransformOptions::default());
        profile.create_transform_8bit(Channels::Rgba, &srgb, Channels::Rgb, options).ok()
    });
    if let Some(transform) = transform
        && transform.transform(inks, &mut picture.pixels).is_ok()
    {
        return Ok(picture);
    }
    // What each ink leaves of white.
    for (pixel, inks) in picture.pixels.chunks_exact_mut(3).zip(inks.chunks_exact(4)) {
        let left = |ink: u8| u32::from(255 - ink);
        for (channel, ink) in pixel.iter_mut().zip(inks) {
            *channel = ((left(*ink) * left(inks[3]) + 127) / 255) as u8;
        }
    }
    Ok(picture)
}
