//! What a picture may cost, judged by what its headers say, before memory is taken.

use serde::{Deserialize, Serialize};

use crate::probe::Probe;

/// What may be worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of the file.
    pub source_bytes: u64,
    /// Pixels of a frame.
    pub pixels: u64,
    /// Pixels of its longer side.
    pub side: u32,
    /// Frames of an animation.
    pub frames: u32,
    /// Bytes of all frames together, decoded.
    pub decoded_bytes: u64,
}

/// What a picture has too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Excess {
    /// [`Limits::source_bytes`].
    SourceBytes,
    /// [`Limits::pixels`].
    Pixels,
    /// [`Limits::side`].
    Side,
    /// [`Limits::frames`].
    Frames,
    /// [`Limits::decoded_bytes`].
    Decoded,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            source_bytes: 32 << 20,
            pixels: 50_000_000,
            side: 16_384,
            frames: 1000,
            decoded_bytes: 512 << 20,
        }
    }
}

impl Limits {
    /// What is too much of a picture, `decoded` as which it comes to so many bytes.
    pub(crate) fn excess(&self, probe: &Probe, decoded_bytes: u64) -> Option<Excess> {
        let (width, height) = (u64::from(probe.width), u64::from(probe.height));
        [
            (width.max(height) > u64::from(self.side), Excess::Side),
            (width * height > self.pixels, Excess::Pixels),
            (probe.frames > self.frames, Excess::Frames),
            (decoded_bytes > self.decoded_bytes, Excess::Decoded),
        ]
        .into_iter()
        .find_map(|(is_over, excess)| is_over.then_some(excess))
    }
}

impl Excess {
    /// A word for header field and metrics, after the limit's name in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Excess::SourceBytes => "source-bytes",
            Excess::Pixels => "pixels",
            Excess::Side => "side",
            Excess::Frames => "frames",
            Excess::Decoded => "decoded",
        }
    }
}
