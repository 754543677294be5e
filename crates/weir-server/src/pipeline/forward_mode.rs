//! Between stages 2 and 3, where the route is a forward proxy: may this client use it, and may it
//! go where it wants to? Addresses are judged later, when the origin is connected to.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::header;
use http::request::Parts;
use weir_http::Malformed;
use weir_http::host::{self, Host};
use weir_http::path;
use weir_origin::egress::{Denied, is_disguised_number};
use weir_origin::error::{ErrorKind, OriginError};

use super::Target;
use super::refuse::{Barred, Refusal};
use super::route::{self, Routed};
use crate::connection::Connection;
use crate::live::{Asking, ForwardProxy, Origin, ProxySource, Route, Toward, Word};
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
        // What the tunnel was admitted for, and nothing else.
        let is_it = |host: &Host<'_>| {
            host.name == inspected.name && host.port_or_default(true) == inspected.port
        };
        return match host.is_some_and(is_it) {
            true => Ok(Some(Arc::clone(inspected))),
            false => Err(Refusal::Misdirected),
        };
    }
    let Some((scheme, host)) = head.uri.scheme_str().zip(host) else {
        return Err(Refusal::Barred(Barred::NotWhole));
    };
    origin_at(scheme == "https", host).map(Some)
}

/// The same for a host that is named otherwise.
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

/// Judges a request on its way to an origin, and counts it.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn judge(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
) -> Result<(), Refusal> {
    if let Some(proxy) = routed.route.source.forward_proxy() {
        connection.worker.shared.metrics.forward.requests.fetch_add(1, Relaxed);
        judge_client(connection, proxy, head)?;
    }
    judge_destination(routed)
}

/// Judges one that plugins may have changed, or sent on from the route `before`.
///
/// # Errors
/// As [`judge`].
pub(super) fn judge_again(
    connection: &Connection,
    before: &Arc<Route>,
    routed: &Routed<'_>,
    head: &Parts,
) -> Result<(), Refusal> {
    if !Arc::ptr_eq(before, routed.route)
        && let Some(proxy) = routed.route.source.forward_proxy()
    {
        judge_client(connection, proxy, head)?;
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
/// As [`judge`].
pub(super) fn judge_tunnel(
    connection: &Connection,
    route: &Route,
    to: &Origin,
    head: &Parts,
) -> Result<(), Refusal> {
    connection.worker.shared.metrics.forward.requests.fetch_add(1, Relaxed);
    let Some(proxy) = route.source.forward_proxy() else { return Ok(()) };
    judge_client(connection, proxy, head)?;
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
    head: &Parts,
) -> Result<(), Refusal> {
    if connection.inspected.is_some() {
        // That was settled with the tunnel.
        return Ok(());
    }
    let client = connection.client.map(|client| client.ip());
    if !proxy.is_for(client) {
        return Err(Refusal::Barred(Barred::Client));
    }
    let Some(users) = &proxy.users else { return Ok(()) };
    let field = head.headers.get(header::PROXY_AUTHORIZATION);
    Err(Refusal::Barred(match users.judge(field, client) {
        Word::Right => return Ok(()),
        Word::Wrong => Barred::Password,
        Word::TooMany => Barred::Guesses,
    }))
}

/// What is to be verified before a request can be judged.
pub(super) fn asking(connection: &Connection, head: &Parts) -> Option<Asking> {
    if connection.inspected.is_some() {
        return None;
    }
    let field = head.headers.get(header::PROXY_AUTHORIZATION)?;
    let live = connection.worker.shared.live.load();
    let host = host::parse(head.uri.authority()?.as_str().as_bytes()).ok()?;
    let site = route::site(&live, connection, &host.name).ok()?;
    let path = path::normalise(match head.uri.path() {
        "" => "/",
        path => path,
    });
    let proxy = site.routes.find(path.ok()?.as_str())?.source.forward_proxy()?;
    let client = connection.client.map(|client| client.ip());
    let users = proxy.users.as_ref().filter(|_| proxy.is_for(client))?;
    users.asking(field, client)
}

/// A head without what only the proxy may know.
pub(super) fn without_credentials(mut head: Parts, route: &Route) -> Parts {
    if route.source.forward_proxy().is_some() {
        head.headers.remove(header::PROXY_AUTHORIZATION);
    }
    head
}

/// What is answered where no connection can be had.
pub(super) fn refusal(error: &OriginError) -> Refusal {
    match error.source().and_then(|cause| cause.downcast_ref::<Denied>()) {
        Some(denied) => Refusal::Barred(Barred::Origin(*denied)),
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
