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
        /// The least it falls to, but for probes, which halve it; at least 1.
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
/// By Little's law an upstream that works on c requests at a time answers n > c of them with n/c of
/// the latency it has unloaded. So `n × unloaded latency ÷ latency` estimates c: the gradient of
/// Netflix's concurrency-limits (`Gradient2Limit`) and of Envoy's adaptive concurrency filter. The
/// limit goes towards that plus a headroom of an eighth (at least one), in which growth shows.
///
/// It differs from both in what simulations showed to be needed (`tests/gate_simulation.rs`):
///
/// - *The unloaded latency comes from probes*, in which the limit is lowered to 0.7 of itself, and
///   from times with few requests in flight. A least or long-term mean of what is measured anyhow
///   takes in queues that stand, and a limit too high then confirms itself. Envoy lowers the limit
///   to 3, which stops most traffic; 0.7 suffices, because probes that find the latency still
///   falling are repeated from there.
/// - *A fall by more than an eighth needs a probe* that shows that fewer requests are answered
///   faster. Requests can have become slower all by themselves: then lowering the limit takes
///   throughput and gives nothing, and the baseline is what is wrong.
/// - *Latencies are compared as means of logarithms, class by class.* One page that takes ten times
///   as long does not outweigh the others; and as a lower limit lets through another mix of classes,
///   these must not be mixed up.
/// - *A measurement is a cohort*: requests that started one after the other, looked at when they
///   have all ended. Whoever looks at what ends within a time sees mostly fast ones.
/// - What is not saturated is not judged: then latency says nothing about the limit.
///
/// Failures lower the limit at once to 0.7 of itself, once for all that were under way.
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

    /// A request starts, and with it `in_flight` are.
    pub fn started(&mut self, now_ns: u64, in_flight: u32) -> Cohort {
        let Some(controller) = &mut self.controller else { return NO_COHORT };
        let cohort = controller.started(now_ns, in_flight);
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

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        let Some(controller) = &mut self.controller else { return };
        controller.tick(now_ns);
        self.limit = controller.limit();
    }
}
