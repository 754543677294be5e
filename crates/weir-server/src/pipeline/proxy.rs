//! Origins as a source: which of the requests that missed goes there, and what the others get.

use http::header::{self, HeaderMap};
use http::{Method, Response, StatusCode};
use tokio::time::{Instant, timeout_at};
use weir_cache::policy::{Target as CacheTarget, invalidated};
use weir_cache::{Cache, Collapse, KeyRef, Lead, Mark, Object, Outcome, PurgeMode};
use weir_http::cache_status::{CacheStatus, Forward};
use weir_origin::error::{ErrorKind, OriginError};
use weir_origin::upstream::{RequestBody, ResponseBody};

use super::client_body::Verdict;
use super::fill::{self, Answered, Filled};
use super::forward::Outgoing;
use super::lead::{self, Leading, Led};
use super::look_up::{self, Missed};
use super::plugins;
use super::refuse::{Refusal, Turned};
use super::reply::{self, Answer};
use super::whole::Whole;
use super::{Ask, forward, forward_mode, gather, icap, settled, streamed, tunnel};
use crate::body::ReplyBody;
use crate::live::Source;
use crate::metrics::CacheResult;
use crate::shared::coarse_unix_ms;
use crate::upstream::Upstream;
use std::sync::Arc;

/// Rounds of waiting for others before a request goes to the origin by itself.
const FOLLOW_ROUNDS_MAX: usize = 3;

/// Answers a request that the cache could not answer.
pub(super) async fn answer(mut ask: Ask, missed: Missed) -> Response<ReplyBody> {
    let connection = Arc::clone(ask.connection());
    if !connection.worker.shared.guard.has_time(&connection, ask.record.class()) {
        ask.record.shed = Some("overload");
        return match missed.stale.filter(|stale| stale.on_error) {
            Some(stale) => stale_answer(ask, stale.object, Stalely::OnError).await,
            None => ask.refuse(Refusal::Turned(Turned::OVERLOAD), CacheResult::Miss),
        };
    }
    let shareable = forward::is_shareable(&ask.head.method, ask.has_body());
    match missed.scope {
        Some(_) if missed.directives.only_if_cached => {
            ask.refuse(Refusal::NotCached, CacheResult::Miss)
        }
        None => pass(ask, &missed, None).await,
        Some(_) if !shareable => pass(ask, &missed, None).await,
        // It may wait for what was asked on its own behalf.
        Some(_) if missed.pass || has_been_here(&ask) => pass(ask, &missed, missed.mark).await,
        Some(scope) => share(ask, missed, scope).await,
    }
}

fn has_been_here(ask: &Ask) -> bool {
    matches!(&ask.route.source, Source::Proxy(source) if source.via.knows(&ask.head.headers))
}

/// Goes to the origin together with whoever else asks for the same.
async fn share(ask: Ask, missed: Missed, scope: u64) -> Response<ReplyBody> {
    let cache = ask.connection().worker.shared.cache.clone();
    let path = look_up::key_path(&ask.route, &ask.target, ask.head.uri.query());
    let deadline = Instant::now() + ask.route.cache.collapse_timeout;
    let mut mark = None;
    for _ in 0..FOLLOW_ROUNDS_MAX {
        let key = KeyRef { scope, authority: &ask.target.host, path_and_query: &path };
        let headers = &ask.head.headers;
        match cache.collapse(&key, headers, &missed.directives, ask.now_ms()) {
            Collapse::Hit(object) => return collapsed(ask, Whole::Object(object), &missed).await,
            Collapse::Pass(under) => {
                mark = under;
                break;
            }
            Collapse::Lead(flight) => {
                let leading = Leading {
                    connection: Arc::clone(ask.connection()),
                    class: ask.record.class_ref(),
                    route: Arc::clone(&ask.route),
                    head: ask.head.clone(),
                    target: ask.target.clone(),
                    stale: missed.stale.clone(),
                    passage: ask.passage.clone(),
                };
                if let Some(stale) = missed.stale.as_ref().filter(|s| s.while_revalidating) {
                    let object = Arc::clone(&stale.object);
                    lead::in_background(leading, flight);
                    return stale_answer(ask, object, Stalely::WhileRevalidating).await;
                }
                match lead::lead(leading, flight).await {
                    // The origin cuts what is not stored.
                    Led::Pass(whole, _) if wants_part(&ask, &whole) => break,
                    answer => return led(ask, &missed, answer).await,
                }
            }
            Collapse::Follow(follow) => {
                if let Some(stale) = missed.stale.as_ref().filter(|s| s.while_revalidating) {
                    let object = Arc::clone(&stale.object);
                    return stale_answer(ask, object, Stalely::WhileRevalidating).await;
                }
                follow.urge(ask.record.class_ref().urgency());
                match timeout_at(deadline, follow.wait(headers)).await {
                    Ok(Outcome::Object(object)) => {
                        return collapsed(ask, Whole::Object(object), &missed).await;
                    }
                    Ok(Outcome::Fill(fill)) => match fill.reader() {
                        Ok(reader) => return collapsed(ask, Whole::Fill(reader), &missed).await,
                        Err(_too_late) => break,
                    },
                    // Where its leader may not go it may not either, and is told so for itself: by
                    // what its own addresses are found to be.
                    Ok(Outcome::Failed(failure)) if is_denied(&ask, failure.status) => break,
                    Ok(Outcome::Failed(failure)) => {
                        return leader_failed(ask, &missed, failure.status).await;
                    }
                    Ok(Outcome::Retry) => {}
                    Ok(Outcome::Pass(under)) => {
                        mark = Some(under);
                        break;
                    }
                    // Waited long enough.
                    Err(_) => break,
                }
            }
        }
    }
    pass(ask, &missed, mark).await
}

/// Whether a forward proxy's leader failed because of where it was to go.
fn is_denied(ask: &Ask, status: StatusCode) -> bool {
    ask.target.origin.is_some() && status == ErrorKind::Denied.status()
}

/// The answer to a follower whose leader has none for it.
async fn leader_failed(ask: Ask, missed: &Missed, status: StatusCode) -> Response<ReplyBody> {
    if let Some(stale) = missed.stale.as_ref().filter(|stale| stale.on_error) {
        return stale_answer(ask, Arc::clone(&stale.object), Stalely::OnError).await;
    }
    let forwarded = CacheStatus::forwarded(missed.forward);
    let value = CacheStatus { collapsed: true, ..forwarded };
    refuse(ask, Refusal::Source(status, "the origin failed"), CacheResult::Collapsed, value)
}

/// Whether a request asks for less than what a leader, who asks for the whole, was given.
fn wants_part(ask: &Ask, whole: &Response<ResponseBody>) -> bool {
    whole.status() == StatusCode::OK && ask.head.headers.contains_key(header::RANGE)
}

/// The leader's own answer.
pub(super) async fn led(ask: Ask, missed: &Missed, led: Led) -> Response<ReplyBody> {
    let forwarded = CacheStatus::forwarded(missed.forward);
    match led {
        Led::Fill(reader, status) => {
            let value =
                CacheStatus { stored: true, forward_status: Some(status.as_u16()), ..forwarded };
            settled::answer(ask, Whole::Fill(reader), CacheResult::Miss, value).await
        }
        Led::Fresh(object) => {
            let value = CacheStatus { forward_status: Some(304), stored: true, ..forwarded };
            settled::answer(ask, Whole::Object(object), CacheResult::Revalidated, value).await
        }
        Led::Stale(object) => stale_answer(ask, object, Stalely::OnError).await,
        Led::Answered(object) => {
            let value = CacheStatus { detail: Some("plugin"), ..forwarded };
            settled::answer(ask, Whole::Object(object), CacheResult::Miss, value).await
        }
        Led::Closed => plugins::closed(Some(ask.record)),
        Led::Pass(response, why) => {
            let forward_status = Some(response.status().as_u16());
            let value = CacheStatus { detail: why, forward_status, ..forwarded };
            pass_on(ask, response, CacheResult::Miss, value).await
        }
        Led::Failed(error) => failed(ask, missed, &error, CacheResult::Miss),
        Led::Refused(refusal) => ask.refuse(refusal, CacheResult::Miss),
    }
}

/// Goes to the origin without waiting for others. An answer under a mark is stored if it can be.
async fn pass(mut ask: Ask, missed: &Missed, mark: Option<Mark>) -> Response<ReplyBody> {
    let route = Arc::clone(&ask.route);
    let Source::Proxy(source) = &route.source else {
        return ask.refuse(Refusal::NotFound, CacheResult::None);
    };
    let cache = if missed.scope.is_some() { CacheResult::Pass } else { CacheResult::None };
    let upstream = match forward_mode::upstream(source, &ask.target) {
        Ok(upstream) => upstream,
        Err(error) => return failed(ask, missed, &error, cache),
    };
    let plan = gather::Plan::of(&ask.head, ask.route.body_buffer);
    let headers = fields_to_send(&mut ask, mark);
    let target = &ask.target;
    let head = target.source_head(&ask.head);
    let is_head = head.method == Method::HEAD;
    let outgoing = match forward::outgoing(ask.connection(), &route, source, head, headers, target)
    {
        Ok(outgoing) => outgoing,
        Err(refusal) => return ask.refuse(refusal, cache),
    };
    let request_time_ms = coarse_unix_ms();
    let (sent, verdict) = send(&mut ask, &upstream, outgoing, plan).await;
    let sent = match sent {
        Ok(response) => Ok(filled(&ask, response, is_head).await),
        Err(error) => Err(error),
    };
    match sent {
        Ok(Filled { response, .. }) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            tunnel::switch(ask, response)
        }
        Ok(Filled { response, marred_by, ttl_ms }) => {
            invalidate(&ask, &response);
            let unseen = ask.passage.as_ref().is_none_or(|passage| !passage.sees_stores());
            if let Some((mark, scope)) =
                mark.zip(missed.scope).filter(|_| unseen && marred_by.is_none())
                && let Some(head) = lead::admit_whole(&ask, &response, request_time_ms, ttl_ms)
                && let Some(flight) = lead_after_all(&ask, scope, mark)
            {
                let filled = lead::fill(&ask, flight, head, response);
                return led(ask, missed, filled).await;
            }
            let value = CacheStatus {
                forward_status: Some(response.status().as_u16()),
                ..CacheStatus::forwarded(missed.forward)
            };
            pass_on(ask, response, cache, value).await
        }
        Err(_) if verdict.as_ref().is_some_and(Verdict::is_too_large) => {
            ask.refuse(Refusal::BodyTooLarge, cache)
        }
        Err(_) if verdict.as_ref().is_some_and(Verdict::is_too_slow) => {
            ask.record.shed = Some("slow-body");
            ask.refuse(Refusal::BodyTooSlow, cache)
        }
        Err(error) => match ask.passage.as_ref().and_then(|passage| passage.late_end()) {
            Some(plugins::Late::Answer(answer)) => ask.answered(*answer),
            Some(plugins::Late::Close) => plugins::closed(Some(ask.record)),
            None => failed(ask, missed, &error, cache),
        },
    }
}

/// The fields of a request for the origin, as far as those who are to see its answer let them be.
fn fields_to_send(ask: &mut Ask, mark: Option<Mark>) -> HeaderMap {
    let sees_whole = icap::sees_responses(&ask.route);
    // Adapters look at what the client takes, when the answer is there.
    let is_asked_again = sees_whole || ask.route.offers.is_some();
    let mut headers = match (mark, &ask.target.instead) {
        (_, Some(instead)) => instead.head.headers.clone(),
        // The answer may be stored, as one to these, or is shown to a service with them.
        (Some(_), None) => ask.head.headers.clone(),
        (None, None) if is_asked_again => ask.head.headers.clone(),
        // Nothing after this reads the request's fields.
        (None, None) => std::mem::take(&mut ask.head.headers),
    };
    let method = &ask.target.source_head(&ask.head).method;
    let reads = *method == Method::HEAD || *method == Method::GET;
    if reads && ask.passage.as_ref().is_some_and(|passage| passage.makes_bodies_at_fill()) {
        forward::remove_conditions(&mut headers);
    }
    streamed::ask_for_originals(&ask.route, &mut headers);
    streamed::ask_for_all(&ask.route, &ask.head, &mut headers);
    if sees_whole {
        // A part of what it must see as a whole cannot be judged.
        headers.remove(header::RANGE);
        headers.remove(header::IF_RANGE);
    }
    headers
}

/// What those who work at the fill make of an answer.
async fn filled(ask: &Ask, response: Response<ResponseBody>, is_head: bool) -> Filled {
    let answered = Answered {
        connection: ask.connection(),
        route: &ask.route,
        head: &ask.head,
        authority: &ask.target.authority,
        passage: ask.passage.as_deref(),
        is_head,
    };
    fill::fill(&answered, response).await
}

/// Sends the request when enough of its content is there and it is its turn. What there is besides
/// tells whether it was Weir that ended the content.
async fn send(
    ask: &mut Ask,
    upstream: &Upstream,
    outgoing: Outgoing,
    plan: Option<gather::Plan>,
) -> (Result<Response<ResponseBody>, OriginError>, Option<Verdict>) {
    let connection = Arc::clone(ask.connection());
    let content = ask.body.take_if(|body| !body.is_end_stream());
    let content = content.map(|content| content.into_unsent(&connection.socket, &ask.route));
    let (content, verdict) = content.unzip();
    let gathered = match (content, plan) {
        (None, _) => Ok((RequestBody::Empty, None)),
        (Some(content), None) => Ok((content.into_body(), None)),
        (Some(content), Some(plan)) => gather::gather(&connection, content, &plan).await,
    };
    let (body, _charge) = match gathered {
        Ok(gathered) => gathered,
        Err(cause) => {
            let name = upstream.group.config().name.as_str();
            return (Err(OriginError::new(ErrorKind::RequestBody, name, cause)), verdict);
        }
    };
    let (request, choice) = outgoing.with(body);
    let began = std::time::Instant::now();
    if let Some(verdict) = &verdict {
        verdict.set_held_for(true);
    }
    let class = ask.record.class_ref();
    let mut sent = upstream.send(connection.worker.index, class, request, choice).await;
    if let Some(verdict) = &verdict {
        verdict.set_held_for(false);
    }
    if let Some(passage) = &ask.passage {
        passage.sent_on(&upstream.group, began, &mut sent, true);
    }
    (sent, verdict)
}

fn lead_after_all(ask: &Ask, scope: u64, mark: Mark) -> Option<Lead> {
    let path = look_up::key_path(&ask.route, &ask.target, ask.head.uri.query());
    let key = KeyRef { scope, authority: &ask.target.host, path_and_query: &path };
    ask.connection().worker.shared.cache.lead_after_all(mark, &key)
}

/// An origin's response as it is.
pub(super) async fn pass_on(
    ask: Ask,
    mut response: Response<ResponseBody>,
    cache: CacheResult,
    cache_status: CacheStatus<'_>,
) -> Response<ReplyBody> {
    forward::incoming(&mut response);
    let asked = &ask.target.source_head(&ask.head).method;
    if *asked == Method::HEAD && !ask.record.is_head() {
        // The length is that of content which did not come with it.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    let (parts, body) = response.into_parts();
    let mut whole = Whole::Upstream(Box::new(body));
    streamed::begin(&ask.route, parts.status, &parts.headers, &mut whole).await;
    ask.finish(Answer {
        status: parts.status,
        headers: parts.headers,
        whole,
        cache,
        cache_status: (cache != CacheResult::None).then(|| cache_status.to_value()),
    })
}

/// A response that another request fetched.
pub(super) async fn collapsed(ask: Ask, whole: Whole, missed: &Missed) -> Response<ReplyBody> {
    let forwarded = CacheStatus::forwarded(missed.forward);
    let value = CacheStatus { collapsed: true, ..forwarded };
    settled::answer(ask, whole, CacheResult::Collapsed, value).await
}

/// A stale response, where that is allowed. It is a hit if the request was not forwarded (RFC 9211
/// §2.1): while a validation runs for others. After the origin failed it is none.
async fn stale_answer(ask: Ask, object: Arc<Object>, why: Stalely) -> Response<ReplyBody> {
    let ttl_ms = object.freshness().fresh_until_ms as i64 - ask.now_ms() as i64;
    let hit = CacheStatus::hit(ttl_ms / 1000);
    let value = match why {
        Stalely::WhileRevalidating => CacheStatus { detail: Some("stale-while-revalidate"), ..hit },
        Stalely::OnError => CacheStatus {
            ttl_s: hit.ttl_s,
            detail: Some("stale-if-error"),
            ..CacheStatus::forwarded(Forward::Stale)
        },
    };
    settled::answer(ask, Whole::Object(object), CacheResult::Stale, value).await
}

/// RFC 5861's two reasons to send a stale response.
#[derive(Clone, Copy)]
enum Stalely {
    WhileRevalidating,
    OnError,
}

/// The origin failed; what happened is in the log already, by server and cause.
fn failed(
    mut ask: Ask,
    missed: &Missed,
    error: &OriginError,
    cache: CacheResult,
) -> Response<ReplyBody> {
    let why = error.kind().as_str();
    let is_full = error.kind() == ErrorKind::Overloaded;
    ask.record.shed = is_full.then_some("upstream");
    let value = CacheStatus { detail: Some(why), ..CacheStatus::forwarded(missed.forward) };
    let refusal = match is_full {
        _ if ask.target.origin.is_some() => forward_mode::refusal(error),
        true => Refusal::Turned(Turned::UPSTREAM),
        false => Refusal::Source(error.status(), why),
    };
    refuse(ask, refusal, cache, value)
}

/// An answer of Weir's own in place of an origin's.
fn refuse(
    ask: Ask,
    refusal: Refusal,
    cache: CacheResult,
    cache_status: CacheStatus<'_>,
) -> Response<ReplyBody> {
    let mut response = ask.refuse(refusal, cache);
    if cache != CacheResult::None {
        response.headers_mut().insert(reply::CACHE_STATUS, cache_status.to_value());
    }
    response
}

/// RFC 9111 §4.4: what a successful unsafe request changed must not be answered from the cache.
fn invalidate(ask: &Ask, response: &Response<ResponseBody>) {
    let method = &ask.target.source_head(&ask.head).method;
    if method.is_safe() || !ask.route.cache.enabled {
        return;
    }
    let path = look_up::key_path(&ask.route, &ask.target, ask.head.uri.query());
    let target = CacheTarget {
        scheme: if ask.is_secure() { "https" } else { "http" },
        authority: &ask.target.authority,
        path_and_query: &path,
    };
    let (status, headers) = (response.status(), response.headers());
    let cache: &Cache = &ask.connection().worker.shared.cache;
    for path in invalidated(method, &target, status, headers) {
        for scope in look_up::scopes(&ask.route) {
            let key = KeyRef { scope, authority: &ask.target.host, path_and_query: &path };
            cache.purge(&key, PurgeMode::Remove);
        }
    }
}
