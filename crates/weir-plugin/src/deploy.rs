//! Deploying: validate → compile once → provision at every place → swap. Everything that can fail
//! does so before anything is changed.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::Serialize;
use weir_config::{PluginPolicy, is_plugin_name};

use crate::engine::Engine;
use crate::generation::Generation;
use crate::host::Environment;
use crate::limits::{CANARY_MAX, PLUGINS_MAX};
use crate::log::LogBudget;
use crate::module::{Compiled, Digest, ModuleError};
use crate::plugin::{Plugin, SHARE_WHOLE, Trial};
use crate::policy::PolicyEdits;
use crate::problem::PluginError;
use crate::record::{Attachment, Code, From, Page, Record};
use crate::registry::Inner;
use crate::tally;

/// How a trial ends when another deployment comes.
const REPLACED: &str = "replaced by another deployment";

/// Has the hooks that every request, and every connection, meets first. It never runs.
const STUB: &[u8] = br#"(module (memory (export "memory") 0)
    (func (export "weir_abi_1"))
    (func (export "weir_buffer") (param i32 i32) (result i32) unreachable)
    (func (export "weir_on_connection") (param i32) (result i64) unreachable)
    (func (export "weir_on_request") (param i32) (result i64) unreachable))"#;

/// A plugin to deploy. What is left out is taken from its deployment in force.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name; see [`weir_config::is_plugin_name`].
    pub name: String,
    /// WebAssembly, or its text form.
    pub module: Bytes,
    /// What it is configured with.
    pub config: Option<String>,
    /// proxy-wasm's configuration of the virtual machine.
    pub vm_config: Option<String>,
    /// What a proxy-wasm module registers by, in place of its name.
    pub root_id: Option<String>,
    /// What it may use; [`Deployment::edits`] come on top.
    pub policy: Option<PluginPolicy>,
    /// Single changes of its policy.
    pub edits: PolicyEdits,
    /// Where it runs. Without any, and without any from before: on the routes that `use` it in the
    /// configuration, or on every route if none does.
    pub routes: Vec<Attachment>,
    /// Try it out on some of the requests first.
    pub canary: Option<CanaryPlan>,
}

/// How a generation is tried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanaryPlan {
    /// Share of the requests, over 0 and at most 1.
    pub share: f64,
    /// How long.
    pub duration: Duration,
}

impl Deployment {
    /// A deployment that takes everything but the module from the one in force.
    pub fn new(name: impl Into<String>, module: impl Into<Bytes>) -> Deployment {
        Deployment {
            name: name.into(),
            module: module.into(),
            config: None,
            vm_config: None,
            root_id: None,
            policy: None,
            edits: PolicyEdits::default(),
            routes: Vec::new(),
            canary: None,
        }
    }
}

/// What a deployment or rollback did.
#[derive(Clone, Debug, Serialize)]
pub struct Deployed {
    /// The plugin.
    pub name: String,
    /// Number of the new generation.
    pub generation: u64,
    /// SHA-256 of its module.
    pub digest: String,
    /// The interface that it speaks.
    pub abi: String,
    /// `active`; `canary` if it is being tried out; `removed` if it was on trial as the first of
    /// its plugin, and that was given up.
    pub state: &'static str,
    /// Whether it will be there after a restart.
    pub kept: bool,
    /// Where it runs, for people.
    pub routes: Vec<String>,
    /// How its code was had.
    pub code: Code,
    /// Milliseconds to have the code.
    pub compile_ms: f64,
    /// Milliseconds until an instance was started at every place.
    pub start_ms: f64,
    /// What is not as it should be all the same: the store could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A generation that is ready to be put in force, and what is to be remembered of it.
pub(crate) struct Ready {
    pub(crate) generation: Arc<Generation>,
    pub(crate) record: Record,
    /// The module, unless only its code was needed: a store keeps it from the moment that the record
    /// is written down.
    given: Option<Bytes>,
    compile: Duration,
    start: Duration,
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
    /// Runs on the thread that deploys.
    pub(crate) fn deploy(&self, wanted: Deployment) -> Result<Deployed, PluginError> {
        if !is_plugin_name(&wanted.name) {
            return Err(PluginError::Name { name: wanted.name });
        }
        let canary = wanted.canary.map(check_canary).transpose()?;
        wanted.routes.iter().try_for_each(|route| self.known_routes().check(route))?;
        self.known_routes().check_upstreams(&wanted)?;
        let plugin = self.plugin_or_new(&wanted.name)?;
        let recipe = inherit(&plugin, &wanted)?;
        let ready = self.make(&plugin, recipe, None)?;
        match canary {
            Some((share, duration)) => self.try_out(&plugin, ready, share, duration),
            None => self.put(&plugin, ready),
        }
    }

    /// Runs on the thread that deploys.
    pub(crate) fn rollback(&self, name: &str) -> Result<Deployed, PluginError> {
        let plugin = self.existing(name)?;
        let (on_trial, page) = {
            let book = plugin.book.lock();
            (book.trial.is_some(), book.page.clone())
        };
        if on_trial {
            return self.give_up_trial(&plugin, "rolled back by hand");
        }
        let mut page = page;
        let ready = loop {
            let before = page.history.pop();
            let before = before.ok_or_else(|| PluginError::NothingBefore { name: name.into() })?;
            match self.make(&plugin, Recipe::again(&before), None) {
                // Its module is gone or damaged: the one before that, perhaps.
                Err(cause @ PluginError::Store { .. }) if !page.history.is_empty() => {
                    tracing::warn!(plugin = name, %cause, "cannot be gone back to");
                }
                made => break made?,
            }
        };
        // The one that is left is not kept: another rollback goes further back, not forth again.
        page.active = Some(ready.record.clone());
        // What is bad must go, whatever the disk says.
        if let Err(cause) = self.keep(&ready) {
            tracing::warn!(plugin = name, %cause, "the code has to be compiled again after a restart");
        }
        let warning = self.save_or_owe(&[(name, Some(&page))]);
        Ok(Deployed { warning, ..self.put_page(&plugin, ready, page) })
    }

    /// Runs on the thread that deploys.
    pub(crate) fn remove(&self, name: &str) -> Result<Option<String>, PluginError> {
        let plugin = self.existing(name)?;
        let is_configured = plugin.book.lock().page.configured.is_some();
        let place = match is_configured {
            true => Some("it has a block there".to_owned()),
            false => self.known_routes().user_of(name).map(|route| format!("{route} uses it")),
        };
        if let Some(place) = place {
            return Err(PluginError::Configured { name: name.to_owned(), place });
        }
        let warning = self.save_or_owe(&[(name, None)]);
        self.forget(name);
        tracing::info!(plugin = name, "plugin removed");
        Ok(warning)
    }

    /// Compiles and provisions. `number` is its generation's, if it has had one already.
    pub(crate) fn make(
        &self,
        plugin: &Plugin,
        recipe: Recipe,
        number: Option<u64>,
    ) -> Result<Ready, PluginError> {
        let name = plugin.name();
        let machinery = self.machinery()?;
        let began = Instant::now();
        let (compiled, code, given) = self.compiled(name, &machinery.engine, &recipe.module)?;
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
            machinery.mark,
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
        name: &str,
        engine: &Engine,
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
        let (compiled, code) = match self.stored_code(engine, &digest, &given) {
            Some(compiled) => (compiled, Code::Loaded),
            None => (Compiled::new(engine, &given).map_err(wrong)?, Code::Compiled),
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

    /// Puts a new generation in force; the one before becomes history.
    pub(crate) fn put(&self, plugin: &Arc<Plugin>, ready: Ready) -> Result<Deployed, PluginError> {
        let page = self.page_after(plugin, &ready.record);
        self.keep(&ready)?;
        self.save(&[(plugin.name(), Some(&page))])?;
        Ok(self.put_page(plugin, ready, page))
    }

    fn put_page(&self, plugin: &Arc<Plugin>, ready: Ready, page: Page) -> Deployed {
        self.insert(plugin);
        plugin.end_trial(REPLACED);
        let deployed = self.deployed(plugin.name(), &ready, "active", self.is_kept());
        plugin.put(ready.generation, page);
        deployed
    }

    /// What is to be remembered once a record is in force.
    pub(crate) fn page_after(&self, plugin: &Plugin, record: &Record) -> Page {
        let mut page = plugin.book.lock().page.clone();
        let code = plugin.active().map(|before| Arc::clone(before.compiled()));
        page.replace(record.clone(), code.filter(|_| !self.has_store()));
        page
    }

    fn try_out(
        &self,
        plugin: &Arc<Plugin>,
        ready: Ready,
        share: u32,
        duration: Duration,
    ) -> Result<Deployed, PluginError> {
        self.keep(&ready)?;
        let baseline = plugin.active().map(|active| active.stats()).unwrap_or_default();
        let deployed = self.deployed(plugin.name(), &ready, "canary", false);
        let trial = Trial { record: ready.record, began: Instant::now(), duration, baseline };
        self.insert(plugin);
        plugin.end_trial(REPLACED);
        plugin.try_out(ready.generation, share, trial);
        Ok(deployed)
    }

    fn give_up_trial(&self, plugin: &Arc<Plugin>, how: &str) -> Result<Deployed, PluginError> {
        let (compile, start) = (Duration::ZERO, Duration::ZERO);
        let tried = plugin.book.lock().trial.as_ref().map(|trial| trial.record.clone());
        let tried = plugin.canary().map(|(generation, _)| generation).zip(tried);
        plugin.end_trial(how);
        let record = plugin.book.lock().page.active.clone();
        match (plugin.active().zip(record), tried) {
            (Some((generation, record)), _) => {
                let ready = Ready { generation, record, given: None, compile, start };
                Ok(self.deployed(plugin.name(), &ready, "active", self.is_kept()))
            }
            // The trial was of the plugin's first generation: nothing is left of it.
            (None, Some((generation, record))) => {
                self.forget(plugin.name());
                let ready = Ready { generation, record, given: None, compile, start };
                Ok(self.deployed(plugin.name(), &ready, "removed", false))
            }
            (None, None) => Err(PluginError::NothingBefore { name: plugin.name().to_owned() }),
        }
    }

    fn deployed(&self, name: &str, ready: &Ready, state: &'static str, kept: bool) -> Deployed {
        let record = &ready.record;
        tracing::info!(
            plugin = name,
            generation = record.generation,
            digest = &record.digest[..12],
            state,
            "plugin deployed"
        );
        Deployed {
            name: name.to_owned(),
            generation: record.generation,
            digest: record.digest.clone(),
            abi: record.abi.clone(),
            state,
            kept,
            routes: self.known_routes().places(name, record),
            code: record.code,
            compile_ms: ready.compile.as_secs_f64() * 1e3,
            start_ms: ready.start.as_secs_f64() * 1e3,
            warning: None,
        }
    }

    fn plugin_or_new(&self, name: &str) -> Result<Arc<Plugin>, PluginError> {
        if let Some(plugin) = self.plugin(name) {
            return Ok(plugin);
        }
        match self.plugins().len() >= PLUGINS_MAX {
            true => Err(PluginError::TooMany { limit: PLUGINS_MAX }),
            false => Ok(Plugin::new(name)),
        }
    }
}

/// What a deployment leaves out is as it was.
fn inherit(plugin: &Plugin, wanted: &Deployment) -> Result<Recipe, PluginError> {
    let before = plugin.book.lock().page.active.clone();
    let (config, vm_config, root_id, policy, routes) = match before {
        Some(it) => (it.config, it.vm_config, it.root_id, it.policy, it.routes),
        None => Default::default(),
    };
    let mut policy = wanted.policy.clone().unwrap_or(policy);
    wanted.edits.apply(&mut policy);
    crate::policy::check(&policy)?;
    Ok(Recipe {
        module: Module::Given(wanted.module.clone()),
        config: wanted.config.clone().unwrap_or(config),
        vm_config: wanted.vm_config.clone().unwrap_or(vm_config),
        root_id: wanted.root_id.clone().or(root_id),
        policy,
        routes: (!wanted.routes.is_empty()).then(|| wanted.routes.clone()).or(routes),
        from: From::Deployment,
    })
}

/// Its share of 10,000, and its time.
fn check_canary(plan: CanaryPlan) -> Result<(u32, Duration), PluginError> {
    let share = (plan.share * f64::from(SHARE_WHOLE)).round();
    if !(share >= 1.0 && share <= f64::from(SHARE_WHOLE)) {
        return Err(PluginError::Value {
            what: "canary",
            expected: "a share of the requests from 0.01% to 100%",
            given: format!("{}%", plan.share * 100.0),
        });
    }
    if plan.duration.is_zero() || plan.duration > CANARY_MAX {
        return Err(PluginError::Value {
            what: "the time of a canary",
            expected: "over 0 and at most 7 days",
            given: format!("{} s", plan.duration.as_secs()),
        });
    }
    Ok((share as u32, plan.duration))
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Trial {
    /// What the generation in force has counted since the trial began.
    pub(crate) fn counted_by(&self, active: Option<&Arc<Generation>>) -> crate::Stats {
        let now = active.map(|active| active.stats()).unwrap_or_default();
        tally::since(&now, &self.baseline)
    }
}
