//! All plugins of the process. What this module leaves to others: how a plugin comes into force
//! (`deploy`), what the configuration says (`configured`), trials (`trial`), the disk (`store`).
//!
//! What is to come into force is made on threads of low priority (`workshop`), and put there by one
//! thread, one change at a time (`deployer`). Whoever asks for a change waits, so it must not be a
//! worker.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::runtime::Handle;
use weir_config::Config;

use crate::configured::Prepared;
use crate::deploy::{Deployed, Deployment};
use crate::deployer::Deployer;
use crate::engine::Engine;
use crate::machinery::Machinery;
use crate::module::Compiled;
use crate::plugin::{Plugin, Totals};
use crate::problem::PluginError;
use crate::record::{Attachment, Page};
use crate::routes::KnownRoutes;
use crate::services::Services;
use crate::shared::Commons;
use crate::store::{Manifest, Store};
use crate::views::{Details, State, Summary};
use crate::workshop::Workshop;

/// All plugins of a process. Clones are the same.
#[derive(Clone)]
pub struct Plugins(Arc<Inner>);

/// Told after a change of what runs where.
type Listener = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Inner {
    settings: weir_config::Plugins,
    services: Arc<dyn Services>,
    commons: Arc<Commons>,
    workers: OnceLock<Vec<Handle>>,
    machinery: Mutex<Option<Arc<Machinery>>>,
    store: Mutex<Option<Store>>,
    plugins: RwLock<BTreeMap<String, Arc<Plugin>>>,
    routes: ArcSwap<KnownRoutes>,
    /// Code that is in memory, by the digest of its module.
    code: Mutex<HashMap<String, Weak<Compiled>>>,
    last_generation: AtomicU64,
    deployer: Deployer,
    workshop: Arc<Workshop>,
    listeners: Mutex<Vec<Listener>>,
}

/// What `/metrics` says of a plugin.
pub struct Metered {
    /// The plugin; it has the metrics that it defines itself.
    pub plugin: Arc<Plugin>,
    /// What it is doing.
    pub state: State,
    /// The generation in force; 0 if there is none.
    pub generation: u64,
    /// Bytes of memory of its instances.
    pub memory_bytes: usize,
    /// What all of its generations have counted.
    pub totals: Totals,
}

impl Plugins {
    /// Without any plugin, and without touching the disk or starting a thread.
    pub fn new(settings: &weir_config::Plugins, services: Arc<dyn Services>) -> Plugins {
        Plugins(Arc::new(Inner {
            settings: settings.clone(),
            services,
            commons: Commons::new(),
            workers: OnceLock::new(),
            machinery: Mutex::default(),
            store: Mutex::default(),
            plugins: RwLock::default(),
            routes: ArcSwap::default(),
            code: Mutex::default(),
            last_generation: AtomicU64::new(0),
            deployer: Deployer::default(),
            workshop: Arc::default(),
            listeners: Mutex::default(),
        }))
    }

    /// Tells the workers' event loops, and opens the store if there is one: by now the process runs
    /// as the user that it will stay. Its deployments come into force with the first
    /// [`Plugins::configure`].
    ///
    /// # Errors
    /// [`PluginError::Store`].
    pub fn start(&self, workers: Vec<Handle>) -> Result<(), PluginError> {
        if let Some(directory) = &self.0.settings.store {
            let store = Store::open(directory)?;
            self.0.last_generation.fetch_max(store.last_generation(), Relaxed);
            *self.0.store.lock() = Some(store);
        }
        // A second start would be a defect of the caller; the first one holds.
        let _ = self.0.workers.set(workers);
        if self.0.settings.store.is_some() {
            warm_up(&self.0);
        }
        Ok(())
    }

    /// Prepares what a configuration says of plugins: those that are new or changed are compiled
    /// and provisioned, and at start those of the store. Nothing is in force before
    /// [`Prepared::commit`], and nothing ever if that is not called.
    ///
    /// A plugin that was deployed at run time over one of the configuration stays in force until
    /// the plugin's own block, or the file that it names, changes.
    ///
    /// # Errors
    /// The first plugin that cannot be deployed, by name; a `use` of a plugin that does not exist.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, PluginError> {
        Prepared::new(&self.0, config)
    }

    /// Prepares, and puts in force. Listeners are not told: the caller knows.
    ///
    /// # Errors
    /// As [`Plugins::prepare`] and [`Prepared::commit`].
    pub fn configure(&self, config: &Config) -> Result<(), PluginError> {
        self.prepare(config)?.commit()
    }

    /// Deploys. Blocks until the plugin is in force, or on trial.
    ///
    /// # Errors
    /// Whatever is wrong with it; what was in force stays in force.
    pub fn deploy(&self, wanted: Deployment) -> Result<Deployed, PluginError> {
        let deployed = self.0.deploy(&wanted).inspect_err(|cause| {
            if matches!(cause, PluginError::Abandoned) {
                tracing::info!(plugin = wanted.name, "deployment dropped: whoever asked is gone");
            }
        })?;
        self.0.tell();
        Ok(deployed)
    }

    /// Ends the trial of a plugin, or goes back to the deployment before.
    ///
    /// # Errors
    /// [`PluginError::Unknown`], [`PluginError::NothingBefore`], or what keeps the earlier one from
    /// starting.
    pub fn rollback(&self, name: &str) -> Result<Deployed, PluginError> {
        let deployed = self.0.rollback(name)?;
        self.0.tell();
        Ok(deployed)
    }

    /// Removes a plugin, with all that is remembered of it. Requests on it finish. What is returned
    /// is a warning: that the store could not be written, so that a restart would bring it back.
    ///
    /// # Errors
    /// [`PluginError::Unknown`]; [`PluginError::Configured`] if the configuration names it.
    pub fn remove(&self, name: &str) -> Result<Option<String>, PluginError> {
        let name = name.to_owned();
        let warning = self.0.deployer.run(&self.0, move |inner| inner.remove(&name))?;
        self.0.tell();
        Ok(warning)
    }

    /// Every plugin, by name.
    pub fn list(&self) -> Vec<Summary> {
        self.0.plugins().iter().map(|plugin| self.0.summary(plugin)).collect()
    }

    /// One plugin, with its history.
    ///
    /// # Errors
    /// [`PluginError::Unknown`].
    pub fn show(&self, name: &str) -> Result<Details, PluginError> {
        Ok(self.0.details(&self.0.existing(name)?))
    }

    /// What `/metrics` says of every plugin.
    pub fn metered(&self) -> Vec<Metered> {
        self.0.plugins().into_iter().map(Metered::of).collect()
    }

    /// The routes on which plugins run beside those that `use` them, by plugin. They come after
    /// what the route itself uses, in this order; a plugin that the route uses at the same place
    /// already is not to run twice.
    pub fn attachments(&self) -> Vec<(String, Attachment)> {
        let routes = self.0.routes.load();
        let mut all = Vec::new();
        for plugin in self.0.plugins() {
            let book = plugin.book.lock();
            let on_trial = book.trial.as_ref().map(|trial| &trial.record);
            // The routes of a trial are its plugin's own once that is in force.
            if let Some(record) = book.page.active.as_ref().or(on_trial) {
                let brought = routes.brought_by(plugin.name(), record);
                all.extend(brought.into_iter().map(|route| (plugin.name().to_owned(), route)));
            }
        }
        all
    }

    /// A plugin by name.
    pub fn plugin(&self, name: &str) -> Option<Arc<Plugin>> {
        self.0.plugin(name)
    }

    /// Shared data and queues of all plugins.
    pub fn commons(&self) -> &Arc<Commons> {
        &self.0.commons
    }

    /// Calls `listener` after every change of what runs where, but for those by
    /// [`Plugins::configure`]. It may run on any thread but a worker's, and may wait.
    pub fn on_change(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.0.listeners.lock().push(Arc::from(listener));
    }
}

/// A store says that plugins will be deployed, and the first module of a process takes the compiler
/// 3 ms longer than those after it: it gets one beforehand. Nothing depends on that.
fn warm_up(inner: &Arc<Inner>) {
    let inner = Arc::clone(inner);
    let warming = std::thread::Builder::new().name("plugin-warm-up".to_owned()).spawn(move || {
        weir_work::begin();
        // First: what is started there is not to have a low priority.
        if let Ok(machinery) = inner.machinery() {
            drop(inner);
            weir_work::yield_to_others(weir_work::NICE);
            machinery.engine.warm_up();
        }
    });
    if let Err(cause) = warming {
        tracing::debug!(%cause, "no thread to warm the compiler up");
    }
}

impl Metered {
    fn of(plugin: Arc<Plugin>) -> Metered {
        let active = plugin.active();
        let canary = plugin.canary().map(|(generation, _)| generation);
        Metered {
            state: State::of(active.as_deref(), canary.is_some()),
            generation: active.as_ref().map_or(0, |active| active.number()),
            memory_bytes: active.iter().chain(&canary).map(|g| g.memory_bytes()).sum(),
            totals: plugin.totals(),
            plugin,
        }
    }
}

impl Inner {
    pub(crate) fn deployer(&self) -> &Deployer {
        &self.deployer
    }

    pub(crate) fn workshop(&self) -> &Arc<Workshop> {
        &self.workshop
    }

    pub(crate) fn settings(&self) -> &weir_config::Plugins {
        &self.settings
    }

    pub(crate) fn services(&self) -> &Arc<dyn Services> {
        &self.services
    }

    pub(crate) fn commons(&self) -> &Arc<Commons> {
        &self.commons
    }

    /// What plugins run on, started if this is the first.
    pub(crate) fn machinery(&self) -> Result<Arc<Machinery>, PluginError> {
        let mut machinery = self.machinery.lock();
        if let Some(machinery) = &*machinery {
            return Ok(Arc::clone(machinery));
        }
        let workers = self.workers.get().cloned().unwrap_or_default();
        if workers.is_empty() {
            return Err(PluginError::Machine { cause: "the workers have not started".to_owned() });
        }
        let started = Arc::new(Machinery::start(workers, self.settings.long_threads)?);
        *machinery = Some(Arc::clone(&started));
        Ok(started)
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.last_generation.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn plugin(&self, name: &str) -> Option<Arc<Plugin>> {
        self.plugins.read().get(name).cloned()
    }

    pub(crate) fn plugins(&self) -> Vec<Arc<Plugin>> {
        self.plugins.read().values().cloned().collect()
    }

    pub(crate) fn existing(&self, name: &str) -> Result<Arc<Plugin>, PluginError> {
        self.plugin(name).ok_or_else(|| PluginError::Unknown {
            name: name.to_owned(),
            known: self.plugins.read().keys().cloned().collect(),
        })
    }

    pub(crate) fn insert(&self, plugin: &Arc<Plugin>) {
        self.plugins.write().insert(plugin.name().to_owned(), Arc::clone(plugin));
    }

    /// Takes a plugin away, with its shared data. Routes that still have it find nothing in force.
    pub(crate) fn forget(&self, name: &str) {
        let plugin = self.plugins.write().remove(name);
        if let Some(plugin) = plugin {
            plugin.clear();
            self.commons.forget(name);
        }
    }

    pub(crate) fn known_routes(&self) -> Arc<KnownRoutes> {
        self.routes.load_full()
    }

    pub(crate) fn know_routes(&self, routes: KnownRoutes) {
        self.routes.store(Arc::new(routes));
    }

    /// Tells the listeners. Not on the thread that deploys: a listener may wait for a lock that
    /// somebody holds who waits for that thread.
    pub(crate) fn tell(&self) {
        let listeners = self.listeners.lock().clone();
        listeners.iter().for_each(|listener| listener());
    }

    pub(crate) fn shared_code(&self, digest: &str) -> Option<Arc<Compiled>> {
        self.code.lock().get(digest).and_then(Weak::upgrade)
    }

    pub(crate) fn share_code(&self, digest: &str, compiled: &Arc<Compiled>) {
        let mut code = self.code.lock();
        code.retain(|_, known| known.strong_count() > 0);
        code.insert(digest.to_owned(), Arc::downgrade(compiled));
    }

    pub(crate) fn has_store(&self) -> bool {
        self.store.lock().is_some()
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock()
    }

    pub(crate) fn stored_module(&self, digest: &str) -> Result<bytes::Bytes, PluginError> {
        match &*self.store.lock() {
            Some(store) => store.module(digest),
            // Without a store, code stays in memory for as long as anything may go back to it.
            None => Err(PluginError::Machine { cause: format!("module {digest} is lost") }),
        }
    }

    pub(crate) fn stored_code(
        &self,
        engine: &Engine,
        digest: &str,
        given: &[u8],
    ) -> Option<Compiled> {
        self.store.lock().as_mut()?.code(engine, digest, given)
    }

    /// Whether what is in force will be there after a restart.
    pub(crate) fn is_kept(&self) -> bool {
        self.store.lock().as_ref().is_some_and(|store| !store.is_behind())
    }

    /// Writes what is to be remembered, as [`Inner::save`], for a change that takes place whether
    /// that can be written or not. Then it is written with the next change, or when the disk takes
    /// it, whatever is first; what is returned says so to whoever asked.
    pub(crate) fn save_or_owe(&self, changes: &[(&str, Option<&Page>)]) -> Option<String> {
        let cause = self.save(changes).err()?;
        if let Some(store) = &mut *self.store.lock() {
            store.fall_behind();
        }
        tracing::error!(%cause, "a change of the plugins is not written down yet");
        Some(format!(
            "not written down yet: {cause}; it is done, and a restart before the disk takes it \
             would undo it"
        ))
    }

    /// Writes what was not written when it changed; tells whether that is still to be done.
    pub(crate) fn catch_up(&self) -> bool {
        let is_behind = || self.store.lock().as_ref().is_some_and(Store::is_behind);
        if is_behind() && self.save(&[]).is_ok() {
            tracing::info!("the changes of the plugins are written down");
        }
        is_behind()
    }

    /// Writes what is to be remembered, with these pages in place of those that there are, if there
    /// is a store to write it to.
    pub(crate) fn save(&self, changes: &[(&str, Option<&Page>)]) -> Result<(), PluginError> {
        let mut store = self.store.lock();
        let Some(store) = &mut *store else { return Ok(()) };
        let mut pages = store.pending().clone();
        let mut on_trial = Vec::new();
        for plugin in self.plugins() {
            let book = plugin.book.lock();
            pages.insert(plugin.name().to_owned(), book.page.clone());
            let is_removed =
                changes.iter().any(|(name, page)| *name == plugin.name() && page.is_none());
            let trial = book.trial.as_ref().filter(|_| !is_removed);
            on_trial.extend(trial.map(|trial| trial.record.digest.clone()));
        }
        for &(name, page) in changes {
            match page {
                Some(page) => pages.insert(name.to_owned(), page.clone()),
                None => pages.remove(name),
            };
        }
        pages.retain(|_, page| page.active.is_some());
        let last_generation = self.last_generation.load(Relaxed);
        store.write(Manifest { last_generation, plugins: pages }, &on_trial)
    }
}
