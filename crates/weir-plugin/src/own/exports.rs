//! What a module must export to speak the interface, and what it may, with the types.

use wasmtime::{ExternType, FuncType, Module, ValType};

use super::hook::Hook;
use crate::hooks::{self, Hooks};
use crate::module::{Abi, ModuleError, exported_hooks};

/// The functions that are no hooks: name, parameters (all i32), result, whether it is required.
const FUNCTIONS: &[(&str, usize, Option<ValType>, bool)] = &[
    ("weir_abi_1", 0, None, true),
    ("weir_buffer", 2, Some(ValType::I32), true),
    ("weir_configure", 2, Some(ValType::I32), false),
    ("weir_wants", 1, Some(ValType::I32), false),
    ("_initialize", 0, None, false),
    ("_start", 0, None, false),
];

/// Checks a module's exports and finds its hooks.
///
/// # Errors
/// [`ModuleError::Missing`], [`ModuleError::Mistyped`] or [`ModuleError::UnknownHook`].
pub(crate) fn check(module: &Module, abi: Abi) -> Result<Hooks, ModuleError> {
    match module.get_export("memory") {
        Some(ExternType::Memory(_)) => {}
        Some(other) => return Err(mistyped("memory", "a memory", &other)),
        None => return Err(ModuleError::Missing { name: "memory", abi }),
    }
    for (name, parameters, result, required) in FUNCTIONS {
        let found = check_function(module, name, *parameters, result.as_ref())?;
        if *required && !found {
            return Err(ModuleError::Missing { name, abi });
        }
    }
    for hook in Hook::ALL {
        check_function(module, hook.export(), 1, Some(&ValType::I64))?;
    }
    // A misspelt hook would never be called, and nobody would be told.
    let unknown = module.exports().map(|export| export.name()).find(|name| {
        name.starts_with("weir_on_") && !Hook::ALL.iter().any(|hook| hook.export() == *name)
    });
    match unknown {
        Some(name) => Err(ModuleError::UnknownHook { name: name.to_owned() }),
        None => Ok(exported_hooks(module, hooks::OWN)),
    }
}

/// Whether a function is there, with the type that it must have.
fn check_function(
    module: &Module,
    name: &str,
    parameters: usize,
    result: Option<&ValType>,
) -> Result<bool, ModuleError> {
    let expected = || {
        let result = result.map_or(String::from("nothing"), ToString::to_string);
        format!("a function of {parameters} i32 that returns {result}")
    };
    match module.get_export(name) {
        None => Ok(false),
        Some(ExternType::Func(found)) if fits(&found, parameters, result) => Ok(true),
        Some(other) => Err(mistyped(name, &expected(), &other)),
    }
}

fn fits(found: &FuncType, parameters: usize, result: Option<&ValType>) -> bool {
    found.params().len() == parameters
        && found.params().all(|parameter| parameter.is_i32())
        && match (found.results().collect::<Vec<_>>().as_slice(), result) {
            ([], None) => true,
            ([one], Some(expected)) => ValType::eq(one, expected),
            _ => false,
        }
}

fn mistyped(name: &str, expected: &str, found: &ExternType) -> ModuleError {
    let found = match found {
        ExternType::Func(function) => function.to_string(),
        ExternType::Memory(_) => "a memory".to_owned(),
        ExternType::Table(_) => "a table".to_owned(),
        ExternType::Global(_) => "a global".to_owned(),
        _ => "something else".to_owned(),
    };
    let cause = format!("expected {expected}, found {found}");
    ModuleError::Mistyped { name: format!("the export {name}"), cause }
}
