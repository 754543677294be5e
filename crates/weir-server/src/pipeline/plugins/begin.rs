//! Plugins on the fast path: a plain request is shown to them as far as that goes without waiting
//! and without a change; where it does not, the full path goes on from there.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use weir_cache::Object;
use weir_config::OnFailure;
use weir_http::head::Head;
use weir_plugin::{
    AtOnce, Facts, Failure, Glance, Hooks, Lend, Passed, RequestHead, ResponseHead, Stream,
};

use super::super::adapt::Fitted;
use super::super::reply::{self, Found};
use super::{Passage, Step};
use crate::chain::Chain;
use crate::connection::{Connection, Reply};
use crate::live::Route;
use crate::record::Record;

/// What the fast path has begun.
#[derive(Default)]
pub(crate) struct Begun {
    pub(super) passage: Passage,
    /// The first plugin of the chain that has not seen the request.
    pub(super) next: usize,
    /// The one before it, if it did not let the request pass at once and as it was.
    pub(super) pending: Option<Pending>,
}

pub(super) enum Pending {
    Seen(Step, Pin<Box<dyn Future<Output = Passed<RequestHead>> + Send>>),
    Failed(Failure),
}

/// Shows a plain request to the plugins of its route, as far as that goes without waiting and
/// without a change.
pub(in crate::pipeline) fn begin(
    connection: &Arc<Connection>,
    route: &Route,
    chain: &Chain,
    started: Instant,
    head: &dyn Fn() -> Arc<dyn Lend<RequestHead>>,
) -> Begun {
    let mut begun = Begun::default();
    let bag: Option<Arc<_>> = (chain.links.len() > 1).then(Arc::default);
    begun.passage.bag.clone_from(&bag);
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
        stream.follow();
        begun.next = index + 1;
        let step = Step { stream, at: link.at };
        match passed {
            AtOnce::Unchanged => begun.passage.passed(step),
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
    pub(in crate::pipeline) fn passed(&self, chain: &Chain) -> bool {
        self.pending.is_none()
            && self.next == chain.links.len()
            && self.passage.with(Hooks::sees_hits).next().is_none()
    }

    pub(in crate::pipeline) fn variant(&self) -> u64 {
        self.passage.wishes.variant
    }

    /// Shows a stored response, whose head is `head`, to the plugins that see what is delivered.
    /// Where one does not let it pass at once and as it is, that is where to go on.
    pub(in crate::pipeline) fn show_hit(
        self,
        head: &dyn Fn() -> Arc<dyn Lend<ResponseHead>>,
    ) -> (Option<Arc<Passage>>, Option<Onward>) {
        if self.passage.steps.is_empty() {
            return (None, None);
        }
        let mut shown: Option<Arc<dyn Lend<ResponseHead>>> = None;
        let passage = Arc::new(self.passage);
        for (index, step) in passage.steps.iter().enumerate() {
            if !step.sees_deliveries() {
                continue;
            }
            let passed = match step.sees_response_bodies() {
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
#[derive(Default)]
pub(in crate::pipeline) struct Onward {
    /// The step that it is at.
    pub(super) index: usize,
    /// What that step makes of it, if it has seen it.
    pub(super) passed: Option<Pin<Box<dyn Future<Output = Passed<ResponseHead>> + Send>>>,
}

/// Goes on with a hit that a plugin did not let pass at once and as it is.
pub(in crate::pipeline) fn go_on(
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
    let fitted = Fitted::as_it_is(object);
    let found = Found::hit(route, &fitted.original, now_ms);
    let response = reply::from_cache(record, route, &mut parts, false, &fitted, found);
    let is_head = head.is_head;
    Reply::Later(Box::pin(async move { passage.go_on(response, is_head, onward).await }))
}
