//! Pictures as a kind of adaptation: the formats that a client takes, in the operator's order, in
//! the size and quality of the route and of the client's hints.

mod counts;
mod hints;
mod parameters;
mod query;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use weir_adapt::Step;
use weir_adapt::adapters::image as codec;
use weir_config as config;
use weir_http::accept;
use weir_image::{Fit, Format, Limits, Quality, Size, Source, Wish};

use super::adapter::{Adapter, Asked, Shape};
use super::declared::{Cost, Declaration, Declares, Stage};
use super::work::{Chosen, Work};
pub(crate) use counts::Pictures;
use hints::{DPR, SAVE_DATA, SEC_CH_DPR, SEC_CH_WIDTH, WIDTH};
pub(crate) use query::{ImageQuery, Misasked, Queried};

/// `image` of a route.
pub(super) struct Image {
    settings: config::Image,
    /// What holds for everybody.
    wish: Wish,
    limits: Limits,
    looks_at: Vec<HeaderName>,
    query: Option<Arc<ImageQuery>>,
}

impl Image {
    pub(super) fn new(
        settings: &config::Image,
        limits: &config::ImageLimits,
        query: Option<Arc<ImageQuery>>,
    ) -> Image {
        let mut looks_at = vec![header::ACCEPT];
        if settings.save_data.is_some() {
            looks_at.push(SAVE_DATA);
        }
        if settings.dpr.is_some() {
            looks_at.extend([SEC_CH_DPR, DPR]);
        }
        if settings.width_hint {
            looks_at.extend([SEC_CH_WIDTH, WIDTH]);
        }
        let config::ImageQuality { avif, webp, jpeg } = settings.quality;
        let wish = Wish {
            formats: settings.formats.iter().copied().map(format).collect(),
            is_forced: false,
            keeps_format: true,
            quality: Quality { avif, webp, jpeg },
            score: settings.target,
            size: Size {
                width: settings.max_width,
                height: settings.max_height,
                fit: fit(settings.fit),
            },
            grey: settings.grey,
            still: settings.still,
        };
        Image { settings: settings.clone(), wish, limits: limits_of(limits), looks_at, query }
    }

    /// What a request's fields make of the wish.
    fn wish(&self, headers: &HeaderMap) -> Wish {
        let Wish { is_forced, keeps_format, quality, score, size, grey, still, .. } = self.wish;
        let formats = taken(headers, &self.wish.formats);
        let mut wish = Wish { formats, is_forced, keeps_format, quality, score, size, grey, still };
        let less = self.settings.save_data.filter(|_| hints::saves_data(headers));
        if let Some(less) = less {
            wish.quality = hints::lowered(wish.quality, less);
        } else if let Some(max) = self.settings.dpr {
            wish.size = hints::scaled(wish.size, hints::ratio(headers, max));
        }
        if let Some(width) = hints::width(headers).filter(|_| self.settings.width_hint) {
            wish.size = hints::narrowed(wish.size, width);
        }
        wish
    }
}

/// Of the number in its variants' names.
pub(super) const KEY_DIGITS: usize = 16;

impl Declares for Image {
    fn declaration(&self) -> Option<Declaration> {
        let step = codec::Image { wish: self.wish.clone(), limits: self.limits };
        let query = self.query.iter().map(|_| "query".to_owned());
        Some(Declaration {
            name: "image".into(),
            stage: Stage::Variant,
            takes: Source::media_types().map(str::to_owned).collect(),
            key: self.looks_at().iter().map(ToString::to_string).chain(query).collect(),
            cost: Cost::helpers(Step::Image(step).ns_per_byte(), self.wait()),
            streams: false,
        })
    }
}

impl Adapter for Image {
    fn takes(&self, shape: &Shape<'_>) -> bool {
        !shape.is_coded && source(shape).is_some()
    }

    fn looks_at(&self) -> &[HeaderName] {
        &self.looks_at
    }

    fn named<'t>(&self, tag: &'t [u8]) -> Option<&'t [u8]> {
        let (before, key) = tag.split_at_checked(tag.len().checked_sub(KEY_DIGITS)?)?;
        let is_key = key.iter().all(u8::is_ascii_hexdigit);
        before.strip_suffix(b"-image").filter(|_| is_key)
    }

    fn choose(&self, asked: &Asked<'_>, shape: &Shape<'_>) -> Result<Chosen, &'static str> {
        if asked.forbids_transformation() {
            return Err("no-transform");
        }
        let mut wish = self.wish(asked.headers);
        if let Some(parameters) = self.query.as_ref().and_then(|query| query.asked(asked)) {
            wish = parameters.change(wish);
        }
        let takes_none = wish.formats.is_empty();
        if !wish.is_forced {
            wish.formats = telling(wish.formats, source(shape));
        }
        if wish.formats.is_empty() && !changes(&wish) {
            return Err(if takes_none { "not-accepted" } else { "unchanged" });
        }
        // Nobody need be asked about what is known already.
        if shape.len.is_some_and(|len| len > self.limits.source_bytes) {
            return Err(weir_image::Excess::SourceBytes.as_str());
        }
        let mut hasher = DefaultHasher::new();
        ("image", &wish, self.limits).hash(&mut hasher);
        let work = Work::Image(codec::Image { wish, limits: self.limits });
        Ok(Chosen { key: hasher.finish(), work })
    }

    fn wait(&self) -> Duration {
        self.settings.wait
    }
}

/// What a picture is, by its type.
fn source(shape: &Shape<'_>) -> Option<Source> {
    let essence = shape.content_type.split(|byte| *byte == b';').next()?;
    Source::of_media_type(essence.trim_ascii())
}

/// Of formats that are taken in this order, those that make a difference for such a picture: lists
/// that are the same have one variant between them.
fn telling(mut formats: Vec<Format>, source: Option<Source>) -> Vec<Format> {
    let Some(source) = source else { return formats };
    formats.retain(|format| format.suits(source));
    // What holds whatever comes has nothing behind it: a JPEG is neither transparent nor moves.
    let is_last = |format: &Format| {
        *format == Format::WebP || source == Source::Jpeg && *format == Format::Jpeg
    };
    let last = formats.iter().position(is_last);
    formats.truncate(last.map_or(formats.len(), |last| last + 1));
    formats
}

/// Whether a wish may change a picture that stays in its format.
fn changes(wish: &Wish) -> bool {
    let Size { width, height, .. } = wish.size;
    width.is_some() || height.is_some() || wish.grey || wish.still
}

/// The formats that a client takes, those that it likes best first, and of those that it likes
/// equally the first. AVIF and WebP have to be named: who takes anything may know neither.
fn taken(headers: &HeaderMap, formats: &[Format]) -> Vec<Format> {
    let weights = formats.iter().filter_map(|format| {
        let media_type = format.media_type().split_once('/')?;
        let taken = accept::taken(headers, media_type);
        let is_old = matches!(format, Format::Jpeg | Format::Png);
        ((taken.is_named || is_old) && taken.weight > 0).then_some((taken.weight, *format))
    });
    let mut weights: Vec<(u16, Format)> = weights.collect();
    weights.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    weights.into_iter().map(|(_, format)| format).collect()
}

/// A step that does to a picture what parameters ask for, such as `width=800,format=webp`.
///
/// # Errors
/// What is wrong with them, in words.
pub fn step(text: &str, limits: &config::ImageLimits) -> Result<Step, String> {
    let (wish, limits) = (parameters::parse(text)?, limits_of(limits));
    Ok(Step::Image(codec::Image { wish, limits }))
}

/// The type of a picture, by what its helper says of it.
pub(super) fn content_type(detail: &str) -> Option<HeaderValue> {
    let name = detail.split([';', ',']).next()?;
    let format = Format::ALL.into_iter().find(|format| format.name() == name)?;
    Some(HeaderValue::from_static(format.media_type()))
}

pub(crate) fn format(format: config::ImageFormat) -> Format {
    match format {
        config::ImageFormat::Avif => Format::Avif,
        config::ImageFormat::WebP => Format::WebP,
        config::ImageFormat::Jpeg => Format::Jpeg,
        config::ImageFormat::Png => Format::Png,
    }
}

pub(crate) fn fit(fit: config::ImageFit) -> Fit {
    match fit {
        config::ImageFit::Inside => Fit::Inside,
        config::ImageFit::Cover => Fit::Cover,
        config::ImageFit::Fill => Fit::Fill,
    }
}

fn limits_of(limits: &config::ImageLimits) -> Limits {
    Limits {
        source_bytes: limits.source_bytes,
        pixels: limits.pixels,
        side: limits.side,
        frames: limits.frames,
        decoded_bytes: limits.decoded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        named.collect()
    }

    #[test]
    fn clients_get_what_they_name() {
        use Format::{Avif, Jpeg, Png, WebP};
        let all = [Avif, WebP, Jpeg, Png];
        for (accept, expected) in [
            ("image/avif,image/webp,image/*,*/*;q=0.8", &[Avif, WebP, Jpeg, Png][..]),
            ("image/webp,*/*", &[WebP, Jpeg, Png]),
            // The order of the operator, not that of the client: it says by weights what it likes.
            ("*/*;q=0.8,image/*,image/webp,image/avif", &[Avif, WebP, Jpeg, Png]),
            ("image/webp;q=0.9,image/avif;q=0.9", &[Avif, WebP]),
            ("image/png,image/jpeg", &[Jpeg, Png]),
            ("image/avif;q=0.8,image/webp;q=0.9", &[WebP, Avif]),
            ("image/avif,*/*", &[Avif, Jpeg, Png]),
            ("*/*", &[Jpeg, Png]),
            ("image/webp;q=0.4, image/avif;q=0.3, image/jpeg;q=0.5", &[Jpeg, WebP, Avif]),
            ("text/html", &[]),
        ] {
            assert_eq!(taken(&headers(&[("accept", accept)]), &all), expected, "{accept}");
        }
        assert_eq!(taken(&HeaderMap::new(), &all), [Jpeg, Png]);
    }

    #[test]
    fn what_makes_no_difference_makes_no_variant() {
        use Format::{Avif, Jpeg, Png, WebP};
        for (formats, source, expected) in [
            (&[Avif, WebP, Png, Jpeg][..], Source::Jpeg, &[Avif, WebP][..]),
            (&[Avif, Png, Jpeg, WebP], Source::Jpeg, &[Avif, Jpeg]),
            (&[Png, Avif], Source::Jpeg, &[Avif]),
            (&[Png], Source::Jpeg, &[]),
            (&[Jpeg, Png, Avif], Source::Png, &[Png, Avif]),
            // One that moves goes on to WebP.
            (&[Jpeg, Png, WebP, Avif], Source::Gif, &[Png, WebP]),
            // One that is transparent goes on behind JPEG.
            (&[Jpeg, Png, Avif], Source::WebP, &[Jpeg, Avif]),
        ] {
            assert_eq!(telling(formats.to_vec(), Some(source)), expected, "{formats:?} {source:?}");
        }
    }

    #[test]
    fn hints_change_what_is_wished() {
        let settings = config::Image {
            max_width: Some(300),
            save_data: Some(20),
            dpr: Some(2),
            ..config::Image::default()
        };
        let image = Image::new(&settings, &config::ImageLimits::default(), None);
        let check = |fields: &[(&'static str, &'static str)], width: u32, webp: u8| {
            let wish = image.wish(&headers(fields));
            assert_eq!((wish.size.width, wish.quality.webp), (Some(width), webp), "{fields:?}");
        };
        check(&[], 300, 80);
        check(&[("dpr", "2.0")], 600, 80);
        check(&[("sec-ch-dpr", "1.2"), ("dpr", "3")], 450, 80);
        check(&[("sec-ch-dpr", "4")], 600, 80);
        check(&[("save-data", "on"), ("dpr", "2")], 300, 60);
        check(&[("save-data", "off")], 300, 80);
        check(&[("dpr", "x")], 300, 80);
        let names: Vec<&str> = image.looks_at().iter().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "save-data", "sec-ch-dpr", "dpr"]);
    }

    #[test]
    fn nothing_becomes_wider_than_it_is_shown() {
        let settings = |fit, max_height| config::Image {
            max_width: Some(800),
            max_height,
            fit,
            width_hint: true,
            ..config::Image::default()
        };
        let limits = config::ImageLimits::default();
        let check = |settings: &config::Image, hint: &'static str, expected| {
            let image = Image::new(settings, &limits, None);
            let size = image.wish(&headers(&[("width", hint)])).size;
            assert_eq!((size.width, size.height), expected, "{hint}");
        };
        let (inside, cover) = (config::ImageFit::Inside, config::ImageFit::Cover);
        for (hint, width) in [
            ("1", 160),
            ("320", 320),
            ("321", 480),
            ("640", 640),
            ("700", 800),
            ("9999", 800),
            ("0", 800),
            ("-1", 800),
            ("x", 800),
        ] {
            check(&settings(inside, None), hint, (Some(width), None));
            check(&settings(inside, Some(600)), hint, (Some(width), Some(600)));
            check(&settings(cover, Some(600)), hint, (Some(width), Some(width * 3 / 4)));
        }
        let free = config::Image { max_width: None, ..settings(inside, None) };
        check(&free, "1000", (Some(1280), None));
        check(&free, "5000", (None, None));
        let deaf = config::Image { width_hint: false, ..free };
        check(&deaf, "1000", (None, None));
        let image = Image::new(&settings(inside, None), &limits, None);
        let names: Vec<&str> = image.looks_at().iter().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "sec-ch-width", "width"]);
    }

    #[test]
    fn types_come_from_what_was_made() {
        for (detail, expected) in [
            ("webp;q=80;8x8", Some("image/webp")),
            ("png;8x8, br;q=5", Some("image/png")),
            ("html;changed=1", None),
        ] {
            let made = content_type(detail);
            assert_eq!(made.as_ref().map(|made| made.to_str().unwrap()), expected, "{detail}");
        }
    }
}
