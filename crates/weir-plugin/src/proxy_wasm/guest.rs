//! The guest's side: its callbacks, found once and called in the order that the specification has.

use http::HeaderMap;
use wasmtime::{ExternType, Instance, Module, Store, TypedFunc, ValType, WasmParams, WasmResults};

use super::Configuration;
use super::fields::{Map, view};
use super::grpc;
use super::plugin::ROOT;
use crate::call::CallResult;
use crate::exchange::{Action, Exchange, Phase};
use crate::failure::{Failure, FailureKind};
use crate::host::Host;
use crate::limits::PENDING_DONE_MAX;
use crate::module::{Abi, ModuleError, ProxyWasmVersion};

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
    pub(crate) instance: Option<Instance>,
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

/// Who closed a connection: proxy-wasm's `proxy_peer_type_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Unknown,
    Local,
    Remote,
}

/// Parameters and whether there is a result, by the name of what a module may export. All are
/// 32-bit numbers.
const TYPES: &[(&str, usize, bool)] = &[
    ("_initialize", 0, false),
    ("_start", 0, false),
    ("main", 2, true),
    ("malloc", 1, true),
    ("proxy_on_memory_allocate", 1, true),
    ("proxy_on_context_create", 2, false),
    ("proxy_on_done", 1, true),
    ("proxy_on_log", 1, false),
    ("proxy_on_delete", 1, false),
    ("proxy_on_vm_start", 2, true),
    ("proxy_on_configure", 2, true),
    ("proxy_on_tick", 1, false),
    ("proxy_on_new_connection", 1, true),
    ("proxy_on_downstream_data", 3, true),
    ("proxy_on_downstream_connection_close", 2, false),
    ("proxy_on_upstream_data", 3, true),
    ("proxy_on_upstream_connection_close", 2, false),
    ("proxy_on_request_body", 3, true),
    ("proxy_on_request_trailers", 2, true),
    ("proxy_on_response_body", 3, true),
    ("proxy_on_response_trailers", 2, true),
    ("proxy_on_http_call_response", 5, false),
    ("proxy_on_grpc_receive_initial_metadata", 3, false),
    ("proxy_on_grpc_receive", 3, false),
    ("proxy_on_grpc_receive_trailing_metadata", 3, false),
    ("proxy_on_grpc_close", 3, false),
    ("proxy_on_queue_ready", 2, false),
    ("proxy_on_foreign_function", 3, false),
];

/// Checks what the module exports.
///
/// # Errors
/// [`ModuleError::Missing`] or [`ModuleError::Mistyped`].
pub(super) fn check_exports(module: &Module, abi: Abi) -> Result<(), ModuleError> {
    if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
        return Err(ModuleError::Missing { name: "memory", abi });
    }
    let heads = match abi {
        Abi::ProxyWasm(ProxyWasmVersion::V0_1_0) => 2,
        _ => 3,
    };
    let heads =
        [("proxy_on_request_headers", heads, true), ("proxy_on_response_headers", heads, true)];
    for &(name, params, has_result) in TYPES.iter().chain(&heads) {
        let Some(export) = module.get_export(name) else { continue };
        let expected = format!(
            "({}) -> ({})",
            vec!["i32"; params].join(", "),
            if has_result { "i32" } else { "" }
        );
        let is_i32 = |ty: ValType| matches!(ty, ValType::I32);
        let found = export.func().map(|ty| {
            ty.params().len() == params
                && ty.params().all(is_i32)
                && ty.results().len() == usize::from(has_result)
                && ty.results().all(is_i32)
        });
        if found != Some(true) {
            let found = match export.func() {
                Some(ty) => ty.to_string(),
                None => "no function".to_owned(),
            };
            let cause = format!("expected {expected}, found {found}");
            return Err(ModuleError::Mistyped { name: name.to_owned(), cause });
        }
    }
    Ok(())
}

impl Guest {
    /// Initialises, starts and configures the plugin.
    ///
    /// # Errors
    /// If it fails or refuses.
    pub(crate) fn start(store: &mut Store<Host>, instance: &Instance) -> Result<Guest, Failure> {
        let guest = Guest::find(store, instance);
        let version = version(store, instance);
        let allocator = find(store, instance, "proxy_on_memory_allocate");
        let allocator = allocator.or_else(|| find(store, instance, "malloc"));
        let state = &mut store.data_mut().proxy_wasm;
        state.version = Some(version);
        state.allocator = allocator;
        initialize(store, instance)?;
        guest.enter(store, ROOT);
        call(store, &guest.context_create, (ROOT, 0))?;
        let vm_config = size(store.data().environment.vm_config.len());
        let started = find::<(u32, u32), u32>(store, instance, "proxy_on_vm_start");
        if call(store, &started, (ROOT, vm_config))? == Some(0) {
            return Err(refused("proxy_on_vm_start"));
        }
        store.data_mut().proxy_wasm.configuration = Configuration::Plugin;
        guest.enter(store, ROOT);
        let config = size(store.data().environment.config.len());
        let configured = find::<(u32, u32), u32>(store, instance, "proxy_on_configure");
        if call(store, &configured, (ROOT, config))? == Some(0) {
            return Err(refused("proxy_on_configure"));
        }
        Ok(guest)
    }

    fn find(store: &mut Store<Host>, instance: &Instance) -> Guest {
        Guest {
            context_create: find(store, instance, "proxy_on_context_create"),
            request_headers: Headers::find(store, instance, "proxy_on_request_headers"),
            request_body: find(store, instance, "proxy_on_request_body"),
            request_trailers: find(store, instance, "proxy_on_request_trailers"),
            response_headers: Headers::find(store, instance, "proxy_on_response_headers"),
            response_body: find(store, instance, "proxy_on_response_body"),
            response_trailers: find(store, instance, "proxy_on_response_trailers"),
            done: find(store, instance, "proxy_on_done"),
            log: find(store, instance, "proxy_on_log"),
            delete: find(store, instance, "proxy_on_delete"),
            new_connection: find(store, instance, "proxy_on_new_connection"),
            downstream_data: find(store, instance, "proxy_on_downstream_data"),
            upstream_data: find(store, instance, "proxy_on_upstream_data"),
            downstream_close: find(store, instance, "proxy_on_downstream_connection_close"),
            upstream_close: find(store, instance, "proxy_on_upstream_connection_close"),
            tick: find(store, instance, "proxy_on_tick"),
            queue_ready: find(store, instance, "proxy_on_queue_ready"),
            http_response: find(store, instance, "proxy_on_http_call_response"),
            grpc_initial: find(store, instance, "proxy_on_grpc_receive_initial_metadata"),
            grpc_receive: find(store, instance, "proxy_on_grpc_receive"),
            grpc_trailing: find(store, instance, "proxy_on_grpc_receive_trailing_metadata"),
            grpc_close: find(store, instance, "proxy_on_grpc_close"),
            foreign: find(store, instance, "proxy_on_foreign_function"),
            #[cfg(test)]
            instance: Some(*instance),
        }
    }

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

    /// Data came from the client of a connection that is not HTTP: `request_body` holds it.
    pub(crate) fn downstream_data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        end: bool,
    ) -> Result<Action, Failure> {
        self.data(store, id, Phase::RequestBody, end)
    }

    /// Data came from the upstream of a connection that is not HTTP: `response_body` holds it.
    pub(crate) fn upstream_data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        end: bool,
    ) -> Result<Action, Failure> {
        self.data(store, id, Phase::ResponseBody, end)
    }

    fn data(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        phase: Phase,
        end: bool,
    ) -> Result<Action, Failure> {
        let Some(exchange) = exchange(store, id) else { return Ok(Action::Continue) };
        exchange.phase = phase;
        exchange.is_paused = false;
        exchange.is_resumed = false;
        let (callback, len) = match phase {
            Phase::RequestBody => (&self.downstream_data, exchange.request_body.len()),
            _ => (&self.upstream_data, exchange.response_body.len()),
        };
        self.enter(store, id);
        let action = call(store, callback, (id, size(len), u32::from(end)))?;
        self.end(store, id, action)
    }

    /// The client's connection is closed.
    pub(crate) fn downstream_closed(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        peer: Peer,
    ) -> Result<(), Failure> {
        self.enter(store, id);
        call(store, &self.downstream_close, (id, peer as u32))?;
        self.leave(store)
    }

    /// The upstream's connection is closed.
    pub(crate) fn upstream_closed(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        peer: Peer,
    ) -> Result<(), Failure> {
        self.enter(store, id);
        call(store, &self.upstream_close, (id, peer as u32))?;
        self.leave(store)
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
        store.data_mut().exchanges.remove(&id);
        Ok(())
    }

    /// The generation is over: the plugin's own context ends.
    pub(crate) fn stop(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        self.enter(store, ROOT);
        // Nobody is there to wait for a plugin that puts this off.
        call(store, &self.done, ROOT)?;
        self.finish(store, ROOT)
    }

    pub(crate) fn tick(&mut self, store: &mut Store<Host>) -> Result<(), Failure> {
        self.enter(store, ROOT);
        call(store, &self.tick, ROOT)?;
        self.leave(store)
    }

    pub(crate) fn queue_ready(
        &mut self,
        store: &mut Store<Host>,
        queue: u32,
    ) -> Result<(), Failure> {
        self.enter(store, ROOT);
        call(store, &self.queue_ready, (ROOT, queue))?;
        self.leave(store)
    }

    /// An HTTP call was answered, or failed: then there are no fields.
    pub(crate) fn called(
        &mut self,
        store: &mut Store<Host>,
        result: CallResult,
    ) -> Result<(), Failure> {
        let state = &mut store.data_mut().proxy_wasm;
        if !state.calls.remove(&result.id) {
            return Ok(());
        }
        let (mut fields, mut body, mut trailers) = (0, 0, 0);
        match result.answer {
            Ok(answer) => {
                // With the status.
                fields = size(answer.head.headers.len() + 1);
                body = size(answer.body.len());
                trailers = size(answer.trailers.len());
                let status = answer.head.status;
                let reason = status.canonical_reason().unwrap_or_default();
                state.status = (u32::from(status.as_u16()), reason.to_owned());
                state.answer = Some(answer);
            }
            Err(cause) => state.status = (0, cause),
        }
        self.enter(store, ROOT);
        call(store, &self.http_response, (ROOT, result.id, fields, body, trailers))?;
        store.data_mut().proxy_wasm.answer = None;
        self.leave(store)
    }

    /// Something happened to a gRPC call or stream.
    pub(crate) fn grpc(
        &mut self,
        store: &mut Store<Host>,
        id: u32,
        event: grpc::Event,
    ) -> Result<(), Failure> {
        let state = &mut store.data_mut().proxy_wasm;
        if !state.grpc.is_open(id) {
            return Ok(());
        }
        let (callback, number) = match event {
            grpc::Event::Initial(metadata) => {
                let metadata: &HeaderMap = state.grpc_initial.insert(metadata);
                (&self.grpc_initial, metadata.len())
            }
            grpc::Event::Message(message, last) => {
                if last {
                    state.grpc.forget(id);
                }
                state.status = (0, String::new());
                (&self.grpc_receive, state.grpc_message.insert(message).len())
            }
            grpc::Event::Trailing(metadata) => {
                let metadata: &HeaderMap = state.grpc_trailing.insert(metadata);
                (&self.grpc_trailing, metadata.len())
            }
            grpc::Event::Close(code, message) => {
                state.grpc.forget(id);
                state.status = (code, message);
                (&self.grpc_close, code as usize)
            }
        };
        self.enter(store, ROOT);
        call(store, callback, (ROOT, id, size(number)))?;
        let state = &mut store.data_mut().proxy_wasm;
        (state.grpc_initial, state.grpc_message, state.grpc_trailing) = (None, None, None);
        self.leave(store)
    }

    /// The server calls a function that the plugin knows by number.
    pub(crate) fn foreign(
        &mut self,
        store: &mut Store<Host>,
        function: u32,
        arguments: bytes::Bytes,
    ) -> Result<(), Failure> {
        let arguments_size = size(arguments.len());
        self.enter(store, ROOT);
        store.data_mut().proxy_wasm.arguments = Some(arguments);
        call(store, &self.foreign, (ROOT, function, arguments_size))?;
        store.data_mut().proxy_wasm.arguments = None;
        self.leave(store)
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
    fn find(store: &mut Store<Host>, instance: &Instance, name: &str) -> Headers {
        if let Some(with) = find(store, instance, name) {
            return Headers::With(with);
        }
        find(store, instance, name).map_or(Headers::None, Headers::Without)
    }

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
        let count = size(view(store.data(), id, map).map_or(0, |view| view.len()));
        let action = match self {
            Headers::None => return Ok(None),
            Headers::Without(function) => function.call(store, (id, count)),
            Headers::With(function) => function.call(store, (id, count, end)),
        };
        action.map(Some).map_err(|error| Failure::of(&error))
    }
}

/// `_initialize` and then `main`, or `_start`.
fn initialize(store: &mut Store<Host>, instance: &Instance) -> Result<(), Failure> {
    let reactor = find::<(), ()>(store, instance, "_initialize");
    if reactor.is_some() {
        call(store, &reactor, ())?;
        let main = find::<(u32, u32), u32>(store, instance, "main");
        return call(store, &main, (0, 0)).map(drop);
    }
    let command = find::<(), ()>(store, instance, "_start");
    match call(store, &command, ()) {
        // Some runtimes end their main function so; the instance lives on.
        Err(failure)
            if failure.kind == FailureKind::Exit && store.data().wasi.exit_code() == Some(0) =>
        {
            Ok(())
        }
        result => result.map(drop),
    }
}

fn version(store: &mut Store<Host>, instance: &Instance) -> ProxyWasmVersion {
    let mut has = |name| instance.get_export(&mut *store, name).is_some();
    if has("proxy_abi_version_0_2_1") {
        ProxyWasmVersion::V0_2_1
    } else if has("proxy_abi_version_0_2_0") {
        ProxyWasmVersion::V0_2_0
    } else {
        ProxyWasmVersion::V0_1_0
    }
}

fn refused(name: &str) -> Failure {
    Failure::new(FailureKind::Start, format!("{name} returned false"))
}

/// The types were checked when the module was deployed.
fn find<Params: WasmParams, Results: WasmResults>(
    store: &mut Store<Host>,
    instance: &Instance,
    name: &str,
) -> Callback<Params, Results> {
    instance.get_typed_func(store, name).ok()
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
    store.data_mut().exchanges.get_mut(&id).map(|boxed| &mut **boxed)
}

fn held(store: &mut Store<Host>, id: u32, len: impl FnOnce(&Exchange) -> usize) -> u32 {
    size(exchange(store, id).map_or(0, |exchange| len(exchange)))
}

/// A size as the guest counts; what is larger than its whole memory never comes here.
fn size(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
