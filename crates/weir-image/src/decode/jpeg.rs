//! JPEG, by libjpeg-turbo; large ones right at a half, a quarter or an eighth of their size.

use turbojpeg::{Decompressor, Image, PixelFormat, ScalingFactor};

use super::jpeg_markers;
use crate::Error;
use crate::colour::{self, Colour};
use crate::exif;
use crate::format::Source;
use crate::picture::{Layout, Picture, zeroed};
use crate::probe::{Probe, Unsupported};

/// Scans that there may be; encoders write ten or so. Each costs as much as the whole.
const SCANS_MAX: u32 = 100;

pub(crate) fn probe(input: &[u8]) -> Result<Probe, Error> {
    let markers = jpeg_markers::read(input)?;
    let mut probe = Probe::still(Source::Jpeg, markers.width, markers.height);
    probe.orientation = markers.exif.map(exif::orientation).unwrap_or_default();
    probe.colour = Colour::of_profile(markers.profile);
    if markers.is_rare || !matches!(markers.components, 1 | 3 | 4) {
        probe.unsupported = Some(Unsupported::Kind);
    }
    if markers.has_scans {
        let pixels = u64::from(markers.width) * u64::from(markers.height);
        probe.beside_bytes = 2 * pixels * u64::from(markers.components);
    }
    Ok(probe)
}

/// # Errors
/// What libjpeg-turbo says, warnings included: a picture that ends too early would become one that
/// does not, with grey below. Not those of bytes after the last pixel, which some cameras write.
pub(crate) fn decode(input: &[u8], probe: &Probe, shrink: u32) -> Result<Picture, Error> {
    let failed = |error: turbojpeg::Error| Error::codec("jpeg", error);
    let markers = jpeg_markers::read(input)?;
    let mut decompressor = Decompressor::new().map_err(failed)?;
    decompressor.set_scan_limit(SCANS_MAX).map_err(failed)?;
    let header = decompressor.read_header(input).map_err(failed)?;
    if (header.width, header.height) != (probe.width as usize, probe.height as usize) {
        return Err(Error::codec("jpeg", "two frames say two sizes"));
    }
    let factor = ScalingFactor::new(1, shrink as usize);
    decompressor.set_scaling_factor(factor).map_err(failed)?;
    let (width, height) = (factor.scale(header.width), factor.scale(header.height));
    let has_inks = markers.components == 4;
    let (format, channels) = if has_inks { (PixelFormat::CMYK, 4) } else { (PixelFormat::RGB, 3) };
    let pitch = width * channels;
    let mut pixels = zeroed(pitch * height)?;
    let image = Image { pixels: &mut pixels[..], width, pitch, height, format };
    match decompressor.decompress(input, image) {
        Err(error) if !is_whole_but_for(&error) => return Err(failed(error)),
        _ => {}
    }
    let (width, height) = (width as u32, height as u32);
    if !has_inks {
        return Ok(Picture { width, height, layout: Layout::Rgb, pixels });
    }
    if markers.is_adobe {
        pixels.iter_mut().for_each(|ink| *ink = 255 - *ink);
    }
    colour::from_inks(width, height, &pixels, &probe.colour)
}

/// Whether what is wrong with a picture is that bytes stand before its end. Only the first warning
/// is told, so that there was none before: every pixel has been read.
fn is_whole_but_for(error: &turbojpeg::Error) -> bool {
    matches!(error, turbojpeg::Error::TurboJpegError(text)
        if text.ends_with("extraneous bytes before marker 0xd9"))
}
