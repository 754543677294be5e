//! Quick looks: a head is shown to a plugin at once, and if the plugin lets it pass as it is, that
//! is all. Where there is more to it, the flow goes on from there.

use std::pin::Pin;
use std::sync::Arc;

use crate::exchange::{Action, Exchange, Facts, Lend, Lent, Phase, RequestHead, ResponseHead};
use crate::failure::{Failure, FailureKind};
use crate::flow::Flow;
use crate::generation::Generation;
use crate::passed::{Content, Passed};
use crate::side::{Released, Side, look_at_paused, release};
use crate::stream::{Outcome, Stream, Turn};

/// What came of a quick look at a head.
pub enum AtOnce<H> {
    /// It passes as it is, and the plugin wishes nothing.
    Unchanged,
    /// There is more to it.
    Later(Pin<Box<dyn Future<Output = Passed<H>> + Send>>),
}

/// What came of the quickest look at a request.
pub enum Glance {
    /// It passes as it is, and nothing of it is kept.
    Passed,
    /// There is more to it.
    More(Stream, AtOnce<RequestHead>),
    /// The plugin failed.
    Failed(Failure),
    /// The plugin is not one for quick looks, or has to be waited for; it has seen nothing.
    Not,
}

impl Glance {
    /// Shows a request without content to a plugin that has no hook but the one for its head. Most
    /// often the request passes as it is, and there is nothing to end: then no stream is opened.
    pub fn at(
        generation: &Arc<Generation>,
        worker: usize,
        facts: &Facts,
        head: impl FnOnce() -> Arc<dyn Lend<RequestHead>>,
    ) -> Glance {
        if generation.is_bound() {
            return Glance::begin(generation, worker, facts, head);
        }
        let (stream, action) = match Stream::glance(generation, worker, facts, head) {
            None => return Glance::Not,
            Some(Err(failure)) => return Glance::Failed(failure),
            Some(Ok(None)) => return Glance::Passed,
            Some(Ok(Some(more))) => more,
        };
        let side = Side::Request;
        let taken = stream.look(move |exchange| match action {
            Action::Continue => release(side, exchange),
            Action::Pause => look_at_paused(side, exchange, true),
        });
        let mut flow = Flow::new(&stream, side, Content::None);
        flow.start(taken.map(move |taken| taken.map(|taken| (action, taken))), side.head(), true);
        let passed = AtOnce::Later(Box::pin(async {
            flow.wait().await.passed(|released| released.request.take())
        }));
        Glance::More(stream, passed)
    }

    /// The same on proxy-wasm, where every request has a context to end.
    fn begin(
        generation: &Arc<Generation>,
        worker: usize,
        facts: &Facts,
        head: impl FnOnce() -> Arc<dyn Lend<RequestHead>>,
    ) -> Glance {
        let take = take_head(Side::Request);
        match Stream::begin_at_once(generation, worker, facts, head, take) {
            None => Glance::Not,
            Some(Err(failure)) => Glance::Failed(failure),
            Some(Ok((stream, action, taken))) => {
                let call = more(Turn::Now(Ok((action, taken))));
                let passed = stream.request_passed(call);
                Glance::More(stream, passed)
            }
        }
    }
}

/// What is taken out of an exchange after the hook for a head; nothing if that has left no trace.
/// Nothing large is moved to find that out.
fn take_head(side: Side) -> impl FnOnce(&mut Exchange, Action) -> Option<Box<Released>> + Send {
    move |exchange, action| match action {
        Action::Continue if exchange.is_plain() => None,
        Action::Continue => Some(Box::new(release(side, exchange))),
        Action::Pause => Some(Box::new(look_at_paused(side, exchange, true))),
    }
}

/// `None` if a hook for a head is over and has left no trace.
fn more(call: Turn<Outcome<Option<Box<Released>>>>) -> Option<Turn<Outcome<Released>>> {
    if let Turn::Now(Ok((Action::Continue, None))) = call {
        return None;
    }
    Some(call.map(|outcome| {
        outcome.map(|(action, released)| (action, released.map(|boxed| *boxed).unwrap_or_default()))
    }))
}

impl Stream {
    /// Shows a request without content to the plugin, at once if that can be done. A plugin that
    /// lets it pass as it is costs no more than the call.
    pub fn request_at_once(&self, head: Arc<dyn Lend<RequestHead>>) -> AtOnce<RequestHead> {
        if !self.has(Phase::RequestHead) {
            return match self.look(|exchange| exchange.request = Some(Lent::Shared(head))) {
                Turn::Now(Ok(())) => AtOnce::Unchanged,
                Turn::Now(Err(_)) | Turn::Later(_) => AtOnce::Later(Box::pin(async {
                    Passed::failed(Failure::new(FailureKind::Unavailable, "the instance is gone"))
                })),
            };
        }
        let put = move |exchange: &mut Exchange| exchange.request = Some(Lent::Shared(head));
        self.request_passed(self.at_once(Side::Request, true, put))
    }

    fn request_passed(&self, call: Option<Turn<Outcome<Released>>>) -> AtOnce<RequestHead> {
        match call {
            None => AtOnce::Unchanged,
            Some(call) => AtOnce::Later(Box::pin(
                self.go_on(Side::Request, call, |released| released.request.take()),
            )),
        }
    }

    /// Shows a response whose body the plugin does not look at, as above.
    pub fn response_at_once(&self, head: Arc<dyn Lend<ResponseHead>>) -> AtOnce<ResponseHead> {
        if !self.has(Phase::ResponseHead) {
            return AtOnce::Unchanged;
        }
        let put = move |exchange: &mut Exchange| exchange.response = Some(Lent::Shared(head));
        match self.at_once(Side::Response, false, put) {
            None => AtOnce::Unchanged,
            Some(call) => AtOnce::Later(Box::pin(
                self.go_on(Side::Response, call, |released| released.response.take()),
            )),
        }
    }

    /// Runs the hook of a head. `None` if it is over and has left no trace.
    fn at_once(
        &self,
        side: Side,
        end: bool,
        put: impl FnOnce(&mut Exchange) + Send + 'static,
    ) -> Option<Turn<Outcome<Released>>> {
        more(self.hook(side.head(), end, 0, put, take_head(side)))
    }

    /// Goes on where a head was not let go at once, or not as it was.
    fn go_on<H, F>(
        &self,
        side: Side,
        call: Turn<Outcome<Released>>,
        head: F,
    ) -> impl Future<Output = Passed<H>> + Send + use<H, F>
    where
        F: FnOnce(&mut Released) -> Option<H> + Send,
    {
        let content = match side {
            Side::Request => Content::None,
            Side::Response => Content::Unseen,
        };
        let mut flow = Flow::new(self, side, content);
        flow.start(call, side.head(), side == Side::Request);
        async move { flow.wait().await.passed(head) }
    }
}
