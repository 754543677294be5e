//! What a route offers to make of its responses, and the variant of one that fits a request.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::FixedState;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use weir_adapt::Recipe;
use weir_cache::{Body, Cache, Head, Key, Object};
use weir_config as config;
use weir_http::cache_control;
use weir_http::vary::{self, Vary};

use super::adapter::{Adapter, Asked, Shape};
use super::compress::Compress;
use super::declared::Declaration;
use super::effort::Effort;
use super::html::{Html, Recodes};
use super::image::{Image, ImageQuery};
use super::streamed::Streamed;
use super::work::{self, Chosen};
use crate::error::StartError;
use crate::pipeline::WEIR_ADAPT;

/// What a route offers.
pub(crate) struct Offers {
    /// In the order in which they work.
    adapters: Vec<Box<dyn Adapter>>,
    /// What they look at, as Vary has it.
    names: Vec<(HeaderName, HeaderValue)>,
    looks_at_host: bool,
    /// What queries may ask of its pictures.
    pub(crate) image_query: Option<Arc<ImageQuery>>,
}

/// What of a response's variants a request is to get.
pub(crate) enum Plan {
    /// It is none of any adapter's business.
    AsItIs,
    /// It might have been another one; why it is not.
    Original(&'static str),
    Variant(Variant),
}

/// One variant of a response.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    /// What was chosen, in the order in which it is done; something.
    pub(super) chosen: Vec<Chosen>,
    /// The part of the cache where such variants lie, as against their originals'.
    pub(crate) fingerprint: u64,
    /// How long a request may wait for it.
    pub(crate) wait: Duration,
}

impl Offers {
    /// What a route's settings offer; `None` if that is nothing. `lists` are those of its `ads`,
    /// `images` what pictures may cost.
    ///
    /// # Errors
    /// A file of theirs cannot be used.
    pub(crate) fn new(
        settings: &config::RouteAdapt,
        lists: Option<&Arc<weir_adapt::ads::Ads>>,
        images: &config::ImageLimits,
    ) -> Result<Option<Offers>, StartError> {
        let image_query = ImageQuery::new(settings)?.map(Arc::new);
        let mut adapters: Vec<Box<dyn Adapter>> = Vec::new();
        if let Some(image) = &settings.image {
            adapters.push(Box::new(Image::new(image, images, image_query.clone())));
        }
        let hiding = settings.ads.as_ref().filter(|ads| ads.hide);
        let hidden = hiding.and_then(|ads| Some((lists?.clone(), ads)));
        if settings.html.is_some() || hidden.is_some() {
            let compress = settings.compress.as_ref();
            let recodes = Recodes {
                stored: compress.is_none(),
                streams: !compress.is_some_and(|compress| compress.stream),
            };
            adapters.push(Box::new(Html::new(settings.html.as_ref(), hidden, recodes)));
        }
        if let Some(compress) = &settings.compress {
            adapters.push(Box::new(Compress::new(compress)));
        }
        let names = adapters.iter().flat_map(|adapter| adapter.looks_at());
        let names = names.map(|name| (name.clone(), written(name))).collect();
        let looks_at_host = adapters.iter().any(|adapter| adapter.looks_at_host());
        let offers = Offers { adapters, names, looks_at_host, image_query };
        Ok((!offers.adapters.is_empty()).then_some(offers))
    }

    /// What its adapters declare.
    pub(super) fn declarations(&self) -> impl Iterator<Item = Declaration> {
        self.adapters.iter().filter_map(|adapter| adapter.declaration())
    }

    /// The fields of requests that its adapters look at.
    pub(crate) fn looks_at(&self) -> impl Iterator<Item = &HeaderName> {
        self.names.iter().map(|(name, _)| name)
    }

    /// Whether the host that is asked decides, too.
    pub(crate) fn looks_at_host(&self) -> bool {
        self.looks_at_host
    }

    /// Whether a response might be sent as another one. `len` is that of its content, if it is
    /// known.
    pub(crate) fn concern(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        len: Option<u64>,
    ) -> bool {
        let shape = Shape::new(status, headers, len);
        self.adapters.iter().any(|adapter| adapter.takes(&shape)) && may_change(&shape)
    }

    /// What a request is to get.
    pub(crate) fn plan(&self, asked: &Asked<'_>, shape: Shape<'_>) -> Plan {
        if !may_change(&shape) {
            return Plan::AsItIs;
        }
        let (mut shape, mut wait) = (shape, Duration::ZERO);
        let (mut chosen, mut why) = (Vec::new(), None);
        for adapter in &self.adapters {
            if !adapter.takes(&shape) {
                continue;
            }
            match adapter.choose(asked, &shape) {
                Err(left) => _ = why.get_or_insert(left),
                Ok(one) => {
                    shape = shape.after(&one);
                    wait = wait.max(adapter.wait());
                    chosen.push(one);
                }
            }
        }
        match why {
            _ if !chosen.is_empty() => Plan::Variant(Variant::new(chosen, wait)),
            Some(why) => Plan::Original(why),
            None => Plan::AsItIs,
        }
    }

    /// What a request is to get of a response that is not stored, while that comes.
    ///
    /// # Errors
    /// Why it is sent as it is.
    pub(crate) fn stream(
        &self,
        asked: &Asked<'_>,
        shape: &Shape<'_>,
    ) -> Result<Streamed, &'static str> {
        let (mut chosen, mut why) = (Vec::new(), None);
        let mut shape = shape.clone();
        for adapter in &self.adapters {
            if !adapter.takes(&shape) {
                continue;
            }
            match adapter.stream(asked, &shape).unwrap_or(Err("not-stored")) {
                Err(left) => _ = why.get_or_insert(left),
                Ok(one) => {
                    shape = shape.after(&one);
                    chosen.push(one);
                }
            }
        }
        match chosen.is_empty() {
            true => Err(why.unwrap_or("not-stored")),
            false => Ok(Streamed::new(chosen, shape.headers)),
        }
    }

    /// Whether what is not stored may be adapted for a request as it comes, if it suits.
    pub(crate) fn may_stream(&self, asked: &Asked<'_>) -> bool {
        let headers = HeaderMap::new();
        let shape = Shape::new(StatusCode::OK, &headers, None);
        let mut adapters = self.adapters.iter();
        adapters.any(|adapter| matches!(adapter.stream(asked, &shape), Some(Ok(_))))
    }

    /// The entity tag, without its quotes, of the original of a variant that has this one, if
    /// this route makes such variants.
    pub(crate) fn original_of<'t>(&self, tag: &'t [u8]) -> Option<&'t [u8]> {
        let adapters = self.adapters.iter().rev();
        let whole = without_digest(tag);
        let original = adapters.fold(whole, |tag, adapter| adapter.named(tag).unwrap_or(tag));
        (original.len() < whole.len()).then_some(original)
    }

    /// Whether what is not stored may be coded while it comes.
    pub(crate) fn streams(&self) -> bool {
        self.adapters.iter().any(|adapter| adapter.streams())
    }

    /// Whether pages that are not stored become others while they come.
    pub(crate) fn streams_pages(&self) -> bool {
        self.adapters.iter().any(|adapter| adapter.streams() && adapter.decodes())
    }

    /// Says in a response's fields what decides about those that are coded while they come.
    pub(crate) fn vary_of_streams(&self, headers: &mut HeaderMap) {
        let adapters = self.adapters.iter().filter(|adapter| adapter.streams());
        self.say(adapters.flat_map(|adapter| adapter.looks_at()), headers);
    }

    /// Says in the fields of a response that it concerns, which are `headers`, that another request
    /// might get another one.
    pub(crate) fn vary(&self, shape: &Shape<'_>, headers: &mut HeaderMap) {
        let mut shape = shape.clone();
        let names = self.adapters.iter().flat_map(|adapter| {
            if !adapter.takes(&shape) {
                return <&[HeaderName]>::default();
            }
            if adapter.decodes() {
                shape.decode();
            }
            adapter.looks_at()
        });
        self.say(names, headers);
    }

    /// Adds names to those in Vary, each once.
    fn say<'a>(&self, names: impl Iterator<Item = &'a HeaderName>, headers: &mut HeaderMap) {
        let mut said = match vary::of(headers) {
            Vary::Anything => return,
            Vary::Nothing => Vec::new(),
            Vary::Fields(fields) => fields,
        };
        for name in names {
            let written = self.names.iter().find(|(known, _)| known == name);
            if let Some((_, written)) = written.filter(|_| !said.contains(name)) {
                headers.append(header::VARY, written.clone());
                said.push(name.clone());
            }
        }
    }
}

impl Variant {
    fn new(chosen: Vec<Chosen>, wait: Duration) -> Variant {
        let mut hasher = DefaultHasher::new();
        chosen.iter().for_each(|one| one.key.hash(&mut hasher));
        Variant { chosen, fingerprint: hasher.finish(), wait }
    }

    /// Whether it is another page, not the same one coded otherwise.
    pub(crate) fn changes_pages(&self) -> bool {
        self.chosen.iter().any(Chosen::changes_pages)
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        work::name(&self.chosen)
    }

    /// What is to be done to the original, which has these `headers`.
    pub(super) fn recipe(&self, headers: &HeaderMap) -> Recipe {
        Recipe { steps: work::steps(&self.chosen, headers) }
    }

    /// What its steps look things up in.
    pub(super) fn tables(&self) -> Vec<Bytes> {
        work::tables(&self.chosen)
    }

    /// Stores what was made of an original.
    pub(super) fn store(
        &self,
        cache: &Cache,
        key: &Key,
        original: &Object,
        (body, detail): (Body, &str),
        effort: Effort,
    ) {
        let mut headers = HeaderMap::new();
        if let Some(coding) = self.chosen.last().and_then(Chosen::coding) {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        let mut types = self.chosen.iter().filter_map(|one| one.content_type()?(detail));
        if let Some(content_type) = types.next_back() {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        let tag = original.headers().get(header::ETAG);
        let name = || format!("{}-{:016x}", self.name(), digest(&body));
        let tag = tag.and_then(|tag| tag_of(tag, &name()));
        headers.extend(tag.map(|tag| (header::ETAG, tag)));
        if let Ok(detail) = HeaderValue::try_from([detail, effort.mark()].concat()) {
            headers.insert(WEIR_ADAPT, detail);
        }
        let head = Head {
            derived_from: NonZeroU64::new(original.body().id()),
            selectors: original.selectors().clone(),
            ..Head::new(original.status(), headers, original.freshness())
        };
        cache.insert_derived(&key.borrow(), head, body, original);
    }
}

/// A field's name as Vary usually has it: words begin with capitals.
fn written(name: &HeaderName) -> HeaderValue {
    let mut is_first = true;
    let letter = |byte: &u8| {
        let written = if is_first { byte.to_ascii_uppercase() } else { *byte };
        is_first = *byte == b'-';
        written
    };
    let bytes: Vec<u8> = name.as_str().as_bytes().iter().map(letter).collect();
    HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static("*"))
}

/// What tells a variant's bytes from others that were made of the same, by another encoder or while
/// they were sent: a strong entity tag is one of bytes (RFC 9110 §8.8.1).
fn digest(body: &Body) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    body.chunks().iter().for_each(|chunk| hasher.write(chunk));
    hasher.finish()
}

/// A variant's entity tag without that, if it is there.
fn without_digest(tag: &[u8]) -> &[u8] {
    let is_digest = |end: &[u8]| end[0] == b'-' && end[1..].iter().all(u8::is_ascii_hexdigit);
    match tag.split_at_checked(tag.len().wrapping_sub(17)) {
        Some((name, end)) if is_digest(end) => name,
        _ => tag,
    }
}

/// A variant has an entity tag of its own (RFC 9110 §8.8.3.3).
pub(crate) fn tag_of(tag: &HeaderValue, name: &str) -> Option<HeaderValue> {
    let inner = tag.as_bytes().strip_suffix(b"\"")?;
    HeaderValue::from_bytes(&[inner, b"-", name.as_bytes(), b"\""].concat()).ok()
}

/// Whether another response may be made of one. Its `no-transform` is for everybody on the way
/// (RFC 9111 §5.2.2.6), whatever is said to this cache alone.
fn may_change(shape: &Shape<'_>) -> bool {
    shape.status == StatusCode::OK && !cache_control::forbids_transformation(shape.headers)
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
    fn tags_of_variants_are_known_by_their_names() {
        let html = Some(config::Html { strip_comments: true, ..Default::default() });
        let compress = Some(config::Compress::default());
        let settings = config::RouteAdapt { html, compress, ..Default::default() };
        let offers = Offers::new(&settings, None, &config::ImageLimits::default());
        let offers = offers.unwrap().unwrap();
        let page = |offers: &Offers| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            let asked = HeaderMap::new();
            let uri = http::Uri::from_static("/");
            let asked = Asked::new(&uri, &asked);
            match offers.plan(&asked, Shape::new(StatusCode::OK, &headers, Some(9000))) {
                Plan::Variant(variant) => variant.name(),
                _ => panic!("a page is changed"),
            }
        };
        let html = &*format!("v1-{}", page(&offers));
        for (tag, expected) in [
            ("v1-gzip", Some("v1")),
            ("v1-gzip9", Some("v1")),
            (html, Some("v1")),
            (&format!("{html}-br11"), Some("v1")),
            ("v1-br11-0123456789abcdef", Some("v1")),
            ("v1-0123456789abcdef-br11-0123456789abcdef", Some("v1-0123456789abcdef")),
            ("v1-0123456789abcdef", None),
            ("-0123456789abcdef", None),
            ("v1-br11-0123456789abcde", None),
            (&html.replace("v1-", "v1-br11-"), Some("v1-br11")),
            ("-br", Some("")),
            ("v1", None),
            ("gzip", None),
            ("v1-html", None),
            ("v1-html-ads", None),
            ("v1-html00000000", None),
        ] {
            let original = offers.original_of(tag.as_bytes());
            assert_eq!(original, expected.map(str::as_bytes), "{tag}");
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
            let shape = Shape::new(StatusCode::OK, &headers, None);
            assert_eq!(!may_change(&shape), expected, "{value}");
        }
    }

    #[test]
    fn vary_names_what_adapters_look_at_once() {
        let compress = Some(config::Compress::default());
        let settings = config::RouteAdapt { compress, ..Default::default() };
        let offers = Offers::new(&settings, None, &config::ImageLimits::default());
        let offers = offers.unwrap().unwrap();
        for (content_type, before, after) in [
            ("text/html", &[][..], &["Accept-Encoding"][..]),
            ("text/html", &["Origin"], &["Origin", "Accept-Encoding"]),
            ("text/html", &["origin, accept-ENCODING"], &["origin, accept-ENCODING"]),
            ("text/html", &["*"], &["*"]),
            ("image/png", &[], &[]),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            for value in before {
                headers.append(header::VARY, HeaderValue::from_static(value));
            }
            let original = headers.clone();
            offers.vary(&Shape::new(StatusCode::OK, &original, None), &mut headers);
            let said: Vec<_> = headers.get_all(header::VARY).into_iter().collect();
            assert_eq!(said, after, "{content_type} {before:?}");
        }
    }
}
