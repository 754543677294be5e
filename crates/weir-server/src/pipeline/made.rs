//! What plugins make of files, at fill: made once, stored beside the file, and out of date when the
//! file is.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::spawn_blocking;
use weir_cache::{Collapse, Failure, Head, KeyRef, Lead, Outcome, SourceStamp};
use weir_origin::files::{Found, OpenFile};
use weir_origin::upstream::ResponseBody;

use super::files::{self, FOLLOW_ROUNDS_MAX, Query};
use super::fill::{self, Answered, Filled};
use super::lead::{self, Led};
use super::look_up::{self, Missed};
use super::plugins::Passage;
use super::refuse::Refusal;
use super::whole::Whole;
use super::{Ask, proxy, reply};
use crate::body::ReplyBody;
use crate::metrics::CacheResult;

/// Answers a request for what plugins make of a file.
pub(super) async fn answer(
    ask: Ask,
    missed: Missed,
    query: Query,
    passage: Arc<Passage>,
) -> Response<ReplyBody> {
    let Some(scope) = missed.scope.filter(|_| !missed.pass) else {
        return alone(ask, &missed, query, &passage).await;
    };
    let cache = ask.connection().worker.shared.cache.clone();
    let path = look_up::key_path(&ask.route, &ask.target, None);
    let limit = ask.route.cache.collapse_timeout;
    for _ in 0..FOLLOW_ROUNDS_MAX {
        let authority = look_up::key_authority(&ask.route, &ask.target.host);
        let key = KeyRef { scope, authority, path_and_query: &path };
        let headers = &ask.head.headers;
        match cache.collapse(&key, headers, &missed.directives, ask.now_ms()) {
            Collapse::Hit(object) => {
                return proxy::collapsed(ask, Whole::Object(object), &missed).await;
            }
            Collapse::Pass(_) => break,
            Collapse::Lead(lead) => return make(ask, &missed, query, &passage, Some(lead)).await,
            Collapse::Follow(follow) => {
                match tokio::time::timeout(limit, follow.wait(headers)).await {
                    Ok(Outcome::Object(object)) => {
                        return proxy::collapsed(ask, Whole::Object(object), &missed).await;
                    }
                    Ok(Outcome::Fill(fill)) => match fill.reader() {
                        Ok(reader) => {
                            return proxy::collapsed(ask, Whole::Fill(reader), &missed).await;
                        }
                        Err(_too_late) => break,
                    },
                    Ok(Outcome::Failed(failure)) => {
                        let refusal = Refusal::Source(failure.status, "the file cannot be read");
                        return ask.refuse(refusal, CacheResult::Collapsed);
                    }
                    Ok(Outcome::Retry) => {}
                    Ok(Outcome::Pass(_)) | Err(_) => break,
                }
            }
        }
    }
    alone(ask, &missed, query, &passage).await
}

async fn alone(
    ask: Ask,
    missed: &Missed,
    query: Query,
    passage: &Arc<Passage>,
) -> Response<ReplyBody> {
    make(ask, missed, query, passage, None).await
}

/// Makes it, and stores it for all that wait, if `flight` says so.
async fn make(
    ask: Ask,
    missed: &Missed,
    query: Query,
    passage: &Arc<Passage>,
    flight: Option<Lead>,
) -> Response<ReplyBody> {
    let now_ms = ask.now_ms();
    let looked = spawn_blocking(move || {
        let found = query.find();
        (found, query)
    });
    let Ok((found, query)) = looked.await else {
        return ask.refuse(files::panicked(), CacheResult::Miss);
    };
    let file = match found {
        Ok(Found::File(file)) => file,
        Ok(Found::Redirect) => {
            if let Some(flight) = flight {
                flight.pass(now_ms);
            }
            return files::redirect_to_directory(ask);
        }
        Ok(Found::Listing(_)) => {
            // Made anew each time anyway.
            if let Some(flight) = flight {
                flight.pass(now_ms);
            }
            return files::plain(ask, missed, query).await;
        }
        Err(error) => {
            if let Some(flight) = flight {
                flight.fail(Failure::new(error.status(), error.to_string()));
            }
            return ask.refuse(files::failed(&error), CacheResult::Miss);
        }
    };
    let (response, stamp) = whole(file, &query);
    // A file's own lifetime is that of the file.
    let answered = Answered {
        connection: ask.connection(),
        route: &ask.route,
        head: &ask.head,
        authority: &ask.target.authority,
        passage: Some(passage),
        is_head: false,
    };
    let Filled { response, marred_by, .. } = fill::fill(&answered, response).await;
    let flight = match flight {
        Some(flight) if marred_by.is_some() => {
            flight.pass(now_ms);
            None
        }
        flight => flight,
    };
    match flight {
        Some(flight) => {
            let mut head =
                Head::new(response.status(), response.headers().clone(), files::freshness(now_ms));
            head.stamp = Some(stamp);
            reply::storable(head.status, &mut head.headers);
            let filled = lead::fill(&ask, flight, head, response);
            proxy::led(ask, missed, filled).await
        }
        None => proxy::led(ask, missed, Led::Pass(response, Some("plugin"))).await,
    }
}

/// A file as a response, and its own word on whether it is current.
fn whole(
    file: OpenFile,
    query: &Query,
) -> (Response<ResponseBody>, Arc<dyn SourceStamp + Send + Sync>) {
    let (headers, stamp): (HeaderMap, _) = files::describe(&file, query);
    let body = file.stream(0..file.len).map_err(Into::into).boxed_unsync();
    let mut response = Response::new(ResponseBody::made(body));
    *response.status_mut() = StatusCode::OK;
    *response.headers_mut() = headers;
    (response, stamp)
}
