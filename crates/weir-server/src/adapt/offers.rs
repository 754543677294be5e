//! What a route offers to make of its responses.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use weir_adapt::adapters::compress::{Coding, Compress};
use weir_adapt::{Made, Recipe, Step};
use weir_cache::{Cache, Head, Key, Object};
use weir_config as config;
use weir_http::negotiate::{self, Coding as Accepted};

use crate::pipeline::WEIR_ADAPT;

/// A route's offers.
pub(crate) struct Offers {
    /// Codings in the operator's order.
    codings: Vec<Offer>,
    /// The same, and the original after them, as clients are asked.
    accepted: Vec<Accepted>,
    types: config::MediaTypes,
    bytes_min: u64,
    /// How long a request may wait for its variant.
    pub(crate) wait: Duration,
}

/// One variant that a route offers.
#[derive(Clone)]
pub(crate) struct Offer {
    /// What it is called where there is no better name.
    pub(crate) name: &'static str,
    format: config::CompressFormat,
    /// The part of the cache where such variants lie, as against their originals'.
    pub(crate) fingerprint: u64,
}

impl Offers {
    /// What a route's settings offer; `None` if that is nothing.
    pub(crate) fn new(settings: &config::RouteAdapt) -> Option<Offers> {
        let compress = settings.compress.as_ref()?;
        let codings: Vec<Offer> = compress.formats.iter().map(Offer::coding).collect();
        let accepted = compress.formats.iter().map(|format| accepted(format.coding));
        Some(Offers {
            codings,
            accepted: accepted.chain([Accepted::Identity]).collect(),
            types: compress.types.clone(),
            bytes_min: compress.min_size,
            wait: compress.wait,
        })
    }

    /// Whether a response might be sent as another one. `len` is that of its content, if it is
    /// known.
    pub(crate) fn concern(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        len: Option<u64>,
    ) -> bool {
        status == StatusCode::OK
            && len.is_none_or(|len| len >= self.bytes_min)
            && !headers.contains_key(header::CONTENT_ENCODING)
            && headers
                .get(header::CONTENT_TYPE)
                .is_some_and(|value| self.types.have(value.as_bytes()))
            && !forbids_transformation(headers)
    }

    /// What a client is to get. `None` for the original.
    pub(crate) fn best(&self, request: &HeaderMap) -> Option<&Offer> {
        let best = negotiate::accept_encoding(request, &self.accepted)?;
        let at = self.accepted.iter().position(|coding| *coding == best)?;
        self.codings.get(at)
    }

    /// Says that another request might get another response.
    pub(crate) fn vary(&self, headers: &mut HeaderMap) {
        let names = headers.get_all(header::VARY).into_iter();
        let mut names = names.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let said = |name: &[u8]| {
            let name = name.trim_ascii();
            name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding")
        };
        if !names.any(said) {
            headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
    }
}

impl Offer {
    fn coding(format: &config::CompressFormat) -> Offer {
        let name = format.coding.token();
        let mut hasher = DefaultHasher::new();
        (name, format.level, format.level_large).hash(&mut hasher);
        Offer { name, format: *format, fingerprint: hasher.finish() }
    }

    /// What is to be done to content of so many bytes.
    pub(super) fn recipe(&self, len: u64) -> Recipe {
        let coding = match self.format.coding {
            config::Coding::Brotli => Coding::Brotli,
            config::Coding::Zstd => Coding::Zstd,
            config::Coding::Gzip => Coding::Gzip,
        };
        let level = self.format.level_for(len);
        Recipe { steps: vec![Step::Compress(Compress { coding, level })] }
    }

    /// Stores what was made of an original.
    pub(super) fn store(&self, cache: &Cache, key: &Key, original: &Object, made: &Made) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(self.name));
        if let Some(tag) = original.headers().get(header::ETAG)
            && let Some(tag) = tag_of(tag, self.name)
        {
            headers.insert(header::ETAG, tag);
        }
        if let Ok(detail) = HeaderValue::try_from(made.detail.as_str()) {
            headers.insert(WEIR_ADAPT, detail);
        }
        let head = Head {
            derived_from: NonZeroU64::new(original.body().id()),
            selectors: original.selectors().clone(),
            ..Head::new(original.status(), headers, original.freshness())
        };
        cache.insert(&key.borrow(), head, made.body.clone().into(), None);
    }
}

/// A variant has an entity tag of its own (RFC 9110 §8.8.3.3).
fn tag_of(tag: &HeaderValue, name: &str) -> Option<HeaderValue> {
    let inner = tag.as_bytes().strip_suffix(b"\"")?;
    HeaderValue::from_bytes(&[inner, b"-", name.as_bytes(), b"\""].concat()).ok()
}

/// RFC 9111 §5.2.2.6.
fn forbids_transformation(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).into_iter();
    let mut directives = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

fn accepted(coding: config::Coding) -> Accepted {
    match coding {
        config::Coding::Brotli => Accepted::Brotli,
        config::Coding::Zstd => Accepted::Zstd,
        config::Coding::Gzip => Accepted::Gzip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_have_tags_of_their_own() {
        for (tag, expected) in [
            ("\"abc\"", Some("\"abc-br\"")),
            ("W/\"abc\"", Some("W/\"abc-br\"")),
            ("\"\"", Some("\"-br\"")),
            ("abc", None),
        ] {
            let made = tag_of(&HeaderValue::from_static(tag), "br");
            assert_eq!(made.as_ref().map(|made| made.to_str().unwrap()), expected, "{tag}");
        }
    }

    #[test]
    fn no_transform_is_heard() {
        for (value, expected) in [
            ("no-transform", true),
            ("public, No-Transform ,max-age=1", true),
            ("max-age=1", false),
            ("x=\"no-transform\"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(value));
            assert_eq!(forbids_transformation(&headers), expected, "{value}");
        }
    }
}
