//! wasmtime as Weir sets it up, and the watch over calls that take long.
//!
//! A call costs the watch nothing but two stores: its thread writes that it began and that it ended
//! ([`crate::running`]). A thread looks every few milliseconds; if it meets a call, it looks again
//! every millisecond and moves wasmtime's epoch, upon which the running code asks
//! [`crate::host::Host`] whether its CPU time is up.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use wasmtime::{Config, OptLevel, RegallocAlgorithm, WasmFeatures};

use crate::limits::{STACK_BYTES, WATCH_PERIOD, WATCH_PERIOD_BUSY};
use crate::running;

/// The engine that all plugins of a process share.
#[derive(Clone)]
pub struct Engine {
    wasm: wasmtime::Engine,
    /// For modules that would take the compiler too long otherwise, once there was one.
    quick: Arc<OnceLock<wasmtime::Engine>>,
}

impl Engine {
    /// Sets the engine up, and starts the watch, which ends with it.
    ///
    /// # Errors
    /// If wasmtime cannot work on this machine, or the system gives no thread.
    pub fn new() -> Result<Engine, String> {
        let wasm = wasmtime::Engine::new(&config()).map_err(|cause| format!("{cause:#}"))?;
        let engine = wasm.weak();
        std::thread::Builder::new()
            .name("plugin-watch".to_owned())
            .spawn(move || watch(&engine))
            .map_err(|cause| format!("no thread to watch over plugins: {cause}"))?;
        Ok(Engine { wasm, quick: Arc::default() })
    }

    /// Compiles for this engine in time that is linear, code that is larger and slower.
    pub(crate) fn quick(&self) -> wasmtime::Result<&wasmtime::Engine> {
        if let Some(quick) = self.quick.get() {
            return Ok(quick);
        }
        let mut config = config();
        config
            .cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass)
            .cranelift_opt_level(OptLevel::None);
        let engine = wasmtime::Engine::new(&config)?;
        Ok(self.quick.get_or_init(|| engine))
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// Compiles a module that nobody needs, so that the compiler's code and tables are in memory.
    pub(crate) fn warm_up(&self) {
        match wat::parse_str(WARM_UP) {
            Ok(module) => drop(wasmtime::Module::new(&self.wasm, module)),
            Err(cause) => tracing::debug!(%cause, "nothing to warm the compiler up with"),
        }
    }

    /// What compiled code depends on: it is only good for an engine with the same.
    pub fn compatibility(&self) -> u64 {
        let state = foldhash::fast::FixedState::default();
        state.hash_one(self.wasm.precompile_compatibility_hash())
    }
}

/// A little of what plugins have: memory, loops, calls, vectors.
const WARM_UP: &str = r#"(module (memory 1) (table 2 funcref) (elem (i32.const 0) $sum $sum)
  (func $sum (param $at i32) (param $n i32) (result i32) (local $sum i32)
    (block $end (loop $more
      (br_if $end (i32.ge_u (local.get $at) (local.get $n)))
      (local.set $sum (i32.add (local.get $sum) (i32.load8_u (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $more)))
    (local.get $sum))
  (func (export "run") (param i32 i32) (result i32) (local v128)
    (local.set 2 (i8x16.shuffle 0 3 6 9 12 15 18 21 24 27 30 1 4 7 10 13
      (v128.load (local.get 0)) (v128.load (local.get 1))))
    (v128.store (i32.const 64) (i16x8.mul (local.get 2) (i16x8.splat (local.get 0))))
    (memory.copy (local.get 0) (local.get 1) (i32.const 64))
    (if (result i32) (i32.lt_s (local.get 0) (i32.div_u (local.get 1) (i32.const 3)))
      (then (call $sum (local.get 0) (local.get 1)))
      (else (call_indirect (param i32 i32) (result i32)
        (local.get 0) (local.get 1) (i32.and (local.get 0) (i32.const 1)))))))"#;

fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .cranelift_opt_level(OptLevel::Speed)
        // What no toolchain of today's plugins needs is off: less to go wrong.
        .wasm_features(
            WasmFeatures::THREADS | WasmFeatures::MEMORY64 | WasmFeatures::MULTI_MEMORY,
            false,
        );
    config
}

fn watch(engine: &wasmtime::EngineWeak) {
    weir_work::begin();
    loop {
        let busy = running::is_any();
        match engine.upgrade() {
            Some(engine) if busy => engine.increment_epoch(),
            Some(_) => {}
            None => return,
        }
        std::thread::sleep(if busy { WATCH_PERIOD_BUSY } else { WATCH_PERIOD });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_takes_what_it_is_warmed_up_with() {
        let module = wat::parse_str(WARM_UP).unwrap();
        wasmtime::Module::new(&wasmtime::Engine::new(&config()).unwrap(), module).unwrap();
    }
}
