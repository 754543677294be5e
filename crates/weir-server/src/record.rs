//! The account of one request: started with its head, completed when its body ends or is dropped.
//! One set of counters and, where a log is configured, one line.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use weir_guard::{ClassId, ClassRef};
use weir_http::head::PlainGet;

use crate::access_log::{Entry, Remembered};
use crate::connection::Connection;
use crate::guard::Decided;
use crate::live::{Route, SiteInfo};
use crate::metrics::CacheResult;
use crate::pipeline::Passage;
use crate::seldom::Seldom;

/// The account of one request.
pub(crate) struct Record {
    connection: Arc<Connection>,
    route: Option<Arc<Route>>,
    started: Instant,
    /// The client asks for the head alone, whatever plugins make of its request.
    is_head: bool,
    /// What the log's line needs, where there is one.
    line: Option<Box<Line>>,
    pub(crate) status: u16,
    pub(crate) cache: CacheResult,
    pub(crate) body_bytes: u64,
    /// The body was handed over to its end.
    pub(crate) complete: bool,
    torn: bool,
    /// The client speaks HTTP/1.0, where a body without length ends with the connection.
    ends_with_connection: bool,
    /// Its way through the route's plugins.
    passage: Option<Arc<Passage>>,
    /// What overload control has decided about it; holds its places.
    decided: Option<Decided>,
    /// Why it was not its turn at the upstream.
    pub(crate) shed: Option<&'static str>,
    /// What the client showed to be let use a forward proxy; nobody else is to see it.
    credentials: Option<Box<HeaderValue>>,
    /// The body is such a one: should it be cut for whatever reason, the connection is reset.
    is_unbounded: bool,
}

/// What is kept of a request for the log.
struct Line {
    /// The request's, as long as it has no route.
    site: Arc<SiteInfo>,
    client: Option<IpAddr>,
    remembered: Remembered,
}

impl Record {
    /// Begins the account.
    pub(crate) fn start(connection: &Arc<Connection>, started: Instant, is_head: bool) -> Record {
        connection.socket.request_started();
        Record {
            connection: Arc::clone(connection),
            route: None,
            started,
            is_head,
            line: None,
            status: 0,
            cache: CacheResult::None,
            body_bytes: 0,
            complete: false,
            torn: false,
            ends_with_connection: false,
            passage: None,
            decided: None,
            shed: None,
            credentials: None,
            is_unbounded: false,
        }
    }

    /// The route is known.
    pub(crate) fn set_route(
        &mut self,
        route: &Arc<Route>,
        method: &Method,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
    ) {
        self.ends_with_connection = version < Version::HTTP_11;
        self.remember(&route.site, headers, || Remembered::of(method, uri, version, headers));
        self.route = Some(Arc::clone(route));
    }

    /// The same for a plain request of HTTP/1.1.
    pub(crate) fn set_plain_route(&mut self, route: &Arc<Route>, request: &PlainGet<'_>) {
        self.remember(&route.site, &request.forwarding, || Remembered::of_plain(request));
        self.route = Some(Arc::clone(route));
    }

    /// The site is known, and that it has no route for the request.
    pub(crate) fn set_site(
        &mut self,
        site: Arc<SiteInfo>,
        method: &Method,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
    ) {
        self.remember(&site, headers, || Remembered::of(method, uri, version, headers));
    }

    /// Remembers what the line needs, if the site keeps a log. `headers` may name the client.
    #[inline]
    fn remember(
        &mut self,
        site: &Arc<SiteInfo>,
        headers: &HeaderMap,
        remembered: impl FnOnce() -> Remembered,
    ) {
        if site.log.is_some() {
            let (site, client) = (Arc::clone(site), self.connection.client_of(headers));
            self.line = Some(Box::new(Line { site, client, remembered: remembered() }));
        }
    }

    /// When the request's head was there.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Whether the client asks for the head alone.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// The route, if there is one.
    pub(crate) fn route(&self) -> Option<&Arc<Route>> {
        self.route.as_ref()
    }

    /// Plugins have sent the request to another route.
    pub(crate) fn change_route(&mut self, route: &Arc<Route>) {
        self.route = Some(Arc::clone(route));
    }

    /// Takes over what the client showed to be let use a forward proxy.
    pub(crate) fn set_credentials(&mut self, credentials: HeaderValue) {
        self.credentials = Some(Box::new(credentials));
    }

    /// What the client showed to be let use a forward proxy, if it was taken over.
    pub(crate) fn credentials(&self) -> Option<&HeaderValue> {
        self.credentials.as_deref()
    }

    /// The request has plugins, which end with it.
    pub(crate) fn set_passage(&mut self, passage: Arc<Passage>) {
        self.passage = Some(passage);
    }

    /// Its way through plugins, if it has some.
    pub(crate) fn passage(&self) -> Option<&Passage> {
        self.passage.as_deref()
    }

    /// Overload control has decided.
    pub(crate) fn set_decided(&mut self, decided: Decided) {
        self.decided = Some(decided);
    }

    /// Has overload control decide further.
    pub(crate) fn take_decided(&mut self) -> Option<Decided> {
        self.decided.take()
    }

    /// Who goes first.
    pub(crate) fn class(&self) -> ClassId {
        let default = || self.connection.worker.shared.guard.rules().classes().default();
        self.decided.as_ref().map_or_else(default, Decided::class)
    }

    /// The same, also for whoever has other classes.
    pub(crate) fn class_ref(&self) -> ClassRef {
        let default = || {
            let rules = self.connection.worker.shared.guard.rules();
            rules.classes().refer(rules.classes().default())
        };
        self.decided.as_ref().map_or_else(default, Decided::class_ref)
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// A body without length begins.
    pub(crate) fn begin_unbounded(&mut self) {
        self.is_unbounded = self.ends_with_connection;
        if self.is_unbounded {
            self.connection.socket.reset_on_close(true);
        }
    }

    /// The body was handed over to its end, unless it was torn.
    pub(crate) fn end(&mut self) {
        self.complete = !self.torn;
        if self.complete && self.is_unbounded {
            self.connection.socket.reset_on_close(false);
        }
    }

    /// The body failed on the server's side.
    pub(crate) fn torn(&mut self, error: &(dyn Error + Send + Sync)) {
        self.torn = true;
        static TORN: Seldom = Seldom::new();
        let Some(unsaid) = TORN.may_warn() else { return };
        let (site, route) = self.names();
        tracing::warn!(site, route, cause = %error, unsaid, "response body torn");
    }

    fn names(&self) -> (&str, &str) {
        self.route.as_ref().map_or(("", ""), |r| (r.site.name.as_str(), r.metrics.route.as_str()))
    }

    fn log(&self, Line { site, client, remembered }: &Line) {
        let site = self.route.as_ref().map_or(site, |route| &route.site);
        let Some(log) = &site.log else { return };
        let bytes = |value| Option::map(Option::as_ref(value), http::HeaderValue::as_bytes);
        let rules = self.connection.worker.shared.guard.rules();
        let decided = self.decided.as_ref().filter(|_| !rules.is_empty());
        let refusal = decided.and_then(|decided| decided.0.refusal());
        log.record(
            self.connection.worker.index,
            &Entry {
                at: remembered.at,
                client: *client,
                site: &site.name,
                route: self.names().1,
                line: Some((&remembered.method, &remembered.uri, remembered.version)),
                host: bytes(&remembered.host),
                referer: bytes(&remembered.referer),
                user_agent: bytes(&remembered.user_agent),
                status: self.status,
                body_bytes: self.body_bytes,
                cache: self.cache.as_str(),
                took: self.started.elapsed(),
                complete: self.complete,
                class: decided.and_then(|decided| rules.classes().name(decided.class())),
                refused: self.refused(),
                rule: refusal.and_then(|refused| rules.name(refused.rule)),
                dry_run: decided
                    .and_then(|decided| decided.0.dry_run())
                    .and_then(|rule| rules.name(rule)),
            },
        );
    }

    /// Why overload control has refused the request, if it has.
    fn refused(&self) -> Option<&'static str> {
        let refused = self.decided.as_ref().and_then(|decided| decided.0.refusal());
        refused.map_or(self.shed, |refused| Some(refused.reason.as_str()))
    }
}

/// Logs a request that hyper refused, since its head could not be read: who sent it and what the
/// answer was is all that is known.
pub(crate) fn log_unread(connection: &Connection, status: u16) {
    let live = connection.worker.shared.live.load();
    let Some(site) = live.nobody(connection.listener) else { return };
    let Some(log) = &site.log else { return };
    log.record(
        connection.worker.index,
        &Entry {
            at: SystemTime::now(),
            client: connection.client.map(|address| address.ip()),
            site: &site.name,
            route: "",
            line: None,
            host: None,
            referer: None,
            user_agent: None,
            status,
            body_bytes: 0,
            cache: CacheResult::None.as_str(),
            took: Duration::ZERO,
            complete: true,
            class: None,
            refused: None,
            rule: None,
            dry_run: None,
        },
    );
}

impl Drop for Record {
    fn drop(&mut self) {
        self.connection.socket.request_finished();
        let worker = &self.connection.worker;
        let metrics = match &self.route {
            Some(route) => &route.metrics,
            None => &worker.shared.metrics.unrouted,
        };
        // A client that left before there was a status: nginx's 499.
        let status = if self.status == 0 { 499 } else { self.status };
        let took = self.started.elapsed();
        metrics.count(worker.index, status, self.cache, self.body_bytes, took);
        if let Some(passage) = self.passage.as_ref().filter(|_| self.complete) {
            passage.end(status, took);
        }
        if let Some(line) = &self.line {
            self.log(line);
        }
    }
}
