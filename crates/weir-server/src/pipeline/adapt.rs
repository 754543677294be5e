//! Stage 6: what of a stored response's variants fits its client. Nothing is made here: a variant
//! is there, or it is asked for and the original is sent meanwhile, or the request waits as long as
//! its route allows.

use std::num::NonZeroU64;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;
use weir_cache::{KeyRef, Object};

use super::look_up;
use crate::adapt::{Offer, Offers, Wanted};
use crate::connection::Connection;
use crate::live::Route;
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
            Fit::AsItIs | Fit::Original(_) => &self.original,
        }
    }

    /// Whether what is sent is not the original.
    pub(super) fn is_variant(&self) -> bool {
        matches!(self.fit, Fit::Variant(_))
    }

    /// What a variant changes of the original's fields; `None` if they are sent as they are.
    pub(super) fn headers(&self, offers: Option<&Offers>) -> Option<HeaderMap> {
        let mut headers = match &self.fit {
            Fit::AsItIs => return None,
            Fit::Original(why) => {
                let mut headers = self.original.headers().clone();
                headers.insert(WEIR_ADAPT, not(why));
                headers
            }
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
            offers.vary(&mut headers);
        }
        Some(headers)
    }
}

/// Fields that hold for the very bytes of an original.
const OF_CONTENT: [HeaderName; 4] = [
    header::CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// `Weir-Adapt` of a response that is as it was.
fn not(why: &'static str) -> HeaderValue {
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

/// Chooses what a request gets of a stored response. `variant` is the part of the route's cache
/// that it lies in.
pub(super) fn fit(
    connection: &Connection,
    route: &Route,
    request: &HeaderMap,
    original: Arc<Object>,
    variant: u64,
    now_ms: u64,
) -> Fitted {
    let Some(offers) = route.offers.as_deref().filter(|_| concerns(route, &original)) else {
        return Fitted::as_it_is(original);
    };
    let fit = match offers.best(request) {
        None => Fit::Original("not-accepted"),
        Some(offer) => of(connection, route, offer, &original, variant, now_ms),
    };
    Fitted { original, fit }
}

fn of(
    connection: &Connection,
    route: &Route,
    offer: &Offer,
    original: &Arc<Object>,
    variant: u64,
    now_ms: u64,
) -> Fit {
    let shared = &connection.worker.shared;
    let stored = original.key().borrow();
    let key = KeyRef { scope: stored.scope ^ offer.fingerprint, ..stored };
    let Some(from) = NonZeroU64::new(original.body().id()) else { return Fit::AsItIs };
    if let Some(found) = shared.cache.derived(&key, from, now_ms) {
        route.variants.touch(variant ^ offer.fingerprint, now_ms);
        return Fit::Variant(found);
    }
    if !look_up::admit(connection, route, variant ^ offer.fingerprint, now_ms) {
        return Fit::Original("too-many-variants");
    }
    let wanted = Wanted { original, offer, key: key.to_key() };
    Fit::Original(shared.adaptation.want(&shared.cache, wanted))
}

/// Whether a request should wait for its variant, as its route has it.
pub(super) fn may_wait(route: &Route, fitted: &Fitted) -> bool {
    matches!(fitted.fit, Fit::Original("pending"))
        && route.offers.as_deref().is_some_and(|offers| !offers.wait.is_zero())
}

/// Waits for a variant that is being made, and chooses anew.
pub(super) async fn wait(
    connection: &Connection,
    route: &Route,
    request: &HeaderMap,
    fitted: Fitted,
    variant: u64,
) -> Fitted {
    let Some(offers) = route.offers.as_deref() else { return fitted };
    let Some(offer) = offers.best(request) else { return fitted };
    let original = fitted.original;
    let key = original.key().clone();
    let made = async {
        let wanted = Wanted { original: &original, offer, key };
        connection.worker.shared.adaptation.join(&wanted).await;
    };
    // If it takes too long the original is sent.
    let _ = timeout(offers.wait, made).await;
    fit(connection, route, request, original, variant, coarse_unix_ms())
}

/// Says of a response that is not stored yet, or not here, that it may be another one next time.
pub(super) fn note(route: &Route, status: StatusCode, headers: &mut HeaderMap, len: Option<u64>) {
    let Some(offers) = route.offers.as_deref() else { return };
    if offers.concern(status, headers, len) {
        offers.vary(headers);
        headers.insert(WEIR_ADAPT, not("not-stored"));
    }
}
