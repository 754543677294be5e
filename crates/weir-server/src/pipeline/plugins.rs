//! Stages 3 and 7: a route's plugins see the request before the cache is asked, and the response
//! before it is sent. What they change is checked like what a client sends, and how messages are
//! framed stays Weir's business.

mod begin;
mod consult;
mod framing;
mod local;
mod request;
mod response;
mod tags;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header;
use http::request::Parts;
use http::{Response, StatusCode};
use weir_config::{At, OnFailure};
use weir_origin::error::OriginError;
use weir_origin::upstream::{Group, ResponseBody};
use weir_plugin::{Answer, Bag, Facts, Failure, Hooks, LateEnd, Lend, Stream, Wishes};

pub(crate) use begin::Begun;
pub(super) use begin::{Onward, begin, go_on};
pub(super) use consult::{Missing, Storing, Word};
pub(crate) use framing::has_no_content;
pub(super) use framing::{declare_content, length as declared_length};
pub(super) use local::{answered, broken_off, closed};
pub(super) use tags::weaken;

use self::begin::Pending;
use self::local::failed;
use self::request::Request;
use super::content::Content;
use super::refuse::{self, Refusal};
use crate::body::ReplyBody;
use crate::chain::{Chain, Link};
use crate::connection::Connection;
use crate::live::Route;
use crate::record::Record;
use crate::sent_on::SentOn;
use crate::upstream::Upstream;

/// A request's way through its route's plugins.
#[derive(Default)]
pub(crate) struct Passage {
    steps: Vec<Step>,
    /// What the plugins that have seen the request told the others.
    bag: Option<Arc<Bag>>,
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
    pub(super) upstream: Option<Arc<Upstream>>,
    /// The route is found anew.
    pub(super) reroute: bool,
    /// What rules of overload control know it by.
    pub(super) verdict: Option<String>,
}

impl Combined {
    /// Chooses another part of the cache, by this beside all that was before it, in order.
    fn keep_apart(&mut self, by: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.variant, by).hash(&mut hasher);
        self.variant = hasher.finish();
    }
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
    pub(super) body: Option<Content>,
    /// What the fast path has begun.
    pub(super) begun: Option<Begun>,
}

/// How the plugins ended a request.
enum End {
    Answered(Box<Answer>),
    Closed,
    /// The request's content broke off before they had judged it.
    Torn,
    Failed(Failure),
}

/// How a plugin ended a request when its head was gone already.
pub(super) enum Late {
    Answer(Box<Answer>),
    /// The client is to be gone.
    Close,
}

/// Answers a request of a route with plugins.
pub(super) async fn answer(asked: Asked) -> Response<ReplyBody> {
    let Asked { connection, mut record, route, chain, mut head, authority, body, begun } = asked;
    let mut content = body;
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
    let (is_head, is_own) = (record.is_head(), passed.is_err());
    let response = match passed {
        Ok(()) => super::proceed(&connection, record, route, head, content, &passage).await,
        Err(End::Answered(answer)) => answered(record, &head, content.as_ref(), *answer),
        Err(End::Closed) => closed(Some(record)),
        Err(End::Torn) => {
            let is_too_large = content.as_ref().is_some_and(Content::is_too_large);
            let refusal = match is_too_large {
                true => Refusal::BodyTooLarge,
                false => Refusal::Source(StatusCode::BAD_REQUEST, "the content broke off"),
            };
            refuse::refuse(refusal, record, &head, None)
        }
        Err(End::Failed(failure)) => answered(record, &head, content.as_ref(), failed(&failure)),
    };
    passage.response(response, is_head, is_own).await
}

impl Passage {
    async fn request(
        &mut self,
        connection: &Arc<Connection>,
        route: &Arc<Route>,
        links: &[Link],
        request: &mut Request<'_>,
    ) -> Result<(), End> {
        // Several plugins of a request may tell each other something, also what the fast path has
        // shown it to.
        let bag = self.bag.take().or_else(|| (links.len() > 1).then(Arc::default));
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
            stream.follow();
            let wishes = request.show(connection, route, &stream).await;
            if request.is_torn {
                return Err(End::Torn);
            }
            self.add(connection, Step { stream, at: link.at }, wishes, request).await?;
        }
        if self.changes_response_bodies() {
            // The plugin sees the whole; a part of what it makes of that cannot be told beforehand.
            request.head.headers.remove(header::RANGE);
            request.head.headers.remove(header::IF_RANGE);
        }
        if tags::are_told(&request.head.headers)
            && let Some(mark) = self.mark()
        {
            mark.take(&request.head.method, &mut request.head.headers);
        }
        Ok(())
    }

    /// A plugin has seen the request.
    async fn add(
        &mut self,
        connection: &Connection,
        step: Step,
        wishes: Result<Wishes, Failure>,
        request: &mut Request<'_>,
    ) -> Result<(), End> {
        let stream = step.stream.clone();
        let generation = stream.generation();
        let policy = generation.on_failure();
        match wishes {
            Ok(wishes) => {
                self.passed(step);
                self.take(connection, wishes)?;
            }
            // Nothing that it would make of the response is made, or kept apart.
            Err(failure) if policy == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                return Ok(());
            }
            Err(failure) => return Err(End::Failed(failure)),
        }
        if !generation.hooks().looks_up() {
            return Ok(());
        }
        let looked = stream.lookup(Arc::new(Shower(request.lent(connection.tls)))).await;
        let taken = looked.and_then(|(wishes, changed)| {
            changed.map_or(Ok(()), |changed| request.change(changed)).map(|()| wishes)
        });
        match taken {
            Ok(wishes) => self.take(connection, wishes),
            Err(failure) if policy == OnFailure::Pass => {
                skipped(generation.name(), &failure);
                Ok(())
            }
            Err(failure) => {
                stream.give_up();
                Err(End::Failed(failure))
            }
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
        self.add(connection, step, wishes, request).await
    }

    /// A plugin has let the request pass. What it makes of responses at the fill is kept apart.
    fn passed(&mut self, step: Step) {
        let generation = step.stream.generation();
        if step.at == At::Fill && generation.hooks().sees_responses() {
            self.wishes.keep_apart(generation.fingerprint());
        }
        self.steps.push(step);
    }

    /// Takes over what a plugin wishes.
    fn take(&mut self, connection: &Connection, wishes: Wishes) -> Result<(), End> {
        if let Some(answer) = wishes.answer {
            return Err(End::Answered(Box::new(answer)));
        }
        if wishes.close {
            return Err(End::Closed);
        }
        if let Some(key) = wishes.cache.key {
            // The same key of another plugin is another one.
            self.wishes.keep_apart((self.steps.len(), &key));
        }
        self.wishes.pass |= wishes.cache.pass;
        self.wishes.validate |= wishes.cache.validate;
        self.wishes.reroute |= wishes.reroute;
        self.wishes.verdict = wishes.verdict.or(self.wishes.verdict.take());
        if let Some(name) = wishes.upstream {
            self.wishes.keep_apart(&name);
            self.wishes.upstream = upstream(connection, &name);
        }
        Ok(())
    }

    fn changes_response_bodies(&self) -> bool {
        let mut hooks = self.delivery().map(|step| step.stream.hooks());
        hooks.any(|hooks| hooks.sees_response_bodies() && !hooks.keeps_lengths())
    }

    /// Whether plugins look at the content that clients get.
    pub(super) fn reads_delivered(&self) -> bool {
        self.delivery().any(Step::sees_response_bodies)
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

    /// The request was given to `group` when it `began`, and this came of it. Where a client was
    /// answered already, only the plugins at the fill are concerned.
    pub(super) fn sent_on(
        &self,
        group: &Group,
        began: Instant,
        result: &mut Result<Response<ResponseBody>, OriginError>,
        is_waited_for: bool,
    ) {
        if self.steps.is_empty() {
            return;
        }
        let sent_on = SentOn::new(group, began, result);
        for step in self.steps.iter().filter(|step| is_waited_for || step.at == At::Fill) {
            step.stream.set_source(Arc::clone(&sent_on) as _);
        }
    }

    /// How a plugin ended the request when its head was gone already, if one did.
    pub(super) fn late_end(&self) -> Option<Late> {
        let late = |step: &Step| step.stream.take_late_end().zip(Some(step.stream.clone()));
        let (end, stream) = self.steps.iter().find_map(late)?;
        Some(match end {
            LateEnd::Answered(answer) => Late::Answer(answer),
            LateEnd::Closed => Late::Close,
            LateEnd::Failed(failure) => {
                stream.give_up();
                Late::Answer(Box::new(failed(&failure)))
            }
        })
    }

    /// The request is over, with a whole response.
    pub(crate) fn end(&self, status: u16, took: Duration) {
        for step in &self.steps {
            step.stream.count_response(status >= 500, took);
        }
    }
}

/// The upstream of this name. The host has checked that there is one; a reload may have taken it
/// away since.
fn upstream(connection: &Connection, name: &str) -> Option<Arc<Upstream>> {
    connection.worker.shared.live.load().groups.get(name).cloned()
}

/// A head for plugins to look at.
pub(super) struct Shower<H>(pub(super) H);

impl<H: Send + Sync> Lend<H> for Shower<H> {
    fn lend(&self) -> &H {
        &self.0
    }
}

/// Said once a failure already, where it happened.
fn skipped(plugin: &str, failure: &Failure) {
    // As a text, whose lines are escaped.
    let why = || failure.to_string();
    tracing::debug!(plugin, failure = why(), "the request goes on without the plugin");
}
