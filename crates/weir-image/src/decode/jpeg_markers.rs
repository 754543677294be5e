//! The segments of a JPEG before its first scan: size, kind, Exif, profile. (ITU-T T.81 annex B.)

use crate::Error;
use crate::colour::PROFILE_BYTES_MAX;

/// Segments that are looked at.
const SEGMENTS_MAX: usize = 1024;

/// What begins an ICC profile's pieces, in APP2.
const PROFILE: &[u8] = b"ICC_PROFILE\0";

/// What segments say.
#[derive(Debug, Default)]
pub(super) struct Markers<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) components: u8,
    /// It comes in several scans, and every coefficient is kept until the last: it is progressive,
    /// or its first scan has not all components.
    pub(super) has_scans: bool,
    /// Neither sequential nor progressive by Huffman's or arithmetic codes for 8 bits.
    pub(super) is_rare: bool,
    pub(super) exif: Option<&'a [u8]>,
    pub(super) profile: Option<Vec<u8>>,
    /// Adobe's segment is there: inks are stored the other way round.
    pub(super) is_adobe: bool,
}

/// Reads the segments of a JPEG.
///
/// # Errors
/// [`Error::Codec`] if there is no frame before the first scan.
pub(super) fn read(input: &[u8]) -> Result<Markers<'_>, Error> {
    let mut markers = Markers::default();
    let mut pieces: Vec<(u8, &[u8])> = Vec::new();
    let mut rest = input.get(2..).unwrap_or_default();
    for _ in 0..SEGMENTS_MAX {
        let Some((marker, segment, after)) = segment(rest) else { break };
        rest = after;
        match marker {
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                frame(&mut markers, marker, segment)
            }
            0xe1 if segment.starts_with(b"Exif\0") => _ = markers.exif.get_or_insert(segment),
            0xe2 if segment.starts_with(PROFILE) => {
                if let [number, _, piece @ ..] = &segment[PROFILE.len()..] {
                    pieces.push((*number, piece));
                }
            }
            0xee if segment.starts_with(b"Adobe") => markers.is_adobe = true,
            // The first scan.
            0xda => {
                let has_all = segment.first().is_some_and(|count| *count >= markers.components);
                markers.has_scans |= !has_all;
                break;
            }
            _ => {}
        }
    }
    if markers.components == 0 {
        return Err(Error::codec("jpeg", "no frame before the first scan"));
    }
    pieces.sort_by_key(|(number, _)| *number);
    if pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>() <= PROFILE_BYTES_MAX {
        let profile: Vec<u8> = pieces.iter().flat_map(|(_, piece)| *piece).copied().collect();
        markers.profile = Some(profile).filter(|profile| !profile.is_empty());
    }
    Ok(markers)
}

/// The next marker with what belongs to it, and what follows.
fn segment(rest: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    // Any number of 0xff may stand before a marker.
    let at = rest.iter().position(|byte| *byte != 0xff).filter(|at| *at > 0)?;
    let (marker, rest) = (rest[at], &rest[at + 1..]);
    if matches!(marker, 0x01 | 0xd0..=0xd9) {
        return Some((marker, &[], rest));
    }
    let len = usize::from(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?));
    let segment = rest.get(2..len)?;
    Some((marker, segment, &rest[len..]))
}

fn frame(markers: &mut Markers<'_>, marker: u8, segment: &[u8]) {
    if let [bits, high, low, wide, narrow, components, ..] = *segment {
        markers.height = u32::from(u16::from_be_bytes([high, low]));
        markers.width = u32::from(u16::from_be_bytes([wide, narrow]));
        markers.components = components;
        markers.has_scans = matches!(marker, 0xc2 | 0xca);
        markers.is_rare = bits != 8 || !matches!(marker, 0xc0..=0xc2 | 0xc9 | 0xca);
    }
}
