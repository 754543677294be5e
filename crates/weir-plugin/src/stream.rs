//! One request on its way through one generation of a plugin: which instance its hooks run in, on
//! which thread, and what becomes of it when the plugin fails.
//!
//! On Weir's own interface the exchange travels: it visits whichever instance is best for the call,
//! so that a long call leaves the worker by itself. On proxy-wasm a request is bound to the
//! instance that created its context; a plugin with long calls gets its requests on the long
//! threads whole.

mod calls;
mod travel;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

pub use self::calls::enter_place;
use self::calls::{Timer, at_place, end, is_here, lost};
use self::travel::{Departure, Travelling, Trip};
use crate::exchange::{Action, Answer, Exchange, Facts, Lend, Phase, RequestHead};
use crate::failure::Failure;
use crate::generation::Generation;
use crate::hooks::Hooks;
use crate::instance::Instance;
use crate::properties::Properties;
use crate::signal::Signal;

/// Something that is there, or comes later.
pub(crate) enum Turn<R> {
    Now(R),
    Later(Pin<Box<dyn Future<Output = R> + Send>>),
}

impl<R> Turn<R> {
    pub(crate) async fn wait(self) -> R {
        match self {
            Turn::Now(result) => result,
            Turn::Later(result) => result.await,
        }
    }
}

/// A request in a plugin. It ends, for the plugin, when the last clone is dropped.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    generation: Arc<Generation>,
    /// The worker that serves the request.
    worker: usize,
    seat: Seat,
    signal: Arc<Signal>,
    /// How the plugin ended the request when the head was gone already.
    late_end: Mutex<Option<LateEnd>>,
    /// The plugin failed, and what comes of that is decided: it is not asked again.
    is_given_up: AtomicBool,
    /// It is a client's request, of which it is not known yet how it ends.
    is_followed: AtomicBool,
}

/// How a plugin ended a request whose head it had let go: its body ended with
/// [`crate::FlowError`] then.
#[derive(Debug)]
pub enum LateEnd {
    /// It answers by itself.
    Answered(Box<Answer>),
    /// The client is to be gone.
    Closed,
    /// It failed.
    Failed(Failure),
}

/// Where the exchange is.
enum Seat {
    /// On Weir's own interface.
    Travelling(Travelling),
    /// In an instance.
    Bound { place: usize, serial: u64, id: u32 },
}

impl Seat {
    fn travelling(exchange: Box<Exchange>) -> Seat {
        Seat::Travelling(Travelling::new(exchange))
    }
}

/// What a hook did, and what was taken out of the exchange afterwards.
pub(crate) type Outcome<T> = Result<(Action, T), Failure>;

impl Stream {
    /// Begins. Waits only if an instance is being replaced, or the plugin is a long one.
    ///
    /// # Errors
    /// If there is no instance, or it fails.
    pub async fn open(
        generation: &Arc<Generation>,
        worker: usize,
        facts: Facts,
    ) -> Result<Stream, Failure> {
        if let Some(opened) = Stream::open_now(generation, worker, &facts) {
            return opened;
        }
        let place = match generation.is_bound() && generation.is_long_in_all() {
            true => generation.long_place(),
            false => worker,
        };
        generation.ready(place).await?;
        Stream::bind(generation, worker, place, facts).wait().await
    }

    /// Begins on proxy-wasm with a request without content, whose head the plugin is shown at once.
    /// `None` if the plugin has to be waited for: it has seen nothing then.
    ///
    /// # Errors
    /// If the plugin fails; it has seen the request then.
    pub(crate) fn begin_at_once<T>(
        generation: &Arc<Generation>,
        worker: usize,
        facts: &Facts,
        head: impl FnOnce() -> Arc<dyn Lend<RequestHead>>,
        take: impl FnOnce(&mut Exchange, Action) -> T,
    ) -> Option<Result<(Stream, Action, T), Failure>> {
        let is_here = is_here(worker) && generation.slot(worker).is_filled();
        if !is_here || generation.is_resting() || generation.is_long_in_all() {
            return None;
        }
        let begin = |instance: &mut Instance| {
            let timer = Timer::start(generation, worker, Phase::RequestHead, 0);
            let (id, action) = instance.begin(facts, head())?;
            timer.stop(0, instance);
            let serial = instance.serial();
            let exchange = instance.exchange(id).ok_or_else(lost)?;
            let taken = take(exchange, action);
            let signal = Arc::clone(&exchange.signal);
            generation.place_stats(worker).count_stream();
            let seat = Seat::Bound { place: worker, serial, id };
            Ok((Stream::new(generation, worker, signal, seat), action, taken))
        };
        generation.slot(worker).call(None, begin).ok()?
    }

    /// Shows a request without content to a plugin that has no hook but the one for its head. Most
    /// often the request passes as it is, and there is nothing to end: then it is never opened.
    /// `None` if the plugin is another one, or has to be waited for.
    ///
    /// # Errors
    /// If the plugin fails; it has seen the request then.
    pub(crate) fn glance(
        generation: &Arc<Generation>,
        worker: usize,
        facts: &Facts,
        head: impl FnOnce() -> Arc<dyn Lend<RequestHead>>,
    ) -> Option<Result<Option<(Stream, Action)>, Failure>> {
        let is_glance = generation.hooks().of_requests() == Hooks::only(Phase::RequestHead);
        let phase = Phase::RequestHead;
        if !is_glance || generation.is_resting() || generation.is_long(phase, 0) {
            return None;
        }
        if !is_here(worker) {
            return None;
        }
        let look = |instance: &mut Instance| {
            let timer = Timer::start(generation, worker, phase, 0);
            let seen = instance.glance(facts, head);
            timer.stop(0, instance);
            seen
        };
        let seen = generation.slot(worker).call(None, look).ok()??;
        Some(seen.map(|kept| {
            generation.place_stats(worker).count_stream();
            kept.map(|(exchange, action)| {
                let signal = Arc::clone(&exchange.signal);
                let seat = Seat::travelling(exchange);
                (Stream::new(generation, worker, signal, seat), action)
            })
        }))
    }

    /// The same if it can be done at once.
    pub fn open_now(
        generation: &Arc<Generation>,
        worker: usize,
        facts: &Facts,
    ) -> Option<Result<Stream, Failure>> {
        if generation.is_resting() {
            return Some(Err(generation.unavailable()));
        }
        if !generation.is_bound() {
            generation.place_stats(worker).count_stream();
            let exchange = Box::new(Exchange::new(facts.clone()));
            let signal = Arc::clone(&exchange.signal);
            return Some(Ok(Stream::new(generation, worker, signal, Seat::travelling(exchange))));
        }
        if generation.is_long_in_all() || !generation.slot(worker).is_filled() {
            return None;
        }
        match Stream::bind(generation, worker, worker, facts.clone()) {
            Turn::Now(opened) => Some(opened),
            Turn::Later(_) => None,
        }
    }

    fn bind(
        generation: &Arc<Generation>,
        worker: usize,
        place: usize,
        facts: Facts,
    ) -> Turn<Result<Stream, Failure>> {
        let generation = Arc::clone(generation);
        let owner = Arc::clone(&generation);
        let opened = at_place(&generation, place, None, move |instance| {
            let id = instance.open(facts)?;
            let signal = instance.exchange(id).map(|exchange| Arc::clone(&exchange.signal));
            Ok((id, instance.serial(), signal.unwrap_or_default()))
        });
        let seat = move |opened: Result<(u32, u64, Arc<Signal>), Failure>| {
            let (id, serial, signal) = opened?;
            owner.place_stats(place).count_stream();
            Ok(Stream::new(&owner, worker, signal, Seat::Bound { place, serial, id }))
        };
        match opened {
            Turn::Now(opened) => Turn::Now(seat(opened)),
            Turn::Later(opened) => Turn::Later(Box::pin(async move { seat(opened.await) })),
        }
    }

    fn new(generation: &Arc<Generation>, worker: usize, signal: Arc<Signal>, seat: Seat) -> Stream {
        let generation = Arc::clone(generation);
        let (late_end, is_given_up) = (Mutex::new(None), AtomicBool::new(false));
        let is_followed = AtomicBool::new(false);
        Stream(Arc::new(Inner {
            generation,
            worker,
            seat,
            signal,
            late_end,
            is_given_up,
            is_followed,
        }))
    }

    /// The generation it runs on.
    pub fn generation(&self) -> &Arc<Generation> {
        &self.0.generation
    }

    /// Whether the plugin has a hook for a phase.
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.0.generation.hooks().has(phase)
    }

    /// The hooks of the plugin.
    pub fn hooks(&self) -> Hooks {
        self.0.generation.hooks()
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.0.signal
    }

    /// Tells the plugin whom the request was sent on to.
    pub fn set_source(&self, source: Arc<dyn Properties>) {
        self.0.signal.set_source(source);
    }

    /// It is the request of a client, and what comes of it says something about the plugin.
    pub fn follow(&self) {
        if !self.0.is_followed.swap(true, Relaxed) {
            self.0.generation.place_stats(self.0.worker).count_followed();
        }
    }

    /// A whole response went to the client, after so long.
    pub fn count_response(&self, is_error: bool, took: Duration) {
        if self.0.is_followed.swap(false, Relaxed) {
            self.0.generation.place_stats(self.0.worker).count_response(is_error, took);
        }
    }

    /// The plugin answered, or closed the request, when its head was gone already.
    pub(crate) fn set_late_answer(&self, answer: Option<Answer>) {
        *self.0.late_end.lock() =
            Some(answer.map_or(LateEnd::Closed, |answer| LateEnd::Answered(Box::new(answer))));
    }

    pub(crate) fn set_late_failure(&self, failure: &Failure) {
        *self.0.late_end.lock() = Some(LateEnd::Failed(failure.clone()));
    }

    /// How the plugin ended the request when its head was gone already.
    pub fn take_late_end(&self) -> Option<LateEnd> {
        self.0.late_end.lock().take()
    }

    /// What the plugin makes of a message cannot be sent. That is its failure, whatever its policy:
    /// what it has made until then is gone already.
    pub fn refuse(&self, failure: &Failure) {
        self.0.generation.warn(&failure.message);
        self.count_failure(failure);
        self.set_late_failure(failure);
    }

    /// The plugin failed, and the request ends for that: it sees no more of it.
    pub fn give_up(&self) {
        self.0.is_given_up.store(true, Relaxed);
    }

    /// Whether it was given up.
    pub fn is_given_up(&self) -> bool {
        self.0.is_given_up.load(Relaxed)
    }

    /// Counts a failure of the request in the plugin that did not cost an instance.
    pub(crate) fn count_failure(&self, failure: &Failure) {
        self.0.generation.count_failure(self.0.worker, failure);
    }

    /// Runs a hook: `put` fills the exchange, `take` empties it. `bytes` is the size of the body's
    /// part that the hook sees.
    pub(crate) fn hook<T: Send + 'static>(
        &self,
        phase: Phase,
        end: bool,
        bytes: usize,
        put: impl FnOnce(&mut Exchange) + Send + 'static,
        take: impl FnOnce(&mut Exchange, Action) -> T + Send + 'static,
    ) -> Turn<Outcome<T>> {
        match &self.0.seat {
            Seat::Travelling(seat) => match seat.depart() {
                Departure::Now(mut exchange) => {
                    put(&mut exchange);
                    self.visit(exchange, phase, end, bytes, take)
                }
                // Both directions of a request may be under way: one waits for the other.
                Departure::Later => {
                    let stream = self.clone();
                    Turn::Later(Box::pin(async move {
                        let mut exchange = stream.departs().await?;
                        put(&mut exchange);
                        stream.visit(exchange, phase, end, bytes, take).wait().await
                    }))
                }
                Departure::Never => Turn::Now(Err(lost())),
            },
            Seat::Bound { place, serial, id } => {
                let (place, serial, id) = (*place, *serial, *id);
                let generation = &self.0.generation;
                let stats = Arc::clone(generation);
                at_place(generation, place, Some(serial), move |instance| {
                    if let Some(exchange) = instance.exchange(id) {
                        put(exchange);
                    }
                    let timer = Timer::start(&stats, place, phase, bytes);
                    let action = instance.hook(id, phase, end)?;
                    timer.stop(bytes, instance);
                    let exchange = instance.exchange(id).ok_or_else(lost)?;
                    Ok((action, take(exchange, action)))
                })
            }
        }
    }

    /// On Weir's own interface: the exchange goes to an instance and comes back.
    fn visit<T: Send + 'static>(
        &self,
        exchange: Box<Exchange>,
        phase: Phase,
        end: bool,
        bytes: usize,
        take: impl FnOnce(&mut Exchange, Action) -> T + Send + 'static,
    ) -> Turn<Outcome<T>> {
        let generation = &self.0.generation;
        let place = match generation.is_long(phase, bytes) {
            true => generation.long_place(),
            false => self.0.worker,
        };
        let mut trip = Trip { stream: self.clone(), exchange: Some(exchange) };
        let call = move |instance: &mut Instance| {
            let timer = Timer::start(trip.stream.generation(), place, phase, bytes);
            let result = instance.visit(&mut trip.exchange, phase, end);
            timer.stop(bytes, instance);
            let action = result?;
            let exchange = trip.exchange.as_mut().ok_or_else(lost)?;
            Ok((action, take(exchange, action)))
        };
        if generation.slot(place).is_filled() {
            return at_place(generation, place, None, call);
        }
        let generation = Arc::clone(generation);
        Turn::Later(Box::pin(async move {
            generation.ready(place).await?;
            at_place(&generation, place, None, call).wait().await
        }))
    }

    /// Looks into the exchange without a call into the plugin.
    pub(crate) fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Exchange) -> T + Send + 'static,
    ) -> Turn<Result<T, Failure>> {
        match &self.0.seat {
            Seat::Travelling(seat) => match seat.depart() {
                Departure::Now(mut exchange) => {
                    let looked = look(&mut exchange);
                    seat.arrive(Some(exchange));
                    Turn::Now(Ok(looked))
                }
                Departure::Later => {
                    let stream = self.clone();
                    Turn::Later(Box::pin(async move {
                        let mut exchange = stream.departs().await?;
                        let looked = look(&mut exchange);
                        stream.arrive(Some(exchange));
                        Ok(looked)
                    }))
                }
                Departure::Never => Turn::Now(Err(lost())),
            },
            Seat::Bound { place, serial, id } => {
                let (place, serial, id) = (*place, *serial, *id);
                at_place(&self.0.generation, place, Some(serial), move |instance| {
                    Ok(instance.exchange(id).map(look))
                })
                .map(|looked| looked.and_then(|looked| looked.ok_or_else(lost)))
            }
        }
    }
}

impl<R: Send + 'static> Turn<R> {
    pub(crate) fn map<S: Send + 'static>(self, f: impl FnOnce(R) -> S + Send + 'static) -> Turn<S> {
        match self {
            Turn::Now(result) => Turn::Now(f(result)),
            Turn::Later(later) => Turn::Later(Box::pin(async move { f(later.await) })),
        }
    }
}

impl Drop for Inner {
    /// The request is over for the plugin: it logs, and forgets it.
    fn drop(&mut self) {
        if *self.is_followed.get_mut() {
            self.generation.place_stats(self.worker).count_broken();
        }
        match &mut self.seat {
            Seat::Travelling(seat) => {
                let mut exchange = seat.end();
                if exchange.is_some() && self.generation.hooks().has(Phase::Log) {
                    let place = match self.generation.is_long(Phase::Log, 0) {
                        true => self.generation.long_place(),
                        false => self.worker,
                    };
                    end(&self.generation, place, None, move |instance| {
                        instance.visit(&mut exchange, Phase::Log, true).map(drop)
                    });
                }
            }
            Seat::Bound { place, serial, id } => {
                let (place, serial, id) = (*place, *serial, *id);
                end(&self.generation, place, Some(serial), move |instance| instance.close(id));
            }
        }
    }
}
