//! Stage 6: what of a stored response's variants fits its client. Nothing is made here: a variant
//! is there, or it is asked for and the original is sent meanwhile, or the request waits as long as
//! its route allows.

use std::num::NonZeroU64;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;
use weir_adapt::adapters::compress::Compress;
use weir_adapt::stream::Coder;
use weir_cache::{KeyRef, Object};
use weir_origin::upstream::ResponseBody;

use super::coded::Coded;
use super::look_up;
use super::whole::Whole;
use crate::adapt::{Asked, Offers, Plan, Shape, Variant, Wanted, is_draft};
use crate::connection::Connection;
use crate::live::Route;
use crate::record::Record;
use crate::shared::coarse_unix_ms;

/// Says what was done to a response, or why nothing was.
pub(crate) const WEIR_ADAPT: HeaderName = HeaderName::from_static("weir-adapt");

/// A stored response as a request is to get it.
pub(super) struct Fitted {
    /// What is stored: its status, age and most of its fields hold for all variants.
    pub(super) original: Arc<Object>,
    fit: Fit,
}

enum Fit {
    /// Adaptation is none of its business.
    AsItIs,
    /// It might have been another one; why it is not.
    Original(&'static str),
    /// Likewise: the variant is being made, and the request may wait for it.
    Awaited(Variant),
    Variant(Arc<Object>),
}

impl Fitted {
    pub(super) fn as_it_is(original: Arc<Object>) -> Fitted {
        Fitted { original, fit: Fit::AsItIs }
    }

    /// What is sent.
    pub(super) fn body(&self) -> &Arc<Object> {
        match &self.fit {
            Fit::Variant(variant) => variant,
            _ => &self.original,
        }
    }

    /// Whether the request should wait.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.fit, Fit::Awaited(_))
    }

    /// Whether what is sent is not the original.
    pub(super) fn is_variant(&self) -> bool {
        matches!(self.fit, Fit::Variant(_))
    }

    /// What a variant changes of the original's fields; `None` if they are sent as they are.
    pub(super) fn headers(&self, offers: Option<&Offers>) -> Option<HeaderMap> {
        let mut headers = match &self.fit {
            Fit::AsItIs => return None,
            Fit::Original(why) => self.original_but(why),
            Fit::Awaited(_) => self.original_but("pending"),
            Fit::Variant(variant) => {
                let mut headers = self.original.headers().clone();
                for name in OF_CONTENT {
                    headers.remove(name);
                }
                for (name, value) in variant.headers() {
                    headers.insert(name, value.clone());
                }
                headers
            }
        };
        if let Some(offers) = offers {
            offers.vary(&shape(&self.original), &mut headers);
        }
        Some(headers)
    }

    fn original_but(&self, why: &str) -> HeaderMap {
        let mut headers = self.original.headers().clone();
        headers.insert(WEIR_ADAPT, not(why));
        headers
    }
}

fn shape(object: &Object) -> Shape<'_> {
    Shape::new(object.status(), object.headers(), Some(object.body().len()))
}

/// Fields that hold for the very bytes of an original.
const OF_CONTENT: [HeaderName; 5] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// `Weir-Adapt` of a response that is as it was.
fn not(why: &str) -> HeaderValue {
    let text = format!("original;reason={why}");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("original"))
}

/// Whether a stored response might be sent as another one on its route.
#[inline]
pub(super) fn concerns(route: &Route, object: &Object) -> bool {
    route.offers.as_deref().is_some_and(|offers| {
        offers.concern(object.status(), object.headers(), Some(object.body().len()))
    })
}

/// Chooses what a request gets of a stored response. `part` is that of the route's cache in which
/// it lies.
pub(super) fn fit(
    connection: &Connection,
    route: &Route,
    asked: &Asked<'_>,
    original: Arc<Object>,
    part: u64,
    now_ms: u64,
) -> Fitted {
    let Some(offers) = route.offers.as_deref() else { return Fitted::as_it_is(original) };
    match offers.plan(asked, shape(&original)) {
        Plan::AsItIs => Fitted::as_it_is(original),
        Plan::Original(why) => Fitted { original, fit: Fit::Original(why) },
        Plan::Variant(variant) => {
            let fit = of(connection, route, &variant, &original, part, now_ms);
            let fit = match fit {
                Fit::Original("pending") if !variant.wait.is_zero() => Fit::Awaited(variant),
                fit => fit,
            };
            Fitted { original, fit }
        }
    }
}

fn of(
    connection: &Connection,
    route: &Route,
    variant: &Variant,
    original: &Arc<Object>,
    part: u64,
    now_ms: u64,
) -> Fit {
    let shared = &connection.worker.shared;
    let stored = original.key().borrow();
    let key = KeyRef { scope: stored.scope ^ variant.fingerprint, ..stored };
    let Some(from) = NonZeroU64::new(original.body().id()) else { return Fit::AsItIs };
    let part = part ^ variant.fingerprint;
    if let Some(found) = shared.cache.derived(&key, from, now_ms) {
        route.variants.touch(part, now_ms);
        if is_draft(&found) {
            let wanted = Wanted { original, variant, key };
            shared.adaptation.complete(&shared.cache, wanted, &found);
        }
        return Fit::Variant(found);
    }
    if !look_up::admit(connection, route, part, now_ms) {
        return Fit::Original("too-many-variants");
    }
    let wanted = Wanted { original, variant, key };
    Fit::Original(shared.adaptation.want(&shared.cache, wanted))
}

/// Waits for a variant that is being made, as long as its route allows, and chooses anew.
pub(super) async fn wait(
    connection: &Connection,
    route: &Route,
    fitted: Fitted,
    part: u64,
) -> Fitted {
    let Fitted { original, fit: Fit::Awaited(variant) } = fitted else { return fitted };
    let made = async {
        let key = original.key().borrow();
        let wanted = Wanted { original: &original, variant: &variant, key };
        connection.worker.shared.adaptation.join(&wanted).await;
    };
    // If it takes too long the original is sent.
    let _ = timeout(variant.wait, made).await;
    let fit = of(connection, route, &variant, &original, part, coarse_unix_ms());
    Fitted { original, fit }
}

/// What is sent of a response that is not stored yet, or not here: coded while it comes, or as it
/// is, with a word that it may be another one next time. `is_head` if the client asked with HEAD.
pub(super) fn unstored(
    record: &Record,
    route: &Route,
    request: &Parts,
    status: StatusCode,
    headers: &mut HeaderMap,
    whole: Whole,
) -> Whole {
    let Some(offers) = route.offers.as_deref() else { return whole };
    if !matches!(request.method, Method::GET | Method::HEAD | Method::POST) {
        // The entity tag is that of what the client has sent (RFC 9110 §9.3.4): for If-Match.
        return whole;
    }
    if status == StatusCode::NOT_MODIFIED {
        confirm(offers, request, headers);
        return whole;
    }
    // The content of an answer to HEAD is as long as it says.
    let len = if record.is_head() { declared(headers) } else { whole.len() };
    if !offers.concern(status, headers, len) {
        return whole;
    }
    let sent = headers.clone();
    let shape = Shape::new(status, &sent, len);
    offers.vary(&shape, headers);
    let body = match whole {
        Whole::Upstream(body) => body,
        whole => {
            headers.insert(WEIR_ADAPT, not("not-stored"));
            return whole;
        }
    };
    let asked = Asked { headers: &request.headers, uri: &request.uri };
    let coder = begin(record.connection(), route, offers, &asked, &shape);
    match coder {
        Err(why) => {
            headers.insert(WEIR_ADAPT, not(why));
            Whole::Upstream(body)
        }
        Ok((compress, coder)) => {
            describe(&compress, headers);
            Whole::Upstream(match record.is_head() {
                true => body,
                false => Box::new(ResponseBody::made(Coded::new(body, coder).boxed_unsync())),
            })
        }
    }
}

/// A place among those that are coded while they come.
fn begin(
    connection: &Connection,
    route: &Route,
    offers: &Offers,
    asked: &Asked<'_>,
    shape: &Shape<'_>,
) -> Result<(Compress, Coder), &'static str> {
    let compress = offers.stream(asked, shape)?;
    if !route.chain.load().is_empty() {
        // They are to see it as it is.
        return Err("plugins");
    }
    let shared = &connection.worker.shared;
    if shared.guard.load(connection.worker.index).is_overloaded() {
        return Err("busy");
    }
    let coder = shared.adaptation.stream(&compress).ok_or("busy")?;
    Ok((compress, coder))
}

/// The fields of what is coded while it comes. Its tag is a weak one: another time the same content
/// may be coded otherwise (RFC 9110 §8.8.3.3).
fn describe(compress: &Compress, headers: &mut HeaderMap) {
    for name in OF_CONTENT.iter().chain([&header::ACCEPT_RANGES]) {
        headers.remove(name);
    }
    let token = compress.coding.token();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
    let detail = format!("{token};q={};stream", compress.level);
    headers.extend(HeaderValue::try_from(detail).ok().map(|detail| (WEIR_ADAPT, detail)));
    if let Some(weak) = headers.get(header::ETAG).and_then(weakened) {
        headers.insert(header::ETAG, weak);
    }
}

/// An origin has confirmed what a client has: where that has the tag of what was coded while it
/// came, it is that one's.
fn confirm(offers: &Offers, request: &Parts, headers: &mut HeaderMap) {
    let Some(weak) = headers.get(header::ETAG).and_then(weakened) else { return };
    let mut known = request.headers.get_all(header::IF_NONE_MATCH).into_iter();
    let is_known =
        |line: &HeaderValue| line.as_bytes().windows(weak.len()).any(|tag| tag == weak.as_bytes());
    if offers.streams() && known.any(is_known) {
        headers.insert(header::ETAG, weak);
        offers.vary_of_streams(headers);
    }
}

/// A request's conditions as its origin knows them: what was coded while it came has a weak tag,
/// and many origins compare letter by letter. Compared as they should be, the strong one is the
/// same (RFC 9110 §13.1.2).
pub(super) fn ask_for_originals(route: &Route, headers: &mut HeaderMap) {
    if !route.offers.as_deref().is_some_and(Offers::streams) {
        return;
    }
    let lines = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    let mut all = lines.join(", ");
    let strong: String = all
        .split("W/\"")
        .skip(1)
        .filter_map(|weak| weak.split_once('"'))
        .map(|(tag, _)| format!(", \"{tag}\""))
        .collect();
    all.push_str(&strong);
    if let Ok(value) = HeaderValue::try_from(all)
        && !strong.is_empty()
    {
        headers.insert(header::IF_NONE_MATCH, value);
    }
}

/// A strong tag's weak form.
fn weakened(tag: &HeaderValue) -> Option<HeaderValue> {
    let tag = tag.as_bytes();
    tag.starts_with(b"\"").then(|| HeaderValue::from_bytes(&[b"W/", tag].concat()).ok())?
}

fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
