//! Responses as plugins see them: what is delivered, and what is about to be stored.

use std::pin::Pin;
use std::sync::Arc;

use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use weir_config::{At, OnFailure};
use weir_origin::upstream::ResponseBody;
use weir_plugin::{CallBody, Content as Shown, Passed, ResponseHead, Stream, Want};

use super::super::fill::{AtFill, Filled};
use super::framing::{self, FRAMING, Held, framed, has_no_content, keep};
use super::local::{closed, failed, replaced};
use super::{End, Onward, Passage, Shower, Step, skipped, tags};
use crate::body::{Content as Body, ReplyBody};

/// A plugin at the fill.
pub(in crate::pipeline) struct PluginAtFill<'a> {
    step: &'a Step,
    /// The source was asked with HEAD.
    is_head: bool,
}

/// What a plugin has made of a response on its way to the client.
enum Delivered {
    /// It goes on.
    On(Response<ReplyBody>, Made),
    /// The plugin's own goes on in its place.
    Replaced(Response<ReplyBody>),
    /// This is what the client gets.
    Ended(Response<ReplyBody>),
}

/// What the body is afterwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Unchanged,
    /// It goes through the plugin's hands.
    Changed,
    /// What it was, since a plugin failed that might have changed it.
    Failed,
}

impl Passage {
    /// Shows a response to the plugins that see what is delivered. `is_own` is one that plugins
    /// have made of the request alone.
    pub(super) async fn response(
        &self,
        response: Response<ReplyBody>,
        is_head: bool,
        is_own: bool,
    ) -> Response<ReplyBody> {
        if response.body().is_torn() {
            // The client gets none: a plugin closed it.
            return response;
        }
        let (mut response, made) = match self.deliver(response, is_head, Onward::default()).await {
            Ok(delivered) => delivered,
            Err(ended) => return ended,
        };
        match is_own {
            false => self.tell_apart(&mut response, made),
            // Its tags are what the plugin that made it compares.
            true if made == Made::Unchanged => {}
            true => tags::remove(response.headers_mut()),
        }
        response
    }

    /// Goes on showing a hit.
    pub(super) async fn go_on(
        &self,
        hit: Response<ReplyBody>,
        is_head: bool,
        onward: Onward,
    ) -> Response<ReplyBody> {
        match self.deliver(hit, is_head, onward).await {
            Ok((mut response, made)) => {
                self.tell_apart(&mut response, made);
                response
            }
            Err(ended) => ended,
        }
    }

    /// Has the tag tell what these plugins make from what others would.
    fn tell_apart(&self, response: &mut Response<ReplyBody>, made: Made) {
        let is_not_modified = response.status() == StatusCode::NOT_MODIFIED;
        let headers = response.headers_mut();
        if made == Made::Failed {
            // It is neither.
            tags::remove(headers);
        } else if headers.contains_key(header::ETAG)
            && let Some(mark) = self.mark()
        {
            mark.put(headers);
            if is_not_modified {
                // What would become of the body is not known.
                tags::weaken(headers);
            }
        }
    }

    /// Shows a response to one plugin after the other.
    ///
    /// # Errors
    /// With the response, if a plugin ends its way.
    async fn deliver(
        &self,
        mut response: Response<ReplyBody>,
        is_head: bool,
        onward: Onward,
    ) -> Result<(Response<ReplyBody>, Made), Response<ReplyBody>> {
        let Onward { index, mut passed } = onward;
        let mut all = Made::Unchanged;
        for step in self.steps.iter().skip(index).filter(|step| step.sees_deliveries()) {
            match step.deliver(response, is_head, passed.take()).await {
                Delivered::On(next, made) => {
                    response = next;
                    all = all.max(made);
                }
                Delivered::Replaced(own) => response = own,
                Delivered::Ended(last) => return Err(last),
            }
        }
        Ok((response, all))
    }

    /// The plugins that see what a source answered before that is stored; `is_head` if it was asked
    /// with HEAD.
    pub(in crate::pipeline) fn at_fill(
        &self,
        is_head: bool,
    ) -> impl Iterator<Item = PluginAtFill<'_>> {
        let sees =
            |step: &&Step| step.stream.hooks().sees_responses() && !step.stream.is_given_up();
        self.fill().filter(sees).map(move |step| PluginAtFill { step, is_head })
    }
}

impl AtFill for PluginAtFill<'_> {
    async fn fill(&self, filled: Filled) -> Filled {
        let PluginAtFill { step, is_head } = *self;
        let Filled { response, mut marred_by, ttl_ms } = filled;
        let (mut parts, body) = response.into_parts();
        let content = match hyper::body::Body::is_end_stream(&body) {
            true => Shown::None,
            false => Shown::Shown(body.map_err(Into::into).boxed_unsync()),
        };
        let passed = step.stream.response(shown(&parts), content).await;
        let wishes = &passed.wishes.cache;
        let mut mars = passed.failure.is_some() || wishes.no_store || wishes.pass;
        let ttl_ms = wishes.ttl_ms.or(ttl_ms);
        let made = match outcome(&step.stream, passed, &mut parts, is_head) {
            Ok(Outcome { body, made, .. }) => {
                if made == Made::Changed {
                    tags::make_of_date(&mut parts.headers);
                    transformed(&mut parts.headers);
                    if let Some(mark) = step.mark() {
                        mark.put(&mut parts.headers);
                    }
                }
                body
            }
            Err(End::Answered(answer)) => {
                let answer = framed(*answer);
                parts.status = answer.status;
                parts.headers = answer.headers;
                let content = http_body_util::Full::new(answer.body);
                Some(content.map_err(|never| match never {}).boxed_unsync())
            }
            Err(End::Closed | End::Torn | End::Failed(_)) => {
                mars = true;
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
                parts.headers = HeaderMap::new();
                None
            }
        };
        let made = made.unwrap_or_else(|| {
            http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
        });
        if !is_head {
            correct_length(&mut parts, hyper::body::Body::size_hint(&made).exact());
        }
        if mars {
            marred_by.get_or_insert("plugin");
        }
        let response = Response::from_parts(parts, ResponseBody::made(made));
        Filled { response, marred_by, ttl_ms }
    }
}

impl Step {
    pub(super) fn sees_deliveries(&self) -> bool {
        let hooks = self.stream.hooks();
        let sees = hooks.sees_responses() || hooks.sees_ends();
        self.at == At::Delivery && sees && !self.stream.is_given_up()
    }

    /// Shows a response to the plugin, unless it has `passed` already.
    async fn deliver(
        &self,
        response: Response<ReplyBody>,
        is_head: bool,
        passed: Option<Pin<Box<dyn Future<Output = Passed<ResponseHead>> + Send>>>,
    ) -> Delivered {
        let (mut parts, mut body) = response.into_parts();
        let mut record = body.take_record();
        if !is_head {
            declare_length(&mut parts, &body);
        }
        let (passed, unseen) = match passed {
            // Only heads without their bodies are shown before.
            Some(passed) => (passed.await, Some(body)),
            None => {
                let (content, unseen) = match hyper::body::Body::is_end_stream(&body) {
                    true => (Shown::None, Some(body)),
                    false if self.sees_response_bodies() => {
                        (Shown::Shown(BodyExt::boxed_unsync(body)), None)
                    }
                    false => (Shown::Unseen, Some(body)),
                };
                (self.stream.response(shown(&parts), content).await, unseen)
            }
        };
        let outcome = match outcome(&self.stream, passed, &mut parts, is_head) {
            Ok(outcome) => outcome,
            Err(End::Answered(answer)) => {
                return Delivered::Replaced(replaced(record, is_head, *answer));
            }
            Err(End::Closed | End::Torn) => return Delivered::Ended(closed(record)),
            Err(End::Failed(failure)) => {
                self.stream.give_up();
                return Delivered::Ended(replaced(record, is_head, failed(&failure)));
            }
        };
        let Outcome { body: seen, made, has_content } = outcome;
        if made == Made::Changed {
            transformed(&mut parts.headers);
        }
        if let Some(record) = &mut record {
            record.status = parts.status.as_u16();
        }
        let content = match (seen, unseen) {
            (Some(seen), _) => Body::Upstream(Box::new(ResponseBody::made(seen))),
            (None, Some(unseen)) if has_content => unseen.into_content(),
            (None, _) => Body::Empty,
        };
        if !is_head {
            correct_length(&mut parts, content.len());
        }
        Delivered::On(Response::from_parts(parts, ReplyBody::new(content, record)), made)
    }
}

/// A response's head, for plugins to look at.
fn shown(parts: &http::response::Parts) -> Arc<Shower<ResponseHead>> {
    Arc::new(Shower(ResponseHead { status: parts.status, headers: parts.headers.clone() }))
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

/// Where a length is declared of a body whose length is known, that is it: it may have been
/// declared of another one.
fn correct_length(parts: &mut http::response::Parts, known: Option<u64>) {
    let is_declared = parts.headers.contains_key(header::CONTENT_LENGTH);
    if is_declared && known.is_some() && !has_no_content(parts.status) {
        framing::declare(&mut parts.headers, known);
    }
}

/// What a plugin has made of a response.
struct Outcome {
    body: Option<CallBody>,
    made: Made,
    /// Whatever body there was still follows.
    has_content: bool,
}

/// Takes a changed head over.
fn outcome(
    stream: &Stream,
    passed: Passed<ResponseHead>,
    parts: &mut http::response::Parts,
    is_head: bool,
) -> Result<Outcome, End> {
    if let Some(failure) = passed.failure {
        if stream.generation().on_failure() == OnFailure::Fail {
            return Err(End::Failed(failure));
        }
        skipped(stream.generation().name(), &failure);
        let made = match stream.hooks().sees_response_bodies() {
            true => Made::Failed,
            false => Made::Unchanged,
        };
        return Ok(Outcome { body: passed.body, made, has_content: true });
    }
    if let Some(answer) = passed.wishes.answer {
        return Err(End::Answered(Box::new(answer)));
    }
    if passed.wishes.close {
        return Err(End::Closed);
    }
    let hooks = stream.hooks();
    let (before, before_length) = (parts.status, framing::length(&parts.headers));
    // HEAD and 304 tell what GET would. proxy-wasm has no other word for it than the length.
    let is_told = is_head || before == StatusCode::NOT_MODIFIED;
    let would_see = is_told && hooks.keeps_lengths() && hooks.sees_response_bodies();
    let has_say = passed.is_seen || would_see && before_length.is_some();
    let mut announces = false;
    if let Some(mut changed) = passed.head {
        let said = framing::take_length(stream, &mut changed.headers);
        keep(&FRAMING, &parts.headers, &mut changed.headers);
        announces = framing::announce(stream, &parts.headers, &mut changed.headers);
        parts.headers = changed.headers;
        parts.status = changed.status;
        if has_say {
            // What the plugin says of the length of what it makes holds; it is held to it.
            framing::declare(&mut parts.headers, said);
        }
    }
    // That the plugin wants the body in its hands.
    let is_wanted = passed.body.is_none() && passed.wishes.response_body != Want::Nothing;
    // A proxy-wasm plugin that sees bodies need not change them: as elsewhere, one that does takes
    // the length away.
    let kept = framing::length(&parts.headers).filter(|_| hooks.keeps_lengths());
    let made = match (has_say || is_wanted) && kept.is_none() {
        true => Made::Changed,
        false => Made::Unchanged,
    };
    let is_as_before = parts.status == before && before == StatusCode::NOT_MODIFIED;
    if has_no_content(parts.status) && !is_as_before {
        framing::declare(&mut parts.headers, None);
        return Ok(Outcome { body: None, made, has_content: false });
    }
    let mut body = passed.body;
    if passed.is_seen && announces {
        // Trailers come after chunks, not after a length (RFC 9112 §6.3).
        framing::declare(&mut parts.headers, None);
    } else if passed.is_seen
        && let Some(length) = kept
    {
        body = body.map(|body| Held::over(body, length, stream));
    }
    Ok(Outcome { body, made, has_content: true })
}

/// Takes away what described the body before a plugin had it in its hands.
fn transformed(headers: &mut HeaderMap) {
    for name in [
        header::CONTENT_LENGTH,
        header::ACCEPT_RANGES,
        header::CONTENT_RANGE,
        header::LAST_MODIFIED,
    ] {
        headers.remove(name);
    }
    for name in ["content-md5", "digest", "content-digest", "repr-digest"] {
        headers.remove(name);
    }
    // Another body, whose bytes are not those that the tag stood for (RFC 9110 §8.8.1).
    tags::weaken(headers);
}
