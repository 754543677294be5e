//! What a plugin must and may export, and how it starts.

use wasmtime::{ExternType, Instance, Module, Store, ValType, WasmParams, WasmResults};

use super::super::Configuration;
use super::super::plugin::ROOT;
use super::{Callback, Guest, Headers, call, size};
use crate::failure::{Failure, FailureKind};
use crate::host::Host;
use crate::module::{Abi, ModuleError, ProxyWasmVersion};

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
pub(in crate::proxy_wasm) fn check_exports(module: &Module, abi: Abi) -> Result<(), ModuleError> {
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
}

impl Headers {
    fn find(store: &mut Store<Host>, instance: &Instance, name: &str) -> Headers {
        if let Some(with) = find(store, instance, name) {
            return Headers::With(with);
        }
        find(store, instance, name).map_or(Headers::None, Headers::Without)
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
