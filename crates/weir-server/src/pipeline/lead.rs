//! The leader's way to the origin: it goes on when its client leaves, since others may be waiting
//! and the cache will want the response anyway.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use weir_cache::policy::{self, Exchange, Rules};
use weir_cache::{Failure, FillReader, FillWriter, Lead, Object, PurgeMode, Stale, Started};
use weir_origin::error::OriginError;
use weir_origin::upstream::{RequestBody, ResponseBody};

use super::Target;
use super::refuse::Refusal;
use super::{forward, reply};
use crate::connection::Connection;
use crate::live::{Route, Source};
use crate::seldom::Seldom;
use crate::shared::coarse_unix_ms;

/// What leads: the request that goes to the origin for all that wait.
pub(super) struct Leading {
    pub(super) connection: Arc<Connection>,
    pub(super) route: Arc<Route>,
    pub(super) head: Parts,
    pub(super) target: Target,
    /// A stored response to validate.
    pub(super) stale: Option<Stale>,
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
    /// A response that is not stored, and why.
    Pass(Response<ResponseBody>, Option<&'static str>),
    Failed(OriginError),
    Refused(Refusal),
}

/// Goes to the origin and waits for the head of the answer.
pub(super) async fn lead(leading: Leading, flight: Lead) -> Led {
    let (answer, answered) = oneshot::channel();
    tokio::spawn(go(leading, flight, answer));
    // The task answers, or has panicked.
    answered.await.unwrap_or(Led::Refused(Refusal::Source(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal error",
    )))
}

/// Goes to the origin although nobody waits: a stale response has been sent.
pub(super) fn in_background(leading: Leading, flight: Lead) {
    let (answer, _) = oneshot::channel();
    tokio::spawn(go(leading, flight, answer));
}

async fn go(leading: Leading, flight: Lead, answer: oneshot::Sender<Led>) {
    let request_time_ms = coarse_unix_ms();
    let response = match ask_origin(&leading).await {
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
            let led = validated(&leading, flight, stale, &response, times);
            let _ = answer.send(led);
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
        leading: &'a Leading,
        response: &'a Response<ResponseBody>,
    ) -> Exchange<'a> {
        Exchange {
            // What is stored answers GET.
            method: &Method::GET,
            request: &leading.head.headers,
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
async fn ask_origin(leading: &Leading) -> Result<Response<ResponseBody>, Unasked> {
    let Source::Proxy(source) = &leading.route.source else {
        return Err(Unasked::Refused(Refusal::NotFound));
    };
    let Leading { connection, route, head, target, stale } = leading;
    let headers = head.headers.clone();
    let mut outgoing = forward::outgoing(connection, route, source, head, headers, target)
        .map_err(Unasked::Refused)?;
    match stale {
        Some(stale) => {
            policy::make_conditional(stale.object.headers(), &mut outgoing.head.headers);
        }
        None => forward::remove_conditions(&mut outgoing.head.headers),
    }
    let (request, choice) = outgoing.with(RequestBody::Empty);
    source.group.send(connection.worker.index, request, choice).await.map_err(Unasked::Failed)
}

fn failed(leading: &Leading, flight: Lead, error: OriginError) -> Led {
    match leading.stale.as_ref().filter(|stale| stale.on_error) {
        Some(stale) => {
            flight.release(Arc::clone(&stale.object));
            Led::Stale(Arc::clone(&stale.object))
        }
        None => {
            flight.fail(Failure::new(error.status(), error.to_string()));
            Led::Failed(error)
        }
    }
}

/// RFC 5861 §4 names these.
fn is_server_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

/// A 304 for what we asked to be validated (RFC 9111 §4.3.4).
fn validated(
    leading: &Leading,
    flight: Lead,
    stale: &Stale,
    response: &Response<ResponseBody>,
    times: Times,
) -> Led {
    let exchange = times.exchange(leading, response);
    match policy::freshen(&stale.object, &exchange, &rules(&leading.route)) {
        Ok(freshened) => {
            // One that the 304 forbids to store any longer is used for this answer only.
            Led::Fresh(flight.refreshed(&stale.object, freshened))
        }
        Err(mismatch) => {
            // The next request asks without conditions.
            let cache = &leading.connection.worker.shared.cache;
            cache.purge(&stale.object.key().borrow(), PurgeMode::Remove);
            tracing::warn!(
                site = leading.route.site.name,
                path = leading.target.path,
                cause = %mismatch,
                "the origin confirmed a response that it was not asked about"
            );
            flight.fail(Failure::new(StatusCode::BAD_GATEWAY, mismatch.to_string()));
            Led::Refused(Refusal::Source(StatusCode::BAD_GATEWAY, "validation"))
        }
    }
}

/// Stores the response if it may be stored; the client and all that follow read along.
async fn store(
    leading: &Leading,
    flight: Lead,
    mut response: Response<ResponseBody>,
    times: Times,
    answer: oneshot::Sender<Led>,
) {
    let exchange = times.exchange(leading, &response);
    let mut head = match policy::admit(&exchange, &rules(&leading.route)) {
        Ok(head) => head,
        Err(why) => {
            flight.pass(times.response_time_ms);
            let _ = answer.send(Led::Pass(response, Some(why.as_str())));
            return;
        }
    };
    let declared_length = hyper::body::Body::size_hint(response.body()).exact();
    weir_http::forward::append_via(&mut head.headers, response.version());
    let status = head.status;
    reply::storable(status, &mut head.headers);
    match flight.start(head, declared_length) {
        Started::Pass => {
            let _ = answer.send(Led::Pass(response, Some("too-large")));
        }
        Started::Fill { writer, reader } => {
            let _ = answer.send(Led::Fill(reader, status));
            pump(leading, writer, response.body_mut()).await;
        }
    }
}

/// Moves the body from the origin into the fill.
async fn pump(leading: &Leading, mut writer: FillWriter, body: &mut ResponseBody) {
    let mut trailers: Option<HeaderMap> = None;
    loop {
        match body.frame().await {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if let Err(error) = writer.write(data).await {
                        return report(leading, &error.to_string());
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            Some(Err(error)) => {
                let cause = error.to_string();
                writer.fail(cause.clone());
                return report(leading, &cause);
            }
        }
    }
    if let Err(error) = writer.finish(trailers) {
        report(leading, &error.to_string());
    }
}

fn report(leading: &Leading, cause: &str) {
    static INCOMPLETE: Seldom = Seldom::new();
    let Some(unsaid) = INCOMPLETE.may_warn() else { return };
    tracing::warn!(
        site = leading.route.site.name,
        route = leading.route.metrics.route,
        path = leading.target.path,
        cause,
        unsaid,
        "an origin's response is not complete and was not stored"
    );
}

fn rules(route: &Route) -> Rules {
    let ms = |span: Option<std::time::Duration>| span.map(|span| span.as_millis() as u64);
    Rules {
        ttl_ms: ms(route.cache.ttl),
        default_ttl_ms: ms(route.cache.default_ttl),
        stale_while_revalidate_ms: ms(route.cache.stale_while_revalidate),
        stale_if_error_ms: ms(route.cache.stale_if_error),
    }
}
