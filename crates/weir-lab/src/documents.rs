//! The documents that every contender serves: the same bytes for the same size, so that the
//! generator can check a body against its own copy.

use std::fs;
use std::path::Path;

use crate::error::{Doing, Result};

/// Sizes of S1 and S2 in bytes: 500 B to 200 KB, as the original experiment.
pub const SIZES: [usize; 13] = [
    500, 1_024, 2_048, 5_120, 8_192, 10_240, 16_384, 20_480, 51_200, 65_536, 102_400, 153_600,
    204_800,
];

/// Sizes for a quick look: one from each regime.
pub const SIZES_QUICK: [usize; 4] = [1_024, 8_192, 65_536, 204_800];

/// Bytes of the document that plugins and other extensions are measured with.
pub const SMALL: usize = 500;

/// The folder of the documents below the document root, and the first segment of their path.
pub const FOLDER: &str = "static";

/// Length of a line of a document, newline included.
const LINE: usize = 64;

/// The document of `size` bytes: printable, not compressible to nothing, the same in every run.
#[must_use]
pub fn document(size: usize) -> Vec<u8> {
    // xorshift64*, seeded by the size so that no document is a prefix of another.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ (size as u64).wrapping_mul(0xD129_0D3B_9F8F_2A55);
    (0..size)
        .map(|index| {
            if index % LINE == LINE - 1 {
                return b'\n';
            }
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let random = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 57;
            b'a' + (random % 26) as u8
        })
        .collect()
}

/// Path of the document of `size` bytes in a request.
#[must_use]
pub fn target(size: usize) -> String {
    format!("/{FOLDER}/{size}.html")
}

/// Writes one document for each of `sizes` below `root`.
///
/// # Errors
/// When a file cannot be written.
pub fn write_all(root: &Path, sizes: &[usize]) -> Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).doing(|| format!("creating {}", folder.display()))?;
    for &size in sizes {
        let path = folder.join(format!("{size}.html"));
        fs::write(&path, document(size)).doing(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_their_size_and_are_reproducible() {
        for size in [0, 1, 500, 204_800] {
            assert_eq!(document(size).len(), size);
            assert_eq!(document(size), document(size));
        }
        assert_ne!(document(1024)[..500], document(500)[..], "one must not pass for the other");
    }

    #[test]
    fn documents_are_printable_lines() {
        let text = document(1_000);
        assert!(text.iter().all(|b| b.is_ascii_lowercase() || *b == b'\n'));
        assert_eq!(text[63], b'\n');
    }
}
