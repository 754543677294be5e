//! What host functions find when a plugin calls them: the data of its store, whichever interface
//! it speaks.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::{Memory, ResourceLimiter};
use weir_config::PluginPolicy;

use crate::cpu::CpuTime;
use crate::exchanges::Exchanges;
use crate::limits::{START_CPU_MAX, TABLES_MAX};
use crate::log::LogBudget;
use crate::own;
use crate::place::Home;
use crate::proxy_wasm;
use crate::services::Services;
use crate::shared::{Commons, PluginMetrics};
use crate::wasi;

/// What all instances of a generation have in common.
pub(crate) struct Environment {
    /// The plugin's name.
    pub(crate) name: String,
    /// The deployment's number, for logs.
    pub(crate) generation: u64,
    /// What it may do.
    pub(crate) policy: PluginPolicy,
    /// Its configuration.
    pub(crate) config: Bytes,
    /// proxy-wasm's configuration of the virtual machine.
    pub(crate) vm_config: Bytes,
    /// What a proxy-wasm module registers by.
    pub(crate) root_id: String,
    pub(crate) services: Arc<dyn Services>,
    /// Shared data and queues of all plugins.
    pub(crate) commons: Arc<Commons>,
    /// Metrics that the plugin defines.
    pub(crate) metrics: Arc<PluginMetrics>,
    pub(crate) log: LogBudget,
}

/// The data of an instance's store.
pub(crate) struct Host {
    pub(crate) environment: Arc<Environment>,
    /// Where the instance lives.
    pub(crate) home: Home,
    /// Set when the instance is there.
    pub(crate) memory: Option<Memory>,
    pub(crate) bounds: Bounds,
    pub(crate) cpu: CpuTime,
    /// Requests that are open, by number.
    pub(crate) exchanges: Exchanges,
    pub(crate) proxy_wasm: proxy_wasm::State,
    pub(crate) own: own::State,
    pub(crate) wasi: wasi::State,
}

impl Host {
    pub(crate) fn new(environment: Arc<Environment>, home: Home) -> Host {
        let bounds = Bounds::new(&environment.policy);
        Host {
            environment,
            home,
            memory: None,
            bounds,
            cpu: CpuTime::new(START_CPU_MAX),
            exchanges: Exchanges::default(),
            proxy_wasm: proxy_wasm::State::default(),
            own: own::State::default(),
            wasi: wasi::State::default(),
        }
    }
}

/// Caps of an instance.
pub(crate) struct Bounds {
    memory_bytes_max: usize,
    table_elements_max: usize,
    /// Growth was refused since this was last cleared: a trap that follows is for want of memory.
    pub(crate) refused: bool,
    pub(crate) memory_bytes: usize,
}

impl Bounds {
    fn new(policy: &PluginPolicy) -> Bounds {
        Bounds {
            memory_bytes_max: usize::try_from(policy.memory).unwrap_or(usize::MAX),
            table_elements_max: policy.tables as usize,
            refused: false,
            memory_bytes: 0,
        }
    }
}

impl ResourceLimiter for Bounds {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired <= self.memory_bytes_max;
        match fits {
            true => self.memory_bytes = desired,
            false => self.refused = true,
        }
        Ok(fits)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let fits = desired <= self.table_elements_max;
        self.refused |= !fits;
        Ok(fits)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        1
    }
}
