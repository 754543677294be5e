//! What the server does for plugins: calls to upstreams, stored content by URL, facts about itself.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::BodyExt;
use weir_cache::policy::{self, Exchange, Rules};
use weir_cache::{Key, KeyRef, Lookup, Object, PurgeMode, RequestDirectives};
use weir_http::host::Host;
use weir_http::{host, path};
use weir_origin::upstream::{Choice, Extra, HostPolicy, RequestBody};
use weir_plugin::{CallBody, Calling, ContentError, Injection, Services, StoredResponse, Value};

use crate::live::{Live, Route, Source};
use crate::pipeline::{key_authority, key_hosts, scopes};
use crate::shared::{Shared, coarse_unix_ms};

/// The server, for plugins. It is made before the server is.
pub(crate) struct ServerServices(OnceLock<Weak<Shared>>);

impl ServerServices {
    pub(crate) fn new() -> Arc<ServerServices> {
        Arc::new(ServerServices(OnceLock::new()))
    }

    /// The server is there.
    pub(crate) fn serve(&self, shared: &Arc<Shared>) {
        // Once, by the server's start.
        let _ = self.0.set(Arc::downgrade(shared));
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        self.0.get()?.upgrade()
    }
}

impl Services for ServerServices {
    fn has_upstream(&self, name: &str) -> bool {
        self.shared().is_some_and(|shared| shared.live.load().groups.contains_key(name))
    }

    fn call(&self, worker: usize, upstream: &str, mut request: Request<CallBody>) -> Calling {
        let known = self.shared().and_then(|s| s.live.load().groups.get(upstream).cloned());
        let Some(upstream) = known else {
            let why = format!("no upstream is called {upstream:?}");
            return Box::pin(async move { Err(why) });
        };
        let host = match request.headers().contains_key(HOST) {
            true => HostPolicy::Keep,
            false => HostPolicy::Server,
        };
        *request.version_mut() = Version::HTTP_11;
        let choice = Choice { client: None, host, extra: Extra::default() };
        let request = request.map(RequestBody::boxed);
        Box::pin(async move {
            let response = upstream.group.send(worker, request, choice).await;
            let response = response.map_err(|cause| cause.to_string())?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }

    fn stored(&self, url: &str) -> Result<Option<StoredResponse>, ContentError> {
        let Some(shared) = self.shared() else { return Ok(None) };
        let wanted = Wanted::new(url)?;
        let live = shared.live.load();
        let now_ms = coarse_unix_ms();
        for route in wanted.routes(&live)? {
            for key in wanted.keys(&route) {
                let none = RequestDirectives::default();
                let found = shared.cache.lookup(&key.borrow(), &HeaderMap::new(), &none, now_ms);
                let object = match found {
                    Lookup::Fresh(object) => object,
                    Lookup::Stale(stale) => stale.object,
                    _ => continue,
                };
                return Ok(Some(describe(&object, now_ms)));
            }
        }
        Ok(None)
    }

    fn inject(&self, url: &str, response: Injection) -> Result<(), ContentError> {
        let Some(shared) = self.shared() else { return Ok(()) };
        let wanted = Wanted::new(url)?;
        let live = shared.live.load();
        let routes = wanted.routes(&live)?;
        let route = routes.iter().find(|route| matches!(route.source, Source::Proxy(_)));
        let route = route.ok_or_else(|| wanted.error("no route with an origin has this path"))?;
        let not_stored = |why: String| ContentError::NotStored { why };
        let now_ms = coarse_unix_ms();
        let ttl_ms = u64::try_from(response.ttl.as_millis()).unwrap_or(u64::MAX);
        let exchange = Exchange {
            method: &Method::GET,
            request: &HeaderMap::new(),
            status: response.status,
            response: &response.headers,
            request_time_ms: now_ms,
            response_time_ms: now_ms,
        };
        let rules = Rules { ttl_ms: Some(ttl_ms), ..Rules::default() };
        let mut head = policy::admit(&exchange, &rules)
            .map_err(|why| not_stored(format!("cannot be stored: {}", why.as_str())))?;
        crate::pipeline::storable(head.status, &mut head.headers);
        let content = match crate::pipeline::has_no_content(head.status) {
            true => Bytes::new(),
            false => response.body,
        };
        let mut body = shared
            .cache
            .destination(content.len() as u64)
            .map_err(|cause| not_stored(cause.to_string()))?;
        body.write(&content).map_err(|cause| not_stored(cause.to_string()))?;
        let body = body.freeze();
        let key = wanted.key(route, wanted.is_secure);
        shared.cache.insert(&key.borrow(), head, body, None);
        Ok(())
    }

    fn purge(&self, url: &str, soft: bool) -> Result<usize, ContentError> {
        let Some(shared) = self.shared() else { return Ok(0) };
        let wanted = Wanted::new(url)?;
        let live = shared.live.load();
        let mode = match soft {
            true => PurgeMode::Expire { now_ms: coarse_unix_ms() },
            false => PurgeMode::Remove,
        };
        let routes = wanted.routes(&live)?;
        let keys = routes.iter().flat_map(|route| wanted.keys(route));
        Ok(keys.map(|key| shared.cache.purge(&key.borrow(), mode)).sum())
    }

    fn property(&self, path: &[&str]) -> Option<Value> {
        match path {
            ["node", "id"] => Some(Value::from(node_id())),
            ["node", "cluster"] => Some(Value::from("weir")),
            ["node", "version"] => Some(Value::from(env!("CARGO_PKG_VERSION"))),
            _ => None,
        }
    }
}

fn node_id() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn describe(object: &Object, now_ms: u64) -> StoredResponse {
    StoredResponse {
        status: object.status(),
        headers: object.headers().clone(),
        age_ms: object.age_secs(now_ms) * 1000,
        ttl_ms: object.freshness().fresh_until_ms as i64 - now_ms as i64,
        hits: 0,
        body: object.body().slices(0..object.body().len()).collect::<Vec<Bytes>>(),
    }
}

/// Stored content by its URL.
struct Wanted {
    url: String,
    host: Host<'static>,
    path: String,
    query: Option<String>,
    is_secure: bool,
}

impl Wanted {
    fn new(url: &str) -> Result<Wanted, ContentError> {
        let wrong = |why: String| ContentError::Url { url: url.chars().take(200).collect(), why };
        let uri: Uri = url.parse().map_err(|cause| wrong(format!("{cause}")))?;
        let authority = uri.authority().ok_or_else(|| wrong("it names no host".to_owned()))?;
        let host = host::parse(authority.as_str().as_bytes());
        let host = host.map_err(|cause| wrong(cause.to_string()))?;
        let path = path::normalise(uri.path()).map_err(|cause| wrong(cause.to_string()))?;
        Ok(Wanted {
            url: url.to_owned(),
            host: host.into_owned(),
            path: path.as_str().to_owned(),
            query: uri.query().map(str::to_owned),
            is_secure: uri.scheme_str() == Some("https"),
        })
    }

    fn error(&self, why: &str) -> ContentError {
        ContentError::Url { url: self.url.clone(), why: why.to_owned() }
    }

    /// The routes that may answer it; more than one if sites share a name at different listeners.
    fn routes(&self, live: &Live) -> Result<Vec<Arc<Route>>, ContentError> {
        let mut found: Vec<Arc<Route>> = Vec::new();
        for listener in live.listeners.iter().flatten() {
            let Some(site) = listener.hosts.find(&self.host.name) else { continue };
            let Some(route) = site.routes.find(&self.path) else { continue };
            if !found.iter().any(|known| Arc::ptr_eq(known, route)) {
                found.push(Arc::clone(route));
            }
        }
        match found.is_empty() {
            true => Err(self.error("no site has its host and path")),
            false => Ok(found),
        }
    }

    fn path_and_query(&self, route: &Route) -> String {
        match self.query.as_ref().filter(|_| !matches!(route.source, Source::Files(_))) {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }

    fn keys(&self, route: &Route) -> Vec<Key> {
        let path_and_query = self.path_and_query(route);
        let key = |host: &str, scope| {
            let authority = key_authority(route, host);
            KeyRef { scope, authority, path_and_query: &path_and_query }.to_key()
        };
        let hosts = key_hosts(route, &self.host);
        let of_host =
            |host: &String| scopes(route).map(|scope| key(host, scope)).collect::<Vec<_>>();
        hosts.iter().flat_map(of_host).collect()
    }

    fn key(&self, route: &Route, is_secure: bool) -> Key {
        let scope = crate::pipeline::plain_scope(route, is_secure);
        let hosts = key_hosts(route, &self.host);
        // One for each scheme where they differ, that of `https` last.
        let host = if is_secure { hosts.last() } else { hosts.first() };
        let authority = key_authority(route, host.map_or("", String::as_str));
        KeyRef { scope, authority, path_and_query: &self.path_and_query(route) }.to_key()
    }
}
