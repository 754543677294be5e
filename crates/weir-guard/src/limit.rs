//! How many requests an upstream may have at a time, found from how long it takes to answer. Who
//! waits meanwhile is for [`crate::queue`].

mod baseline;
mod cohort;
mod controller;
mod curve;

use self::cohort::NO_COHORT;
use self::controller::Controller;

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

impl Default for LimitSettings {
    /// Adaptive from 2 to 10,000, beginning with 16.
    fn default() -> LimitSettings {
        LimitSettings::Adaptive { floor: 2, initial: 16, ceiling: 10_000 }
    }
}

/// How a request to the upstream ended, as far as its load is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It answered; 4xx and 500 included. Its latency counts.
    Answered,
    /// It refused, timed out, or answered 502, 503 or 504: a sign that it is overloaded.
    Failed,
    /// Nothing can be said: the client went away, or the request was never sent.
    Unknown,
}

/// Which measurement a request in flight belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cohort(u32);

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
/// - *Probes give the fit something to tell from.* In one of 25 measurements the limit is lowered
///   to 0.7 of itself, or raised by a quarter; that costs about 1 % of the throughput. (Envoy
///   lowers it to 3, which stops most traffic.) As long as the lowest probe shows no bend, lower
///   ones follow, so that a queue that was always there cannot pass for the unloaded latency.
/// - *What does not fit is found out.* A surprise, that is a measurement far off the curve, makes
///   the rest forgotten and a probe due: if fewer requests are not answered faster, they have
///   become slower by themselves, and lowering the limit would take throughput and give nothing.
/// - *Classes are compared each with itself.* Under a lower limit more of what is served is of the
///   top class, which may be slower, or faster, than the others.
/// - *A measurement is a cohort*: requests that started one after the other, looked at when they
///   have ended. Whoever looks at what ends within a time sees mostly fast ones. The more latencies
///   differ, the larger it is: 40 to 480 requests, or those of a second.
/// - *Little traffic is no evidence.* When requests are not held back, latency says nothing about
///   the limit; if few are in flight, it shows the latency unloaded.
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

    /// What the upstream is thought to need without a queue, as a mean over classes, in
    /// nanoseconds. `None` if nothing is known or the limit is fixed.
    pub fn baseline_ns(&self) -> Option<u64> {
        self.controller.as_ref().and_then(|controller| controller.baseline_ns())
    }

    /// A request of a class starts, and with it `in_flight` are.
    pub fn started(&mut self, now_ns: u64, class: usize, in_flight: u32) -> Cohort {
        let Some(controller) = &mut self.controller else { return NO_COHORT };
        let cohort = controller.started(now_ns, class, in_flight);
        self.limit = controller.limit();
        cohort
    }

    /// A request has ended that started at `started_ns`, and was answered after `latency_ns`.
    pub fn finished(
        &mut self,
        now_ns: u64,
        cohort: Cohort,
        class: usize,
        started_ns: u64,
        latency_ns: u64,
        outcome: Outcome,
    ) {
        let Some(controller) = &mut self.controller else { return };
        controller.finished(now_ns, cohort, class, started_ns, latency_ns, outcome);
        self.limit = controller.limit();
    }

    /// Whether it is known what the upstream works on at a time; always, where that is configured.
    pub fn is_known(&self) -> bool {
        self.controller.as_ref().is_none_or(|controller| controller.baseline_ns().is_some())
    }

    /// So many may be in flight, within its bounds, and measurements go on from there.
    pub fn set(&mut self, limit: u32) {
        let Some(controller) = &mut self.controller else { return };
        controller.set(limit);
        self.limit = controller.limit();
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let Some(controller) = &mut self.controller else { return };
        controller.tick(now_ns);
        self.limit = controller.limit();
    }
}
