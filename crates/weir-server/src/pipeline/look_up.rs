//! Stage 4, first half: the key of a request, and what the cache has under it.

use http::Method;
use http::request::Parts;
use weir_cache::{KeyRef, Lookup, Object, PurgeMode, RequestDirectives, Stale};
use weir_http::cache_status::Forward;
use weir_origin::files::Accepted;

use super::Target;
use super::route::Routed;
use crate::connection::Connection;
use crate::live::{Route, Source};
use std::sync::Arc;

/// Tells the two schemes' keys apart: an origin may redirect one to the other.
const TLS_SCOPE: u64 = 1 << 63;

/// What the cache has for a request.
pub(super) enum Found {
    /// A response that may be sent as it is.
    Fresh(Arc<Object>),
    /// Nothing to send without asking the source.
    Missed(Missed),
}

/// A request that the cache could not answer.
pub(super) struct Missed {
    /// The scope of the request's key; `None` if neither this request nor its response concerns
    /// the cache.
    pub(super) scope: Option<u64>,
    /// A stored response that needs validation.
    pub(super) stale: Option<Stale>,
    /// Why the source is asked, as Cache-Status says it.
    pub(super) forward: Forward,
    /// Recent responses could not be stored: do not wait for each other.
    pub(super) pass: bool,
    pub(super) directives: RequestDirectives,
    pub(super) accepted: Accepted,
}

impl Missed {
    fn bypass(forward: Forward) -> Missed {
        Missed {
            scope: None,
            stale: None,
            forward,
            pass: true,
            directives: RequestDirectives::default(),
            accepted: Accepted::default(),
        }
    }
}

/// Looks a request up.
pub(super) fn look_up(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
    now_ms: u64,
) -> Found {
    let route = routed.route;
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Found::Missed(Missed::bypass(Forward::Method));
    }
    let (accepted, directives) = match &route.source {
        Source::Files(files) => {
            let accepted = match files.precompressed {
                true => Accepted::of_request(&head.headers),
                false => Accepted::default(),
            };
            // A file's stamp knows better than any wish of the request.
            (accepted, RequestDirectives::default())
        }
        Source::Proxy(_) => (Accepted::default(), RequestDirectives::of(&head.headers)),
        Source::Redirect { .. } | Source::Respond { .. } => {
            return Found::Missed(Missed::bypass(Forward::Bypass));
        }
    };
    let bypasses = !route.cache.enabled || head.headers.contains_key(http::header::UPGRADE);
    if bypasses {
        return Found::Missed(Missed { accepted, ..Missed::bypass(Forward::Bypass) });
    }
    let scope = scope(route, connection.tls, accepted);
    let query = head.uri.query().filter(|_| !matches!(route.source, Source::Files(_)));
    let with_query;
    let path_and_query = match query {
        None => routed.path.as_str(),
        Some(query) => {
            with_query = format!("{}?{query}", routed.path.as_str());
            &with_query
        }
    };
    let key = KeyRef { scope, authority: routed.host_name(), path_and_query };
    let cache = &connection.worker.shared.cache;
    let found = cache.lookup(&key, &head.headers, &directives, now_ms);
    let missed = |stale, forward, pass| {
        Found::Missed(Missed { scope: Some(scope), stale, forward, pass, directives, accepted })
    };
    match found {
        Lookup::Fresh(object) => {
            if object.stamp().is_none_or(|stamp| stamp.is_current()) {
                return Found::Fresh(object);
            }
            cache.purge(&key, PurgeMode::Remove);
            missed(None, Forward::Stale, false)
        }
        Lookup::Stale(stale) => {
            let forward = match stale.because {
                weir_cache::policy::StaleBecause::Expired => Forward::Stale,
                weir_cache::policy::StaleBecause::Request => Forward::Request,
            };
            missed(Some(stale), forward, false)
        }
        Lookup::VaryMiss => missed(None, Forward::VaryMiss, false),
        Lookup::Miss => missed(None, Forward::UriMiss, false),
        Lookup::Pass => missed(None, Forward::UriMiss, true),
    }
}

/// A route's partition for one scheme and one set of acceptable codings.
pub(crate) fn scope(route: &Route, tls: bool, accepted: Accepted) -> u64 {
    let scope = route.scope & !TLS_SCOPE;
    let scope = if tls { scope | TLS_SCOPE } else { scope };
    scope ^ accepted.fingerprint()
}

/// Every scope that a URL's responses may lie in, for purging.
pub(crate) fn scopes(route: &Route) -> impl Iterator<Item = u64> + '_ {
    let codings = match &route.source {
        Source::Files(files) if files.precompressed => Accepted::all(),
        _ => vec![Accepted::default()],
    };
    let both = |accepted| [false, true].map(|tls| scope(route, tls, accepted));
    codings.into_iter().flat_map(both)
}

/// The path-and-query part of a request's key.
pub(super) fn key_path(route: &Route, target: &Target, query: Option<&str>) -> String {
    match query.filter(|_| !matches!(route.source, Source::Files(_))) {
        None => target.path.clone(),
        Some(query) => format!("{}?{query}", target.path),
    }
}
