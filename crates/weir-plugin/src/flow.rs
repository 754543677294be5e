//! A request's or a response's way through one plugin: the head, the body piece by piece, the
//! trailers; held back while the plugin pauses, and let go as it was should the plugin fail and its
//! policy be `pass`.

mod feed;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep};
use weir_config::OnFailure;

use crate::exchange::{Action, Exchange, Lend, Lent, Phase, RequestHead, ResponseHead, Want};
use crate::failure::{Failure, FailureKind};
use crate::limits::PAUSE_MAX;
use crate::passed::{Content, FlowError, LetGo, Passed};
use crate::services::CallBody;
use crate::side::{Released, Side, look_at_paused, release_head_alone};
use crate::stream::{Outcome, Stream, Turn};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Stream {
    /// Shows a request to the plugin. Waits while the plugin pauses it.
    pub async fn request(
        &self,
        head: Arc<dyn Lend<RequestHead>>,
        content: Content,
    ) -> Passed<RequestHead> {
        let passed = Flow::new(self, Side::Request, content).head(move |exchange| {
            exchange.request = Some(Lent::Shared(head));
        });
        passed.await.passed(|released| released.request.take())
    }

    /// Shows a response to the plugin. Waits while the plugin pauses it.
    pub async fn response(
        &self,
        head: Arc<dyn Lend<ResponseHead>>,
        content: Content,
    ) -> Passed<ResponseHead> {
        let passed = Flow::new(self, Side::Response, content).head(move |exchange| {
            exchange.response = Some(Lent::Shared(head));
        });
        passed.await.passed(|released| released.response.take())
    }
}

type Calling = Pin<Box<dyn Future<Output = Outcome<Released>> + Send>>;

enum State {
    /// No hook is running.
    Idle,
    /// A hook runs elsewhere.
    Calling { call: Calling, phase: Phase, end: bool },
    /// The plugin holds back what it has seen.
    Paused { phase: Phase, end: bool, timer: Pin<Box<Sleep>> },
}

/// One way through the plugin, as a state machine under [`Body`].
pub(crate) struct Flow {
    stream: Stream,
    side: Side,
    /// Something follows the head, seen or not.
    has_content: bool,
    source: Option<CallBody>,
    /// What the plugin has told so far.
    heard: u64,
    /// When it began to hold back what it has: one hold may follow the other.
    held_since: Option<Instant>,
    /// Nothing more comes from the source.
    source_ended: bool,
    state: State,
    /// What of the body the plugin wants to see.
    want: Want,
    /// The head has not been let go.
    is_head_held: bool,
    /// The body's hook was the last to pause.
    is_body_paused: bool,
    /// What was let go with the head.
    head: Released,
    failure: Option<Failure>,
    /// Ends the body.
    error: Option<BoxError>,
    /// What has been read and not been shown yet.
    unseen: VecDeque<Bytes>,
    unseen_bytes: usize,
    /// What the plugin holds back, as it was.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// Bytes that it has let go.
    passed_bytes: u64,
    /// What was let go is not what came.
    is_altered: bool,
    /// What may be sent.
    out: VecDeque<Bytes>,
    /// The source's trailers, until they are shown.
    trailers_in: Option<HeaderMap>,
    trailers_out: Option<HeaderMap>,
    /// The whole body was shown, or is not wanted any more.
    is_body_shown: bool,
    /// Nothing is left but what may be sent.
    is_done: bool,
}

impl Flow {
    pub(crate) fn new(stream: &Stream, side: Side, content: Content) -> Flow {
        let (source, has_content) = match content {
            Content::Shown(body) if !body.is_end_stream() => (Some(body), true),
            Content::Shown(_) | Content::None => (None, false),
            Content::Unseen => (None, true),
        };
        let sees_bodies = stream.generation().is_bound() && stream.has(side.body());
        Flow {
            stream: stream.clone(),
            heard: stream.signal().heard(),
            held_since: None,
            side,
            has_content,
            state: State::Idle,
            want: if sees_bodies { Want::Pieces } else { Want::Nothing },
            is_head_held: true,
            is_body_paused: false,
            head: Released::default(),
            failure: None,
            error: None,
            unseen: VecDeque::new(),
            unseen_bytes: 0,
            held: Vec::new(),
            held_bytes: 0,
            passed_bytes: 0,
            is_altered: false,
            out: VecDeque::new(),
            trailers_in: None,
            trailers_out: None,
            is_body_shown: source.is_none(),
            is_done: source.is_none(),
            source_ended: source.is_none(),
            source,
        }
    }

    /// Shows the head, and waits until it is let go.
    async fn head(mut self, put: impl FnOnce(&mut Exchange) + Send + 'static) -> LetGo {
        let (phase, end) = (self.side.head(), !self.has_content);
        if self.stream.has(phase) {
            let call = self.call(phase, end, put);
            self.start(call, phase, end);
        } else {
            // The head is there to be looked at by the hooks that follow.
            self.is_head_held = false;
            if let Err(failure) = self.stream.look(put).wait().await {
                self.fail(failure);
            }
        }
        self.wait().await
    }

    /// Waits until the head is let go.
    pub(crate) async fn wait(mut self) -> LetGo {
        poll_fn(|cx| self.poll_head(cx)).await;
        let (released, failure) = (std::mem::take(&mut self.head), self.failure.take());
        let is_torn = self.error.is_some();
        let (body, is_seen) = self.into_body();
        LetGo { released, body, is_seen, is_torn, failure }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.is_head_held {
            ready!(self.poll_step(cx));
        }
        Poll::Ready(())
    }

    /// The body that follows the head, and whether the plugin sees it.
    fn into_body(self) -> (Option<CallBody>, bool) {
        let is_fresh = self.out.is_empty() && self.unseen.is_empty() && self.trailers_in.is_none();
        let shows_nothing = self.want == Want::Nothing && !self.stream.has(self.side.trailers());
        if is_fresh && !self.is_done && (shows_nothing || self.failure.is_some()) {
            return (self.source, false);
        }
        let is_over = self.is_done && self.out.is_empty() && self.trailers_out.is_none();
        let is_seen = self.source.is_some() && self.failure.is_none();
        match is_over && self.error.is_none() {
            true => (None, is_seen),
            false => (Some(BodyExt::boxed_unsync(self)), is_seen),
        }
    }

    fn call(
        &self,
        phase: Phase,
        end: bool,
        put: impl FnOnce(&mut Exchange) + Send + 'static,
    ) -> Turn<Outcome<Released>> {
        let side = self.side;
        let bytes = if phase == side.body() { self.held_bytes } else { 0 };
        let offset = self.shown_bytes();
        // A head that is held back goes on by the plugin's word, not by what a body's hook returns.
        let is_behind = phase == side.body() && self.is_paused_at_head();
        let before = move |exchange: &mut Exchange| {
            exchange.is_head_resumed = is_behind && !exchange.is_paused;
            put(exchange);
        };
        self.stream.hook(phase, end, bytes, before, move |exchange, action| {
            let is_paused = action == Action::Pause;
            let has_word = exchange.is_resumed || exchange.is_head_resumed;
            if is_behind && !has_word {
                exchange.is_paused = true;
            }
            look(
                side,
                exchange,
                is_paused || is_behind && !has_word,
                offset,
                is_behind && is_paused,
            )
        })
    }

    pub(crate) fn start(&mut self, call: Turn<Outcome<Released>>, phase: Phase, end: bool) {
        match call {
            Turn::Now(outcome) => self.settle(outcome, phase, end),
            Turn::Later(call) => self.state = State::Calling { call, phase, end },
        }
    }

    /// Bytes of the body that have been shown.
    fn shown_bytes(&self) -> u64 {
        self.passed_bytes + self.held_bytes as u64
    }

    /// The hook for the head has paused, on proxy-wasm.
    fn is_paused_at_head(&self) -> bool {
        self.is_head_held && self.stream.generation().is_bound()
    }

    /// What a hook's end means.
    fn settle(&mut self, outcome: Outcome<Released>, phase: Phase, end: bool) {
        match outcome {
            Err(failure) => self.fail(failure),
            Ok((action, released)) if released.is_held => {
                self.is_body_paused = phase == self.side.body() && action == Action::Pause;
                self.pause(phase, end, released.wishes.hold);
            }
            Ok((_, released)) if released.keeps_body => {
                self.head = released;
                self.is_head_held = false;
                self.held_since = None;
                self.pause(self.side.body(), end, None);
            }
            Ok((_, released)) => self.let_go(released, phase),
        }
    }

    fn pause(&mut self, phase: Phase, end: bool, hold: Option<Duration>) {
        let since = *self.held_since.get_or_insert_with(Instant::now);
        let left = PAUSE_MAX.saturating_sub(since.elapsed());
        let timer = Box::pin(tokio::time::sleep(hold.unwrap_or(PAUSE_MAX).min(left)));
        self.state = State::Paused { phase, end, timer };
    }

    /// The plugin lets go of what it has.
    fn let_go(&mut self, mut released: Released, phase: Phase) {
        self.state = State::Idle;
        self.held_since = None;
        self.is_altered |= !is_same(&self.held, &released.pieces);
        if released.passes_rest {
            self.want = Want::Nothing;
        }
        self.held.clear();
        self.passed_bytes += self.held_bytes as u64;
        self.held_bytes = 0;
        self.out.extend(released.pieces.drain(..));
        if !released.trailers.is_empty() {
            self.trailers_out = Some(std::mem::take(&mut released.trailers));
        }
        if phase == self.side.trailers() || self.is_body_shown && self.trailers_in.is_none() {
            self.is_done = true;
        }
        if self.is_head_held {
            self.is_head_held = false;
            if !self.stream.generation().is_bound() {
                self.want = self.side.want(&released.wishes);
            }
            self.head = released;
        } else if released.wishes.answer.is_some() || released.wishes.close {
            self.stream.set_late_answer(released.wishes.answer);
            self.out.clear();
            let plugin = self.stream.generation().name().to_owned();
            self.end_with(FlowError::Ended { plugin });
        }
    }

    fn end_with(&mut self, error: FlowError) {
        self.is_done = true;
        self.trailers_out = None;
        self.error = Some(Box::new(error));
    }

    /// The plugin has failed: what it held back goes on as it was, or nothing does.
    fn fail(&mut self, failure: Failure) {
        self.state = State::Idle;
        let must_fail = self.stream.generation().on_failure() == OnFailure::Fail;
        // A body that is half changed is not what anybody sent.
        if !self.is_head_held && (must_fail || self.is_altered) {
            self.held.clear();
            self.unseen.clear();
            if self.side == Side::Request {
                self.stream.set_late_failure(&failure);
            }
            let plugin = self.stream.generation().name().to_owned();
            return self.end_with(FlowError::Failed { plugin, failure });
        }
        self.out.extend(self.held.drain(..));
        self.held_bytes = 0;
        self.out.extend(self.unseen.drain(..));
        self.unseen_bytes = 0;
        self.want = Want::Nothing;
        self.is_body_shown = self.source_ended;
        self.is_done = self.source_ended;
        if self.source_ended {
            self.trailers_out = self.trailers_in.take();
        }
        if self.is_head_held {
            // Whoever waits for the head decides.
            self.is_head_held = false;
            self.failure = Some(failure);
        }
    }

    /// Goes one step on.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            State::Calling { call, phase, end } => {
                let (phase, end) = (*phase, *end);
                let outcome = ready!(call.as_mut().poll(cx));
                self.settle(outcome, phase, end);
            }
            State::Paused { phase, end, timer } => {
                let (phase, end) = (*phase, *end);
                let is_late = timer.as_mut().poll(cx).is_ready();
                ready!(self.poll_paused(phase, end, is_late, cx));
            }
            State::Idle if self.is_body_shown => self.show_trailers(),
            State::Idle => {
                ready!(self.poll_source(cx));
                self.show();
            }
        }
        Poll::Ready(())
    }

    /// Waits for the plugin's word; if it holds back a body that it sees, for more of that too.
    fn poll_paused(
        &mut self,
        phase: Phase,
        end: bool,
        is_late: bool,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let is_told = self.stream.signal().poll_told(&mut self.heard, cx).is_ready();
        let is_bound = self.stream.generation().is_bound();
        let is_stalled = is_late && self.held_since.is_some_and(|at| at.elapsed() >= PAUSE_MAX);
        if !is_bound && (is_told || is_late) && !is_stalled {
            let call = self.call(phase, end, |exchange| exchange.again = true);
            self.start(call, phase, end);
        } else if is_told {
            let (side, offset) = (self.side, self.shown_bytes());
            let keeps_body = self.is_paused_at_head() && self.is_body_paused;
            let looked = self.stream.look(move |exchange| {
                let is_paused = exchange.is_paused;
                look(side, exchange, is_paused, offset, keeps_body)
            });
            let outcome = looked.map(|looked| looked.map(|released| (Action::Continue, released)));
            self.start(outcome, phase, end);
        } else if is_late {
            let message = format!("paused for {} s without a word", PAUSE_MAX.as_secs());
            self.fail_alive(Failure::new(FailureKind::Stalled, message));
        } else if is_bound && phase != self.side.trailers() && self.shows_more() {
            ready!(self.poll_source(cx));
            self.show();
        } else if phase == self.side.body() && !self.is_head_held && self.ends_with_trailers() {
            self.show_trailers();
        } else {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A failure of the request, not of the instance.
    fn fail_alive(&mut self, failure: Failure) {
        self.stream.count_failure(&failure);
        self.fail(failure);
    }
}

/// Takes out what the plugin lets go of: the head without the body, if that `keeps_body` back by
/// itself. So many bytes of the body have been shown to it by then.
fn look(
    side: Side,
    exchange: &mut Exchange,
    is_paused: bool,
    offset: u64,
    keeps_body: bool,
) -> Released {
    let has_end = exchange.wishes.answer.is_some() || exchange.wishes.close;
    if keeps_body && !has_end && (!is_paused || exchange.is_head_resumed) {
        return release_head_alone(side, exchange);
    }
    let released = look_at_paused(side, exchange, is_paused);
    if !released.is_held {
        *side.offset(exchange) = offset;
    }
    released
}

/// Whether these are the very same pieces.
fn is_same(these: &[Bytes], those: &[Bytes]) -> bool {
    these.len() == those.len()
        && these.iter().zip(those).all(|(a, b)| a.as_ptr() == b.as_ptr() && a.len() == b.len())
}

impl Body for Flow {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(piece) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(error) = self.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if self.is_done {
                let trailers = self.trailers_out.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            ready!(self.poll_step(cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_empty = self.out.is_empty() && self.trailers_out.is_none() && self.error.is_none();
        self.is_done && is_empty
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_done && self.trailers_out.is_none() && self.error.is_none() {
            true => SizeHint::with_exact(self.out.iter().map(|piece| piece.len() as u64).sum()),
            false => SizeHint::default(),
        }
    }
}
