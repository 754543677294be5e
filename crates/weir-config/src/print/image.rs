//! Prints the block `image` of routes, and what pictures may cost.

use std::time::Duration;

use crate::model::{
    Image, ImageFit, ImageFormat, ImageLimits, ImageQuality, ImageQuery, ImageQueryBy,
};

use super::{Printer, property, quote, size, time};

impl Printer {
    pub(super) fn image(&mut self, image: &Image) {
        let mut line = "image".to_owned();
        let formats: Vec<&str> = image.formats.iter().copied().map(ImageFormat::name).collect();
        property(&mut line, "formats", quote(&formats.join(",")));
        for (name, side) in [("max-width", image.max_width), ("max-height", image.max_height)] {
            if let Some(side) = side {
                property(&mut line, name, side);
            }
        }
        if image.fit != ImageFit::Inside {
            property(&mut line, "fit", quote(image.fit.name()));
        }
        if image.grey {
            property(&mut line, "grey", "#true");
        }
        if image.still {
            property(&mut line, "animation", quote("first"));
        }
        if image.wait != Duration::ZERO {
            property(&mut line, "wait", time(image.wait));
        }
        let ImageQuality { avif, webp, jpeg } = image.quality;
        self.block(line, |out| {
            out.line(format_args!("quality avif={avif} webp={webp} jpeg={jpeg}"));
            if let Some(score) = image.target {
                out.line(format_args!("target {score}"));
            }
            if let Some(less) = image.save_data {
                out.line(format_args!("save-data less={less}"));
            }
            if let Some(max) = image.dpr {
                out.line(format_args!("dpr max={max}"));
            }
            if image.width_hint {
                out.line("width-hint");
            }
            if let Some(query) = &image.query {
                out.image_query(query);
            }
        });
    }

    fn image_query(&mut self, query: &ImageQuery) {
        let mut line = match &query.by {
            ImageQueryBy::Listed { widths } => {
                let widths: Vec<String> = widths.iter().map(u32::to_string).collect();
                self.line(format_args!("widths {}", widths.join(" ")));
                "query \"listed\"".to_owned()
            }
            ImageQueryBy::Signed { key } => {
                let mut line = "query \"signed\"".to_owned();
                property(&mut line, "key", quote(&key.display().to_string()));
                line
            }
        };
        if !query.refuses {
            property(&mut line, "otherwise", quote("ignore"));
        }
        self.line(line);
    }

    pub(super) fn image_limits(&mut self, limits: &ImageLimits) {
        let mut line = "image".to_owned();
        property(&mut line, "source-bytes", size(limits.source_bytes));
        property(&mut line, "pixels", limits.pixels);
        property(&mut line, "side", limits.side);
        property(&mut line, "frames", limits.frames);
        property(&mut line, "decoded", size(limits.decoded));
        self.line(line);
    }
}
