//! Stage 6: what of a stored response's variants fits its client. Nothing is made here: a variant
//! is there, or it is asked for and the original is sent meanwhile, or the request waits as long as
//! its route allows. What is made while it is sent is in `streamed.rs`.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout_at};
use weir_cache::{Fill, KeyRef, Object};

use super::look_up;
use super::select::Dates;
use crate::adapt::{Asked, Gathered, Offers, Plan, Shape, Streamed, Variant, Wanted, is_draft};
use crate::connection::Connection;
use crate::live::Route;
use crate::shared::coarse_unix_ms;

/// Says what was done to a response, or why nothing was.
pub(crate) const WEIR_ADAPT: HeaderName = HeaderName::from_static("weir-adapt");

/// A stored response as a request is to get it.
pub(super) struct Fitted {
    /// What is stored: its status, age and most of its fields hold for all variants.
    pub(super) original: Arc<Object>,
    /// Of the route's cache, where it lies.
    pub(super) part: u64,
    fit: Fit,
}

enum Fit {
    /// Adaptation is none of its business.
    AsItIs,
    /// Whoever asks like this gets no other; why.
    Original(&'static str),
    /// It might have been a variant, which is not there; why.
    Instead(&'static str),
    /// Likewise: the variant is being made, and the request may wait for it.
    Awaited(Variant),
    /// Likewise: it is another page, which is not there in time.
    Late(&'static str),
    /// A variant, and whether it is another page.
    Variant(Arc<Object>, bool),
}

impl Fitted {
    pub(super) fn as_it_is(original: Arc<Object>) -> Fitted {
        Fitted { original, part: 0, fit: Fit::AsItIs }
    }

    /// A variant, which is another page or the same.
    pub(super) fn varied(original: Arc<Object>, variant: Arc<Object>, is_another: bool) -> Fitted {
        Fitted { original, part: 0, fit: Fit::Variant(variant, is_another) }
    }

    /// What is sent.
    pub(super) fn body(&self) -> &Arc<Object> {
        match &self.fit {
            Fit::Variant(variant, _) => variant,
            _ => &self.original,
        }
    }

    /// Whether the request should wait.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.fit, Fit::Awaited(_))
    }

    /// Why another page is not there in time, if that is so.
    pub(super) fn late(&self) -> Option<&'static str> {
        match self.fit {
            Fit::Late(why) => Some(why),
            _ => None,
        }
    }

    /// What dates tell of it: the variant and what is sent instead, now or before, have the same.
    pub(super) fn dates(&self) -> Dates {
        match self.fit {
            Fit::AsItIs | Fit::Original(_) => Dates::One,
            _ => Dates::Many,
        }
    }

    /// What a variant changes of the original's fields; `None` if they are sent as they are.
    pub(super) fn headers(&self, offers: Option<&Offers>) -> Option<HeaderMap> {
        let mut headers = match &self.fit {
            Fit::AsItIs => return None,
            Fit::Original(why) | Fit::Instead(why) | Fit::Late(why) => {
                original_but(&self.original, why)
            }
            Fit::Awaited(_) => original_but(&self.original, "pending"),
            Fit::Variant(variant, is_another) => {
                let mut headers = self.original.headers().clone();
                // It has a tag of its own, if the original has one that can be read.
                for name in OF_CONTENT.iter().chain([&header::ETAG]) {
                    headers.remove(name);
                }
                if *is_another {
                    // It changes with its rules, too.
                    headers.remove(header::LAST_MODIFIED);
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
}

/// The fields of an original that is sent to whoever asks in a certain way; why.
pub(super) fn left(offers: &Offers, original: &Object, why: &str) -> HeaderMap {
    let mut headers = original_but(original, why);
    offers.vary(&shape(original), &mut headers);
    headers
}

fn original_but(original: &Object, why: &str) -> HeaderMap {
    let mut headers = original.headers().clone();
    headers.insert(WEIR_ADAPT, not(why));
    headers
}

pub(super) fn shape(object: &Object) -> Shape<'_> {
    Shape::new(object.status(), object.headers(), Some(object.body().len()))
}

/// Fields that hold for the very bytes of an original.
pub(super) const OF_CONTENT: [HeaderName; 6] = [
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// `Weir-Adapt` of a response that is as it was.
pub(super) fn not(why: &str) -> HeaderValue {
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
        Plan::Original(why) => Fitted { original, part, fit: Fit::Original(why) },
        Plan::Variant(variant) => {
            let fit = of(connection, route, &variant, &original, part, now_ms);
            let fit = match fit {
                Fit::Instead("pending") | Fit::Late("pending") if !variant.wait.is_zero() => {
                    Fit::Awaited(variant)
                }
                fit => fit,
            };
            Fitted { original, part, fit }
        }
    }
}

/// Keeps what was made of an original while it was sent for a request that `asked` for it, as what
/// a hit would be sent.
pub(super) fn keep(
    connection: &Connection,
    route: &Route,
    asked: &Asked<'_>,
    (original, part): (&Arc<Object>, u64),
    (streamed, gathered, page): (&Streamed, &Gathered, Option<&str>),
) {
    let Some(offers) = route.offers.as_deref() else { return };
    let Plan::Variant(variant) = offers.plan(asked, shape(original)) else { return };
    let (shared, now_ms) = (&connection.worker.shared, coarse_unix_ms());
    let key = key_of(original, variant.fingerprint);
    let wanted = Wanted { original, variant: &variant, key, site: &route.site };
    let is_there = NonZeroU64::new(original.body().id())
        .is_none_or(|from| shared.cache.derived(&wanted.key, from, now_ms).is_some());
    let may_keep = !is_there && shared.cache.holds(original);
    if may_keep && look_up::admit(connection, route, part ^ variant.fingerprint, now_ms) {
        shared.adaptation.keep(&shared.cache, &wanted, streamed, gathered, page);
    }
}

/// Where a variant is stored, by its fingerprint.
pub(super) fn key_of(original: &Object, fingerprint: u64) -> KeyRef<'_> {
    let stored = original.key().borrow();
    KeyRef { scope: stored.scope ^ fingerprint, ..stored }
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
    let key = key_of(original, variant.fingerprint);
    let Some(from) = NonZeroU64::new(original.body().id()) else { return Fit::AsItIs };
    let part = part ^ variant.fingerprint;
    if let Some(found) = shared.cache.derived(&key, from, now_ms) {
        route.variants.touch(part, now_ms);
        if is_draft(&found) {
            let wanted = Wanted { original, variant, key, site: &route.site };
            shared.adaptation.complete(&shared.cache, wanted, &found);
        }
        return Fit::Variant(found, variant.changes_pages());
    }
    if !look_up::admit(connection, route, part, now_ms) {
        return instead(variant, "too-many-variants");
    }
    let wanted = Wanted { original, variant, key, site: &route.site };
    instead(variant, shared.adaptation.want(&shared.cache, wanted))
}

/// What is sent instead of a variant that is not there.
fn instead(variant: &Variant, why: &'static str) -> Fit {
    // Of others it is known that nothing comes of them, or that nothing good does.
    let may_come = matches!(why, "pending" | "queue-full" | "too-many-variants");
    match may_come && variant.changes_pages() {
        true => Fit::Late(why),
        false => Fit::Instead(why),
    }
}

/// How long a request may wait for what is being stored, so that it gets what is made of that: not
/// at all if something is made while it comes.
pub(super) fn wait_of(
    connection: &Connection,
    route: &Route,
    asked: &Asked<'_>,
    fill: &Fill,
) -> Option<Duration> {
    let offers = route.offers.as_deref()?;
    let head = fill.head();
    let shape = Shape::new(head.status, &head.headers, fill.declared_length());
    match offers.plan(asked, shape.clone()) {
        Plan::Variant(variant) if !variant.wait.is_zero() => {
            let may_stream = connection.worker.shared.adaptation.streams_are_on();
            let streams = may_stream && offers.stream(asked, &shape).is_ok();
            (!streams).then_some(variant.wait)
        }
        _ => None,
    }
}

/// Waits for a variant that is being made, as long as its route allows whoever has waited `since`
/// then, and chooses anew.
pub(super) async fn wait(
    connection: &Connection,
    route: &Route,
    fitted: Fitted,
    since: Instant,
) -> Fitted {
    let Fitted { original, part, fit: Fit::Awaited(variant) } = fitted else { return fitted };
    let made = async {
        let key = original.key().borrow();
        let site = &route.site;
        let wanted = Wanted { original: &original, variant: &variant, key, site };
        connection.worker.shared.adaptation.join(&wanted).await;
    };
    // If it takes too long the original is sent.
    let _ = timeout_at(since + variant.wait, made).await;
    let fit = of(connection, route, &variant, &original, part, coarse_unix_ms());
    Fitted { original, part, fit }
}
