//! Prints the `adapt` block, and what routes adapt.

use crate::model::{Adapt, AdaptPriority, Compress, CompressFormat, MediaTypes, RouteAdapt};

use super::{Printer, property, quote, size, switch, time};

impl Printer {
    /// Nothing for a configuration that says nothing of adaptation.
    pub(super) fn adapt(&mut self, adapt: &Adapt) {
        if *adapt == Adapt::default() {
            return;
        }
        self.block("adapt", |out| {
            match adapt.helpers {
                Some(count) => out.line(format_args!("helpers {count}")),
                None => out.line("helpers \"auto\""),
            }
            out.line(format_args!("queue {}", adapt.queue));
            out.line(format_args!("streams {}", adapt.streams));
            out.line(format_args!("memory {}", size(adapt.memory)));
            out.line(format_args!("time {}", time(adapt.time)));
            out.line(format_args!("output {}", size(adapt.output)));
            let priority = match adapt.priority {
                AdaptPriority::Idle => "idle",
                AdaptPriority::Normal => "normal",
            };
            out.line(format_args!("priority \"{priority}\""));
            if let Some(path) = &adapt.cgroup {
                out.line(format_args!("cgroup {}", quote(&path.display().to_string())));
            }
            out.image_limits(&adapt.image);
        });
    }

    pub(super) fn route_adapt(&mut self, adapt: &RouteAdapt) {
        if let Some(compress) = &adapt.compress {
            self.compress(compress);
        }
        if let Some(html) = &adapt.html {
            self.html(html);
        }
        if let Some(ads) = &adapt.ads {
            self.ads(ads);
        }
        if let Some(image) = &adapt.image {
            self.image(image);
        }
    }

    fn compress(&mut self, compress: &Compress) {
        let default = Compress::default();
        let mut line = "compress".to_owned();
        if compress.formats != default.formats {
            for format in &compress.formats {
                line = format!("{line} {}", quote(&print_format(format)));
            }
        }
        if compress.min_size != default.min_size {
            property(&mut line, "min-size", size(compress.min_size));
        }
        if compress.wait != default.wait {
            property(&mut line, "wait", time(compress.wait));
        }
        if !compress.stream {
            property(&mut line, "stream", switch(false));
        }
        if compress.types == default.types {
            return self.line(line);
        }
        let MediaTypes(types) = &compress.types;
        let types: Vec<String> = types.iter().map(|name| quote(name)).collect();
        self.block(line, |out| out.line(format_args!("types {}", types.join(" "))));
    }
}

/// Levels that are Weir's choice are left to it.
fn print_format(format: &CompressFormat) -> String {
    let CompressFormat { coding, level, .. } = format;
    match *format == CompressFormat::new(*coding) {
        true => coding.token().to_owned(),
        false => format!("{}:{level}", coding.token()),
    }
}
