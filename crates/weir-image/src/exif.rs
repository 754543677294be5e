//! The one thing of Exif that a picture cannot be shown without: how it is turned. (CIPA DC-008,
//! which is TIFF 6.0.)

use crate::orientation::Orientation;

/// Orientation.
const TAG: u16 = 0x0112;

/// SHORT.
const TYPE_SHORT: u16 = 3;

/// Entries that are looked at; cameras write some tens.
const ENTRIES_MAX: u16 = 512;

/// Reads the orientation out of a block that begins with TIFF's header, or with `Exif` before it.
/// What is damaged turns nothing.
pub(crate) fn orientation(block: &[u8]) -> Orientation {
    let block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    Orientation::of_exif(number(block).unwrap_or(1))
}

fn number(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| -> Option<u16> {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let (low, high) = if is_little { (4, 6) } else { (6, 4) };
    let directory = usize::from(short(high)?) << 16 | usize::from(short(low)?);
    let entries = short(directory)?.min(ENTRIES_MAX);
    (0..usize::from(entries)).find_map(|entry| {
        let at = directory.checked_add(2 + 12 * entry)?;
        let is_it = short(at)? == TAG && short(at + 2)? == TYPE_SHORT;
        is_it.then(|| short(at + 8)).flatten()
    })
}
