//! Host functions that only 0.1.0 has, and those of older runtimes that its modules were built for.

use wasmtime::{Caller, Linker, Module};

use super::plugin::Plugin;
use super::status::{Outcome, returned};
use super::{buffers, functions, streams};
use crate::failure::{Failure, FailureKind};
use crate::host::Host;
use crate::log::{self, Level};

/// A host function without parameters.
type Function = fn(&mut Plugin<'_>) -> Outcome;

/// Adds what 0.1.0 has and its successors do not.
pub(super) fn link(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
    functions! { linker:
        "proxy_get_configuration" = buffers::configuration, return_data return_size;
    }
    let functions: [(&str, Function); 3] = [
        ("proxy_continue_request", streams::resume_request),
        ("proxy_continue_response", streams::resume_response),
        ("proxy_clear_route_cache", streams::clear_route_cache),
    ];
    for (name, function) in functions {
        let call = move |caller: Caller<'_, Host>| {
            returned(Plugin::new(caller).and_then(|mut plugin| function(&mut plugin)))
        };
        // The specification gives them no result, SDKs the status.
        if returns_nothing(module, name) {
            linker
                .func_wrap("env", name, move |caller: Caller<'_, Host>| call(caller).map(drop))?;
        } else {
            linker.func_wrap("env", name, call)?;
        }
    }
    Ok(())
}

fn returns_nothing(module: &Module, name: &str) -> bool {
    let mut imports = module.imports().filter(|import| import.name() == name);
    imports.any(|import| import.ty().func().is_some_and(|ty| ty.results().len() == 0))
}

/// Adds what Emscripten's and AssemblyScript's runtimes import.
pub(super) fn link_runtimes(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "emscripten_notify_memory_growth", |_: u32| {})?;
    linker.func_wrap("env", "pthread_equal", |one: u32, other: u32| u32::from(one == other))?;
    linker.func_wrap("env", "seed", fastrand::f64)?;
    linker.func_wrap(
        "env",
        "abort",
        |caller: Caller<'_, Host>, message: u32, file: u32, line: u32, column: u32| {
            let text = match Plugin::new(caller) {
                Ok(plugin) => {
                    let text = format!(
                        "abort: {} at {}:{line}:{column}",
                        assembly_script(&plugin, message),
                        assembly_script(&plugin, file),
                    );
                    log::say(plugin.environment(), Level::Critical, text.as_bytes());
                    text
                }
                Err(_) => "abort".to_owned(),
            };
            Err::<(), _>(wasmtime::Error::new(Failure::new(FailureKind::Trap, text)))
        },
    )?;
    Ok(())
}

/// A string of AssemblyScript: UTF-16, its size in bytes before it.
fn assembly_script(plugin: &Plugin<'_>, at: u32) -> String {
    const BYTES_MAX: u32 = 1024;
    let size = at.checked_sub(4).and_then(|before| plugin.bytes(before, 4).ok());
    let size = size.and_then(|size| size.try_into().ok()).map_or(0, u32::from_le_bytes);
    let text = plugin.bytes(at, size.min(BYTES_MAX)).unwrap_or_default();
    let units = text.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
