//! What is asked of one picture, parameter by parameter: by a query, or on the command line.

use weir_config::limits::IMAGE_SIDE_MAX;
use weir_config::{ImageFit, ImageFormat};
use weir_image::{Format, Quality, Size, Wish};

// What may be asked for can be made in every format.
const _: () = assert!(IMAGE_SIDE_MAX == Format::WebP.side_max());

/// What is asked of one picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Parameters {
    width: Option<u32>,
    height: Option<u32>,
    fit: Option<ImageFit>,
    format: Option<ImageFormat>,
    quality: Option<u8>,
    target: Option<u8>,
    grey: Option<bool>,
    still: Option<bool>,
}

impl Parameters {
    /// Their names.
    pub(crate) const NAMES: [&str; 8] =
        ["width", "height", "fit", "format", "quality", "target", "grey", "animation"];

    /// Takes note of one. Each may be given once.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn read(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |expected: &str| format!("{name} cannot be {value:?}: expected {expected}");
        let number = |most: u32| {
            let is_plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let number = value.parse::<u32>().ok().filter(|_| is_plain);
            let number = number.filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| wrong(&format!("a number from 1 to {most}")))
        };
        let percent = || number(100).map(|number| number as u8);
        let known = match name {
            "width" => put(&mut self.width, number(IMAGE_SIDE_MAX)?),
            "height" => put(&mut self.height, number(IMAGE_SIDE_MAX)?),
            "fit" => {
                let expected = "inside, cover or fill";
                put(&mut self.fit, ImageFit::parse(value).ok_or_else(|| wrong(expected))?)
            }
            "format" => {
                let format = ImageFormat::parse(value);
                put(&mut self.format, format.ok_or_else(|| wrong("avif, webp, jpeg or png"))?)
            }
            "quality" => put(&mut self.quality, percent()?),
            "target" => put(&mut self.target, percent()?),
            "grey" => match value {
                "1" | "true" => put(&mut self.grey, true),
                "0" | "false" => put(&mut self.grey, false),
                _ => return Err(wrong("1 or 0")),
            },
            "animation" => match value {
                "first" => put(&mut self.still, true),
                "keep" => put(&mut self.still, false),
                _ => return Err(wrong("first or keep")),
            },
            _ => {
                let names = Parameters::NAMES.join(", ");
                return Err(format!("{name} is not known: expected one of {names}"));
            }
        };
        if known { Ok(()) } else { Err(format!("{name} stands twice")) }
    }

    /// Whether width and format are among those that anybody may ask for.
    ///
    /// # Errors
    /// Which is not, in words.
    pub(super) fn check(&self, widths: &[u32], formats: &[ImageFormat]) -> Result<(), String> {
        if let Some(width) = self.width.filter(|width| !widths.contains(width)) {
            let known: Vec<String> = widths.iter().map(u32::to_string).collect();
            let known = known.join(", ");
            return Err(format!("width cannot be {width}: expected one of {known}"));
        }
        if let Some(format) = self.format.filter(|format| !formats.contains(format)) {
            let known: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            let (name, known) = (format.name(), known.join(", "));
            return Err(format!("format cannot be {name}: expected one of {known}"));
        }
        Ok(())
    }

    /// The wish with what is asked in the place of what it said. A format that is asked for is made
    /// whatever is lost by it.
    pub(crate) fn change(&self, mut wish: Wish) -> Wish {
        if self.width.is_some() || self.height.is_some() {
            wish.size = Size { width: self.width, height: self.height, ..wish.size };
        }
        wish.size.fit = self.fit.map_or(wish.size.fit, super::fit);
        if let Some(format) = self.format.map(super::format) {
            wish.formats = vec![format];
            wish.is_forced = true;
        }
        if let Some(quality) = self.quality {
            wish.quality = Quality { avif: quality, webp: quality, jpeg: quality };
        }
        wish.score = self.target.or(wish.score);
        wish.grey = self.grey.unwrap_or(wish.grey);
        wish.still = self.still.unwrap_or(wish.still);
        wish
    }
}

/// False if there is one already.
fn put<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

/// Reads parameters as the command line has them: `width=800,format=webp,grey`. What does not say
/// otherwise becomes the smallest there is.
///
/// # Errors
/// What is wrong with them, in words.
pub(crate) fn parse(text: &str) -> Result<Wish, String> {
    let mut parameters = Parameters::default();
    for one in text.split(',') {
        let (name, value) = match one.trim() {
            "grey" => ("grey", "1"),
            one => one.split_once('=').unwrap_or((one, "")),
        };
        parameters.read(name.trim(), value.trim())?;
    }
    Ok(parameters.change(Wish { formats: Format::ALL.to_vec(), ..Wish::default() }))
}

#[cfg(test)]
mod tests {
    use weir_image::Fit;

    use super::*;

    #[test]
    fn each_parameter_changes_what_it_names() {
        let text = "width=800,height=600, fit=cover,format=WebP,quality=60,target=70,grey,\
                    animation=first";
        let expected = Wish {
            formats: vec![Format::WebP],
            is_forced: true,
            keeps_format: true,
            quality: Quality { avif: 60, webp: 60, jpeg: 60 },
            score: Some(70),
            size: Size { width: Some(800), height: Some(600), fit: Fit::Cover },
            grey: true,
            still: true,
        };
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("width=0", "width cannot be \"0\": expected a number from 1 to 16383"),
            ("width", "width cannot be \"\": expected a number from 1 to 16383"),
            ("width=+8", "width cannot be \"+8\": expected a number from 1 to 16383"),
            ("format=gif", "format cannot be \"gif\": expected avif, webp, jpeg or png"),
            ("quality=101", "quality cannot be \"101\": expected a number from 1 to 100"),
            ("grey=yes", "grey cannot be \"yes\": expected 1 or 0"),
            ("width=1,width=2", "width stands twice"),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
        assert!(parse("size=8").is_err_and(|error| error.starts_with("size is not known: ")));
    }
}
