//! An upstream as the pipeline uses it: a group of servers behind a gate, which lets in as many
//! requests at a time as the group can take, and those of the highest class first.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use http::{Request, Response, StatusCode};
use weir_cache::Lead;
use weir_config::{self as config, Concurrency};
use weir_guard::{ClassRef, Classes, GateSettings, LimitSettings, Outcome, ShedReason};
use weir_origin::error::{ErrorKind, OriginError};
use weir_origin::upstream::{Choice, Group, RequestBody, ResponseBody};

use crate::guard::UpstreamGate;

/// A gated group.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) group: Arc<Group>,
    pub(crate) gate: Arc<UpstreamGate>,
}

impl Upstream {
    pub(crate) fn new(
        group: Arc<Group>,
        guard: &config::Guard,
        classes: &Arc<Classes>,
        overloaded: &Arc<AtomicUsize>,
    ) -> Arc<Upstream> {
        let gate = UpstreamGate::new(&settings(&group, guard), classes, overloaded);
        Arc::new(Upstream { group, gate })
    }

    /// Another group behind the same gate: the servers are the same, and work on what they were
    /// asked before.
    pub(crate) fn with_group(&self, group: Arc<Group>) -> Arc<Upstream> {
        Arc::new(Upstream { group, gate: Arc::clone(&self.gate) })
    }

    /// Other settings of overload control, and its classes.
    pub(crate) fn configure(&self, guard: &config::Guard, classes: &Arc<Classes>) {
        self.gate.configure(&settings(&self.group, guard), classes);
    }

    /// Sends a request when it is its turn.
    ///
    /// # Errors
    /// As [`Group::send`]; [`ErrorKind::Overloaded`] if its turn has not come in time.
    pub(crate) async fn send(
        &self,
        worker: usize,
        class: ClassRef,
        request: Request<RequestBody>,
        choice: Choice,
    ) -> Result<Response<ResponseBody>, OriginError> {
        self.send_when_its_turn(worker, class, None, request, choice, pending()).await
    }

    /// The same for all that follow `lead`, unless `gone` comes before its turn: then nobody waits
    /// for it any more.
    ///
    /// # Errors
    /// As [`Upstream::send`].
    pub(crate) async fn send_leading(
        &self,
        worker: usize,
        (class, lead): (ClassRef, &Lead),
        request: Request<RequestBody>,
        choice: Choice,
        gone: impl Future<Output = ()>,
    ) -> Result<Response<ResponseBody>, OriginError> {
        self.send_when_its_turn(worker, class, Some(lead), request, choice, gone).await
    }

    async fn send_when_its_turn(
        &self,
        worker: usize,
        class: ClassRef,
        lead: Option<&Lead>,
        request: Request<RequestBody>,
        choice: Choice,
        gone: impl Future<Output = ()>,
    ) -> Result<Response<ResponseBody>, OriginError> {
        let entered = tokio::select! {
            biased;
            entered = self.gate.enter(class, lead) => entered.map_err(ShedReason::as_str),
            () = gone => Err("nobody waits for it"),
        };
        let passing = entered.map_err(|why| {
            OriginError::new(ErrorKind::Overloaded, self.group.config().name.as_str(), why)
        })?;
        let sent = self.group.send(worker, request, choice).await;
        passing.end(outcome(&sent));
        sent
    }
}

/// Where a limit that adapts begins: more than most applications work on at a time, and few enough
/// that one which drowns in more still answers, so that there is something to measure. An upstream
/// that takes more is given more within a few round trips; the others wait meanwhile.
const LIMIT_INITIAL: u32 = 64;

/// The least it falls to: with one at a time there would be nothing to compare with.
const LIMIT_FLOOR: u32 = 2;

/// The most it rises to, beyond what a process or a host serves at a time.
const LIMIT_CEILING: u32 = 10_000;

fn settings(group: &Group, guard: &config::Guard) -> GateSettings {
    let limit = match group.config().concurrency {
        Concurrency::Auto => LimitSettings::Adaptive {
            floor: LIMIT_FLOOR,
            initial: LIMIT_INITIAL,
            ceiling: LIMIT_CEILING,
        },
        Concurrency::Fixed(limit) => LimitSettings::Fixed(limit),
        Concurrency::Unlimited => LimitSettings::Fixed(u32::MAX),
    };
    GateSettings::new(guard, limit)
}

/// What an exchange says of the upstream's load.
fn outcome(sent: &Result<Response<ResponseBody>, OriginError>) -> Outcome {
    match sent {
        Ok(response) => match response.status() {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Outcome::Failed,
            _ => Outcome::Answered,
        },
        Err(error) if error.kind().is_servers_fault() => Outcome::Failed,
        Err(_) => Outcome::Unknown,
    }
}
