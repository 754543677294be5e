//! How many requests an upstream may have at a time, found from how long it takes to answer. Who
//! waits meanwhile is for [`crate::queue`].

mod baseline;
mod cohort;
mod controller;
mod curve;
mod doubt;
mod failures;

use self::cohort::NO_COHORT;
use self::controller::Controller;
use crate::class::Heir;

/// So few requests in flight hardly meet a queue.
const FEW: u32 = 3;

/// Where a limit comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSettings {
    /// It is configured. 0 counts as 1.
    Fixed(u32),
    /// It follows measured latency.
    Adaptive {
        /// The least it falls to, but for probes, which go lower; at least 1.
        floor: u32,
        /// Where it begins. Too small costs a few round trips, too large a few probes.
        initial: u32,
        /// The most it rises to.
        ceiling: u32,
    },
}

/// How a request to the upstream ended, as far as its load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It answered; 4xx and 500 included. Its latency counts.
    Answered,
    /// It refused, timed out, or answered 502, 503 or 504: a sign that it is overloaded.
    Failed,
    /// Its client went away after so long without an answer. That counts, too: under overload
    /// those are left who were lucky.
    Left,
    /// Nothing can be said: the request was never sent.
    Unknown,
}

/// Which measurement a request in flight belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cohort(u32);

/// What is remembered of a request in flight.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) class: usize,
    /// When, in nanoseconds.
    pub(crate) at_ns: u64,
    cohort: Cohort,
    /// Few others were in flight.
    is_among_few: bool,
}

/// A concurrency limit, fixed or adaptive.
///
/// # How the adaptive limit works
///
/// By Little's law an upstream that works on c requests at a time answers n > c of them in n/c of
/// the time it needs for fewer. The limit is c and a headroom of a tenth (at least one), in which
/// growth shows.
///
/// Netflix's concurrency-limits (`Gradient2Limit`) and Envoy's adaptive concurrency filter find c
/// as n × latency unloaded ÷ latency. A limit by that formula was tried first and failed in
/// `tests/gate_simulation`: an unloaded latency that is too low by a tenth, by chance or because
/// requests have become slower, lowers the limit below c, where latency no longer depends on it,
/// and so lowers it on and on (goodput fell to half). Hence:
///
/// - *All measurements count.* Both parameters, c and the latency unloaded, are fitted to latency
///   over requests in flight, where about 100 measurements are remembered (`curve`). What would fit
///   nearly as well is possible too, and of possible c the largest is taken: the limit falls only
///   by evidence.
/// - *Probes give the fit something to tell from.* As long as too little is known of latency
///   without a queue, the limit is halved for half a cohort, in one of three: a queue that was
///   always there cannot pass for the unloaded latency then. Later, in one of nine, it is raised by
///   a fifth, which costs no throughput, so that a limit that is too low is found out. What was
///   measured fades, so that now and then it is halved again. (Envoy lowers its limit to 3 for
///   that, which stops most traffic.)
/// - *What does not fit is found out.* A surprise, that is a measurement far off the curve, makes
///   the rest forgotten and a probe due: if fewer requests are not answered faster, they have
///   become slower by themselves, and lowering the limit would take throughput and give nothing.
/// - *Classes are compared each with itself.* Under a lower limit more of what is served is of the
///   top class, which may be slower, or faster, than the others.
/// - *A measurement is a cohort*: requests that started one after the other, looked at when they
///   have ended. Whoever looks at what ends within a time sees mostly fast ones. The more latencies
///   differ, the larger it is: 40 to 480 requests, or those of a second.
/// - *Traffic that is not held back is asked before it counts.* More requests are in flight when
///   each takes longer, whether they queue or not (`doubt`). Below a limit that is known, few in
///   flight show the latency unloaded.
/// - *Clients who leave count.* Under overload those are left who were answered soon. So the mean
///   is all the time that was waited over the number of answers.
///
/// Failures lower the limit at once to 0.7 of itself, once for all that were under way. The way
/// back is fast up to there, and slow beyond.
#[derive(Debug)]
pub struct AdaptiveLimit {
    settings: LimitSettings,
    controller: Option<Box<Controller>>,
    limit: u32,
}

impl AdaptiveLimit {
    /// A limit without any measurement.
    pub fn new(settings: &LimitSettings) -> AdaptiveLimit {
        let (controller, limit) = match *settings {
            LimitSettings::Fixed(limit) => (None, limit.max(1)),
            LimitSettings::Adaptive { floor, initial, ceiling } => {
                let controller = Controller::new(floor, initial, ceiling);
                let limit = controller.limit();
                (Some(Box::new(controller)), limit)
            }
        };
        AdaptiveLimit { settings: settings.clone(), controller, limit }
    }

    /// Requests that may be in flight now.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// What it was made by.
    pub fn settings(&self) -> &LimitSettings {
        &self.settings
    }

    /// Whether the limit is lowered for a moment to see the latency without a queue.
    pub fn is_probing(&self) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.is_probing())
    }

    /// If it is lowered though it held nobody back before: until when people may wait for that.
    pub fn asks_until_ns(&self) -> Option<u64> {
        self.controller.as_ref()?.asks_until_ns()
    }

    /// Whether the limit may be lowered to see something.
    pub fn let_probe(&mut self, may_probe: bool) {
        if let Some(controller) = &mut self.controller {
            controller.let_probe(may_probe);
        }
    }

    /// They have waited for long enough.
    pub fn stop_asking(&mut self, now_ns: u64) {
        let Some(controller) = &mut self.controller else { return };
        controller.stop_asking(now_ns);
        self.limit = controller.limit();
    }

    /// What the upstream is thought to need without a queue, as a mean over classes, in
    /// nanoseconds. `None` if nothing is known or the limit is fixed.
    pub fn baseline_ns(&self) -> Option<u64> {
        self.controller.as_ref().and_then(|controller| controller.baseline_ns())
    }

    /// How far the limit is over what the upstream works on at a time; 0 if that is not known.
    pub fn headroom(&self) -> u32 {
        self.controller.as_ref().map_or(0, |controller| controller.headroom())
    }

    /// A request of a class starts, and with it `in_flight` are.
    pub(crate) fn started(&mut self, now_ns: u64, class: usize, in_flight: u32) -> Sent {
        let cohort = self.controller.as_mut().map_or(NO_COHORT, |controller| {
            let cohort = controller.started(now_ns, class, in_flight);
            self.limit = controller.limit();
            cohort
        });
        Sent { class, at_ns: now_ns, cohort, is_among_few: in_flight <= FEW }
    }

    /// A request has ended that was answered, or left, after `latency_ns`.
    pub(crate) fn finished(&mut self, now_ns: u64, sent: &Sent, latency_ns: u64, outcome: Outcome) {
        let Some(controller) = &mut self.controller else { return };
        controller.finished(now_ns, sent, latency_ns, outcome);
        self.limit = controller.limit();
    }

    /// Whether it is known what the upstream works on at a time; always, where that is configured.
    pub fn is_known(&self) -> bool {
        self.controller.as_ref().is_none_or(|controller| controller.has_knee())
    }

    /// So many may be in flight, within its bounds, and measurements go on from there.
    pub fn set(&mut self, limit: u32) {
        let Some(controller) = &mut self.controller else { return };
        controller.set(limit);
        self.limit = controller.limit();
    }

    /// Other classes: what is known of each goes with its name.
    pub(crate) fn reclass(&mut self, now_ns: u64, heirs: &[Heir]) {
        let Some(controller) = &mut self.controller else { return };
        controller.reclass(now_ns, heirs);
        self.limit = controller.limit();
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let Some(controller) = &mut self.controller else { return };
        controller.tick(now_ns);
        self.limit = controller.limit();
    }
}
