//! The guest's side: its callbacks for requests, found once and called in the order that the
//! specification has. Others are in the modules below.

mod connections;
mod events;
mod start;

pub(super) use connections::Peer;
pub(super) use start::check_exports;

use wasmtime::{Store, TypedFunc, WasmParams, WasmResults};

use super::fields::{Map, view};
use super::plugin::ROOT;
use crate::exchange::{Action, Exchange, Phase};
use crate::failure::Failure;
use crate::host::Host;
use crate::limits::PENDING_DONE_MAX;

/// The callbacks of an instance.
#[derive(Default)]
pub(crate) struct Guest {
    context_create: Callback<(u32, u32), ()>,
    request_headers: Headers,
    request_body: Callback<(u32, u32, u32), u32>,
    request_trailers: Callback<(u32, u32), u32>,
    response_headers: Headers,
    response_body: Callback<(u32, u32, u32), u32>,
    response_trailers: Callback<(u32, u32), u32>,
    done: Callback<u32, u32>,
    log: Callback<u32, ()>,
    delete: Callback<u32, ()>,
    new_connection: Callback<u32, u32>,
    downstream_data: Callback<(u32, u32, u32), u32>,
    upstream_data: Callback<(u32, u32, u32), u32>,
    downstream_close: Callback<(u32, u32), ()>,
    upstream_close: Callback<(u32, u32), ()>,
    tick: Callback<u32, ()>,
    queue_ready: Callback<(u32, u32), ()>,
    http_response: Callback<(u32, u32, u32, u32, u32), ()>,
    grpc_initial: Callback<(u32, u32, u32), ()>,
    grpc_receive: Callback<(u32, u32, u32), ()>,
    grpc_trailing: Callback<(u32, u32, u32), ()>,
    grpc_close: Callback<(u32, u32, u32), ()>,
    foreign: Callback<(u32, u32, u32), ()>,
    /// For tests, which call what else it exports.
    #[cfg(test)]
    pub(crate) instance: Option<wasmtime::Instance>,
}

/// A function that the module may export.
type Callback<Params, Results> = Option<TypedFunc<Params, Results>>;

/// The callbacks for heads: 0.1.0's are not told whether content follows.
#[derive(Default)]
enum Headers {
    #[default]
    None,
    Without(TypedFunc<(u32, u32), u32>),
    With(TypedFunc<(u32, u32, u32), u32>),
}

impl Guest {
    /// Creates the context of a request whose exchange is there.
    pub(crate) fn open(&mut self, store: &mut Store<Host>, id: u32) -> Result<(), Failure> {
        if self.context_create.is_none() {
            return Ok(());
        }
        self.enter(store, id);
        call(store, &self.context_create, (id, ROOT))?;
        self.leave(store)
    }

    /// Runs the callback of a phase.
    pub(crate) fn hook(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        phase: Phase,
        end: bool,
    ) -> Result<Action, Failure> {
        let allow = &store.data().environment.policy.allow;
        let (requests, responses) = (allow.request_body, allow.response_body);
        if let Some(exchange) = exchange(store, id) {
            exchange.is_paused = false;
            exchange.is_resumed = false;
        }
        self.enter(store, id);
        let end = u32::from(end);
        let action = match phase {
            Phase::Connection => call(store, &self.new_connection, id)?,
            Phase::Downstream => return self.downstream_data(store, id, end != 0),
            Phase::Upstream => return self.upstream_data(store, id, end != 0),
            Phase::DownstreamClosed | Phase::UpstreamClosed => {
                let peer = if end == 0 { Peer::Local } else { Peer::Remote };
                match phase {
                    Phase::DownstreamClosed => self.downstream_closed(store, id, peer)?,
                    _ => self.upstream_closed(store, id, peer)?,
                }
                return Ok(Action::Continue);
            }
            Phase::RequestHead => self.request_headers.call(store, id, Map::RequestHeaders, end)?,
            Phase::RequestBody if requests => {
                let size = held(store, id, |exchange| exchange.request_body.len());
                call(store, &self.request_body, (id, size, end))?
            }
            Phase::RequestTrailers => {
                let count = held(store, id, |exchange| exchange.request_trailers.len());
                call(store, &self.request_trailers, (id, count))?
            }
            Phase::ResponseHead => {
                self.response_headers.call(store, id, Map::ResponseHeaders, end)?
            }
            Phase::ResponseBody if responses => {
                let size = held(store, id, |exchange| exchange.response_body.len());
                call(store, &self.response_body, (id, size, end))?
            }
            Phase::ResponseTrailers => {
                let count = held(store, id, |exchange| exchange.response_trailers.len());
                call(store, &self.response_trailers, (id, count))?
            }
            _ => None,
        };
        self.end(store, id, action)
    }

    /// What the callback's result means, with what it asked for while it ran.
    fn end(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        action: Option<u32>,
    ) -> Result<Action, Failure> {
        self.leave(store)?;
        // 2 is Envoy's "continue and end the stream".
        if matches!(action, None | Some(0 | 2)) {
            return Ok(Action::Continue);
        }
        let Some(exchange) = exchange(store, id) else { return Ok(Action::Continue) };
        if exchange.is_resumed {
            return Ok(Action::Continue);
        }
        exchange.is_paused = true;
        Ok(Action::Pause)
    }

    /// The request is over: proxy_on_done, and unless the plugin puts it off, proxy_on_log,
    /// proxy_on_delete and the end of the exchange.
    pub(crate) fn close(&mut self, store: &mut Store<Host>, id: u32) -> Result<(), Failure> {
        if let Some(exchange) = exchange(store, id) {
            exchange.phase = Phase::Log;
        }
        self.enter(store, id);
        if call(store, &self.done, id)? == Some(0) {
            let pending = &mut store.data_mut().proxy_wasm.pending_done;
            pending.push_back(id);
            // One that is put off for ever must not hold memory for ever.
            let oldest = (pending.len() > PENDING_DONE_MAX).then(|| pending.pop_front()).flatten();
            self.leave(store)?;
            return oldest.map_or(Ok(()), |oldest| self.finish(store, oldest));
        }
        self.finish(store, id)?;
        self.leave(store)
    }

    /// proxy_on_log and proxy_on_delete.
    fn finish(&mut self, store: &mut Store<Host>, id: u32) -> Result<(), Failure> {
        if self.log.is_some() {
            self.enter(store, id);
            call(store, &self.log, id)?;
        }
        if self.delete.is_some() {
            self.enter(store, id);
            call(store, &self.delete, id)?;
        }
        store.data_mut().exchanges.retire(&id);
        Ok(())
    }

    /// Makes a context the one that host functions act for.
    #[inline]
    fn enter(&self, store: &mut Store<Host>, id: u32) {
        let state = &mut store.data_mut().proxy_wasm;
        state.current = id;
        state.effective = 0;
    }

    /// Ends what the callback said is over.
    #[inline]
    fn leave(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        while let Some(id) = store.data_mut().proxy_wasm.finished.pop() {
            self.finish(store, id)?;
        }
        Ok(())
    }
}

impl Headers {
    fn call(
        &self,
        store: &mut Store<Host>,
        id: u32,
        map: Map,
        end: u32,
    ) -> Result<Option<u32>, Failure> {
        if matches!(self, Headers::None) {
            return Ok(None);
        }
        let counted = exchange(store, id).and_then(|exchange| match map {
            Map::RequestHeaders => exchange.request.as_ref()?.field_count(),
            Map::ResponseHeaders => exchange.response.as_ref()?.field_count(),
            _ => None,
        });
        let count = counted.unwrap_or_else(|| view(store.data(), id, map).map_or(0, |v| v.len()));
        let count = size(count);
        let action = match self {
            Headers::None => return Ok(None),
            Headers::Without(function) => function.call(store, (id, count)),
            Headers::With(function) => function.call(store, (id, count, end)),
        };
        action.map(Some).map_err(|error| Failure::of(&error))
    }
}

#[inline]
fn call<Params: WasmParams, Results: WasmResults>(
    store: &mut Store<Host>,
    callback: &Callback<Params, Results>,
    params: Params,
) -> Result<Option<Results>, Failure> {
    let Some(function) = callback else { return Ok(None) };
    function.call(store, params).map(Some).map_err(|error| Failure::of(&error))
}

fn exchange(store: &mut Store<Host>, id: u32) -> Option<&mut Exchange> {
    store.data_mut().exchanges.get_mut(&id)
}

fn held(store: &mut Store<Host>, id: u32, len: impl FnOnce(&Exchange) -> usize) -> u32 {
    size(exchange(store, id).map_or(0, |exchange| len(exchange)))
}

/// A size as the guest counts; what is larger than its whole memory never comes here.
fn size(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
