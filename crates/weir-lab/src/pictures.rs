//! The pictures of P4: binary PPM of the original's sizes, the same in every run, and what they are
//! in grey.

use std::fs;
use std::path::Path;

use crate::documents::document;
use crate::error::{Doing, Result};

/// The folders of the pictures below the document root: one that is served as it is, and one for
/// the transcoder.
pub const FOLDERS: [&str; 2] = ["colour", "grey"];
/// Its type.
pub const TYPE: &str = "image/x-portable-pixmap";

/// A picture, by its size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
}

/// 9 KB, 99 KB, 270 KB and 3.3 MB; in grey 3, 33, 90 KB and 1.1 MB.
pub const ALL: [Picture; 4] = [
    Picture { width: 64, height: 48 },
    Picture { width: 256, height: 132 },
    Picture { width: 360, height: 256 },
    Picture { width: 1_216, height: 948 },
];

impl Picture {
    /// Bytes of the picture in colour.
    #[must_use]
    pub fn size(self) -> usize {
        self.header('6').len() + 3 * self.width * self.height
    }

    /// Bytes of its header in colour.
    #[must_use]
    pub fn header_size(self) -> usize {
        self.header('6').len()
    }

    /// Its header: `6` for colour, `5` for grey.
    #[must_use]
    pub fn header(self, kind: char) -> String {
        format!("P{kind}\n{} {}\n255\n", self.width, self.height)
    }

    /// The picture in colour: noise over all values.
    #[must_use]
    pub fn colour(self) -> Vec<u8> {
        let letters = document(3 * self.width * self.height);
        // Letters have 26 values; times an odd number they are all over the byte.
        let pixels = letters.iter().map(|letter| letter.wrapping_mul(201));
        self.header('6').into_bytes().into_iter().chain(pixels).collect()
    }

    /// What the transcoder must make of it, by its definition, a pixel at a time.
    #[must_use]
    pub fn grey(self) -> Vec<u8> {
        let colour = self.colour();
        let (pixels, _) = colour[self.header_size()..].as_chunks::<3>();
        let grey = pixels.iter().map(|&[red, green, blue]| {
            ((77 * u32::from(red) + 150 * u32::from(green) + 29 * u32::from(blue)) / 256) as u8
        });
        self.header('5').into_bytes().into_iter().chain(grey).collect()
    }

    /// Path of the picture in a request for one of the [`FOLDERS`].
    #[must_use]
    pub fn target(self, folder: &str) -> String {
        format!("/{folder}/{}.ppm", self.size())
    }
}

/// Writes all pictures below `root`.
///
/// # Errors
/// When a file cannot be written.
pub fn write_all(root: &Path) -> Result<()> {
    for folder in FOLDERS {
        let path = root.join(folder);
        fs::create_dir_all(&path).doing(|| format!("creating {}", path.display()))?;
        for picture in ALL {
            let path = path.join(format!("{}.ppm", picture.size()));
            fs::write(&path, picture.colour()).doing(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_the_original_sizes() {
        let kilobytes = |bytes: usize| (bytes as f64 / 1024.0).round() as usize;
        for (picture, expect) in ALL.iter().zip([(9, 3), (99, 33), (270, 90), (3_377, 1_126)]) {
            let (colour, grey) = (picture.colour().len(), picture.grey().len());
            assert_eq!(colour, picture.size());
            assert_eq!((kilobytes(colour), kilobytes(grey)), expect);
        }
    }

    #[test]
    fn grey_is_as_the_transcoder_makes_it() {
        let picture = ALL[0];
        let colour = picture.colour();
        let mut grey = vec![0; picture.width * picture.height];
        gray_rust::gray::transcode(&colour[picture.header_size()..], &mut grey);
        assert_eq!(picture.grey()[picture.header('5').len()..], grey);
        assert!(grey.iter().max() > grey.iter().min(), "not one colour");
    }
}
