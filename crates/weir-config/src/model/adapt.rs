//! Adaptation: the `adapt` block, and what routes adapt.

use std::path::PathBuf;
use std::time::Duration;

use super::{Ads, Html, Image, ImageLimits};

/// The `adapt` block: the helper processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapt {
    /// Helper processes; `None` for one per core, 0 for no adaptation.
    pub helpers: Option<usize>,
    /// Jobs that may wait for a helper at a time.
    pub queue: usize,
    /// Responses that are coded as they come at a time.
    pub streams: usize,
    /// Memory that a helper may have of its own, in bytes: not what it reads of the cache.
    pub memory: u64,
    /// The largest result, in bytes.
    pub output: u64,
    /// Processor time of a job.
    pub time: Duration,
    /// When helpers run.
    pub priority: AdaptPriority,
    /// The control group that they are put in.
    pub cgroup: Option<PathBuf>,
    /// What pictures may cost.
    pub image: ImageLimits,
}

/// When helpers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdaptPriority {
    /// When nothing else wants to.
    Idle,
    /// Like everything else.
    Normal,
}

impl Adapt {
    /// What is decided when helpers are started, which is all but what pictures may cost.
    pub fn processes(&self) -> Adapt {
        Adapt { image: ImageLimits::default(), ..self.clone() }
    }
}

impl Default for Adapt {
    fn default() -> Adapt {
        Adapt {
            helpers: None,
            queue: 256,
            streams: 256,
            memory: 1 << 30,
            output: 64 << 20,
            time: Duration::from_secs(10),
            priority: AdaptPriority::Idle,
            cgroup: None,
            image: ImageLimits::default(),
        }
    }
}

/// What a route adapts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteAdapt {
    /// Content codings.
    pub compress: Option<Compress>,
    /// Changes of HTML.
    pub html: Option<Html>,
    /// Ads and trackers.
    pub ads: Option<Ads>,
    /// Pictures.
    pub image: Option<Image>,
}

/// `compress` in a route.
#[derive(Clone, Debug, PartialEq)]
pub struct Compress {
    /// Codings, the most preferred first. Each once, and at least one.
    pub formats: Vec<CompressFormat>,
    /// Media types that are coded.
    pub types: MediaTypes,
    /// Content of fewer bytes is left as it is.
    pub min_size: u64,
    /// How long a request may wait for its variant, rather than have the original at once.
    pub wait: Duration,
    /// What is not stored is coded too, as it comes.
    pub stream: bool,
}

/// A coding, and how much effort goes into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressFormat {
    /// Which.
    pub coding: Coding,
    /// Within [`Coding::levels`]; for content of up to [`CompressFormat::LARGE_BYTES`].
    pub level: u32,
    /// The same for content of more bytes. Another one only where the operator has not chosen.
    pub level_large: u32,
}

impl CompressFormat {
    /// From here on the strongest levels take longer than they are worth: at 0.4 MB/s (brotli 11)
    /// this much takes 2.6 s of a core.
    pub const LARGE_BYTES: u64 = 1 << 20;

    /// A coding whose level is left to Weir.
    pub const fn new(coding: Coding) -> CompressFormat {
        let (level, level_large) = Strength::Strongest.levels(coding);
        CompressFormat { coding, level, level_large }
    }

    /// The level for content of so many bytes.
    pub const fn level_for(&self, len: u64) -> u32 {
        if len > CompressFormat::LARGE_BYTES { self.level_large } else { self.level }
    }
}

/// Levels of all codings by one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// 50 to 270 MB/s.
    Quick,
    /// 20 to 80 MB/s.
    Balanced,
    /// What is stored is coded once, from time that nobody else wants. For large content at least
    /// 5 MB/s, so that the largest object that is stored by default, of 32 MiB, can be made within
    /// the default time of a job.
    Strongest,
}

impl Strength {
    /// The level for content of up to [`CompressFormat::LARGE_BYTES`], and for more.
    pub const fn levels(self, coding: Coding) -> (u32, u32) {
        match (self, coding) {
            (Strength::Quick, Coding::Brotli) => (4, 4),
            (Strength::Quick, Coding::Zstd) => (3, 3),
            (Strength::Quick, Coding::Gzip) => (4, 4),
            (Strength::Balanced, Coding::Brotli) => (6, 6),
            (Strength::Balanced, Coding::Zstd) => (9, 9),
            (Strength::Balanced, Coding::Gzip) => (6, 6),
            (Strength::Strongest, Coding::Brotli) => (11, 9),
            (Strength::Strongest, Coding::Zstd) => (19, 12),
            (Strength::Strongest, Coding::Gzip) => (9, 9),
        }
    }
}

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// All of them, the most preferred first.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// As configuration, and Content-Encoding, write it.
    pub const fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The quickest level and the strongest.
    pub const fn levels(self) -> (u32, u32) {
        match self {
            Coding::Brotli => (0, 11),
            Coding::Zstd => (1, 22),
            Coding::Gzip => (1, 9),
        }
    }
}

/// Media types, by patterns with at most one `*` for any run of characters; in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypes(pub Vec<String>);

impl MediaTypes {
    /// Whether a Content-Type is one of them. Parameters do not matter.
    pub fn have(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|byte| *byte == b';');
        let essence = content_type[..end.unwrap_or(content_type.len())].trim_ascii();
        self.0.iter().any(|pattern| matches(pattern.as_bytes(), essence))
    }
}

/// `*` stands at most once in a pattern.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.iter().position(|byte| *byte == b'*') {
        None => pattern.eq_ignore_ascii_case(text),
        Some(at) => {
            let (head, tail) = (&pattern[..at], &pattern[at + 1..]);
            text.len() >= head.len() + tail.len()
                && text[..head.len()].eq_ignore_ascii_case(head)
                && text[text.len() - tail.len()..].eq_ignore_ascii_case(tail)
        }
    }
}

impl Default for MediaTypes {
    /// Text in the wide sense, and what else is not compressed in itself.
    fn default() -> MediaTypes {
        MediaTypes(COMPRESSIBLE.map(str::to_owned).to_vec())
    }
}

const COMPRESSIBLE: [&str; 16] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/javascript",
    "application/json",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// What fits one packet with its head arrives no sooner for being smaller, and a variant takes a
/// job and a place in the cache.
const MIN_SIZE: u64 = 1 << 10;

impl Default for Compress {
    fn default() -> Compress {
        Compress {
            formats: Coding::ALL.map(CompressFormat::new).to_vec(),
            types: MediaTypes::default(),
            min_size: MIN_SIZE,
            wait: Duration::ZERO,
            stream: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_by_pattern() {
        let types = MediaTypes::default();
        for (value, expected) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/Plain", true),
            ("application/ld+json", true),
            (" application/json ", true),
            ("application/+json", true),
            ("model/gltf+json;x=y", true),
            ("font/ttf", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("font/woff2", false),
            ("application/json-seq", false),
            ("application/octet-stream", false),
            ("", false),
            ("text", false),
        ] {
            assert_eq!(types.have(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn strong_levels_are_for_what_is_not_large() {
        let chosen = CompressFormat { coding: Coding::Brotli, level: 7, level_large: 7 };
        let large = CompressFormat::LARGE_BYTES + 1;
        for coding in Coding::ALL {
            let (least, most) = coding.levels();
            for strength in [Strength::Quick, Strength::Balanced, Strength::Strongest] {
                let (level, level_large) = strength.levels(coding);
                assert!((least..=most).contains(&level) && level_large <= level, "{coding:?}");
            }
        }
        let format = CompressFormat::new(Coding::Brotli);
        assert_eq!((format.level_for(large - 1), format.level_for(large)), (11, 9));
        assert_eq!((chosen.level_for(0), chosen.level_for(large)), (7, 7));
    }
}
