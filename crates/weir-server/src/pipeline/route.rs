//! Stage 1: is the request well-formed, and which route answers it?

use http::request::Parts;
use http::{Method, Uri};
use weir_http::Malformed;
use weir_http::host::Host;
use weir_http::path::{self, Normalised};
use weir_http::request::{self, Framing, Notes, Valid};

use super::look_up::Asked;
use super::plugins::Combined;
use super::refuse::Refusal;
use super::{Target, forward_mode};
use crate::adapt::Queried;
use crate::connection::Connection;
use crate::live::{Live, Origin, Route, Site, SiteInfo};
use std::borrow::Cow;
use std::sync::Arc;

/// A request's route and target, borrowed from its head and the configuration.
pub(super) struct Routed<'a> {
    pub(super) route: &'a Arc<Route>,
    pub(super) path: Normalised<'a>,
    pub(super) host: Option<Host<'a>>,
    pub(super) authority: &'a str,
    pub(super) framing: Framing,
    pub(super) notes: Notes,
    undefined_content: bool,
    /// As in [`Target`].
    pub(super) variant: u64,
    /// As in [`Target`].
    pub(super) origin: Option<Arc<Origin>>,
    /// The same in the form for keys.
    origin_key: Option<String>,
    /// What its query asks of pictures.
    pub(super) queried: Queried,
}

/// A request without a route.
pub(super) struct Unrouted {
    pub(super) refusal: Refusal,
    /// The site it was meant for, as far as that is known: its log tells of the refusal.
    pub(super) site: Option<Arc<SiteInfo>>,
}

impl<R: Into<Refusal>> From<R> for Unrouted {
    fn from(refusal: R) -> Unrouted {
        Unrouted { refusal: refusal.into(), site: None }
    }
}

/// Finds the route.
///
/// # Errors
/// The refusal to answer with: malformed, unknown host, unknown path.
pub(super) fn route<'a>(
    live: &'a Live,
    connection: &Connection,
    head: &'a Parts,
) -> Result<Routed<'a>, Unrouted> {
    let valid = request::validate(&head.method, &head.uri, head.version, &head.headers)?;
    let name = valid.host.as_ref().map_or("", |host| &host.name);
    let site = site(live, connection, name)?;
    let of_site = |refusal| Unrouted { refusal, site: Some(Arc::clone(&site.info)) };
    if let Some(inspected) = &connection.inspected {
        forward_mode::stays_inside(inspected, valid.host.as_ref()).map_err(of_site)?;
    }
    let path = path_of(head).map_err(|malformed| of_site(malformed.into()))?;
    let found = site.routes.find(path.as_str());
    let route = found.ok_or_else(|| of_site(Refusal::NotFound))?;
    let inspected = connection.inspected.as_ref();
    Routed::new(inspected, route, head, path, valid).map_err(of_site)
}

/// Reads a head whose route is known, wherever it would lead by itself.
///
/// # Errors
/// The refusal to answer with: malformed.
pub(super) fn keep<'a>(
    inspected: Option<&Arc<Origin>>,
    head: &'a Parts,
    route: &'a Arc<Route>,
) -> Result<Routed<'a>, Unrouted> {
    let valid = request::validate(&head.method, &head.uri, head.version, &head.headers)?;
    Ok(Routed::new(inspected, route, head, path_of(head)?, valid)?)
}

fn path_of(head: &Parts) -> Result<Normalised<'_>, Malformed> {
    path::normalise(match head.uri.path() {
        // OPTIONS for the server as a whole; the root's route knows as much as any.
        "*" => "/",
        path => path,
    })
}

/// Finds the route of a request that plugins may have changed: the one it has, unless they want it
/// found anew; on that one, host and path may be any that HTTP allows.
///
/// # Errors
/// As [`route`], or [`keep`].
pub(super) fn again<'a>(
    live: &'a Live,
    connection: &Connection,
    head: &'a Parts,
    before: &'a Arc<Route>,
    wishes: &Combined,
) -> Result<Routed<'a>, Unrouted> {
    let routed = match wishes.reroute {
        true => route(live, connection, head)?,
        false => keep(connection.inspected.as_ref(), head, before)?,
    };
    Ok(Routed { variant: wishes.variant, ..routed })
}

/// The site that has a host's name, at the listener that accepted the connection.
pub(super) fn site<'a>(
    live: &'a Live,
    connection: &Connection,
    name: &str,
) -> Result<&'a Arc<Site>, Refusal> {
    let listener = live.listeners.get(connection.listener).and_then(Option::as_ref);
    // A listener that a reload took away still serves the connections it accepted, if a site can
    // be found for them.
    let listener = listener.ok_or(Refusal::Misdirected)?;
    listener.hosts.find(name).ok_or(Refusal::Misdirected)
}

/// Whether the query of a request with this method may be about a picture.
fn may_ask(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

impl<'a> Routed<'a> {
    fn new(
        inspected: Option<&Arc<Origin>>,
        route: &'a Arc<Route>,
        head: &Parts,
        path: Normalised<'a>,
        valid: Valid<'a>,
    ) -> Result<Routed<'a>, Refusal> {
        let origin = forward_mode::origin(inspected, route, head, valid.host.as_ref())?;
        let queried = match route.image_query().filter(|_| may_ask(&head.method)) {
            Some(query) => query.judge(&head.uri)?,
            None => Queried::Unread,
        };
        Ok(Routed {
            route,
            path,
            authority: valid.authority,
            undefined_content: valid.framing.is_undefined_for(&head.method),
            framing: valid.framing,
            notes: valid.notes,
            host: valid.host,
            variant: 0,
            queried,
            origin_key: origin.as_ref().map(|origin| origin.key()),
            origin,
        })
    }
}

impl Routed<'_> {
    /// The host's name for keys; to a forward proxy, the whole origin.
    pub(super) fn host_name(&self) -> &str {
        if let Some(key) = &self.origin_key {
            return key;
        }
        self.host.as_ref().map_or("", |host| &host.name)
    }

    /// What is asked for, in the form for keys.
    pub(super) fn asked<'r>(&'r self, uri: &'r Uri) -> Asked<'r> {
        let (host, path) = (self.host_name(), self.path.as_str());
        Asked { host, path, query: uri.query(), variant: self.variant }
    }

    /// Lets go of the head.
    pub(super) fn into_target(self, head: &Parts) -> Target {
        let mut forward = self.path.forward().to_owned();
        let own = |query| match may_ask(&head.method) {
            true => self.route.own_query(query),
            false => Some(Cow::Borrowed(query)),
        };
        if let Some(query) = head.uri.query().and_then(own) {
            forward.push('?');
            forward.push_str(&path::encode(&query));
        }
        Target {
            authority: self.authority.to_owned(),
            path: self.path.as_str().to_owned(),
            forward,
            undefined_content: self.undefined_content,
            variant: self.variant,
            upstream: None,
            instead: None,
            origin: self.origin,
            host: match self.origin_key {
                Some(key) => key,
                None => self.host.map_or_else(String::new, |host| Cow::into_owned(host.name)),
            },
        }
    }
}
