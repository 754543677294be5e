//! Stage 4, first half: the key of a request, and what the cache has under it.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Method, StatusCode};
use weir_cache::policy::StaleBecause;
use weir_cache::{KeyRef, Lookup, Mark, Object, PurgeMode, RequestDirectives, Stale};
use weir_http::cache_status::Forward;
use weir_http::host::Host;
use weir_origin::files::Accepted;

use super::Target;
use super::route::Routed;
use crate::adapt::ImageQuery;
use crate::connection::Connection;
use crate::live::{FilesSource, Origin, Route, Source};

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
    /// A recent response could not be stored: do not wait for each other.
    pub(super) pass: bool,
    /// What this passes under: the first answer that can be stored is.
    pub(super) mark: Option<Mark>,
    pub(super) directives: RequestDirectives,
    pub(super) accepted: Accepted,
}

impl Missed {
    /// Plugins want the cache left alone.
    pub(super) fn passed() -> Missed {
        Missed::bypass(Forward::Bypass)
    }

    /// Plugins want a stored response validated.
    pub(super) fn outdated(
        routed: &Routed<'_>,
        connection: &Connection,
        object: Arc<Object>,
    ) -> Missed {
        let accepted = Accepted::default();
        let scope = scope(routed.route, connection.tls, accepted) ^ routed.variant;
        let because = StaleBecause::Request;
        let stale = Stale { object, because, while_revalidating: false, on_error: true };
        // Nobody on the way to the source may take what is stored for an answer.
        let directives = RequestDirectives { no_cache: true, ..RequestDirectives::default() };
        let (scope, stale, forward) = (Some(scope), Some(stale), Forward::Request);
        Missed { scope, stale, directives, pass: false, ..Missed::bypass(forward) }
    }

    fn bypass(forward: Forward) -> Missed {
        Missed {
            scope: None,
            stale: None,
            forward,
            pass: true,
            mark: None,
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
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Found::Missed(Missed::bypass(Forward::Method));
    }
    match &routed.route.source {
        Source::Files(files) => look_up_file(connection, routed, head, files, now_ms),
        Source::Proxy(_) => look_up_response(connection, routed, head, now_ms),
        Source::Redirect { .. } | Source::Respond { .. } => {
            Found::Missed(Missed::bypass(Forward::Bypass))
        }
    }
}

/// A file is stored under the codings that its request accepted only if precompressed siblings make
/// a difference; most files have none, and their requests need not be asked.
fn look_up_file(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
    files: &FilesSource,
    now_ms: u64,
) -> Found {
    let route = routed.route;
    if !route.cache.enabled {
        let accepted = accepted(files, head);
        return Found::Missed(Missed { accepted, ..Missed::bypass(Forward::Bypass) });
    }
    let cache = &connection.worker.shared.cache;
    let asked = routed.asked(&head.uri);
    let path_and_query = asked.path_and_query(route);
    let find = |accepted| {
        let key = asked.key(connection, route, accepted, &path_and_query);
        // A file's stamp knows better than any wish of the request.
        let found = cache.lookup(&key, &head.headers, &RequestDirectives::default(), now_ms);
        match found {
            Lookup::Fresh(object) if !is_current(&object) => {
                cache.purge(&key, PurgeMode::Remove);
                Lookup::Miss
            }
            found => found,
        }
    };
    let plain = find(Accepted::default());
    if let Lookup::Fresh(object) = &plain
        && !object.headers().contains_key(header::VARY)
    {
        return Found::Fresh(Arc::clone(object));
    }
    let accepted = accepted(files, head);
    let found = if accepted == Accepted::default() { plain } else { find(accepted) };
    let pass = match found {
        Lookup::Fresh(object) => return Found::Fresh(object),
        Lookup::Pass(_) => true,
        Lookup::Stale(_) | Lookup::VaryMiss | Lookup::Miss => false,
    };
    Found::Missed(Missed {
        scope: Some(scope(route, connection.tls, accepted) ^ routed.variant),
        stale: None,
        forward: Forward::UriMiss,
        pass,
        mark: None,
        directives: RequestDirectives::default(),
        accepted,
    })
}

/// What a request asks for, as keys need it.
pub(super) struct Asked<'a> {
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    /// As in [`Target`].
    pub(super) variant: u64,
}

impl<'a> Asked<'a> {
    /// A file is the same whatever is asked about it.
    fn path_and_query(&self, route: &Route) -> Cow<'a, str> {
        let query = self.query.filter(|_| !matches!(route.source, Source::Files(_)));
        match query.and_then(|query| route.own_query(query)) {
            None => Cow::Borrowed(self.path),
            Some(query) => Cow::Owned(format!("{}?{query}", self.path)),
        }
    }

    fn key<'k>(
        &self,
        connection: &Connection,
        route: &Route,
        accepted: Accepted,
        path_and_query: &'k str,
    ) -> KeyRef<'k>
    where
        'a: 'k,
    {
        let scope = scope(route, connection.tls, accepted) ^ self.variant;
        KeyRef { scope, authority: key_authority(route, self.host), path_and_query }
    }
}

impl Route {
    /// What of a query is the source's business, and tells what is stored apart.
    pub(crate) fn own_query<'q>(&self, query: &'q str) -> Option<Cow<'q, str>> {
        match self.image_query() {
            None => Some(Cow::Borrowed(query)),
            Some(images) => images.strip(query),
        }
    }

    /// What queries may ask of its pictures.
    pub(super) fn image_query(&self) -> Option<&ImageQuery> {
        self.offers.as_ref()?.image_query.as_deref()
    }
}

/// A stored response that is the answer to a GET whatever other fields the request has.
pub(super) fn plain_hit(
    connection: &Connection,
    route: &Route,
    asked: &Asked<'_>,
    now_ms: u64,
    is_final: impl FnOnce(&Object) -> bool,
) -> Option<Arc<Object>> {
    if !route.cache.enabled {
        return None;
    }
    let cache = &connection.worker.shared.cache;
    let path_and_query = asked.path_and_query(route);
    let key = asked.key(connection, route, Accepted::default(), &path_and_query);
    let is_usable = |object: &Object| is_plain(object) && is_current(object) && is_final(object);
    cache.fresh(&key, &HeaderMap::new(), now_ms, is_usable)
}

/// Whether a stored response is the same for every plain request.
fn is_plain(object: &Object) -> bool {
    object.status() == StatusCode::OK && !object.headers().contains_key(header::VARY)
}

/// Whether a stored file is still what the disk has; an origin's response has a lifetime instead.
fn is_current(object: &Object) -> bool {
    object.stamp().is_none_or(|stamp| stamp.is_current())
}

fn accepted(files: &FilesSource, head: &Parts) -> Accepted {
    match files.precompressed {
        true => Accepted::of_request(&head.headers),
        false => Accepted::default(),
    }
}

fn look_up_response(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &Parts,
    now_ms: u64,
) -> Found {
    let route = routed.route;
    if !route.cache.enabled || routed.notes.upgrades {
        return Found::Missed(Missed::bypass(Forward::Bypass));
    }
    let directives = match routed.notes.directs {
        true => RequestDirectives::of(&head.headers),
        false => RequestDirectives::default(),
    };
    let asked = routed.asked(&head.uri);
    let path_and_query = asked.path_and_query(route);
    let key = asked.key(connection, route, Accepted::default(), &path_and_query);
    let scope = key.scope;
    let found = connection.worker.shared.cache.lookup(&key, &head.headers, &directives, now_ms);
    let missed = |stale, forward, mark: Option<Mark>| {
        let (scope, pass, accepted) = (Some(scope), mark.is_some(), Accepted::default());
        Found::Missed(Missed { scope, stale, forward, pass, mark, directives, accepted })
    };
    match found {
        Lookup::Fresh(object) => Found::Fresh(object),
        Lookup::Stale(stale) => {
            let forward = match stale.because {
                StaleBecause::Expired => Forward::Stale,
                StaleBecause::Request => Forward::Request,
            };
            missed(Some(stale), forward, None)
        }
        Lookup::VaryMiss => missed(None, Forward::VaryMiss, None),
        Lookup::Miss => missed(None, Forward::UriMiss, None),
        Lookup::Pass(mark) => missed(None, Forward::UriMiss, Some(mark)),
    }
}

/// A route's partition for one scheme and one set of acceptable codings.
pub(crate) fn scope(route: &Route, tls: bool, accepted: Accepted) -> u64 {
    let scope = route.scope & !TLS_SCOPE;
    let tells = match &route.source {
        Source::Files(_) => false,
        // Their keys have the origin's scheme.
        Source::Proxy(proxy) if proxy.forward_proxy().is_some() => false,
        _ => tls,
    };
    let scope = if tells { scope | TLS_SCOPE } else { scope };
    scope ^ accepted.fingerprint()
}

/// The scope of a response that depends on nothing but scheme and route.
pub(crate) fn plain_scope(route: &Route, tls: bool) -> u64 {
    scope(route, tls, Accepted::default())
}

/// Whether the part of a route's cache that plugins have chosen is there, or room for it.
pub(super) fn admit(connection: &Connection, route: &Route, variant: u64, now_ms: u64) -> bool {
    let (is_admitted, leaving) = route.variants.admit(variant, now_ms);
    if let Some(leaving) = leaving {
        let (cache, scopes) = (connection.worker.shared.cache.clone(), own_scopes(route));
        drop(tokio::task::spawn_blocking(move || leaving.purge(&cache, &scopes)));
    }
    is_admitted
}

/// The scopes of a URL's responses in one part of the route's cache.
fn own_scopes(route: &Route) -> Vec<u64> {
    let codings = match &route.source {
        Source::Files(files) if files.precompressed => Accepted::all(),
        _ => vec![Accepted::default()],
    };
    let both = |accepted| [false, true].map(|tls| scope(route, tls, accepted));
    codings.into_iter().flat_map(both).collect()
}

/// Every scope that a URL's responses may lie in, for purging.
pub(crate) fn scopes(route: &Route) -> impl Iterator<Item = u64> + '_ {
    let plain = own_scopes(route);
    let variants = route.variants.all();
    variants
        .into_iter()
        .flat_map(move |variant| plain.iter().map(|scope| scope ^ variant).collect::<Vec<_>>())
}

/// The authority part of a request's key. A file is the same under every name of its site and by
/// both schemes: it is stored once, and no client can fill the cache by making up names.
pub(crate) fn key_authority<'a>(route: &Route, host: &'a str) -> &'a str {
    match route.source {
        Source::Files(_) => "",
        _ => host,
    }
}

/// Whatever a host that a URL names may be called in keys of the route; to a forward proxy it is
/// another origin by each scheme.
pub(crate) fn key_hosts(route: &Route, host: &Host<'_>) -> Vec<String> {
    if route.source.forward_proxy().is_none() {
        return vec![host.name.clone().into_owned()];
    }
    let key = |tls| {
        let name = host.name.clone().into_owned();
        Origin { tls, name, port: host.port_or_default(tls) }.key()
    };
    vec![key(false), key(true)]
}

/// The path-and-query part of a request's key.
pub(super) fn key_path(route: &Route, target: &Target, query: Option<&str>) -> String {
    let (host, path) = (&target.host, &target.path);
    Asked { host, path, query, variant: target.variant }.path_and_query(route).into_owned()
}
