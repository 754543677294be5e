//! Stages 3 and 7: a route's plugins see the request before the cache is asked, and the response
//! before it is sent. What they change is checked like what a client sends, and how messages are
//! framed stays Weir's business.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use weir_cache::Object;
use weir_config::{At, OnFailure};
use weir_http::head::Head;
use weir_origin::upstream::{Group, ResponseBody};
use weir_plugin::{
    Answer, AtOnce, CallBody, Content as Shown, Facts, Failure, FailureKind, Glance, Hooks, Lend,
    Passed, RequestHead, ResponseHead, StoredFacts, Stream, Want, Wishes,
};

use super::client_body::ClientBody;
use super::content::Content;
use super::refuse::{self, Refusal};
use super::reply;
use crate::body::{Content as Body, ReplyBody};
use crate::chain::{Chain, Link};
use crate::connection::{Connection, Reply};
use crate::live::Route;
use crate::record::Record;

/// A request's way through its route's plugins.
#[derive(Default)]
pub(crate) struct Passage {
    steps: Vec<Step>,
    /// What the plugins wish about the cache and the source.
    pub(super) wishes: Combined,
}

/// A plugin that the request passed.
struct Step {
    stream: Stream,
    at: At,
}

/// The wishes of all plugins of a request.
#[derive(Clone, Default)]
pub(super) struct Combined {
    /// The part of the route's cache that is for this request; 0 for the ordinary one.
    pub(super) variant: u64,
    /// Neither look up nor store.
    pub(super) pass: bool,
    /// A stored response must be validated first.
    pub(super) validate: bool,
    /// Whom to ask instead of the route's own upstream.
    pub(super) upstream: Option<Arc<Group>>,
    /// The route is found anew.
    pub(super) reroute: bool,
}

/// A request for the plugins.
pub(super) struct Asked {
    pub(super) connection: Arc<Connection>,
    pub(super) record: Record,
    pub(super) route: Arc<Route>,
    pub(super) chain: Arc<Chain>,
    pub(super) head: Parts,
    /// Host and port as the client wrote them.
    pub(super) authority: String,
    pub(super) body: Option<Incoming>,
    /// What the fast path has begun.
    pub(super) begun: Option<Begun>,
}

/// What plugins make of a head that is about to be stored.
pub(super) struct Stored {
    pub(super) head: ResponseHead,
    /// Freshness lifetime, if they have one of their own.
    pub(super) lifetime_ms: Option<u64>,
}

/// What plugins say to what the cache has.
pub(super) enum Word {
    GoOn,
    /// The stored response must be validated first.
    Validate,
    /// The cache is left alone.
    Pass,
    Answer(Answer),
    /// The client is to be gone.
    Close,
}

impl Word {
    fn of(stream: &Stream, wishes: Result<Wishes, Failure>) -> Word {
        let generation = stream.generation();
        match wishes {
            Ok(Wishes { answer: Some(answer), .. }) => Word::Answer(answer),
            Ok(wishes) if wishes.close => Word::Close,
            Ok(wishes) if wishes.cache.pass => Word::Pass,
            Ok(wishes) if wishes.cache.validate => Word::Validate,
            Ok(_) => Word::GoOn,
            Err(failure) if generation.on_failure() == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                Word::GoOn
            }
            Err(failure) => Word::Answer(failed(&failure)),
        }
    }
}

/// How the plugins ended a request.
enum End {
    Answered(Answer),
    Closed,
    /// The request's content broke off before they had judged it.
    Torn,
    Failed(Failure),
}

/// Answers a request of a route with plugins.
pub(super) async fn answer(asked: Asked) -> Response<ReplyBody> {
    let Asked { connection, mut record, route, chain, mut head, authority, body, begun } = asked;
    let mut content = body.map(Content::Client);
    let Begun { mut passage, next, pending } = begun.unwrap_or_default();
    let started = record.started();
    let mut request =
        Request { head: &mut head, authority, content: &mut content, started, is_torn: false };
    let resumed = match pending {
        Some(pending) => passage.resume(&connection, pending, &mut request).await,
        None => Ok(()),
    };
    let passed = match resumed {
        Ok(()) => passage.request(&connection, &route, &chain.links[next..], &mut request).await,
        end => end,
    };
    let passage = Arc::new(passage);
    record.set_passage(Arc::clone(&passage));
    let (method, version) = (head.method.clone(), head.version);
    let response = match passed {
        Ok(()) => super::proceed(&connection, record, route, head, content, &passage).await,
        Err(End::Answered(answer)) => answered(record, &head, content.as_ref(), answer),
        Err(End::Closed) => closed(record, &head),
        Err(End::Torn) => {
            let is_too_large = content.as_ref().is_some_and(Content::is_too_large);
            let refusal = match is_too_large {
                true => Refusal::BodyTooLarge,
                false => Refusal::Source(StatusCode::BAD_REQUEST, "the content broke off"),
            };
            refuse::refuse(refusal, record, &head, None)
        }
        Err(End::Failed(failure)) => {
            let client = content.as_ref().and_then(Content::client);
            refuse::refuse(refusal(&failure), record, &head, client)
        }
    };
    passage.response(response, &method, version).await
}

/// What the fast path has begun.
#[derive(Default)]
pub(crate) struct Begun {
    passage: Passage,
    /// The first plugin of the chain that has not seen the request.
    next: usize,
    /// The one before it, if it did not let the request pass at once and as it was.
    pending: Option<Pending>,
}

enum Pending {
    Seen(Step, Pin<Box<dyn Future<Output = Passed<RequestHead>> + Send>>),
    Failed(Failure),
}

/// Shows a plain request to the plugins of its route, as far as that goes without waiting and
/// without a change.
pub(super) fn begin(
    connection: &Arc<Connection>,
    route: &Route,
    chain: &Chain,
    started: Instant,
    head: &dyn Fn() -> Arc<dyn Lend<RequestHead>>,
) -> Begun {
    let mut begun = Begun::default();
    let bag = (chain.links.len() > 1).then(Arc::default);
    let worker = connection.worker.index;
    let mut shown: Option<Arc<dyn Lend<RequestHead>>> = None;
    for (index, link) in chain.links.iter().enumerate() {
        begun.next = index;
        let Some(generation) = link.only().filter(|only| !only.hooks().looks_up()) else { break };
        let about = connection.about(&route.facts, link.at);
        let facts = Facts { about, started, bag: bag.clone() };
        let mut show = || Arc::clone(shown.get_or_insert_with(head));
        let (stream, passed) = match Glance::at(generation, worker, &facts, &mut show) {
            Glance::Passed => {
                begun.next = index + 1;
                continue;
            }
            Glance::More(stream, passed) => (stream, passed),
            Glance::Failed(failure) => {
                begun.fail(index, generation.on_failure(), failure);
                if begun.pending.is_some() {
                    break;
                }
                continue;
            }
            Glance::Not => match Stream::open_now(generation, worker, &facts) {
                None => break,
                Some(Ok(stream)) => {
                    let passed = stream.request_at_once(show());
                    (stream, passed)
                }
                Some(Err(failure)) => {
                    begun.fail(index, generation.on_failure(), failure);
                    if begun.pending.is_some() {
                        break;
                    }
                    continue;
                }
            },
        };
        if link.at == At::Fill {
            begun.passage.wishes.variant ^= generation.fingerprint();
        }
        begun.next = index + 1;
        let step = Step { stream, at: link.at };
        match passed {
            AtOnce::Unchanged => begun.passage.steps.push(step),
            AtOnce::Later(passed) => {
                begun.pending = Some(Pending::Seen(step, passed));
                break;
            }
        }
    }
    begun
}

impl Begun {
    fn fail(&mut self, index: usize, policy: OnFailure, failure: Failure) {
        self.next = index + 1;
        if policy == OnFailure::Fail {
            self.pending = Some(Pending::Failed(failure));
        }
    }

    /// All plugins have let the request pass as it was, and nothing is to be asked of them when it
    /// is a hit.
    pub(super) fn passed(&self, chain: &Chain) -> bool {
        self.pending.is_none()
            && self.next == chain.links.len()
            && self.passage.with(Hooks::sees_hits).next().is_none()
    }

    pub(super) fn variant(&self) -> u64 {
        self.passage.wishes.variant
    }

    /// Shows a stored response, whose head is `head`, to the plugins that see what is delivered.
    /// Where one does not let it pass at once and as it is, that is where to go on.
    pub(super) fn show_hit(
        self,
        head: &dyn Fn() -> Arc<dyn Lend<ResponseHead>>,
    ) -> (Option<Arc<Passage>>, Option<Onward>) {
        if self.passage.steps.is_empty() {
            return (None, None);
        }
        let mut shown: Option<Arc<dyn Lend<ResponseHead>>> = None;
        let passage = Arc::new(self.passage);
        for (index, step) in passage.steps.iter().enumerate() {
            let hooks = step.stream.hooks();
            if step.at != At::Delivery || !(hooks.sees_responses() || hooks.sees_ends()) {
                continue;
            }
            let passed = match hooks.sees_response_bodies() {
                true => None,
                false => {
                    match step.stream.response_at_once(Arc::clone(shown.get_or_insert_with(head))) {
                        AtOnce::Unchanged => continue,
                        AtOnce::Later(passed) => Some(passed),
                    }
                }
            };
            return (Some(passage), Some(Onward { index, passed }));
        }
        (Some(passage), None)
    }
}

/// Where the fast path left a response.
pub(super) struct Onward {
    /// The step that it is at.
    index: usize,
    /// What that step makes of it, if it has seen it.
    passed: Option<Pin<Box<dyn Future<Output = Passed<ResponseHead>> + Send>>>,
}

/// Goes on with a hit that a plugin did not let pass at once and as it is.
pub(super) fn go_on(
    head: &Head<'_, '_>,
    record: Record,
    route: &Arc<Route>,
    object: Arc<Object>,
    now_ms: u64,
    passage: Arc<Passage>,
    onward: Onward,
) -> Reply {
    // It is plain, and the hit one to plain requests: the fields do not matter.
    let mut parts = http::Request::new(()).into_parts().0;
    let response = reply::from_cache(record, route, &mut parts, false, object, now_ms);
    let method = if head.is_head { http::Method::HEAD } else { http::Method::GET };
    Reply::Later(Box::pin(async move {
        passage.response_from(response, &method, Version::HTTP_11, onward).await
    }))
}

/// The request as it is passed from plugin to plugin.
struct Request<'a> {
    head: &'a mut Parts,
    authority: String,
    content: &'a mut Option<Content>,
    started: Instant,
    /// Its content broke off while a plugin was judging it.
    is_torn: bool,
}

impl Passage {
    async fn request(
        &mut self,
        connection: &Arc<Connection>,
        route: &Arc<Route>,
        links: &[Link],
        request: &mut Request<'_>,
    ) -> Result<(), End> {
        // Several plugins of a request may tell each other something.
        let bag = (links.len() > 1).then(Arc::default);
        for link in links {
            let Some(generation) = link.pick() else { continue };
            let facts = Facts {
                about: connection.about(&route.facts, link.at),
                started: request.started,
                bag: bag.clone(),
            };
            let policy = generation.on_failure();
            let stream = match Stream::open(&generation, connection.worker.index, facts).await {
                Ok(stream) => stream,
                Err(failure) if policy == OnFailure::Pass => {
                    skipped(generation.name(), &failure);
                    continue;
                }
                Err(failure) => return Err(End::Failed(failure)),
            };
            if link.at == At::Fill {
                self.wishes.variant ^= generation.fingerprint();
            }
            let wishes = request.show(connection, route, &stream).await;
            if request.is_torn {
                return Err(End::Torn);
            }
            self.add(connection, Step { stream, at: link.at }, wishes).await?;
        }
        if self.changes_response_bodies() {
            // The plugin sees the whole; a part of what it makes of that cannot be told beforehand.
            request.head.headers.remove(header::RANGE);
            request.head.headers.remove(header::IF_RANGE);
        }
        Ok(())
    }

    /// A plugin has seen the request.
    async fn add(
        &mut self,
        connection: &Connection,
        step: Step,
        wishes: Result<Wishes, Failure>,
    ) -> Result<(), End> {
        let stream = step.stream.clone();
        let generation = stream.generation();
        let policy = generation.on_failure();
        self.steps.push(step);
        match wishes {
            Ok(wishes) => self.take(connection, wishes)?,
            Err(failure) if policy == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                self.steps.pop();
                return Ok(());
            }
            Err(failure) => return Err(End::Failed(failure)),
        }
        if !generation.hooks().looks_up() {
            return Ok(());
        }
        match stream.lookup().await {
            Ok(wishes) => self.take(connection, wishes),
            Err(failure) if policy == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                Ok(())
            }
            Err(failure) => Err(End::Failed(failure)),
        }
    }

    /// Goes on with what the fast path has begun.
    async fn resume(
        &mut self,
        connection: &Connection,
        pending: Pending,
        request: &mut Request<'_>,
    ) -> Result<(), End> {
        let (step, passed) = match pending {
            Pending::Seen(step, passed) => (step, passed.await),
            Pending::Failed(failure) => return Err(End::Failed(failure)),
        };
        let wishes = request.take(passed);
        self.add(connection, step, wishes).await
    }

    /// Takes over what a plugin wishes.
    fn take(&mut self, connection: &Connection, wishes: Wishes) -> Result<(), End> {
        if let Some(answer) = wishes.answer {
            return Err(End::Answered(answer));
        }
        if wishes.close {
            return Err(End::Closed);
        }
        if let Some(key) = wishes.cache.key {
            self.wishes.variant ^= hash(&key).rotate_left(self.steps.len() as u32);
        }
        self.wishes.pass |= wishes.cache.pass;
        self.wishes.validate |= wishes.cache.validate;
        self.wishes.reroute |= wishes.reroute;
        if let Some(name) = wishes.upstream {
            // The host has checked that there is one; a reload may have taken it away since.
            let group = connection.worker.shared.live.load().groups.get(&name).cloned();
            self.wishes.variant ^= hash(name.as_bytes());
            self.wishes.upstream = group;
        }
        Ok(())
    }

    fn changes_response_bodies(&self) -> bool {
        let mut hooks = self.delivery().map(|step| step.stream.hooks());
        hooks.any(|hooks| hooks.sees_response_bodies() && !hooks.keeps_lengths())
    }

    fn delivery(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.at == At::Delivery)
    }

    fn fill(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.at == At::Fill)
    }

    /// Whether responses of the source are changed before they are stored.
    pub(super) fn fills(&self) -> bool {
        self.fill().any(|step| step.stream.hooks().sees_responses())
    }

    /// The streams of plugins with this hook.
    pub(super) fn with(&self, has: impl Fn(Hooks) -> bool) -> impl Iterator<Item = &Stream> {
        self.steps.iter().map(|step| &step.stream).filter(move |stream| has(stream.hooks()))
    }

    /// Shows a stored response that is the answer.
    pub(super) async fn hit(&self, object: &Arc<Object>, now_ms: u64) -> Word {
        let age_ms = object.age_secs(now_ms) * 1000;
        let ttl_ms = object.freshness().fresh_until_ms as i64 - now_ms as i64;
        for stream in self.with(Hooks::sees_hits) {
            let stored = StoredFacts { ttl_ms, age_ms };
            let shown = Arc::new(Shower(ResponseHead {
                status: object.status(),
                headers: object.headers().clone(),
            }));
            match Word::of(stream, stream.hit(stored, shown).await) {
                Word::GoOn => {}
                word => return word,
            }
        }
        Word::GoOn
    }

    /// Tells that nothing is stored.
    pub(super) async fn miss(&self) -> Word {
        for stream in self.with(Hooks::sees_misses) {
            match Word::of(stream, stream.miss().await) {
                Word::GoOn => {}
                word => return word,
            }
        }
        Word::GoOn
    }

    /// Shows the head of a response that is about to be stored. `None` if it must not be.
    pub(super) async fn store(&self, mut head: ResponseHead, ttl_ms: i64) -> Option<Stored> {
        let mut lifetime_ms = None;
        for stream in self.with(Hooks::sees_stores) {
            let stored = StoredFacts { ttl_ms, age_ms: 0 };
            match stream.store(stored, Arc::new(Shower(head.clone()))).await {
                Ok((wishes, _)) if wishes.cache.no_store || wishes.cache.pass => return None,
                Ok((wishes, changed)) => {
                    lifetime_ms = wishes.cache.ttl_ms.or(lifetime_ms);
                    if let Some(mut changed) = changed {
                        keep(&FRAMING, &head.headers, &mut changed.headers);
                        head = changed;
                    }
                }
                Err(failure) if stream.generation().on_failure() == OnFailure::Pass => {
                    skipped(stream.generation().name(), &failure);
                }
                Err(_) => return None,
            }
        }
        Some(Stored { head, lifetime_ms })
    }

    /// Whether a hook runs before something is stored.
    pub(super) fn sees_stores(&self) -> bool {
        self.with(Hooks::sees_stores).next().is_some()
    }

    /// What the plugins answered when the request's head was gone already.
    pub(super) fn late_answer(&self) -> Option<Answer> {
        let late = self.steps.iter().find_map(|step| step.stream.take_late_answer())?;
        Some(late.unwrap_or_else(|failure| failed(&failure)))
    }

    /// The request is over.
    pub(crate) fn end(&self, status: u16) {
        for step in &self.steps {
            step.stream.count_response(status >= 500);
        }
    }

    /// Shows a response to the plugins that see what is delivered.
    async fn response(
        &self,
        response: Response<ReplyBody>,
        method: &http::Method,
        version: Version,
    ) -> Response<ReplyBody> {
        self.response_from(response, method, version, Onward { index: 0, passed: None }).await
    }

    /// Goes on showing a response.
    pub(super) async fn response_from(
        &self,
        mut response: Response<ReplyBody>,
        method: &http::Method,
        version: Version,
        onward: Onward,
    ) -> Response<ReplyBody> {
        let Onward { index, mut passed } = onward;
        for step in &self.steps[index.min(self.steps.len())..] {
            let hooks = step.stream.hooks();
            if step.at != At::Delivery || !(hooks.sees_responses() || hooks.sees_ends()) {
                continue;
            }
            let (mut parts, mut body) = response.into_parts();
            let mut record = body.take_record();
            if *method != http::Method::HEAD {
                declare_length(&mut parts, &body);
            }
            let shown = Arc::new(Shower(ResponseHead {
                status: parts.status,
                headers: parts.headers.clone(),
            }));
            let sees_body = step.stream.hooks().sees_response_bodies();
            let (content, unseen) = match hyper::body::Body::is_end_stream(&body) {
                true => (Shown::None, Some(body)),
                false if sees_body => (Shown::Shown(BodyExt::boxed_unsync(body)), None),
                false => (Shown::Unseen, Some(body)),
            };
            let passed = match passed.take() {
                Some(passed) => passed.await,
                None => step.stream.response(shown, content).await,
            };
            let Outcome { body: seen, is_changed } = match outcome(&step.stream, passed, &mut parts)
            {
                Ok(outcome) => outcome,
                Err(End::Answered(answer)) => {
                    response = replaced(record, method, answer);
                    continue;
                }
                Err(End::Closed | End::Torn) => return closed_late(record),
                Err(End::Failed(failure)) => {
                    return failed_late(record, method, version, &failure);
                }
            };
            if is_changed {
                transformed(&mut parts.headers);
            }
            if let Some(record) = &mut record {
                record.status = parts.status.as_u16();
            }
            let content = match (seen, unseen) {
                (Some(seen), _) => Body::Upstream(Box::new(ResponseBody::made(seen))),
                (None, Some(unseen)) => unseen.into_content(),
                (None, None) => Body::Empty,
            };
            response = Response::from_parts(parts, ReplyBody::new(content, record));
        }
        response
    }

    /// Shows what a source answered to the plugins that see what is stored. The second value tells
    /// that it must not be stored, since a plugin failed over it.
    pub(super) async fn filled(
        &self,
        mut response: Response<ResponseBody>,
    ) -> (Response<ResponseBody>, bool) {
        let mut is_marred = false;
        for step in self.fill().filter(|step| step.stream.hooks().sees_responses()) {
            let (mut parts, body) = response.into_parts();
            let shown = Arc::new(Shower(ResponseHead {
                status: parts.status,
                headers: parts.headers.clone(),
            }));
            let content = match hyper::body::Body::is_end_stream(&body) {
                true => Shown::None,
                false => Shown::Shown(body.map_err(Into::into).boxed_unsync()),
            };
            let passed = step.stream.response(shown, content).await;
            is_marred |= passed.failure.is_some();
            let made = match outcome(&step.stream, passed, &mut parts) {
                Ok(Outcome { body, is_changed }) => {
                    if is_changed {
                        transformed(&mut parts.headers);
                    }
                    body
                }
                Err(End::Answered(answer)) => {
                    parts.status = answer.status;
                    parts.headers = answer.headers;
                    let content = http_body_util::Full::new(answer.body);
                    Some(content.map_err(|never| match never {}).boxed_unsync())
                }
                Err(End::Closed | End::Torn | End::Failed(_)) => {
                    is_marred = true;
                    parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                    parts.headers = HeaderMap::new();
                    None
                }
            };
            let made = made.unwrap_or_else(|| {
                http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
            });
            response = Response::from_parts(parts, ResponseBody::made(made));
        }
        (response, is_marred)
    }
}

impl Request<'_> {
    /// Shows the request to a plugin and takes over what it changed.
    async fn show(
        &mut self,
        connection: &Arc<Connection>,
        route: &Route,
        stream: &Stream,
    ) -> Result<Wishes, Failure> {
        let head = RequestHead {
            method: self.head.method.clone(),
            secure: connection.tls,
            authority: self.authority.clone(),
            target: self.head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned(),
            version: self.head.version,
            headers: {
                let mut headers = self.head.headers.clone();
                headers.remove(header::HOST);
                headers
            },
        };
        let shown = match self.content.take() {
            Some(content) if content.is_end_stream() => {
                *self.content = Some(content);
                Shown::None
            }
            None => Shown::None,
            Some(content) if !stream.hooks().sees_request_bodies() => {
                *self.content = Some(content);
                Shown::Unseen
            }
            Some(Content::Client(body)) => {
                let (body, verdict) =
                    ClientBody::new(body, &connection.socket, route.body_size_max);
                *self.content = Some(Content::Seen(Mutex::new(empty()), verdict));
                Shown::Shown(BodyExt::boxed_unsync(body))
            }
            Some(Content::Seen(body, verdict)) => {
                *self.content = Some(Content::Seen(Mutex::new(empty()), verdict));
                Shown::Shown(body.into_inner())
            }
        };
        let is_shown = matches!(shown, Shown::Shown(_));
        let mut passed = stream.request(Arc::new(Shower(head)), shown).await;
        if is_shown && let Some(Content::Seen(seen, _)) = self.content {
            *seen = Mutex::new(passed.body.take().unwrap_or_else(empty));
        }
        self.take(passed)
    }

    /// Takes over what a plugin changed.
    fn take(&mut self, passed: Passed<RequestHead>) -> Result<Wishes, Failure> {
        self.is_torn |= passed.is_torn;
        if let Some(failure) = passed.failure {
            return Err(failure);
        }
        if let Some(changed) = passed.head {
            self.change(changed).map_err(|what| {
                Failure::new(FailureKind::Protocol, format!("it made the request's {what} invalid"))
            })?;
        }
        Ok(passed.wishes)
    }

    /// # Errors
    /// What of the changed head cannot be.
    fn change(&mut self, changed: RequestHead) -> Result<(), &'static str> {
        let target: PathAndQuery = changed.target.parse().map_err(|_| "target")?;
        let mut parts = std::mem::take(&mut self.head.uri).into_parts();
        if parts.authority.is_some() {
            parts.authority =
                Some(Authority::try_from(changed.authority.as_str()).map_err(|_| "authority")?);
        }
        parts.path_and_query = Some(target);
        self.head.uri = Uri::from_parts(parts).map_err(|_| "target")?;
        let mut headers = changed.headers;
        keep(&FRAMING, &self.head.headers, &mut headers);
        if !changed.authority.is_empty() {
            let host = HeaderValue::from_str(&changed.authority).map_err(|_| "authority")?;
            headers.insert(header::HOST, host);
        }
        self.authority = changed.authority;
        self.head.method = changed.method;
        self.head.headers = headers;
        Ok(())
    }
}

/// Says how long the body is, where that is known: plugins expect it in the head, and what they
/// leave there stays.
fn declare_length(parts: &mut http::response::Parts, body: &ReplyBody) {
    let bodyless = matches!(parts.status.as_u16(), 100..=199 | 204 | 304);
    let is_there = parts.headers.contains_key(header::CONTENT_LENGTH);
    if let Some(length) =
        hyper::body::Body::size_hint(body).exact().filter(|_| !bodyless && !is_there)
    {
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
}

/// What a plugin has made of a response.
struct Outcome {
    body: Option<CallBody>,
    /// The body goes through its hands.
    is_changed: bool,
}

/// Takes a changed head over.
fn outcome(
    stream: &Stream,
    passed: Passed<ResponseHead>,
    parts: &mut http::response::Parts,
) -> Result<Outcome, End> {
    if let Some(failure) = passed.failure {
        if stream.generation().on_failure() == OnFailure::Fail {
            return Err(End::Failed(failure));
        }
        skipped(stream.generation().name(), &failure);
        return Ok(Outcome { body: passed.body, is_changed: false });
    }
    if let Some(answer) = passed.wishes.answer {
        return Err(End::Answered(answer));
    }
    if passed.wishes.close {
        return Err(End::Closed);
    }
    if let Some(changed) = passed.head {
        let mut headers = changed.headers;
        let length = headers.remove(header::CONTENT_LENGTH);
        keep(&FRAMING, &parts.headers, &mut headers);
        if passed.is_seen {
            // What the plugin says of the length of what it makes holds; it is held to it.
            headers.remove(header::CONTENT_LENGTH);
            length.map(|length| headers.insert(header::CONTENT_LENGTH, length));
        }
        parts.headers = headers;
        parts.status = changed.status;
    }
    // HEAD and 304 tell what GET would: that the plugin wants the body in its hands.
    let is_wanted = passed.body.is_none() && passed.wishes.response_body != Want::Nothing;
    // A proxy-wasm plugin that sees bodies need not change them: as elsewhere, one that does takes
    // the length away.
    let keeps =
        stream.hooks().keeps_lengths() && parts.headers.contains_key(header::CONTENT_LENGTH);
    let is_changed = (passed.is_seen || is_wanted) && !keeps;
    Ok(Outcome { body: passed.body, is_changed })
}

/// Fields that say how a message is framed and what becomes of its connection: Weir's own business
/// (RFC 9112 §6, RFC 9110 §7.6.1).
const FRAMING: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
];

/// Makes these fields what they were.
fn keep(names: &[HeaderName], before: &HeaderMap, after: &mut HeaderMap) {
    for name in names {
        after.remove(name);
        for value in before.get_all(name) {
            after.append(name, value.clone());
        }
    }
}

/// Takes away what described the body before a plugin had it in its hands.
fn transformed(headers: &mut HeaderMap) {
    for name in [header::CONTENT_LENGTH, header::ACCEPT_RANGES, header::CONTENT_RANGE] {
        headers.remove(name);
    }
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    // Another body, whose bytes are not those that the tag stood for (RFC 9110 §8.8.1).
    if let Some(tag) = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"")) {
        let weak = [b"W/", tag.as_bytes()].concat();
        if let Ok(weak) = HeaderValue::from_bytes(&weak) {
            headers.insert(header::ETAG, weak);
        }
    }
}

/// A head for plugins to look at.
pub(super) struct Shower<H>(pub(super) H);

impl<H: Send + Sync> Lend<H> for Shower<H> {
    fn lend(&self) -> &H {
        &self.0
    }
}

fn empty() -> CallBody {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A plugin's own answer to a request.
pub(super) fn answered(
    record: Record,
    head: &Parts,
    content: Option<&Content>,
    answer: Answer,
) -> Response<ReplyBody> {
    let left = content.and_then(Content::client);
    let leaves_body = left.is_some_and(|body| !hyper::body::Body::is_end_stream(body));
    if leaves_body {
        record.connection().socket.set_body_left();
    }
    let draining = record.connection().worker.shared.is_draining();
    let mut response = replaced(Some(record), &head.method, answer);
    if (leaves_body || draining) && head.version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, super::reply::CLOSE);
    }
    response
}

/// A plugin's own response.
fn replaced(
    mut record: Option<Record>,
    method: &http::Method,
    answer: Answer,
) -> Response<ReplyBody> {
    if let Some(record) = &mut record {
        record.status = answer.status.as_u16();
    }
    let mut headers = answer.headers;
    for name in &FRAMING {
        headers.remove(name);
    }
    let content = match *method == http::Method::HEAD {
        true => {
            headers.insert(header::CONTENT_LENGTH, answer.body.len().into());
            Body::Empty
        }
        false => Body::One(answer.body),
    };
    let mut response = Response::new(ReplyBody::new(content, record));
    *response.status_mut() = answer.status;
    *response.headers_mut() = headers;
    response
}

/// The plugin wants the client gone.
pub(super) fn closed(record: Record, head: &Parts) -> Response<ReplyBody> {
    let _ = head;
    closed_late(Some(record))
}

fn closed_late(record: Option<Record>) -> Response<ReplyBody> {
    if let Some(record) = &record {
        let socket = &record.connection().socket;
        socket.reset_on_close(true);
        socket.set_last();
    }
    let mut response = Response::new(ReplyBody::new(Body::Torn, record));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

fn failed_late(
    record: Option<Record>,
    method: &http::Method,
    version: Version,
    failure: &Failure,
) -> Response<ReplyBody> {
    let _ = version;
    replaced(record, method, failed(failure))
}

/// The answer to a request that cannot do without a plugin that failed.
fn failed(failure: &Failure) -> Answer {
    let status = match failure.kind {
        FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let reason = status.canonical_reason().unwrap_or("Error");
    let body = format!("{} {reason}: a plugin failed\n", status.as_u16()).into();
    Answer { status, headers, body, ..Answer::default() }
}

fn refusal(failure: &Failure) -> Refusal {
    match failure.kind {
        FailureKind::Unavailable => {
            Refusal::Source(StatusCode::SERVICE_UNAVAILABLE, "a plugin is not available")
        }
        _ => Refusal::Source(StatusCode::INTERNAL_SERVER_ERROR, "a plugin failed"),
    }
}

/// Said once a failure already, where it happened.
fn skipped(plugin: &str, failure: &Failure) {
    tracing::debug!(plugin, %failure, "the request goes on without the plugin");
}

fn hash(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
