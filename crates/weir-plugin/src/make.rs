//! Makes generations: has their code, compiles it where nobody has it, and starts an instance at
//! every place. Nothing of that is in force; see `deploy`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use weir_config::PluginPolicy;

use crate::generation::Generation;
use crate::host::Environment;
use crate::log::LogBudget;
use crate::module::{Compiled, Digest, ModuleError};
use crate::plugin::Plugin;
use crate::problem::PluginError;
use crate::record::{Attachment, Code, From, Record};
use crate::registry::Inner;
use crate::workshop::{Asker, Bench};

/// Has the hooks that every request, and every connection, meets first. It never runs.
const STUB: &[u8] = br#"(module (memory (export "memory") 0)
    (func (export "weir_abi_1"))
    (func (export "weir_buffer") (param i32 i32) (result i32) unreachable)
    (func (export "weir_on_connection") (param i32) (result i64) unreachable)
    (func (export "weir_on_request") (param i32) (result i64) unreachable))"#;

/// A generation that is ready to be put in force, and what is to be remembered of it.
pub(crate) struct Ready {
    pub(crate) generation: Arc<Generation>,
    pub(crate) record: Record,
    /// The module, unless only its code was needed: a store keeps it from the moment that the
    /// record is written down.
    pub(crate) given: Option<Bytes>,
    pub(crate) compile: Duration,
    pub(crate) start: Duration,
}

/// What a generation is made from.
pub(crate) struct Recipe {
    pub(crate) module: Module,
    pub(crate) config: String,
    pub(crate) vm_config: String,
    pub(crate) root_id: Option<String>,
    pub(crate) policy: PluginPolicy,
    pub(crate) routes: Option<Vec<Attachment>>,
    pub(crate) from: From,
}

/// A module, from outside or from before.
pub(crate) enum Module {
    Given(Bytes),
    Before(Box<Record>),
}

impl Recipe {
    /// The same again.
    pub(crate) fn again(record: &Record) -> Recipe {
        Recipe {
            config: record.config.clone(),
            vm_config: record.vm_config.clone(),
            root_id: record.root_id.clone(),
            policy: record.policy.clone(),
            routes: record.routes.clone(),
            from: record.from,
            module: Module::Before(Box::new(record.clone())),
        }
    }
}

impl Inner {
    /// Compiles and provisions. `number` is its generation's, if it has had one already.
    pub(crate) fn make(
        &self,
        bench: &Bench,
        asker: &Asker,
        plugin: &Plugin,
        recipe: Recipe,
        number: Option<u64>,
    ) -> Result<Ready, PluginError> {
        let name = plugin.name();
        let machinery = self.machinery()?;
        let began = Instant::now();
        let (compiled, code, given) = self.compiled(bench, asker, name, &recipe.module)?;
        let compile = began.elapsed();
        let generation = number.unwrap_or_else(|| self.next_generation());
        let environment = self.environment(plugin, &recipe, generation);
        let began = Instant::now();
        let made = Generation::provision(
            &machinery.engine,
            &machinery.threads,
            &machinery.keeper,
            Arc::clone(&compiled),
            environment,
        )
        .map_err(|source| PluginError::Start { name: name.to_owned(), source })?;
        let record = Record {
            generation,
            digest: compiled.digest().to_string(),
            bytes: compiled.bytes(),
            abi: compiled.abi().to_string(),
            config: recipe.config,
            vm_config: recipe.vm_config,
            root_id: recipe.root_id,
            policy: recipe.policy,
            routes: recipe.routes,
            deployed_unix_ms: unix_ms(),
            from: recipe.from,
            code,
            compiled: None,
        };
        Ok(Ready { generation: made, record, given, compile, start: began.elapsed() })
    }

    /// Stands in for a deployment that cannot be had again, and remembers it all the same.
    pub(crate) fn make_broken(
        &self,
        plugin: &Plugin,
        record: &Record,
        why: &PluginError,
    ) -> Result<Ready, PluginError> {
        let machinery = self.machinery()?;
        let wrong = |source| PluginError::Module { name: plugin.name().to_owned(), source };
        let stub = Compiled::new(&machinery.engine, STUB).map_err(wrong)?;
        let environment = self.environment(plugin, &Recipe::again(record), record.generation);
        let generation = Generation::broken(
            &machinery.engine,
            &machinery.threads,
            &machinery.keeper,
            Arc::new(stub),
            environment,
            why.to_string(),
        );
        let (compile, start) = (Duration::ZERO, Duration::ZERO);
        Ok(Ready { generation, record: record.clone(), given: None, compile, start })
    }

    fn environment(&self, plugin: &Plugin, recipe: &Recipe, generation: u64) -> Arc<Environment> {
        let name = plugin.name();
        Arc::new(Environment {
            name: name.to_owned(),
            generation,
            log: LogBudget::new(recipe.policy.log_per_s),
            policy: recipe.policy.clone(),
            config: Bytes::from(recipe.config.clone()),
            vm_config: Bytes::from(recipe.vm_config.clone()),
            root_id: recipe.root_id.clone().unwrap_or_else(|| name.to_owned()),
            services: Arc::clone(self.services()),
            commons: Arc::clone(self.commons()),
            metrics: Arc::clone(plugin.metrics()),
        })
    }

    fn compiled(
        &self,
        bench: &Bench,
        asker: &Asker,
        name: &str,
        module: &Module,
    ) -> Result<(Arc<Compiled>, Code, Option<Bytes>), PluginError> {
        let wrong = |source: ModuleError| PluginError::Module { name: name.to_owned(), source };
        let given = match module {
            Module::Given(given) => given.clone(),
            Module::Before(record) => {
                let known = record.compiled.clone().or_else(|| self.shared_code(&record.digest));
                match known {
                    Some(compiled) => return Ok((compiled, Code::Shared, None)),
                    None => self.stored_module(&record.digest)?,
                }
            }
        };
        let digest = Digest::of(&given).to_string();
        if let Some(compiled) = self.shared_code(&digest) {
            return Ok((compiled, Code::Shared, Some(given)));
        }
        let engine = &self.machinery()?.engine;
        let (compiled, code) = match self.stored_code(engine, &digest, &given) {
            Some(compiled) => (compiled, Code::Loaded),
            None => {
                let compiled =
                    bench.compile(given.len(), asker, || Compiled::new(engine, &given))?;
                (compiled.map_err(wrong)?, Code::Compiled)
            }
        };
        let compiled = Arc::new(compiled);
        self.share_code(&digest, &compiled);
        Ok((compiled, code, Some(given)))
    }

    /// Keeps a module before a record names it. To be called in the same change as what writes or
    /// tries the record, so that no other change finds the module without one, and removes it.
    pub(crate) fn keep(&self, ready: &Ready) -> Result<(), PluginError> {
        let Some(given) = &ready.given else { return Ok(()) };
        let compiled = ready.generation.compiled();
        match &mut *self.store() {
            Some(store) => store.keep(&self.machinery()?.engine, given, compiled),
            None => Ok(()),
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
