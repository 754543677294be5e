//! Pictures: bytes in, a wish and limits, bytes out.
//!
//! [`convert`] reads the headers of a picture, judges by them whether it may be worked on, and
//! makes of it what a [`Wish`] says: another format, size or quality, without metadata, in sRGB,
//! turned as it is to be seen. What would not become smaller is left as it is. Nothing here knows
//! where bytes come from; there is no I/O, no clock and no thread. The codecs for JPEG and WebP are
//! C libraries: foreign bytes are for a process that may do nothing else.

mod canvas;
mod colour;
mod convert;
mod decode;
mod encode;
mod exif;
mod format;
mod likeness;
mod limits;
mod orientation;
mod picture;
mod probe;
mod resize;
mod size;
mod wish;

pub use convert::{Converted, Kept, Made, convert};
pub use format::{Format, Source};
pub use limits::{Excess, Limits};
pub use probe::{Probe, probe};
pub use wish::{Fit, Quality, Size, Wish};

/// Why a picture cannot be worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is damaged, or a codec does not take it.
    #[error("{format}: {cause}")]
    Codec {
        /// Which.
        format: &'static str,
        /// What it says.
        cause: String,
    },
    /// It has a high dynamic range, which only what is decoded says; no error to [`convert`].
    #[error("it has a high dynamic range")]
    Hdr,
    /// There is not enough memory.
    #[error("no memory for {bytes} bytes")]
    Memory {
        /// How many were asked for.
        bytes: usize,
    },
}

impl Error {
    fn codec(format: &'static str, cause: impl ToString) -> Error {
        Error::Codec { format, cause: cause.to_string() }
    }
}
