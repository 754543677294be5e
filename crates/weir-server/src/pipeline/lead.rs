//! The leader's way to the origin: it goes on when its client leaves, since others may be waiting
//! and the cache will want the response anyway.

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use weir_cache::policy::{self, Exchange, Freshened, Mismatch, NotStorable, Rules};
use weir_cache::{Failure, FillReader, FillWriter, Freshness, Head, Lead, Object, Stale, Started};
use weir_http::cache_control::ResponseDirectives;
use weir_http::conditional::is_conditional;
use weir_origin::error::{ErrorKind, OriginError};
use weir_origin::upstream::{RequestBody, ResponseBody};
use weir_plugin::{Answer, ResponseHead};

use super::fill::{self, Answered, Filled};
use super::plugins::{Passage, Storing};
use super::refuse::Refusal;
use super::{Ask, Target};
use super::{forward, forward_mode, reply};
use crate::connection::Connection;
use crate::live::{Route, Source};
use crate::seldom::Seldom;
use crate::shared::coarse_unix_ms;
use weir_guard::ClassRef;

/// What leads: the request that goes to the origin for all that wait.
pub(super) struct Leading {
    pub(super) connection: Arc<Connection>,
    /// Who goes first to the origin.
    pub(super) class: ClassRef,
    pub(super) route: Arc<Route>,
    pub(super) head: Parts,
    pub(super) target: Target,
    /// A stored response to validate.
    pub(super) stale: Option<Stale>,
    /// The request's way through plugins, which see what is stored.
    pub(super) passage: Option<Arc<Passage>>,
}

/// What the leader's own client gets.
#[allow(clippy::large_enum_variant, reason = "sent once and matched at once, never kept")]
pub(super) enum Led {
    /// A body that is being stored.
    Fill(FillReader, StatusCode),
    /// A stored response that the origin confirmed.
    Fresh(Arc<Object>),
    /// A stored response, because the origin failed.
    Stale(Arc<Object>),
    /// A plugin's answer in place of the response. It is not stored.
    Answered(Arc<Object>),
    /// A plugin wants whoever waits gone.
    Closed,
    /// A response that is not stored, and why.
    Pass(Response<ResponseBody>, Option<&'static str>),
    Failed(OriginError),
    Refused(Refusal),
}

/// Goes to the origin and waits for the head of the answer.
pub(super) async fn lead(leading: Leading, flight: Lead) -> Led {
    let (answer, answered) = oneshot::channel();
    tokio::spawn(go(leading, flight, answer, true));
    // The task answers, or has panicked.
    answered.await.unwrap_or(Led::Refused(Refusal::Source(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal error",
    )))
}

/// Goes to the origin although nobody waits: a stale response has been sent.
pub(super) fn in_background(leading: Leading, flight: Lead) {
    let (answer, _) = oneshot::channel();
    tokio::spawn(go(leading, flight, answer, false));
}

/// `is_waited_for`: a client wants the answer, as long as he is there.
async fn go(leading: Leading, flight: Lead, mut answer: oneshot::Sender<Led>, is_waited_for: bool) {
    let request_time_ms = coarse_unix_ms();
    leading.route.variants.hold(leading.target.variant, request_time_ms);
    let response = match ask_origin(&leading, &flight, &mut answer, is_waited_for).await {
        Ok(response) => response,
        Err(Unasked::Failed(error)) => {
            let led = failed(&leading, flight, error);
            // Without a client nobody needs the answer; so below.
            let _ = answer.send(led);
            return;
        }
        Err(Unasked::Refused(refusal)) => {
            flight.fail(Failure::new(StatusCode::LOOP_DETECTED, "the request loops"));
            let _ = answer.send(Led::Refused(refusal));
            return;
        }
    };
    let response_time_ms = coarse_unix_ms();
    let times = Times { request_time_ms, response_time_ms };
    if let Some(stale) = &leading.stale {
        if stale.on_error && is_server_failure(response.status()) {
            let object = Arc::clone(&stale.object);
            flight.release(Arc::clone(&object));
            let _ = answer.send(Led::Stale(object));
            return;
        }
        if response.status() == StatusCode::NOT_MODIFIED {
            match validated(&leading, stale, &response, times) {
                Ok(freshened) => {
                    let led = refresh(&leading, flight, stale, freshened, times).await;
                    let _ = answer.send(led);
                }
                Err(mismatch) => {
                    tracing::warn!(
                        site = leading.route.site.name,
                        path = leading.target.path,
                        cause = %mismatch,
                        "the origin confirmed a response that it was not asked about"
                    );
                    // What it has now is stored in the other's place.
                    let leading = Leading { stale: None, ..leading };
                    Box::pin(go(leading, flight, answer, is_waited_for)).await;
                }
            }
            return;
        }
    }
    store(&leading, flight, response, times, answer).await;
}

#[derive(Clone, Copy)]
struct Times {
    request_time_ms: u64,
    response_time_ms: u64,
}

impl Times {
    fn exchange<'a>(
        self,
        request: &'a HeaderMap,
        response: &'a Response<ResponseBody>,
    ) -> Exchange<'a> {
        Exchange {
            // What is stored answers GET.
            method: &Method::GET,
            request,
            status: response.status(),
            response: response.headers(),
            request_time_ms: self.request_time_ms,
            response_time_ms: self.response_time_ms,
        }
    }
}

enum Unasked {
    Failed(OriginError),
    Refused(Refusal),
}

/// Sends the request, with the stored response's validators or without any conditions.
async fn ask_origin(
    leading: &Leading,
    flight: &Lead,
    answer: &mut oneshot::Sender<Led>,
    is_waited_for: bool,
) -> Result<Response<ResponseBody>, Unasked> {
    let Source::Proxy(source) = &leading.route.source else {
        return Err(Unasked::Refused(Refusal::NotFound));
    };
    let Leading { connection, class, route, head, target, stale, passage } = leading;
    let head = target.source_head(head);
    let headers = head.headers.clone();
    let mut outgoing = forward::outgoing(connection, route, source, head, headers, target)
        .map_err(Unasked::Refused)?;
    // What plugins have made before it was stored is not what the origin could confirm.
    let is_made = passage.as_ref().is_some_and(|passage| passage.fills());
    match stale.as_ref().filter(|_| !is_made) {
        Some(stale) => {
            policy::make_conditional(stale.object.headers(), &mut outgoing.head.headers);
        }
        None => forward::remove_conditions(&mut outgoing.head.headers),
    }
    let (request, choice) = outgoing.with(RequestBody::Empty);
    let upstream = forward_mode::upstream(source, target).map_err(Unasked::Failed)?;
    let began = Instant::now();
    // Whoever leaves before it is its turn asks for nothing; once sent, a fill goes on.
    let gone = async {
        match is_waited_for {
            true => answer.closed().await,
            false => pending().await,
        }
    };
    let worker = connection.worker.index;
    let mut sent = upstream.send_leading(worker, (*class, flight), request, choice, gone).await;
    if let Some(passage) = passage {
        passage.sent_on(&upstream.group, began, &mut sent, is_waited_for);
    }
    sent.map_err(Unasked::Failed)
}

fn failed(leading: &Leading, flight: Lead, error: OriginError) -> Led {
    // What may not be asked is not answered for either.
    let is_failure = error.kind() != ErrorKind::Denied;
    match leading.stale.as_ref().filter(|stale| stale.on_error && is_failure) {
        Some(stale) => {
            flight.release(Arc::clone(&stale.object));
            Led::Stale(Arc::clone(&stale.object))
        }
        None => {
            if error.kind() == ErrorKind::Overloaded {
                // It was its class's turn that did not come; who follows may be of a higher one, in
                // which no more could wait.
                flight.step_down();
            } else {
                flight.fail(Failure::new(error.status(), error.to_string()));
            }
            Led::Failed(error)
        }
    }
}

/// RFC 5861 §4 names these.
fn is_server_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// What a 304 makes of what we asked to be validated (RFC 9111 §4.3.4).
fn validated(
    leading: &Leading,
    stale: &Stale,
    response: &Response<ResponseBody>,
    times: Times,
) -> Result<Freshened, Mismatch> {
    let exchange = times.exchange(&leading.head.headers, response);
    policy::freshen(&stale.object, &exchange, &rules(&leading.route, None))
}

/// Stores what is there of a response with what the 304 makes of its head. One that the 304, or a
/// plugin, forbids to store any longer is used for this answer only.
async fn refresh(
    leading: &Leading,
    flight: Lead,
    stale: &Stale,
    freshened: Freshened,
    times: Times,
) -> Led {
    let Freshened { head, storable } = freshened;
    let (head, storable, flight) = match &leading.passage {
        Some(passage) if storable && passage.sees_stores() => {
            match show_stored(passage, head, flight, times).await {
                Seen::Store(head, flight) => (head, true, flight),
                Seen::Not(head, flight) => (head, false, flight),
                Seen::Instead(led) => return led,
            }
        }
        _ => (head, storable, flight),
    };
    Led::Fresh(flight.refreshed(&stale.object, Freshened { head, storable }))
}

/// Stores the response if it may be stored; the client and all that follow read along.
async fn store(
    leading: &Leading,
    flight: Lead,
    response: Response<ResponseBody>,
    times: Times,
    answer: oneshot::Sender<Led>,
) {
    let Leading { connection, route, head, target, .. } = leading;
    let answered = Answered {
        connection,
        route,
        head,
        authority: &target.authority,
        passage: leading.passage.as_deref(),
        is_head: false,
    };
    let Filled { response, marred_by, ttl_ms } = fill::fill(&answered, response).await;
    let admitted = match marred_by {
        Some(who) => Err(who),
        None => admit(&rules(&leading.route, ttl_ms), &leading.head.headers, &response, times)
            .map_err(|why| why.as_str()),
    };
    let (admitted, flight) = match (admitted, &leading.passage) {
        (Ok(head), Some(passage)) if passage.sees_stores() => {
            match show_stored(passage, head, flight, times).await {
                Seen::Store(head, flight) => (Ok(head), flight),
                Seen::Not(_, flight) => (Err("plugin"), flight),
                Seen::Instead(led) => {
                    let _ = answer.send(led);
                    return;
                }
            }
        }
        (admitted, _) => (admitted, flight),
    };
    let head = match admitted {
        Ok(head) => head,
        Err(why) => {
            flight.pass(times.response_time_ms);
            let _ = answer.send(Led::Pass(response, Some(why)));
            return;
        }
    };
    let (led, body) = start(flight, head, response);
    let _ = answer.send(led);
    if let Some((writer, body)) = body {
        pump(&leading.route, &leading.target.path, writer, body).await;
    }
}

/// What plugins make of what is about to be stored.
#[allow(clippy::large_enum_variant, reason = "matched at once, never kept")]
enum Seen {
    Store(Head, Lead),
    Not(Head, Lead),
    /// Whoever waits has been told already.
    Instead(Led),
}

async fn show_stored(passage: &Passage, mut head: Head, flight: Lead, times: Times) -> Seen {
    let now_ms = times.response_time_ms;
    let ttl_ms = head.freshness.fresh_until_ms as i64 - now_ms as i64;
    let shown = ResponseHead { status: head.status, headers: head.headers.clone() };
    match passage.store(shown, ttl_ms).await {
        Storing::Store { head: made, lifetime_ms } => {
            head.status = made.status;
            head.headers = made.headers;
            if let Some(lifetime_ms) = lifetime_ms {
                head.freshness.fresh_until_ms = now_ms.saturating_add(lifetime_ms);
            }
            Seen::Store(head, flight)
        }
        Storing::Not => Seen::Not(head, flight),
        Storing::Answer(answer) => {
            Seen::Instead(Led::Answered(answer_with(flight, *answer, times)))
        }
        Storing::Close => {
            let reason = "a plugin closed what the response was for";
            flight.fail(Failure::new(StatusCode::BAD_GATEWAY, reason));
            Seen::Instead(Led::Closed)
        }
    }
}

/// Gives all that wait a plugin's answer.
fn answer_with(flight: Lead, answer: Answer, times: Times) -> Arc<Object> {
    let freshness = Freshness::for_lifetime(times.response_time_ms, 0);
    let mut head = Head::new(answer.status, answer.headers, freshness);
    reply::storable(head.status, &mut head.headers);
    let trailers = Some(answer.trailers).filter(|trailers| !trailers.is_empty());
    flight.answer(head, answer.body.into(), trailers)
}

/// The head to store of an answer to a request that went to the origin as it came, if the answer
/// may be stored and is the whole.
pub(super) fn admit_whole(
    ask: &Ask,
    response: &Response<ResponseBody>,
    request_time_ms: u64,
    ttl_ms: Option<u64>,
) -> Option<Head> {
    // Most answers under a mark are like the one that left it: these cost next to nothing.
    if ResponseDirectives::glance_no_store(response.headers()) {
        return None;
    }
    let cache = &ask.connection().worker.shared.cache;
    if declared_length(response).is_some_and(|len| len > cache.settings().object_bytes_max) {
        return None;
    }
    let request = &ask.head.headers;
    let times = Times { request_time_ms, response_time_ms: coarse_unix_ms() };
    let head = admit(&rules(&ask.route, ttl_ms), request, response, times).ok()?;
    let is_whole = !request.contains_key(header::RANGE) && !is_conditional(request);
    is_whole.then_some(head)
}

/// Stores a response in a task of its own; the client reads along.
pub(super) fn fill(ask: &Ask, flight: Lead, head: Head, response: Response<ResponseBody>) -> Led {
    let (route, path) = (Arc::clone(&ask.route), ask.target.path.clone());
    route.variants.hold(ask.target.variant, ask.now_ms());
    let (led, body) = start(flight, head, response);
    if let Some((writer, body)) = body {
        tokio::spawn(async move { pump(&route, &path, writer, body).await });
    }
    led
}

/// Decides whether a response may be stored, and makes the head to store.
fn admit(
    rules: &Rules,
    request: &HeaderMap,
    response: &Response<ResponseBody>,
    times: Times,
) -> Result<Head, NotStorable> {
    let mut head = policy::admit(&times.exchange(request, response), rules)?;
    weir_http::forward::append_via(&mut head.headers, response.version());
    reply::storable(head.status, &mut head.headers);
    Ok(head)
}

/// What the client gets of a response that may be stored, and the body to [`pump`], if it fits.
fn start(
    flight: Lead,
    head: Head,
    response: Response<ResponseBody>,
) -> (Led, Option<(FillWriter, ResponseBody)>) {
    let status = head.status;
    match flight.start(head, declared_length(&response)) {
        Started::Pass => (Led::Pass(response, Some("too-large")), None),
        Started::Fill { writer, reader } => {
            (Led::Fill(reader, status), Some((writer, response.into_body())))
        }
    }
}

fn declared_length(response: &Response<ResponseBody>) -> Option<u64> {
    hyper::body::Body::size_hint(response.body()).exact()
}

/// Moves the body from the origin into the fill.
async fn pump(route: &Route, path: &str, mut writer: FillWriter, mut body: ResponseBody) {
    let mut trailers: Option<HeaderMap> = None;
    loop {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if let Err(error) = writer.write(data).await {
                        return report(route, path, &error.to_string());
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            Some(Err(error)) => {
                let cause = error.to_string();
                writer.fail(cause.clone());
                return report(route, path, &cause);
            }
        }
    }
    if let Err(error) = writer.finish(trailers) {
        report(route, path, &error.to_string());
    }
}

fn report(route: &Route, path: &str, cause: &str) {
    static INCOMPLETE: Seldom = Seldom::new();
    let Some(unsaid) = INCOMPLETE.may_warn() else { return };
    tracing::warn!(
        site = route.site.name,
        route = route.metrics.route,
        path,
        cause,
        unsaid,
        "an origin's response is not complete and was not stored"
    );
}

/// A route's rules, with a plugin's lifetime before its own.
fn rules(route: &Route, ttl_ms: Option<u64>) -> Rules {
    let ms = |span: Option<std::time::Duration>| span.map(|span| span.as_millis() as u64);
    Rules {
        ttl_ms: ttl_ms.or(ms(route.cache.ttl)),
        default_ttl_ms: ms(route.cache.default_ttl),
        stale_while_revalidate_ms: ms(route.cache.stale_while_revalidate),
        stale_if_error_ms: ms(route.cache.stale_if_error),
    }
}
