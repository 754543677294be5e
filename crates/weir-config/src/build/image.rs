//! The block `image` of routes, and what pictures may cost.

use crate::check::Line;
use crate::limits::IMAGE_WIDTHS_MAX;
use crate::model::{
    Image, ImageFit, ImageFormat, ImageLimits, ImageQuality, ImageQuery, ImageQueryBy,
};

use super::{Build, Expected};

impl Build<'_, '_> {
    pub(super) fn image(&mut self, line: &Line, route: &Line) -> Option<Image> {
        self.check_stored(line, route, "what is stored is made smaller, and nothing else");
        let lines = &line.lines;
        let (max_width, max_height) = (line.value("max-width"), line.value("max-height"));
        let has_sides = line.is_written("max-width") && line.is_written("max-height");
        if line.is_written("fit") && !has_sides {
            let message = "`fit` has no meaning without both `max-width` and `max-height`";
            self.source.error(line.span_of("fit"), message);
        }
        if let Some(dpr) = lines.one("dpr")
            && !line.is_written("max-width")
            && !line.is_written("max-height")
        {
            let message = "`dpr` has no meaning without `max-width` or `max-height`: no picture is \
                           made larger than it is";
            self.source.error(dpr.span, message);
        }
        let formats: String = line.value("formats")?;
        let quality = lines.one("quality")?;
        Some(Image {
            formats: formats.split(',').filter_map(ImageFormat::parse).collect(),
            max_width,
            max_height,
            fit: ImageFit::parse(line.value("fit")?).unwrap_or_default(),
            grey: line.value("grey")?,
            still: line.value::<&str>("animation")? == "first",
            quality: ImageQuality {
                avif: quality.value("avif")?,
                webp: quality.value("webp")?,
                jpeg: quality.value("jpeg")?,
            },
            target: lines.one("target").and_then(|line| line.value("score")),
            save_data: lines.one("save-data").and_then(|line| line.value("less")),
            dpr: lines.one("dpr").and_then(|line| line.value("max")),
            width_hint: lines.one("width-hint").is_some(),
            query: match lines.one("query") {
                Some(query) => Some(self.image_query(query, line)?),
                None => self.no_image_query(line),
            },
            wait: line.value("wait")?,
        })
    }

    fn no_image_query(&mut self, image: &Line) -> Option<ImageQuery> {
        if let Some(widths) = image.lines.one("widths") {
            let message = "`widths` has no meaning without `query \"listed\"`";
            self.source.error(widths.span, message);
        }
        None
    }

    fn image_query(&mut self, line: &Line, image: &Line) -> Option<ImageQuery> {
        let refuses = line.value::<&str>("otherwise")? == "refuse";
        let (key, widths) = (line.value::<String>("key"), image.lines.one("widths"));
        let by = if line.value::<&str>("which")? == "listed" {
            if key.is_some() {
                let message = "`key` has no meaning here: what is listed need not be signed";
                self.source.error(line.span_of("key"), message);
            }
            let Some(widths) = widths else {
                self.source.error(line.span, "there are no `widths` to choose from");
                return None;
            };
            ImageQueryBy::Listed { widths: self.widths(widths, IMAGE_WIDTHS_MAX) }
        } else {
            self.no_image_query(image);
            let Some(key) = key else {
                self.source.error(line.span, "it has no key").expect(["key=\"…\""]);
                return None;
            };
            let span = line.span_of("key");
            ImageQueryBy::Signed { key: self.file(&key, "the key", Expected::File, span) }
        };
        Some(ImageQuery { by, refuses })
    }

    /// The widths of a line, the least first: up to so many, and each once.
    pub(super) fn widths(&mut self, line: &Line, most: usize) -> Vec<u32> {
        let written = line.values::<u32>("width");
        if written.len() > most {
            self.source.error(line.span, format!("more than {most} widths"));
        }
        let mut widths: Vec<u32> = Vec::new();
        for (width, span) in written {
            if widths.contains(&width) {
                self.source.error(span, format!("{width} is one of its widths already"));
            }
            widths.push(width);
        }
        widths.sort_unstable();
        widths
    }

    /// Limits of pictures, beside the memory of a helper.
    pub(super) fn image_limits(&mut self, line: &Line, memory: u64) -> Option<ImageLimits> {
        let decoded: u64 = line.value("decoded")?;
        if decoded > memory && line.is_written("decoded") {
            let message = "`decoded` is larger than `memory`, in which pictures are decoded";
            self.source.error(line.span_of("decoded"), message);
        }
        Some(ImageLimits {
            source_bytes: line.value("source-bytes")?,
            pixels: line.value("pixels")?,
            side: line.value("side")?,
            frames: line.value("frames")?,
            // What was not chosen follows what was.
            decoded: decoded.min(memory),
        })
    }
}
