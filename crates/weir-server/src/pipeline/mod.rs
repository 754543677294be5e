//! The life of a request, top to bottom: route, admit, cache, source, reply. Each stage is a module
//! with one entry function; this file is the order in which they run.
//!
//! A hit is answered without leaving [`serve`]: no task, no timer, no allocation beyond what the
//! response's head needs. Everything that may wait is in the future that [`serve`] returns. Plain
//! hits take the same stages by a shorter way: [`fast`].

mod admit;
mod client_body;
pub(crate) mod fast;
mod files;
mod fixed;
mod forward;
mod lead;
mod look_up;
mod proxy;
mod refuse;
mod reply;
mod route;
mod select;
mod tunnel;
mod unread;
mod whole;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::request::Parts;
use http::{Response, Version};
use hyper::body::{Body, Incoming};

use crate::body::ReplyBody;
use crate::connection::{Connection, Reply};
use crate::live::{Route, Source};
use crate::metrics::CacheResult;
use crate::record::Record;
use crate::shared::{coarse_unix_ms, unix_ms};
pub(crate) use forward::Introduction;
use look_up::Found;
pub(crate) use look_up::{key_authority, scopes};
use refuse::Refusal;
use reply::Answer;

/// A request on its way, after its route is known.
pub(crate) struct Ask {
    record: Record,
    route: Arc<Route>,
    head: Parts,
    /// Taken by whoever sends it on.
    body: Option<Incoming>,
    /// What was asked for, in the forms the stages need.
    target: Target,
    now: SystemTime,
}

/// The request's target.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Host as the client wrote it; empty in HTTP/1.0 without one.
    authority: String,
    /// Host in its one form, for keys.
    host: String,
    /// Path in its one form, for routing and keys.
    path: String,
    /// Path and query for an origin.
    forward: String,
    /// The request's content is one that GET and HEAD give no meaning to.
    undefined_content: bool,
}

/// Answers one request. Without `body` it has no content and comes by the fast lane.
pub(crate) fn serve(
    connection: &Arc<Connection>,
    mut head: Parts,
    body: Option<Incoming>,
) -> Reply {
    let mut record = Record::start(connection, Instant::now());
    let version = head.version;
    let live = connection.worker.shared.live.load();

    // Route.
    let routed = match route::route(&live, connection, &head) {
        Ok(routed) => routed,
        Err(route::Unrouted { refusal, site }) => {
            if let Some(site) = site.or_else(|| live.nobody(connection.listener)) {
                record.set_site(site, &head.method, &head.uri, version, &head.headers);
            }
            let response = refuse::refuse(refusal, record, &head, body.as_ref());
            return unread::reply(response, version, body);
        }
    };
    let route = Arc::clone(routed.route);
    record.set_route(&route, &head.method, &head.uri, head.version, &head.headers);
    if body.is_none() {
        route.metrics.count_fast(connection.worker.index);
    }

    // Admit.
    if let Err(refusal) = admit::admit(&route, &head.method, routed.framing) {
        let response = refuse::refuse(refusal, record, &head, body.as_ref());
        return unread::reply(response, version, body);
    }

    // Cache.
    let now_ms = coarse_unix_ms();
    let missed = match look_up::look_up(connection, &routed, &head, now_ms) {
        Found::Fresh(object) => {
            let selects = routed.notes.selects;
            if routed.notes.closes && version < Version::HTTP_2 {
                connection.socket.set_last();
            }
            let response = reply::from_cache(record, &route, &mut head, selects, object, now_ms);
            return unread::reply(response, version, body);
        }
        Found::Missed(missed) => missed,
    };

    // Source.
    let target = routed.into_target(&head.uri);
    let mut ask = Ask { record, route, head, body, target, now: SystemTime::now() };
    if let Source::Proxy(_) = &ask.route.source {
        return Reply::Later(Box::pin(proxy::answer(ask, missed)));
    }
    let unread = ask.body.take_if(|body| unread::is_open(version, body));
    match (&ask.route.source, unread) {
        (Source::Files(_), None) => Reply::Later(Box::pin(files::answer(ask, missed))),
        (Source::Files(_), Some(body)) => Reply::Later(Box::pin(async {
            unread::read(body).await;
            files::answer(ask, missed).await
        })),
        (_, body) => unread::reply(fixed::answer(ask), version, body),
    }
}

impl Ask {
    fn connection(&self) -> &Arc<Connection> {
        self.record.connection()
    }

    fn now_ms(&self) -> u64 {
        unix_ms(self.now)
    }

    /// Ends the request with an error response.
    fn refuse(mut self, refusal: Refusal, cache: CacheResult) -> Response<ReplyBody> {
        self.record.cache = cache;
        refuse::refuse(refusal, self.record, &self.head, self.body.as_ref())
    }

    fn has_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_end_stream())
    }

    /// Ends the request with a source's response.
    fn finish(self, answer: Answer) -> Response<ReplyBody> {
        reply::from_source(self.record, &self.route, &self.head, answer)
    }
}
