//! A route's ICAP service: requests are shown to it before plugins, cache and source, and what an
//! origin answers before plugins and before it is stored. What it changes is checked like what a
//! client, or an origin, sends.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Response, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use weir_config::OnFailure;
use weir_icap::{Content as Body, Failed, IcapError, Modified, Shown};
use weir_origin::upstream::{RequestBody, ResponseBody};
use weir_plugin::Answer;

use super::adapt::OF_CONTENT;
use super::client_body::Verdict;
use super::content::Content;
use super::fill::{Answered, AtFill, Filled};
use super::gather;
use super::plugins;
use super::refuse::{self, Refusal};
use crate::adapt::tag_of;
use crate::body::{BodyError, ReplyBody};
use crate::body_budget::Charge;
use crate::connection::Connection;
use crate::icap::{Icap, Outcome, Watched};
use crate::live::{Route, Source};
use crate::seldom::Seldom;

/// Largest answer that a service may have a client get instead of asking anybody: such are pages
/// that say why not.
const ANSWER_BYTES_MAX: usize = 1 << 20;

const CLIENT_IP: HeaderName = HeaderName::from_static("x-client-ip");

/// The service that a route's requests are shown to.
#[inline]
pub(super) fn of_requests(route: &Route) -> Option<&Arc<Icap>> {
    route.icap.as_ref().filter(|icap| icap.requests.is_some())
}

/// Whether a route's responses are shown to somebody: he is to see the whole.
pub(super) fn sees_responses(route: &Route) -> bool {
    route.icap.as_ref().is_some_and(|icap| icap.responses.is_some())
}

/// Shows a request to a service, and goes on with what that makes of it.
pub(super) async fn answer(icap: Arc<Icap>, mut asked: plugins::Asked) -> Response<ReplyBody> {
    let Some(watched) = &icap.requests else { return plugins::answer(asked).await };
    let began = Instant::now();
    let (content, verdict) = match content(&mut asked).await {
        Ok(content) => content,
        Err(refusal) => return refused(asked, refusal),
    };
    let uri = absolute(&asked.head.uri, &asked.authority, asked.connection.tls);
    let extra = client(&icap, &asked.connection, &asked.head.headers);
    let shown = Shown {
        method: &asked.head.method,
        uri: &uri,
        headers: &asked.head.headers,
        response: None,
        extra: &extra,
    };
    // A connection to the service is held for whoever sends content.
    verdict.set_held_for(true);
    let modified = watched.service.modify(asked.connection.worker.index, shown, content).await;
    let (outcome, modified) = settle(&icap, modified);
    watched.count(outcome, began.elapsed());
    match modified {
        Ok(Modified::Unchanged(content)) => {
            verdict.set_held_for(false);
            asked.body = Some(Content::Seen(Mutex::new(content), verdict));
            plugins::answer(asked).await
        }
        Ok(Modified::Request(head, content)) => match change(&mut asked, head, content.is_some()) {
            Ok(()) => {
                asked.body = content.map(|content| Content::Seen(Mutex::new(content), verdict));
                plugins::answer(asked).await
            }
            Err(what) => refused(asked, bad(what)),
        },
        Ok(Modified::Response(head, content)) => match whole(head, content).await {
            Ok(answer) => plugins::answered(asked.record, &asked.head, None, answer),
            Err(what) => refused(asked, bad(what)),
        },
        Err(_) if verdict.is_too_large() => refused(asked, Refusal::BodyTooLarge),
        Err(_) if verdict.is_too_slow() => {
            asked.record.shed = Some("slow-body");
            refused(asked, Refusal::BodyTooSlow)
        }
        Err(IcapError::Content(_)) => refused(asked, BROKEN_OFF),
        Err(error) => refused(asked, unanswered(&error)),
    }
}

const BROKEN_OFF: Refusal = Refusal::Source(StatusCode::BAD_REQUEST, "the content broke off");

/// The request's content for a service, when as much of it is there as is gathered before somebody
/// is asked, and what tells whether Weir ended it.
async fn content(asked: &mut plugins::Asked) -> Result<(Option<Body>, Verdict), Refusal> {
    let Some(content) = asked.body.take_if(|body| !body.is_end_stream()) else {
        return Ok((None, Verdict::default()));
    };
    let (content, verdict) = content.into_unsent(&asked.connection.socket, &asked.route);
    let Some(plan) = gather::Plan::of(&asked.head, asked.route.body_buffer) else {
        return Ok((Some(content.into_body().boxed_unsync()), verdict));
    };
    match gather::gather(&asked.connection, content, &plan).await {
        Ok((body, charge)) => Ok((Some(Counted { body, _charge: charge }.boxed_unsync()), verdict)),
        Err(_) if verdict.is_too_large() => Err(Refusal::BodyTooLarge),
        Err(_) => Err(BROKEN_OFF),
    }
}

/// Content in memory that is counted for as long as it is there.
struct Counted {
    body: RequestBody,
    _charge: Option<Charge>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A route's service that is shown what an origin has answered.
pub(super) struct ServiceAtFill<'a> {
    icap: &'a Icap,
    watched: &'a Watched,
    asked: &'a Answered<'a>,
}

/// The route's service, if it has one that is shown responses.
pub(super) fn at_fill<'a>(asked: &'a Answered<'a>) -> Option<ServiceAtFill<'a>> {
    let icap = asked.route.icap.as_deref()?;
    let watched = icap.responses.as_ref()?;
    // Files are the operator's own.
    let is_origins = matches!(asked.route.source, Source::Proxy(_));
    is_origins.then_some(ServiceAtFill { icap, watched, asked })
}

impl AtFill for ServiceAtFill<'_> {
    async fn fill(&self, filled: Filled) -> Filled {
        let ServiceAtFill { icap, watched, asked } = *self;
        let status = filled.response.status();
        // What has no content says nothing that was not shown before, or will be.
        let has_nothing = asked.head.method == Method::HEAD
            || status == StatusCode::NOT_MODIFIED
            || status.is_informational();
        if has_nothing {
            return filled;
        }
        let (mut parts, body) = filled.response.into_parts();
        let uri = absolute(&asked.head.uri, asked.authority, asked.connection.tls);
        let extra = client(icap, asked.connection, &asked.head.headers);
        let shown = Shown {
            method: &asked.head.method,
            uri: &uri,
            headers: &asked.head.headers,
            response: Some((parts.status, &parts.headers)),
            extra: &extra,
        };
        let body = body.map_err(Into::into).boxed_unsync();
        let (began, worker) = (Instant::now(), asked.connection.worker.index);
        let modified = watched.service.modify(worker, shown, Some(body)).await;
        let (outcome, modified) = settle(icap, modified);
        let outcome = match outcome {
            // Another response is none in a request's place.
            Outcome::Answered => Outcome::Changed,
            outcome => outcome,
        };
        watched.count(outcome, began.elapsed());
        let content = match modified {
            Ok(Modified::Unchanged(content)) => content,
            Ok(Modified::Response(changed, content)) => {
                let origins = std::mem::replace(&mut parts.headers, changed.headers);
                tell_apart(&origins, &mut parts.headers);
                parts.status = changed.status;
                content.unwrap_or_else(nothing)
            }
            Ok(Modified::Request(..)) => {
                return instead(icap, &bad("a request in a response's place"));
            }
            Err(error) => return instead(icap, &unanswered(&error)),
        };
        Filled { response: Response::from_parts(parts, ResponseBody::made(content)), ..filled }
    }
}

/// Another content than the origin's has another tag, no date that might be the origin's, and no
/// digests of that, whatever its service has left there.
fn tell_apart(origins: &HeaderMap, headers: &mut HeaderMap) {
    let of_bytes = OF_CONTENT.into_iter().filter(|name| *name != header::CONTENT_ENCODING);
    for name in of_bytes.chain([header::LAST_MODIFIED, header::ETAG]) {
        if origins.get(&name) != headers.get(&name) {
            continue;
        }
        let left = headers.remove(&name).filter(|_| name == header::ETAG);
        if let Some(tag) = left.and_then(|tag| tag_of(&tag, "icap")) {
            headers.insert(name, tag);
        }
    }
}

/// What goes on in place of a response that a service could not judge. It is not stored.
fn instead(icap: &Icap, refusal: &Refusal) -> Filled {
    let (status, what) = match refusal {
        Refusal::Source(status, what) => (*status, *what),
        _ => (StatusCode::BAD_GATEWAY, "the ICAP service failed"),
    };
    let text = format!("{status}: {what} ({})\n", icap.config.name);
    let body = http_body_util::Full::new(text.into()).map_err(|never| match never {});
    let mut response = Response::new(ResponseBody::made(body.boxed_unsync()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Filled { marred_by: Some("icap"), ..Filled::as_it_is(response) }
}

/// What to count, and what goes on. A message whose service failed goes on as it was, if the
/// operator wants that and nothing of it is lost.
fn settle(
    icap: &Icap,
    modified: Result<Modified, Failed>,
) -> (Outcome, Result<Modified, IcapError>) {
    let Failed { error, content } = match modified {
        Ok(modified) => {
            let outcome = match &modified {
                Modified::Unchanged(_) => Outcome::Unchanged,
                Modified::Request(..) => Outcome::Changed,
                Modified::Response(..) => Outcome::Answered,
            };
            return (outcome, Ok(modified));
        }
        Err(failed) => failed,
    };
    warn(icap, &error);
    // Content that broke off is nobody's to pass on as if it were whole.
    let is_broken = matches!(error, IcapError::Content(_));
    match content {
        Some(content) if icap.config.on_failure == OnFailure::Pass && !is_broken => {
            (Outcome::Passed, Ok(Modified::Unchanged(content)))
        }
        _ => (Outcome::Failed, Err(error)),
    }
}

fn warn(icap: &Icap, error: &IcapError) {
    static FAILED: Seldom = Seldom::new();
    if matches!(error, IcapError::Content(_)) {
        return;
    }
    if let Some(unsaid) = FAILED.may_warn() {
        let (service, cause) = (&icap.config.name, error.to_string());
        tracing::warn!(service, cause, unsaid, "an ICAP service has no answer");
    }
}

fn unanswered(error: &IcapError) -> Refusal {
    let status = match error {
        IcapError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        IcapError::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    Refusal::Source(status, "the ICAP service has no answer")
}

fn bad(what: &'static str) -> Refusal {
    Refusal::Source(StatusCode::BAD_GATEWAY, what)
}

fn refused(asked: plugins::Asked, refusal: Refusal) -> Response<ReplyBody> {
    refuse::refuse(refusal, asked.record, &asked.head, None)
}

/// Takes over a request that a service has put in the place of another. Which site and route it is
/// of stays as it is.
fn change(
    asked: &mut plugins::Asked,
    mut changed: Parts,
    has_content: bool,
) -> Result<(), &'static str> {
    let target = changed.uri.path_and_query().cloned();
    let mut uri = asked.head.uri.clone().into_parts();
    uri.path_and_query = target.or(Some(PathAndQuery::from_static("/")));
    asked.head.uri = Uri::from_parts(uri).map_err(|_| "a target that cannot be asked for")?;
    if let Some(host) = asked.head.headers.get(header::HOST) {
        changed.headers.insert(header::HOST, host.clone());
    }
    asked.head.method = changed.method;
    asked.head.headers = changed.headers;
    if has_content {
        plugins::declare_content(&mut asked.head, None);
    }
    Ok(())
}

/// A service's answer to a request, all of it.
async fn whole(head: http::response::Parts, content: Option<Body>) -> Result<Answer, &'static str> {
    let mut body = BytesMut::new();
    let mut content = content.unwrap_or_else(nothing);
    while let Some(frame) = content.frame().await {
        let frame = frame.map_err(|_| "the ICAP service's answer broke off")?;
        let Ok(piece) = frame.into_data() else { continue };
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err("the ICAP service's answer is too large");
        }
        body.extend_from_slice(&piece);
    }
    let body = body.freeze();
    Ok(Answer { status: head.status, headers: head.headers, body, ..Answer::default() })
}

/// The target with scheme and host, so that a service knows whose it is.
fn absolute<'a>(uri: &'a Uri, authority: &str, is_tls: bool) -> Cow<'a, Uri> {
    if uri.authority().is_some() {
        return Cow::Borrowed(uri);
    }
    let mut parts = uri.clone().into_parts();
    parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Authority::try_from(authority).ok();
    // `*`, or a request without a host.
    Uri::from_parts(parts).map_or(Cow::Borrowed(uri), Cow::Owned)
}

/// Fields that tell a service who asks, if it may know.
fn client(
    icap: &Icap,
    connection: &Connection,
    headers: &HeaderMap,
) -> Vec<(HeaderName, HeaderValue)> {
    let address: Option<IpAddr> = match icap.config.client_address {
        true => connection.client_of(headers),
        false => None,
    };
    let value = address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
    value.map(|value| (CLIENT_IP, value)).into_iter().collect()
}

fn nothing() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}
