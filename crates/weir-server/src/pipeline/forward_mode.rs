//! Between stages 2 and 3, where the route is a forward proxy: may this client use it, and may it
//! go where it wants to? Addresses are judged later, when the origin is connected to.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header::{self, HeaderValue};
use http::request::Parts;
use weir_http::Malformed;
use weir_http::host::Host;
use weir_origin::egress::{Denied, is_disguised_number};
use weir_origin::error::{ErrorKind, OriginError};
use weir_origin::names::Unknown;

use super::Target;
use super::refuse::{Barred, Refusal, Turned};
use super::route::Routed;
use crate::connection::Connection;
use crate::live::{Asking, ForwardProxy, Origin, ProxySource, Route, Toward, Word};
use crate::record::Record;
use crate::upstream::Upstream;

/// The origin that a request names, on a route that is a forward proxy; `None` on others.
///
/// # Errors
/// The refusal to answer with: it names none, or one that might be understood in two ways.
pub(super) fn origin(
    inspected: Option<&Arc<Origin>>,
    route: &Route,
    head: &Parts,
    host: Option<&Host<'_>>,
) -> Result<Option<Arc<Origin>>, Refusal> {
    if route.source.forward_proxy().is_none() {
        return Ok(None);
    }
    if let Some(inspected) = inspected {
        return stays_inside(inspected, host).map(|()| Some(Arc::clone(inspected)));
    }
    let Some((scheme, host)) = head.uri.scheme_str().zip(host) else {
        return Err(Refusal::Barred(Barred::NotWhole));
    };
    origin_at(scheme == "https", host).map(Some)
}

/// Whether a request inside of a tunnel is for the host that this was admitted for: it may be for
/// nothing else.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn stays_inside(inspected: &Origin, host: Option<&Host<'_>>) -> Result<(), Refusal> {
    let is_it = |host: &Host<'_>| {
        host.name == inspected.name && host.port_or_default(inspected.tls) == inspected.port
    };
    match host.is_some_and(is_it) {
        true => Ok(()),
        false => Err(Refusal::Misdirected),
    }
}

/// The origin of a host that is named otherwise.
///
/// # Errors
/// As [`origin`].
pub(super) fn origin_at(tls: bool, host: &Host<'_>) -> Result<Arc<Origin>, Refusal> {
    if is_disguised_number(&host.name) {
        return Err(Malformed::Host.into());
    }
    let (name, port) = (host.name.clone().into_owned(), host.port_or_default(tls));
    Ok(Arc::new(Origin { tls, name, port }))
}

/// Why a request does not go on.
pub(super) enum Halt {
    Refused(Refusal),
    /// It does when this is known.
    Unknown(Asking),
}

/// Judges a request on its way to an origin, and counts it. `word` is what verifying its
/// credentials came to, if that was to be done.
///
/// # Errors
/// The refusal to answer with, or what is to be verified first.
pub(super) fn let_in(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
    word: Option<Word>,
) -> Result<(), Halt> {
    let Some(proxy) = routed.route.source.forward_proxy() else { return Ok(()) };
    let asking = || asking(connection, routed.route, head);
    if let Some(asking) = word.is_none().then(asking).flatten() {
        return Err(Halt::Unknown(asking));
    }
    connection.worker.shared.metrics.forward.requests.fetch_add(1, Relaxed);
    let credentials = head.headers.get(header::PROXY_AUTHORIZATION);
    judge_client(connection, proxy, credentials, word)
        .and_then(|()| judge_destination(routed))
        .map_err(Halt::Refused)
}

/// Judges one that plugins may have changed, or sent on from the route `before`, and that came with
/// these credentials.
///
/// # Errors
/// The refusal to answer with.
pub(super) async fn judge_again(
    connection: &Connection,
    before: &Arc<Route>,
    routed: &Routed<'_>,
    credentials: Option<&HeaderValue>,
) -> Result<(), Refusal> {
    if !Arc::ptr_eq(before, routed.route)
        && let Some(proxy) = routed.route.source.forward_proxy()
    {
        let word = match asking_with(connection, routed.route, credentials) {
            Some(asking) => Some(asking.wait().await),
            None => None,
        };
        judge_client(connection, proxy, credentials, word)?;
    }
    judge_destination(routed)
}

fn judge_destination(routed: &Routed<'_>) -> Result<(), Refusal> {
    let Some(origin) = &routed.origin else { return Ok(()) };
    let Some(proxy) = routed.route.source.forward_proxy() else { return Ok(()) };
    proxy.judge(origin).map_err(|denied| Refusal::Barred(Barred::Origin(denied)))
}

/// Judges a tunnel, and counts it.
///
/// # Errors
/// As [`judge_again`].
pub(super) fn judge_tunnel(
    connection: &Connection,
    route: &Route,
    to: &Origin,
    head: &Parts,
    word: Option<Word>,
) -> Result<(), Refusal> {
    connection.worker.shared.metrics.forward.requests.fetch_add(1, Relaxed);
    let Some(proxy) = route.source.forward_proxy() else { return Ok(()) };
    judge_client(connection, proxy, head.headers.get(header::PROXY_AUTHORIZATION), word)?;
    let denied = |denied| Refusal::Barred(Barred::Origin(denied));
    proxy.judge_tunnel(to).map_err(denied)?;
    match proxy.settings.inspect.as_ref().is_some_and(|hosts| hosts.is_for(&to.name)) {
        // What is inside are requests.
        true => proxy.judge(to).map_err(denied),
        false => Ok(()),
    }
}

fn judge_client(
    connection: &Connection,
    proxy: &ForwardProxy,
    credentials: Option<&HeaderValue>,
    word: Option<Word>,
) -> Result<(), Refusal> {
    let client = connection.client.map(|client| client.ip());
    if !proxy.is_for(client) {
        return Err(Refusal::Barred(Barred::Client));
    }
    let Some(users) = &proxy.users else { return Ok(()) };
    let credentials = shown(connection, credentials);
    Err(Refusal::Barred(match word.unwrap_or_else(|| users.judge(credentials, client)) {
        Word::Right => return Ok(()),
        // Inside of a tunnel a challenge would be the origin's.
        Word::Wrong if connection.inspected.is_some() => Barred::Client,
        Word::Wrong => Barred::Password,
        Word::TooMany => Barred::Guesses,
        Word::Busy => Barred::Busy,
    }))
}

/// What is to be verified before a request, or a tunnel, can be judged.
pub(super) fn asking(connection: &Connection, route: &Route, head: &Parts) -> Option<Asking> {
    asking_with(connection, route, head.headers.get(header::PROXY_AUTHORIZATION))
}

fn asking_with(
    connection: &Connection,
    route: &Route,
    credentials: Option<&HeaderValue>,
) -> Option<Asking> {
    let proxy = route.source.forward_proxy()?;
    let client = connection.client.map(|client| client.ip());
    let users = proxy.users.as_ref().filter(|_| proxy.is_for(client))?;
    users.asking(shown(connection, credentials)?, client)
}

/// What tells whose a request is: its own credentials, or inside of a tunnel, whose routes may have
/// other users than the one that let it in, those that this was opened with.
fn shown<'a>(
    connection: &'a Connection,
    credentials: Option<&'a HeaderValue>,
) -> Option<&'a HeaderValue> {
    match &connection.inspected {
        None => credentials,
        Some(_) => connection.shown.as_ref(),
    }
}

/// A head without what only a proxy may know, whichever route it is for.
pub(super) fn without_credentials(mut head: Parts, record: &mut Record) -> Parts {
    if let Some(credentials) = head.headers.remove(header::PROXY_AUTHORIZATION) {
        record.set_credentials(credentials);
    }
    head
}

/// What is answered where no connection can be had.
pub(super) fn refusal(error: &OriginError) -> Refusal {
    let cause = error.source();
    if let Some(Unknown::TooMany) = cause.and_then(|cause| cause.downcast_ref()) {
        return Refusal::Barred(Barred::Lookups);
    }
    match cause.and_then(|cause| cause.downcast_ref::<Denied>()) {
        Some(denied) => Refusal::Barred(Barred::Origin(*denied)),
        None if error.kind() == ErrorKind::Overloaded => Refusal::Turned(Turned::UPSTREAM),
        None if error.kind() == ErrorKind::Tls => {
            Refusal::Source(error.status(), "TLS failed, or the certificate is not to be trusted")
        }
        None => Refusal::Source(error.status(), error.kind().as_str()),
    }
}

/// Who is asked for `target`.
///
/// # Errors
/// If no TLS can be spoken to the origin that it names.
pub(super) fn upstream(
    source: &ProxySource,
    target: &Target,
) -> Result<Arc<Upstream>, OriginError> {
    match (&target.upstream, &source.toward, &target.origin) {
        (Some(chosen), _, _) => Ok(Arc::clone(chosen)),
        (None, Toward::Group(upstream), _) => Ok(Arc::clone(upstream)),
        (None, Toward::Asked(proxy), Some(origin)) => proxy.upstream(origin),
        // `Routed::new` has found it, or refused the request.
        (None, Toward::Asked(_), None) => {
            Err(OriginError::new(ErrorKind::Request, "forward", "the request names no origin"))
        }
    }
}
