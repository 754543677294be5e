//! proxy-wasm 0.2.1, and 0.2.0 and 0.1.0: the host functions by name, and what they remember. What
//! the specification leaves open is done as Envoy does it.

mod basics;
mod buffers;
mod calls;
mod fields;
mod foreign;
mod grpc;
mod guest;
mod headers;
mod legacy;
mod local;
mod maps;
mod plugin;
mod properties;
mod shared;
mod status;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use http::HeaderMap;
use wasmtime::{Caller, Linker, Module, TypedFunc};

pub(crate) use guest::Guest;
#[cfg(test)]
use guest::Peer;
pub(crate) use properties::{lookup as property, set as set_property};

use self::plugin::Plugin;
use self::status::returned;
use crate::call::CallAnswer;
use crate::hooks::{self, Hooks};
use crate::host::Host;
use crate::module::{Abi, ModuleError, ProxyWasmVersion, exported_hooks};
use crate::timer::Timer;

/// What an instance's host functions remember.
#[derive(Default)]
pub(crate) struct State {
    version: Option<ProxyWasmVersion>,
    /// Makes room in the plugin's memory for what host functions return.
    allocator: Option<TypedFunc<u32, u32>>,
    /// The context whose callback is running.
    current: u32,
    /// The one that it turned to; 0 = it did not.
    effective: u32,
    configuration: Configuration,
    /// HTTP calls in flight.
    calls: HashSet<u32>,
    last_call: u32,
    /// The answer that the running callback is about.
    answer: Option<CallAnswer>,
    /// What `proxy_get_status` tells.
    status: (u32, String),
    grpc: grpc::Calls,
    grpc_initial: Option<HeaderMap>,
    grpc_message: Option<Bytes>,
    grpc_trailing: Option<HeaderMap>,
    /// Arguments of the foreign function that is running.
    arguments: Option<Bytes>,
    timer: Timer,
    /// Contexts that are over for the host, and not yet for the plugin.
    pending_done: VecDeque<u32>,
    /// Those among them that are over for the plugin too since the running callback began.
    finished: Vec<u32>,
    scratch: Vec<u8>,
}

/// Which configuration 0.1.0's `proxy_get_configuration` returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Configuration {
    #[default]
    Vm,
    Plugin,
}

/// Adds functions of the module `env` whose parameters are 32-bit numbers.
macro_rules! functions {
    ($linker:ident: $($name:literal = $function:path, $($arg:ident)*;)*) => {
        $($linker.func_wrap("env", $name, |caller: Caller<'_, Host>, $($arg: u32),*| {
            returned(Plugin::new(caller).and_then(|mut plugin| $function(&mut plugin, $($arg),*)))
        })?;)*
    };
}
use functions;

/// Adds the host functions.
pub(crate) fn link(
    linker: &mut Linker<Host>,
    version: ProxyWasmVersion,
    module: &Module,
) -> wasmtime::Result<()> {
    link_basics(linker)?;
    link_exchange(linker)?;
    link_calls(linker)?;
    link_shared(linker)?;
    legacy::link_runtimes(linker)?;
    match version {
        ProxyWasmVersion::V0_1_0 => legacy::link(linker, module),
        ProxyWasmVersion::V0_2_0 | ProxyWasmVersion::V0_2_1 => {
            functions! { linker:
                "proxy_continue_stream" = streams::resume_stream, stream;
                "proxy_close_stream" = streams::close_stream, stream;
            }
            Ok(())
        }
    }
}

fn link_basics(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    functions! { linker:
        "proxy_log" = basics::log, level data size;
        // New in 0.2.1, and in use by modules that say 0.2.0.
        "proxy_get_log_level" = basics::log_level, return_level;
        "proxy_get_current_time_nanoseconds" = basics::time, return_time;
        "proxy_set_tick_period_milliseconds" = basics::set_tick_period, period;
        "proxy_set_effective_context" = streams::set_effective_context, context;
        "proxy_done" = streams::done,;
        "proxy_get_status" = streams::status, return_code return_data return_size;
        "proxy_get_property" = properties::get, path path_size return_data return_size;
        "proxy_set_property" = properties::set_by_plugin, path path_size value value_size;
        "proxy_call_foreign_function" = foreign::call,
            name name_size arguments arguments_size return_data return_size;
    }
    Ok(())
}

fn link_exchange(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    functions! { linker:
        "proxy_get_buffer_bytes" = buffers::get, buffer start size return_data return_size;
        "proxy_set_buffer_bytes" = buffers::set, buffer start size data data_size;
        "proxy_get_buffer_status" = buffers::status, buffer return_size return_unused;
        "proxy_get_header_map_size" = headers::size, map return_size;
        "proxy_get_header_map_pairs" = headers::pairs, map return_data return_size;
        "proxy_set_header_map_pairs" = headers::set_pairs, map data size;
        "proxy_get_header_map_value" = headers::value, map name name_size return_data return_size;
        "proxy_add_header_map_value" = headers::add, map name name_size value value_size;
        "proxy_replace_header_map_value" = headers::replace, map name name_size value value_size;
        "proxy_remove_header_map_value" = headers::remove, map name name_size;
        "proxy_send_local_response" = local::send,
            status details details_size body body_size headers headers_size grpc_status;
    }
    Ok(())
}

fn link_calls(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    functions! { linker:
        "proxy_http_call" = calls::call,
            upstream upstream_size headers headers_size body body_size trailers trailers_size
            timeout return_id;
        "proxy_grpc_call" = grpc::call,
            upstream upstream_size service service_size method method_size metadata metadata_size
            message message_size timeout return_id;
        "proxy_grpc_stream" = grpc::stream,
            upstream upstream_size service service_size method method_size metadata metadata_size
            return_id;
        "proxy_grpc_send" = grpc::send, id message message_size end;
        "proxy_grpc_cancel" = grpc::cancel, id;
        "proxy_grpc_close" = grpc::close, id;
    }
    Ok(())
}

fn link_shared(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    functions! { linker:
        "proxy_get_shared_data" = shared::data, key key_size return_data return_size return_cas;
        "proxy_set_shared_data" = shared::set_data, key key_size value value_size cas;
        "proxy_register_shared_queue" = shared::register_queue, name name_size return_id;
        "proxy_resolve_shared_queue" = shared::resolve_queue, vm vm_size name name_size return_id;
        "proxy_enqueue_shared_queue" = shared::enqueue, id data size;
        "proxy_dequeue_shared_queue" = shared::dequeue, id return_data return_size;
        "proxy_define_metric" = shared::define_metric, kind name name_size return_id;
        "proxy_get_metric" = shared::metric, id return_value;
    }
    linker.func_wrap(
        "env",
        "proxy_record_metric",
        |caller: Caller<'_, Host>, id: u32, value: u64| {
            returned(
                Plugin::new(caller)
                    .and_then(|mut plugin| shared::record_metric(&mut plugin, id, value)),
            )
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_increment_metric",
        |caller: Caller<'_, Host>, id: u32, delta: u64| {
            returned(
                Plugin::new(caller)
                    .and_then(|mut plugin| shared::increment_metric(&mut plugin, id, delta)),
            )
        },
    )?;
    Ok(())
}

/// Checks that the module exports what is required, with the right types, and finds its hooks.
///
/// # Errors
/// [`ModuleError::Missing`] or [`ModuleError::Mistyped`].
pub(crate) fn check_exports(module: &Module, abi: Abi) -> Result<Hooks, ModuleError> {
    guest::check_exports(module, abi)?;
    let mut hooks = exported_hooks(module, hooks::PROXY_WASM);
    hooks.keep_lengths();
    Ok(hooks)
}
