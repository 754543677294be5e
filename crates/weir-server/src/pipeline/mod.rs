//! The life of a request, top to bottom: route, admit, plugins, cache, source, plugins, reply. Each
//! stage is a module with one entry function; this file is the order in which they run.
//!
//! A hit is answered without leaving [`serve`]: no task, no timer, no allocation beyond what the
//! response's head needs. Everything that may wait is in the future that [`serve`] returns. Plain
//! hits take the same stages by a shorter way: [`fast`].

mod adapt;
mod admit;
mod ads;
mod choices;
mod client_body;
mod coded;
mod connect;
mod content;
pub(crate) mod fast;
mod files;
mod fill;
mod fixed;
mod forward;
mod forward_mode;
mod gather;
mod icap;
mod keep;
mod lead;
mod look_up;
mod made;
mod pace;
mod plugins;
mod prepared;
mod proxy;
mod refuse;
mod relay;
mod reply;
mod route;
mod select;
mod settled;
mod shown;
mod stream_end;
mod streamed;
mod tunnel;
mod unread;
mod whole;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::request::Parts;
use http::{Method, Response, Version};
use hyper::body::Incoming;

use crate::adapt::{Asked, Queried};
use crate::body::ReplyBody;
use crate::connection::{Connection, Reply};
use crate::guard::Decided;
use crate::live::{Asking, Live, Origin, Route, Source, Word};
use crate::metrics::CacheResult;
use crate::record::Record;
use crate::shared::{coarse_unix_ms, unix_ms};
use crate::upstream::Upstream;
use adapt::Fitted;
pub(crate) use adapt::WEIR_ADAPT;
pub(crate) use coded::Coded;
use content::Content;
pub(crate) use forward::Introduction;
use forward_mode::Halt;
use look_up::{Found, Missed};
pub(crate) use look_up::{key_authority, key_hosts, plain_scope, scopes};
pub(crate) use plugins::{Begun, Passage, has_no_content};
use refuse::{METHODS, Refusal};
pub(crate) use relay::End as TunnelEnd;
use reply::Answer;
pub(crate) use reply::storable;
use route::{Routed, Unrouted};
use weir_cache::Object;
use weir_http::forward::{MaxForwards, max_forwards};
use weir_http::request::Notes;

/// A request on its way, after its route is known.
pub(crate) struct Ask {
    record: Record,
    route: Arc<Route>,
    head: Parts,
    /// Taken by whoever sends it on.
    body: Option<Content>,
    /// Its way through the route's plugins, if it has some.
    passage: Option<Arc<Passage>>,
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
    /// The part of the route's cache that plugins have chosen; 0 for the ordinary one.
    variant: u64,
    /// The upstream that plugins have chosen.
    upstream: Option<Arc<Upstream>>,
    /// Where it is that the request names, if the route is a forward proxy.
    origin: Option<Arc<Origin>>,
    /// What plugins have the source asked instead of what was looked up; `authority`, `forward`,
    /// `undefined_content` and `origin` are of this.
    instead: Option<Arc<Instead>>,
}

/// What the source is asked instead of what was looked up.
#[derive(Debug)]
struct Instead {
    head: Parts,
    /// Path in its one form.
    path: String,
}

impl Target {
    /// Changes what the source is asked, and nothing about what it is stored as.
    ///
    /// # Errors
    /// The refusal to answer with: a head that a client's could not be either.
    fn ask_instead(
        &mut self,
        connection: &Connection,
        mut head: Parts,
        route: &Arc<Route>,
    ) -> Result<(), Unrouted> {
        let asked = route::keep(connection.inspected.as_ref(), &head, route)?.into_target(&head);
        self.authority = asked.authority;
        self.forward = asked.forward;
        self.undefined_content = asked.undefined_content;
        self.origin = asked.origin;
        // An upgrade is the client's own.
        head.extensions.clear();
        self.instead = Some(Arc::new(Instead { head, path: asked.path }));
        Ok(())
    }

    /// The path that the source is asked for, in its one form.
    fn source_path(&self) -> &str {
        self.instead.as_ref().map_or(&self.path, |instead| &instead.path)
    }

    /// The head that the source is asked with; `head` is the one that was looked up.
    fn source_head<'a>(&'a self, head: &'a Parts) -> &'a Parts {
        self.instead.as_ref().map_or(head, |instead| &instead.head)
    }
}

/// What the fast path has found out about a request before it gave it up.
#[derive(Default)]
pub(crate) struct Seen {
    decided: Option<Decided>,
    begun: Option<Begun>,
    /// What verifying its credentials has come to.
    word: Option<Word>,
}

/// Answers one request. Without `body` it has no content and comes by the fast lane, whose fast
/// path may have decided about it and shown it to plugins.
pub(crate) fn serve(
    connection: &Arc<Connection>,
    head: Parts,
    body: Option<Incoming>,
    seen: Seen,
) -> Reply {
    let record = Record::start(connection, Instant::now(), head.method == Method::HEAD);
    if head.method == Method::CONNECT {
        // A tunnel has nothing of a request but its admission.
        let live = connection.worker.shared.live.load();
        return connect::answer(connection, &live, head, body, record);
    }
    answer(connection, head, body, record, seen)
}

fn answer(
    connection: &Arc<Connection>,
    head: Parts,
    body: Option<Incoming>,
    mut record: Record,
    seen: Seen,
) -> Reply {
    // Route.
    let live = connection.worker.shared.live.load();
    let routed = match route::route(&live, connection, &head) {
        Ok(routed) => routed,
        Err(unrouted) => return refuse_unrouted(&live, unrouted, record, &head, body),
    };
    let route = Arc::clone(routed.route);
    record.set_route(&route, &head.method, &head.uri, head.version, &head.headers);
    if body.is_none() {
        route.metrics.count_fast(connection.worker.index);
    }

    // Admit.
    let Seen { decided, begun, word } = seen;
    let started = record.started();
    let decided = decided.unwrap_or_else(|| admit::decide(connection, &routed, &head, started));
    let admitted = admit::admit(&route, &head.method, routed.framing, decided, &mut record);
    // A forward proxy is not for everybody, and does not go everywhere.
    let let_in = || forward_mode::let_in(connection, &routed, &head, word);
    match admitted.map_err(Halt::Refused).and_then(|()| let_in()) {
        Ok(()) => {}
        Err(Halt::Refused(refusal)) => return refused(refusal, record, &head, body),
        Err(Halt::Unknown(asking)) => return known_first(asking, head, body, record, begun),
    }

    // What lists of ads block goes no further.
    if let Some(blocked) = ads::judge(connection, &routed, &head) {
        let response = ads::answer(&blocked, record, &route, &head);
        return unread::reply(response, head.version, body);
    }

    // An ICAP service, plugins.
    let chain = route.chain.load();
    let icap = icap::of_requests(&route).cloned();
    if !chain.is_empty() || icap.is_some() {
        let authority = routed.authority.to_owned();
        let (connection, chain) = (Arc::clone(connection), Arc::clone(&chain));
        let body = body.map(Content::Client);
        let head = forward_mode::without_credentials(head, &mut record);
        let asked =
            plugins::Asked { connection, record, route, chain, head, authority, body, begun };
        return Reply::Later(match icap {
            Some(icap) => Box::pin(icap::answer(icap, asked)),
            None => Box::pin(plugins::answer(asked)),
        });
    }

    // Cache.
    let now_ms = coarse_unix_ms();
    match look_up::look_up(connection, &routed, &head, now_ms) {
        Found::Fresh(object) => {
            let stored = Stored::new(object, &routed);
            hit(record, route, head, body.map(Content::Client), stored, now_ms)
        }
        Found::Missed(missed) => {
            let target = routed.into_target(&head);
            let head = forward_mode::without_credentials(head, &mut record);
            let (body, now) = (body.map(Content::Client), SystemTime::now());
            source(Ask { record, route, head, body, passage: None, target, now }, missed)
        }
    }
}

/// Goes on with a request when it is known whose it is.
fn known_first(
    asking: Asking,
    head: Parts,
    body: Option<Incoming>,
    mut record: Record,
    begun: Option<Begun>,
) -> Reply {
    let connection = Arc::clone(record.connection());
    Reply::Later(Box::pin(async move {
        let word = Some(asking.wait().await);
        let seen = Seen { decided: record.take_decided(), begun, word };
        answer(&connection, head, body, record, seen).wait().await
    }))
}

fn refused(refusal: Refusal, record: Record, head: &Parts, body: Option<Incoming>) -> Reply {
    let response = refuse::refuse(refusal, record, head, body.as_ref());
    unread::reply(response, head.version, body)
}

/// Answers a request that no route is for.
fn refuse_unrouted(
    live: &Live,
    Unrouted { mut refusal, site }: Unrouted,
    mut record: Record,
    head: &Parts,
    body: Option<Incoming>,
) -> Reply {
    let listener = record.connection().listener;
    if let Some(site) = site.or_else(|| live.nobody(listener)) {
        let started = record.started();
        let admitted = admit::admit_unrouted(&site, head, started, &mut record);
        refusal = admitted.err().unwrap_or(refusal);
        record.set_site(site, &head.method, &head.uri, head.version, &head.headers);
    }
    refused(refusal, record, head, body)
}

/// Finds and judges the route of a request that the plugins of the one `before` may have changed.
async fn again<'a>(
    live: &'a Live,
    record: &mut Record,
    head: &'a Parts,
    before: &'a Arc<Route>,
    wishes: &plugins::Combined,
) -> Result<Routed<'a>, Refusal> {
    let connection = Arc::clone(record.connection());
    let routed = route::again(live, &connection, head, before, wishes);
    let routed = routed.map_err(|unrouted| unrouted.refusal)?;
    record.change_route(routed.route);
    admit::judge(&routed, head, wishes.verdict.as_deref(), record)?;
    forward_mode::judge_again(&connection, before, &routed, record.credentials()).await?;
    Ok(routed)
}

/// Goes on with a request that the plugins of `route` have let pass, and perhaps changed.
async fn proceed(
    connection: &Arc<Connection>,
    mut record: Record,
    route: Arc<Route>,
    head: Parts,
    body: Option<Content>,
    passage: &Arc<Passage>,
) -> Response<ReplyBody> {
    let live = connection.worker.shared.live.load_full();
    let wishes = &passage.wishes;
    let routed = match again(&live, &mut record, &head, &route, wishes).await {
        Ok(routed) => routed,
        Err(refusal) => {
            let client = body.as_ref().and_then(Content::client);
            return refuse::refuse(refusal, record, &head, client);
        }
    };
    let route = Arc::clone(routed.route);
    let now_ms = coarse_unix_ms();
    let is_admitted = || look_up::admit(connection, &route, routed.variant, now_ms);
    let mut missed = match wishes.pass || !is_admitted() {
        true => Missed::passed(),
        false => match look_up::look_up(connection, &routed, &head, now_ms) {
            Found::Missed(missed) => missed,
            Found::Fresh(object) => match passage.hit(&object, now_ms).await {
                plugins::Word::Answer(answer) => {
                    return plugins::answered(record, &head, body.as_ref(), *answer);
                }
                plugins::Word::Close => return plugins::closed(Some(record)),
                plugins::Word::Validate => Missed::outdated(&routed, connection, object),
                plugins::Word::GoOn if wishes.validate => {
                    Missed::outdated(&routed, connection, object)
                }
                plugins::Word::Pass => Missed::passed(),
                plugins::Word::GoOn => {
                    let stored = Stored::new(object, &routed);
                    drop(routed);
                    return hit(record, route, head, body, stored, now_ms).wait().await;
                }
            },
        },
    };
    let instead = match passage.miss(connection, &head, routed.authority).await {
        plugins::Missing::GoOn(instead) => instead,
        plugins::Missing::Answer(answer) => {
            return plugins::answered(record, &head, body.as_ref(), *answer);
        }
        plugins::Missing::Close => return plugins::closed(Some(record)),
    };
    let mut target = routed.into_target(&head);
    target.upstream = instead.upstream;
    if let Some(changed) = instead.head {
        if changed.method != head.method {
            // What another method is answered is not what this one's answer is stored as.
            missed = Missed::passed();
        }
        if let Err(Unrouted { refusal, .. }) = target.ask_instead(connection, *changed, &route) {
            let client = body.as_ref().and_then(Content::client);
            return refuse::refuse(refusal, record, &head, client);
        }
    }
    let (passage, now) = (Some(Arc::clone(passage)), SystemTime::now());
    source(Ask { record, route, head, body, passage, target, now }, missed).wait().await
}

/// A stored response that answers a request.
struct Stored {
    object: Arc<Object>,
    notes: Notes,
    /// As in [`Target`].
    variant: u64,
    queried: Queried,
}

impl Stored {
    fn new(object: Arc<Object>, routed: &Routed<'_>) -> Stored {
        let Routed { notes, variant, queried, .. } = *routed;
        Stored { object, notes, variant, queried }
    }
}

/// Answers with a stored response, or with what was made of it.
fn hit(
    record: Record,
    route: Arc<Route>,
    head: Parts,
    body: Option<Content>,
    stored: Stored,
    now_ms: u64,
) -> Reply {
    let Stored { object, notes, variant, queried } = stored;

    // Adapt.
    let connection = record.connection();
    let asked = Asked { queried, ..Asked::of(&head) };
    let fitted = adapt::fit(connection, &route, &asked, object, variant, now_ms);
    if fitted.is_awaited() {
        let (connection, since) = (Arc::clone(connection), tokio::time::Instant::now());
        return Reply::Later(Box::pin(async move {
            let fitted = adapt::wait(&connection, &route, fitted, since).await;
            let now_ms = coarse_unix_ms();
            reply_with(record, &route, head, body, notes, &fitted, now_ms).wait().await
        }));
    }
    reply_with(record, &route, head, body, notes, &fitted, now_ms)
}

fn reply_with(
    record: Record,
    route: &Route,
    mut head: Parts,
    body: Option<Content>,
    notes: Notes,
    fitted: &Fitted,
    now_ms: u64,
) -> Reply {
    let (version, found) = (head.version, reply::Found::hit(route, &fitted.original, now_ms));
    if notes.closes && version < Version::HTTP_2 {
        record.connection().socket.set_last();
    }
    let response = match fitted.late() {
        Some(why) => reply::late(record, route, &head, (fitted, why), found),
        None => reply::from_cache(record, route, &mut head, notes.selects, fitted, found),
    };
    unread::reply(response, version, body.and_then(Content::into_client))
}

/// Asks the route's source.
fn source(mut ask: Ask, missed: Missed) -> Reply {
    if let Source::Proxy(_) = &ask.route.source
        && max_forwards(&ask.head.method, &mut ask.head.headers) == MaxForwards::Forward
    {
        return Reply::Later(Box::pin(proxy::answer(ask, missed)));
    }
    let version = ask.head.version;
    let body = ask.body.take().and_then(Content::into_client);
    let unread = body.filter(|body| unread::is_open(version, body));
    match (&ask.route.source, unread) {
        (Source::Files(_), None) => Reply::Later(Box::pin(files::answer(ask, missed))),
        (Source::Files(_), Some(body)) => Reply::Later(Box::pin(async {
            unread::read(body).await;
            files::answer(ask, missed).await
        })),
        // It may travel no further.
        (Source::Proxy(_), body) => unread::reply(files::options(ask, METHODS), version, body),
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
        let client = self.body.as_ref().and_then(Content::client);
        refuse::refuse(refusal, self.record, &self.head, client)
    }

    /// Ends the request with a plugin's own answer.
    fn answered(self, answer: weir_plugin::Answer) -> Response<ReplyBody> {
        plugins::answered(self.record, &self.head, self.body.as_ref(), answer)
    }

    /// Whether its URL is one of `https`.
    fn is_secure(&self) -> bool {
        self.target.origin.as_ref().map_or(self.connection().tls, |origin| origin.tls)
    }

    fn has_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_end_stream())
    }

    /// Ends the request with a source's response.
    fn finish(self, answer: Answer) -> Response<ReplyBody> {
        let part = self.target.variant;
        reply::from_source(self.record, &self.route, &self.head, part, answer)
    }
}
