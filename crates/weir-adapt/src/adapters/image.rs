//! Pictures in another format, size or quality: what [`weir_image`] makes of them, in words that
//! headers and metrics have.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use weir_image::{Converted, Error, Kept, Made, Wish};

use super::{AdaptError, Adapted};
use crate::job::Limits;
use crate::wire::Why;

/// What is to become of a picture, and what that may cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Image {
    /// What is to become of it.
    pub wish: Wish,
    /// What is judged before memory is taken.
    pub limits: weir_image::Limits,
}

/// Makes another picture.
///
/// # Errors
/// [`AdaptError::Codec`] for one that is damaged, [`AdaptError::TooLarge`].
pub fn convert(input: &[u8], image: &Image, limits: &Limits) -> Result<Adapted, AdaptError> {
    let converted = weir_image::convert(input, &image.wish, &image.limits).map_err(failed)?;
    match converted {
        Converted::Kept(Kept::NotSmaller) => Ok(Adapted::Original(Why::NotSmaller)),
        Converted::Kept(Kept::Unchanged) => Ok(Adapted::Original(Why::Unchanged)),
        Converted::Kept(kept) => Ok(Adapted::Original(Why::Image(kept))),
        Converted::Made(made) if made.bytes.len() as u64 > limits.output_bytes => {
            Err(AdaptError::TooLarge { limit_bytes: limits.output_bytes })
        }
        Converted::Made(made) => {
            let detail = detail(&made);
            Ok(Adapted::Made(made.bytes, detail))
        }
    }
}

/// `webp;q=80;800x600`, with `frames=12` for what moves, and `score=81` where that was asked.
fn detail(made: &Made) -> String {
    let mut detail = made.format.name().to_owned();
    // Writing to a String cannot fail.
    if let Some(quality) = made.quality {
        let _ = write!(detail, ";q={quality}");
    }
    let _ = write!(detail, ";{}x{}", made.width, made.height);
    if made.frames > 1 {
        let _ = write!(detail, ";frames={}", made.frames);
    }
    if let Some(score) = made.score {
        let _ = write!(detail, ";score={score}");
    }
    detail
}

fn failed(error: Error) -> AdaptError {
    AdaptError::Codec { what: "image", cause: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_image::{Excess, Format, Size};

    use super::*;

    const LIMITS: Limits = Limits { output_bytes: 1 << 20, time: Duration::from_secs(60) };

    fn grey_ramp() -> Vec<u8> {
        let mut pgm = b"P5 640 480 255\n".to_vec();
        pgm.extend((0..640 * 480_u32).map(|at| (at % 640 / 3) as u8));
        pgm
    }

    fn image(format: Format) -> Image {
        let size = Size { width: Some(320), ..Size::default() };
        let wish = Wish { formats: vec![format], size, ..Wish::default() };
        Image { wish, limits: weir_image::Limits::default() }
    }

    #[test]
    fn what_was_done_is_said() {
        let made = |image: &Image| match convert(&grey_ramp(), image, &LIMITS).unwrap() {
            Adapted::Made(bytes, detail) => (weir_image::Source::of(&bytes).unwrap(), detail),
            Adapted::Original(why) => panic!("{why:?}"),
        };
        let (source, detail) = made(&image(Format::Jpeg));
        assert_eq!((source.name(), &*detail), ("jpeg", "jpeg;q=80;320x240"));
        assert_eq!(made(&image(Format::Png)).1, "png;320x240");
        let mut scored = image(Format::Jpeg);
        scored.wish.score = Some(60);
        assert!(made(&scored).1.contains(";320x240;score="));
    }

    #[test]
    fn why_not_is_said() {
        let mut small = image(Format::Jpeg);
        small.limits.side = 639;
        let why = |input: &[u8], image: &Image| match convert(input, image, &LIMITS) {
            Ok(Adapted::Original(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(&grey_ramp(), &small), Why::Image(Kept::Excess(Excess::Side)));
        assert_eq!(why(b"<svg/>", &small).as_str(), "unknown-format");
        let error = convert(b"P5 640 480 255\n", &image(Format::Jpeg), &LIMITS).unwrap_err();
        assert_eq!(error.to_string(), "image: pnm: it ends too early");
        let little = Limits { output_bytes: 10, ..LIMITS };
        let error = convert(&grey_ramp(), &image(Format::Jpeg), &little).unwrap_err();
        assert!(matches!(error, AdaptError::TooLarge { limit_bytes: 10 }));
    }
}
