//! Deploying: validate → compile once → provision at every place → swap. Everything that can fail
//! does so before anything is changed. Making takes long, and is done at a bench of the `workshop`;
//! the swap is done on the thread that deploys.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use weir_config::{PluginPolicy, is_plugin_name};

use crate::generation::Generation;
use crate::limits::{CANARY_MAX, PLUGINS_MAX, ROUNDS_MAX};
use crate::make::{Module, Ready, Recipe};
use crate::plugin::{Plugin, SHARE_WHOLE, Trial};
use crate::policy::PolicyEdits;
use crate::problem::PluginError;
use crate::record::{Attachment, Code, From, Page, Record};
use crate::registry::Inner;
use crate::tally;
use crate::workshop::{self, Bench, Work};

/// How a trial ends when another deployment comes.
const REPLACED: &str = "replaced by another deployment";

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
    /// Whoever asks, if that can go away: once nothing holds it any more, nothing comes of the
    /// deployment that is not in force by then.
    pub asker: Option<Weak<()>>,
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
            asker: None,
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

impl Inner {
    /// Makes a deployment, and puts it in force or on trial. If the plugin changes meanwhile, it is
    /// made again for what the plugin is then.
    pub(crate) fn deploy(self: &Arc<Self>, wanted: &Deployment) -> Result<Deployed, PluginError> {
        let name = &wanted.name;
        if !is_plugin_name(name) {
            return Err(PluginError::Name { name: name.clone() });
        }
        let canary = wanted.canary.map(check_canary).transpose()?;
        wanted.routes.iter().try_for_each(|route| self.known_routes().check(route))?;
        self.known_routes().check_upstreams(wanted)?;
        self.machinery()?;
        let asker = &wanted.asker;
        let bench = self.workshop().enter(Work::Deployment(name.clone()), asker)?;
        // It need not be compiled again for another round.
        let mut _code = None;
        for _ in 0..ROUNDS_MAX {
            let basis = Basis::of(self.plugin_or_new(name)?);
            let recipe = inherit(&basis.plugin, wanted)?;
            let ready = bench.run(|| self.make(&bench, asker, &basis.plugin, recipe, None))?;
            _code = Some(Arc::clone(ready.generation.compiled()));
            let asker = asker.clone();
            let deployed = self.deployer().run(self, move |inner| {
                if !basis.holds(inner)? {
                    return Ok(None);
                }
                workshop::check(&asker)?;
                inner.plugin_or_new(basis.plugin.name())?;
                let deployed = match canary {
                    Some((share, time)) => inner.try_out(&basis.plugin, ready, share, time),
                    None => inner.put(&basis.plugin, ready),
                };
                deployed.map(Some)
            })?;
            if let Some(deployed) = deployed {
                return Ok(deployed);
            }
        }
        Err(PluginError::Overtaken { name: name.clone() })
    }

    /// Ends a trial, or makes the deployment before again and puts it in force.
    pub(crate) fn rollback(self: &Arc<Self>, name: &str) -> Result<Deployed, PluginError> {
        let plugin = self.existing(name)?;
        let given_up = self.deployer().run(self, move |inner| {
            let is_on_trial = plugin.book.lock().trial.is_some();
            is_on_trial.then(|| inner.give_up_trial(&plugin, "rolled back by hand")).transpose()
        })?;
        if let Some(given_up) = given_up {
            return Ok(given_up);
        }
        self.machinery()?;
        let bench = self.workshop().enter(Work::Rollback, &None)?;
        for _ in 0..ROUNDS_MAX {
            let basis = Basis::of(self.existing(name)?);
            let (ready, page) = bench.run(|| self.make_earlier(&bench, &basis.plugin))?;
            let deployed = self.deployer().run(self, move |inner| match basis.holds(inner)? {
                true => Ok(Some(inner.go_back(&basis.plugin, ready, page))),
                false => Ok(None),
            })?;
            if let Some(deployed) = deployed {
                return Ok(deployed);
            }
        }
        Err(PluginError::Overtaken { name: name.to_owned() })
    }

    /// The last deployment in the history that can be had, and the plugin's page once that is in
    /// force.
    fn make_earlier(&self, bench: &Bench, plugin: &Plugin) -> Result<(Ready, Page), PluginError> {
        let name = plugin.name();
        let mut page = plugin.book.lock().page.clone();
        let ready = loop {
            let before = page.history.pop();
            let before = before.ok_or_else(|| PluginError::NothingBefore { name: name.into() })?;
            match self.make(bench, &None, plugin, Recipe::again(&before), None) {
                // Its module is gone or damaged: the one before that, perhaps.
                Err(cause @ PluginError::Store { .. }) if !page.history.is_empty() => {
                    tracing::warn!(plugin = name, %cause, "cannot be gone back to");
                }
                made => break made?,
            }
        };
        // The one that is left is not kept: another rollback goes further back, not forth again.
        page.active = Some(ready.record.clone());
        Ok((ready, page))
    }

    /// Runs on the thread that deploys. What is bad must go, whatever the disk says.
    fn go_back(&self, plugin: &Arc<Plugin>, ready: Ready, page: Page) -> Deployed {
        let name = plugin.name();
        if let Err(cause) = self.keep(&ready) {
            tracing::warn!(plugin = name, %cause, "to be compiled again after a restart");
        }
        let warning = self.save_or_owe(&[(name, Some(&page))]);
        plugin.withdraw();
        Deployed { warning, ..self.put_page(plugin, ready, page) }
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
        plugin.withdraw();
        self.forget(name);
        tracing::info!(plugin = name, "plugin removed");
        Ok(warning)
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
        plugin.withdraw();
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

/// The state of a plugin for which something is made.
struct Basis {
    plugin: Arc<Plugin>,
    turn: u64,
    withdrawals: u64,
}

impl Basis {
    fn of(plugin: Arc<Plugin>) -> Basis {
        let (turn, withdrawals) = {
            let book = plugin.book.lock();
            (book.turn, book.withdrawals)
        };
        Basis { plugin, turn, withdrawals }
    }

    /// Whether that still is the state, asked on the thread that deploys.
    ///
    /// # Errors
    /// [`PluginError::Overtaken`] if the plugin was taken back: what was made before is not to come
    /// into force after that.
    fn holds(&self, inner: &Inner) -> Result<bool, PluginError> {
        let name = self.plugin.name();
        let (turn, withdrawals) = {
            let book = self.plugin.book.lock();
            (book.turn, book.withdrawals)
        };
        if withdrawals != self.withdrawals {
            return Err(PluginError::Overtaken { name: name.to_owned() });
        }
        let is_same = match inner.plugin(name) {
            Some(current) => Arc::ptr_eq(&current, &self.plugin),
            // It is new, and was not in force meanwhile.
            None => turn == 0,
        };
        Ok(is_same && turn == self.turn)
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

impl Trial {
    /// What the generation in force has counted since the trial began.
    pub(crate) fn counted_by(&self, active: Option<&Arc<Generation>>) -> crate::Stats {
        let now = active.map(|active| active.stats()).unwrap_or_default();
        tally::since(&now, &self.baseline)
    }
}
