//! Stage 6 of what missed: its response is stored by now, or about to be, and what can be made of
//! it fits this request as it fits a hit.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};
use weir_cache::{CacheError, FillReader, Object};
use weir_http::cache_status::CacheStatus;

use super::refuse::Refusal;
use super::reply::{Answer, Found, HitFields};
use super::whole::Whole;
use super::{Ask, adapt, reply, streamed};
use crate::adapt::Asked;
use crate::body::ReplyBody;
use crate::live::Source;
use crate::metrics::CacheResult;

/// Ends a request that missed with a response that is stored, or being stored.
pub(super) async fn answer(
    ask: Ask,
    whole: Whole,
    cache: CacheResult,
    cache_status: CacheStatus<'_>,
) -> Response<ReplyBody> {
    let since = Instant::now();
    let whole = match whole {
        Whole::Fill(reader) => match settle(&ask, reader, since).await {
            Ok(whole) => whole,
            Err(_torn) => return torn(ask, cache, cache_status),
        },
        whole => whole,
    };
    let cache_status = cache_status.to_value();
    let holds = |object: &Object| ask.connection().worker.shared.cache.holds(object);
    match whole {
        // Nothing is made of what is not kept.
        Whole::Object(object) if holds(&object) => {
            let age = age(&ask, cache, object.age_secs(ask.now_ms()));
            let found = Found { cache, fields: HitFields { age, cache_status } };
            fitted(ask, object, found, since).await
        }
        whole => as_it_comes(ask, whole, cache, cache_status).await,
    }
}

/// Waits until what is being stored is stored, where its route has requests wait for what is made
/// of it and that cannot be made while it comes. What is not there in time goes on as it comes.
async fn settle(ask: &Ask, mut reader: FillReader, since: Instant) -> Result<Whole, CacheError> {
    let wait = adapt::wait_of(ask.connection(), &ask.route, &ask.asked(), reader.fill());
    let stored = match wait {
        Some(wait) => timeout_at(since + wait, reader.stored()).await.unwrap_or(Ok(None))?,
        None => None,
    };
    Ok(stored.map_or(Whole::Fill(reader), Whole::Object))
}

/// The origin has failed before the client was sent anything. The log has been told.
fn torn(ask: Ask, cache: CacheResult, cache_status: CacheStatus<'_>) -> Response<ReplyBody> {
    let refusal = Refusal::Source(StatusCode::BAD_GATEWAY, "the response was cut short");
    let mut response = ask.refuse(refusal, cache);
    let cache_status = CacheStatus { stored: false, detail: Some("torn"), ..cache_status };
    response.headers_mut().insert(reply::CACHE_STATUS, cache_status.to_value());
    response
}

/// Sends what is stored, or what was made of it. The request has waited for that `since` then.
async fn fitted(
    ask: Ask,
    object: Arc<Object>,
    found: Found,
    since: Instant,
) -> Response<ReplyBody> {
    let connection = Arc::clone(ask.connection());
    let (now_ms, part) = (ask.now_ms(), ask.target.variant);
    let fitted = adapt::fit(&connection, &ask.route, &ask.asked(), object, part, now_ms);
    let Ask { record, route, mut head, .. } = ask;
    let fitted = adapt::wait(&connection, &route, fitted, since).await;
    match fitted.late() {
        Some(why) => reply::late(record, &route, &head, (&fitted, why), found),
        None => reply::from_cache(record, &route, &mut head, true, &fitted, found),
    }
}

async fn as_it_comes(
    ask: Ask,
    mut whole: Whole,
    cache: CacheResult,
    cache_status: HeaderValue,
) -> Response<ReplyBody> {
    let mut headers = HeaderMap::new();
    let (status, age_s) = match &whole {
        Whole::Object(object) => {
            reply::copy(object.headers(), &mut headers);
            (object.status(), object.age_secs(ask.now_ms()))
        }
        Whole::Fill(reader) => {
            let head = reader.fill().head();
            reply::copy(&head.headers, &mut headers);
            (head.status, head.freshness.age_ms(ask.now_ms()) / 1000)
        }
        // The callers have one of the two above.
        Whole::File(_) | Whole::Bytes(_) | Whole::Upstream(_) | Whole::Coded(_) => {
            (StatusCode::OK, 0)
        }
    };
    streamed::begin(&ask.route, status, &headers, &mut whole).await;
    if let Some(age) = age(&ask, cache, age_s) {
        headers.insert(header::AGE, age);
    }
    ask.finish(Answer { status, headers, whole, cache, cache_status: Some(cache_status) })
}

/// A file is as old as it is, and what has just come has no age.
fn age(ask: &Ask, cache: CacheResult, age_s: u64) -> Option<HeaderValue> {
    let is_file = matches!(ask.route.source, Source::Files(_));
    (!is_file && (age_s > 0 || cache != CacheResult::Miss)).then(|| age_s.into())
}

impl Ask {
    fn asked(&self) -> Asked<'_> {
        Asked::of(&self.head)
    }
}
