//! A module: recognised, checked, compiled, linked. Whatever is wrong with it is said here, when it
//! is deployed; none of it is met at run time.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use wasmtime::{InstancePre, Linker, Module};

use crate::check::{self, Checked};
use crate::effort::Care;
use crate::engine::Engine;
use crate::hooks::Hooks;
use crate::host::Host;
use crate::limits::MODULE_BYTES_MAX;
use crate::{own, proxy_wasm, wasi};

/// The interface that a module speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// proxy-wasm.
    ProxyWasm(ProxyWasmVersion),
    /// Weir's own, by version.
    Weir(u32),
}

/// proxy-wasm's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProxyWasmVersion {
    /// 0.1.0
    V0_1_0,
    /// 0.2.0
    V0_2_0,
    /// 0.2.1
    V0_2_1,
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Abi::ProxyWasm(ProxyWasmVersion::V0_1_0) => f.write_str("proxy-wasm 0.1.0"),
            Abi::ProxyWasm(ProxyWasmVersion::V0_2_0) => f.write_str("proxy-wasm 0.2.0"),
            Abi::ProxyWasm(ProxyWasmVersion::V0_2_1) => f.write_str("proxy-wasm 0.2.1"),
            Abi::Weir(version) => write!(f, "weir {version}"),
        }
    }
}

/// Why a module cannot be a plugin.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// Larger than any module should be.
    #[error("the module has {bytes} bytes; at most {MODULE_BYTES_MAX} are taken")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Neither WebAssembly nor its text form.
    #[error("not a WebAssembly module: {cause}")]
    Malformed {
        /// Where and why.
        cause: String,
    },
    /// A component, which no proxy interface uses yet.
    #[error(
        "this is a WebAssembly component; plugins are core modules (wasm32-unknown-unknown, wasm32-wasip1)"
    )]
    Component,
    /// Its structure is beyond a limit.
    #[error("the module has {what}: {count}, and at most {limit} are taken")]
    Beyond {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        count: u64,
        /// How much may be.
        limit: u64,
    },
    /// One of its functions is larger than any should be.
    #[error("the module's {function} has {bytes} bytes, and at most {limit} are taken")]
    LargeFunction {
        /// Its number, and its name if it has one.
        function: String,
        /// Its size.
        bytes: usize,
        /// What is taken.
        limit: usize,
    },
    /// The compiler would take too long over it.
    #[error(
        "the module would take the compiler too long: {what}, about {effort_s:.1} s of its time, and \
         at most {limit_s} s are given"
    )]
    Heavy {
        /// Which function, and what it has too much of.
        what: String,
        /// An estimate, in seconds of processor time.
        effort_s: f64,
        /// The limit, in seconds.
        limit_s: f64,
    },
    /// It does not say which interface it speaks.
    #[error(
        "the module speaks no interface that Weir knows: expected an export named \
         proxy_abi_version_0_2_1, proxy_abi_version_0_2_0, proxy_abi_version_0_1_0 or weir_abi_1"
    )]
    NoInterface,
    /// It needs what Weir does not have.
    #[error("the module imports what Weir does not have: {}", .names.join(", "))]
    UnknownImports {
        /// `module.name`, each.
        names: Vec<String>,
    },
    /// An import or export has other parameters than the interface says.
    #[error("{name} has another type than its interface says: {cause}")]
    Mistyped {
        /// Which.
        name: String,
        /// Both types.
        cause: String,
    },
    /// It lacks what its interface requires.
    #[error("the module does not export {name}, which {abi} requires")]
    Missing {
        /// What.
        name: &'static str,
        /// Which interface.
        abi: Abi,
    },
    /// It exports what looks like a hook, and is none.
    #[error("the module exports {name}, and Weir has no such hook")]
    UnknownHook {
        /// Its name.
        name: String,
    },
    /// The compiler refused it.
    #[error("cannot be compiled: {cause}")]
    NotCompiled {
        /// Why.
        cause: String,
    },
}

/// SHA-256 of a module's bytes, as they were given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        let mut own = [0; 32];
        own.copy_from_slice(digest.as_ref());
        Digest(own)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A compiled module that can be instantiated at once.
pub struct Compiled {
    pre: InstancePre<Host>,
    digest: Digest,
    abi: Abi,
    hooks: Hooks,
    bytes: usize,
}

impl Compiled {
    /// Compiles a module given as WebAssembly or as its text form. May take seconds: not for a
    /// worker's thread.
    ///
    /// # Errors
    /// What makes it no plugin.
    pub fn new(engine: &Engine, given: &[u8]) -> Result<Compiled, ModuleError> {
        let Inspected { wasm, abi, care } = inspect(given)?;
        let module = match care {
            Care::Full => Module::new(engine.wasm(), &wasm[..]),
            Care::Quick => Compiled::quickly(engine, &wasm),
        };
        let module =
            module.map_err(|cause| ModuleError::NotCompiled { cause: format!("{cause:#}") })?;
        Compiled::link(engine, &module, abi, given)
    }

    #[allow(unsafe_code, reason = "code of one engine becomes that of another")]
    fn quickly(engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Module> {
        tracing::warn!("a module is compiled the quick way: its code is larger and slower");
        let code = engine.quick()?.precompile_module(wasm)?;
        // SAFETY: the compiler has just made this code, from a module that it checked, and nobody
        // else has had it. wasmtime compares what the engines have in common when it loads it.
        // Test: `plugins/bombs.rs`.
        unsafe { Module::deserialize(engine.wasm(), &code) }
    }

    /// The code, to be kept and given to [`Compiled::load`].
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn code(&self) -> Result<Vec<u8>, ModuleError> {
        self.pre
            .module()
            .serialize()
            .map_err(|cause| ModuleError::NotCompiled { cause: format!("{cause:#}") })
    }

    /// Takes code that was compiled before from the same module, by an engine with the same
    /// [`Engine::compatibility`].
    ///
    /// # Safety
    /// `code` runs without a check: it must come from [`Compiled::code`], through hands that nobody
    /// but the server's own user could reach into.
    ///
    /// # Errors
    /// If it is for another engine, or the module is no plugin.
    #[allow(unsafe_code, reason = "the caller vouches for the code; see the store")]
    pub unsafe fn load(
        engine: &Engine,
        given: &[u8],
        code: &[u8],
    ) -> Result<Compiled, ModuleError> {
        let Inspected { abi, .. } = inspect(given)?;
        // SAFETY: the caller promises that the code is what this engine compiled. Tested by
        // `tests/kept.rs`: code that others could have written is not loaded.
        let module = unsafe { Module::deserialize(engine.wasm(), code) }
            .map_err(|cause| ModuleError::NotCompiled { cause: format!("{cause:#}") })?;
        Compiled::link(engine, &module, abi, given)
    }

    fn link(
        engine: &Engine,
        module: &Module,
        abi: Abi,
        given: &[u8],
    ) -> Result<Compiled, ModuleError> {
        let mut linker: Linker<Host> = Linker::new(engine.wasm());
        wasi::link(&mut linker)
            .and_then(|()| match abi {
                Abi::ProxyWasm(version) => proxy_wasm::link(&mut linker, version, module),
                Abi::Weir(_) => own::link(&mut linker),
            })
            // The names are ours and differ.
            .map_err(|cause| ModuleError::NotCompiled { cause: format!("{cause:#}") })?;
        check_imports(&linker, module)?;
        let pre = linker.instantiate_pre(module).map_err(|cause| ModuleError::Mistyped {
            name: "an import".to_owned(),
            cause: format!("{cause:#}"),
        })?;
        let hooks = match abi {
            Abi::ProxyWasm(_) => proxy_wasm::check_exports(module, abi)?,
            Abi::Weir(_) => own::check_exports(module, abi)?,
        };
        Ok(Compiled { pre, digest: Digest::of(given), abi, hooks, bytes: given.len() })
    }

    /// Which interface it speaks.
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// The digest of what was given.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The hooks that it has.
    pub fn hooks(&self) -> Hooks {
        self.hooks
    }

    /// Bytes that were given.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pre(&self) -> &InstancePre<Host> {
        &self.pre
    }
}

/// A module, after a look at its structure.
pub(crate) struct Inspected<'a> {
    /// In its binary form.
    pub(crate) wasm: Cow<'a, [u8]>,
    pub(crate) abi: Abi,
    pub(crate) care: Care,
}

/// Looks at a module's structure.
///
/// # Errors
/// What makes it no plugin, as far as that is known before it is compiled.
pub(crate) fn inspect(given: &[u8]) -> Result<Inspected<'_>, ModuleError> {
    if given.len() > MODULE_BYTES_MAX {
        return Err(ModuleError::TooLarge { bytes: given.len() });
    }
    let wasm = wat::parse_bytes(given)
        .map_err(|cause| ModuleError::Malformed { cause: cause.to_string() })?;
    let Checked { exports, care } = check::check(&wasm)?;
    let abi = abi_of(&exports).ok_or(ModuleError::NoInterface)?;
    Ok(Inspected { wasm, abi, care })
}

fn abi_of(exports: &BTreeSet<String>) -> Option<Abi> {
    let known = [
        ("weir_abi_1", Abi::Weir(1)),
        ("proxy_abi_version_0_2_1", Abi::ProxyWasm(ProxyWasmVersion::V0_2_1)),
        ("proxy_abi_version_0_2_0", Abi::ProxyWasm(ProxyWasmVersion::V0_2_0)),
        ("proxy_abi_version_0_1_0", Abi::ProxyWasm(ProxyWasmVersion::V0_1_0)),
    ];
    known.into_iter().find(|(name, _)| exports.contains(*name)).map(|(_, abi)| abi)
}

/// Names what the module imports and nobody has. Types are compared when it is linked.
fn check_imports(linker: &Linker<Host>, module: &Module) -> Result<(), ModuleError> {
    // A linker does not tell what it has, but takes nothing twice.
    let mut probe = linker.clone();
    let mut unknown = Vec::new();
    for import in module.imports() {
        if probe.func_wrap(import.module(), import.name(), || {}).is_ok() {
            unknown.push(format!("{}.{}", import.module(), import.name()));
        }
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(ModuleError::UnknownImports { names: unknown }),
    }
}

/// The hooks that a module exports, by a table of names.
pub(crate) fn exported_hooks(module: &Module, table: &[(&str, crate::exchange::Phase)]) -> Hooks {
    let mut found = Hooks::default();
    for &(name, phase) in table {
        if module.get_export(name).is_some() {
            found.add(phase);
        }
    }
    found
}
