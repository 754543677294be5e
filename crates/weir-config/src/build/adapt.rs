//! The `adapt` block, and what routes adapt.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::check::Line;
use crate::limits::TYPES_MAX;
use crate::model::{
    Adapt, AdaptPriority, Coding, Compress, CompressFormat, MediaTypes, RouteAdapt, Strength,
};
use crate::value::Value;

use super::Build;
use super::route::is_never_stored;

impl Build<'_, '_> {
    pub(super) fn adapt(&mut self, line: &Line) -> Option<Adapt> {
        let lines = &line.lines;
        let helpers = match lines.value::<Value>("helpers")? {
            Value::Number(count) => Some(usize::try_from(count).ok()?),
            _ => None,
        };
        let (memory, output): (u64, u64) = (lines.value("memory")?, lines.value("output")?);
        if let Some(line) = lines.one("output").filter(|_| output > memory) {
            let message = "`output` is larger than `memory`, in which it is made";
            self.source.error(line.span_of("size"), message);
        }
        Some(Adapt {
            helpers,
            queue: lines.value("queue")?,
            streams: lines.value("streams")?,
            memory,
            output,
            time: lines.value("time")?,
            priority: match lines.value::<&str>("priority")? {
                "normal" => AdaptPriority::Normal,
                _ => AdaptPriority::Idle,
            },
            cgroup: lines.value::<String>("cgroup").map(PathBuf::from),
            image: self.image_limits(lines.one("image")?, memory)?,
        })
    }

    pub(super) fn route_adapt(&mut self, route: &Line) -> Option<RouteAdapt> {
        let lines = &route.lines;
        let compress = lines.one("compress").map(|line| self.compress(line, route));
        let html = lines.one("html").map(|line| self.html(line, route));
        let ads = lines.one("ads").map(|line| self.ads(line, route));
        let image = lines.one("image").map(|line| self.image(line, route));
        // Of each that is there, its value; and none if one of them has none.
        fn given<T>(value: Option<Option<T>>) -> Option<Option<T>> {
            value.map_or(Some(None), |value| value.map(Some))
        }
        Some(RouteAdapt {
            compress: given(compress)?,
            html: given(html)?,
            ads: given(ads)?,
            image: given(image)?,
        })
    }

    /// Reports a line about stored responses where there are none.
    pub(super) fn check_stored(&mut self, line: &Line, route: &Line, why: &str) {
        let name = line.key.name;
        if is_never_stored(route) {
            let message = format!("`{name}` has no meaning here: this answer is never stored");
            self.source.error(line.span, message);
        } else if route.lines.one("cache").is_some_and(|cache| cache.is_written("off")) {
            let message = format!("`{name}` has no meaning where the cache is off: {why}");
            self.source.error(line.span, message);
        }
    }

    fn compress(&mut self, line: &Line, route: &Line) -> Option<Compress> {
        let stream: bool = line.value("stream")?;
        if !stream || route.lines.lacks("proxy") {
            self.check_stored(line, route, "what is stored is compressed, and nothing else");
        }
        Some(Compress {
            stream,
            formats: self.formats(line)?,
            types: self.types(line),
            min_size: line.value("min-size")?,
            wait: line.value("wait")?,
        })
    }

    fn formats(&mut self, line: &Line) -> Option<Vec<CompressFormat>> {
        let mut written: Vec<(Coding, Option<u32>)> = Vec::new();
        for (value, span) in line.values::<Value>("format") {
            let Value::Format(coding, level) = value else { return None };
            if written.iter().any(|(other, _)| *other == coding) {
                let message = format!("\"{}\" is one of its formats already", coding.token());
                self.source.error(span, message);
                continue;
            }
            written.push((coding, level));
        }
        let is_refused = line.is_refused("format");
        if written.is_empty() && !is_refused {
            written = Coding::ALL.map(|coding| (coding, None)).to_vec();
        }
        let all_have_levels = written.iter().all(|(_, level)| level.is_some());
        if line.is_written("strength") && all_have_levels && !is_refused {
            let message = "`strength` has no meaning where all formats have levels of their own";
            self.source.error(line.span_of("strength"), message);
        }
        let strength = match line.value::<&str>("strength")? {
            "quick" => Strength::Quick,
            "balanced" => Strength::Balanced,
            _ => Strength::Strongest,
        };
        let formats = written.into_iter().map(|(coding, level)| {
            let levels = level.map(|level| (level, level));
            let (level, level_large) = levels.unwrap_or_else(|| strength.levels(coding));
            CompressFormat { coding, level, level_large }
        });
        Some(formats.collect())
    }

    fn types(&mut self, line: &Line) -> MediaTypes {
        let Some(line) = line.lines.one("types") else { return MediaTypes::default() };
        let types = line.values::<String>("type");
        if types.len() > TYPES_MAX {
            self.source.error(line.span, format!("more than {TYPES_MAX} types"));
        }
        let mut seen = HashSet::new();
        for (name, span) in &types {
            if !seen.insert(name) {
                self.source.error(*span, format!("\"{name}\" is one of its types already"));
            }
        }
        MediaTypes(types.into_iter().map(|(name, _)| name).collect())
    }
}
