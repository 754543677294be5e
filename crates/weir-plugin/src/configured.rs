//! What the configuration says of plugins, put in force: at start together with what the store
//! remembers, and on every reload.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use weir_config::Config;

use crate::limits::MODULE_BYTES_MAX;
use crate::make::{Module, Ready, Recipe};
use crate::module::Digest;
use crate::plugin::Plugin;
use crate::problem::PluginError;
use crate::record::{From, Page};
use crate::registry::Inner;
use crate::routes::KnownRoutes;
use crate::workshop::{Bench, Work};

/// A configuration's plugins, ready to be put in force.
pub struct Prepared {
    inner: Arc<Inner>,
    routes: KnownRoutes,
    changes: Vec<Change>,
    gone: Vec<String>,
}

/// A plugin with a new generation.
struct Change {
    plugin: Arc<Plugin>,
    ready: Ready,
    /// Fingerprint of the block that made it.
    configured: Option<String>,
    /// What the store remembers, if the plugin comes from there.
    stored: Option<Page>,
}

impl Prepared {
    /// Makes what is new, at the bench of the configuration.
    pub(crate) fn new(inner: &Arc<Inner>, config: &Config) -> Result<Prepared, PluginError> {
        check_settings(inner.settings(), &config.plugin_settings)?;
        let bench = inner.workshop().enter(Work::Configuration, &None)?;
        let stored = inner.store().as_ref().map(|store| store.pending().clone());
        let stored = stored.unwrap_or_default();
        // Started with the first plugin that there is.
        if !(config.plugins.is_empty() && stored.is_empty()) {
            inner.machinery()?;
        }
        let mut prepared = Prepared {
            inner: Arc::clone(inner),
            routes: KnownRoutes::of(config),
            changes: Vec::new(),
            gone: Vec::new(),
        };
        bench.run(|| prepared.all(&bench, config, &stored))?;
        Ok(prepared)
    }

    fn all(
        &mut self,
        bench: &Bench,
        config: &Config,
        stored: &BTreeMap<String, Page>,
    ) -> Result<(), PluginError> {
        for block in &config.plugins {
            self.block(bench, block, stored.get(&block.name))?;
        }
        let is_configured = |name: &str| config.plugins.iter().any(|block| block.name == name);
        for (name, page) in stored {
            // What had a block and has none any more is gone.
            if !is_configured(name) && page.configured.is_none() {
                self.restore(bench, name, page, None)?;
            }
        }
        for plugin in self.inner.plugins() {
            let had_block = plugin.book.lock().page.configured.is_some();
            if had_block && !is_configured(plugin.name()) {
                self.gone.push(plugin.name().to_owned());
            }
        }
        let known = self.names();
        self.routes.check_uses(&known)
    }

    /// Those that there will be.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.inner.plugins().iter().map(|p| p.name().to_owned()).collect();
        names.retain(|name| !self.gone.contains(name));
        names.extend(self.changes.iter().map(|change| change.plugin.name().to_owned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    fn block(
        &mut self,
        bench: &Bench,
        block: &weir_config::Plugin,
        stored: Option<&Page>,
    ) -> Result<(), PluginError> {
        let module = read(block)?;
        let fingerprint = fingerprint(block, &module);
        let recipe = Recipe {
            module: Module::Given(module),
            config: block.config.clone(),
            vm_config: block.vm_config.clone(),
            root_id: block.root_id.clone(),
            policy: block.policy.clone(),
            routes: None,
            from: From::Configuration,
        };
        let existing = self.inner.plugin(&block.name);
        let known = existing.as_ref().map(|plugin| plugin.book.lock().page.clone());
        let page = known.as_ref().or(stored);
        if page.is_some_and(|page| page.configured.as_ref() == Some(&fingerprint)) {
            // What was deployed over an unchanged block stays.
            return match stored {
                Some(page) if existing.is_none() => {
                    self.restore(bench, &block.name, page, Some(recipe))
                }
                _ => Ok(()),
            };
        }
        let plugin = existing.unwrap_or_else(|| Plugin::new(&block.name));
        let ready = self.inner.make(bench, &None, &plugin, recipe, None)?;
        let (configured, stored) = (Some(fingerprint), stored.cloned());
        self.changes.push(Change { plugin, ready, configured, stored });
        Ok(())
    }

    /// Brings back what was in force before a restart, as the generation that it was. If that
    /// cannot be, the block makes it anew that made it then; another one is broken, and nothing
    /// else is: the server starts.
    fn restore(
        &mut self,
        bench: &Bench,
        name: &str,
        page: &Page,
        block: Option<Recipe>,
    ) -> Result<(), PluginError> {
        let Some(record) = &page.active else { return Ok(()) };
        let plugin = Plugin::new(name);
        let again =
            self.inner.make(bench, &None, &plugin, Recipe::again(record), Some(record.generation));
        let mut ready = match (again, block) {
            (Ok(ready), _) => ready,
            (Err(cause), _) if !is_of_the_plugin(&cause) => return Err(cause),
            (Err(cause), Some(block)) if record.from == From::Configuration => {
                tracing::warn!(plugin = name, %cause, "made anew from its block");
                self.inner.make(bench, &None, &plugin, block, Some(record.generation))?
            }
            (Err(cause), _) => {
                let generation = record.generation;
                tracing::error!(plugin = name, generation, %cause, "plugin is broken");
                self.inner.make_broken(&plugin, record, &cause)?
            }
        };
        ready.record.deployed_unix_ms = record.deployed_unix_ms;
        let mut stored = page.clone();
        stored.active = None;
        let configured = page.configured.clone();
        self.changes.push(Change { plugin, ready, configured, stored: Some(stored) });
        Ok(())
    }

    /// Puts everything in force. Plugins of a block that changed replace what was deployed over it.
    /// A disk that does not take it keeps no server from starting: what is in force comes from the
    /// configuration, or from the store as it is.
    ///
    /// # Errors
    /// [`PluginError::Machine`].
    pub fn commit(self) -> Result<(), PluginError> {
        let inner = Arc::clone(&self.inner);
        inner.deployer().run(&inner, move |inner| self.commit_here(inner))
    }

    fn commit_here(self, inner: &Arc<Inner>) -> Result<(), PluginError> {
        for change in &self.changes {
            if let Err(cause) = inner.keep(&change.ready) {
                let plugin = change.plugin.name();
                tracing::error!(plugin, %cause, "the module is not kept for a rollback");
            }
        }
        let pages: Vec<Page> = self.changes.iter().map(|change| change.page(inner)).collect();
        let changes = self.changes.iter().zip(&pages);
        let mut written: Vec<(&str, Option<&Page>)> =
            changes.map(|(change, page)| (change.plugin.name(), Some(page))).collect();
        written.extend(self.gone.iter().map(|name| (name.as_str(), None)));
        // What was in force before a restart is by now among the changes, or dropped.
        let pending = inner.store().as_mut().map(|store| store.set_pending(BTreeMap::new()));
        if !written.is_empty() || pending.is_some_and(|pending| !pending.is_empty()) {
            inner.save_or_owe(&written);
        }
        for name in &self.gone {
            if let Some(plugin) = inner.plugin(name) {
                plugin.withdraw();
            }
            inner.forget(name);
            tracing::info!(plugin = name, "plugin removed: its block is gone");
        }
        for (change, page) in self.changes.into_iter().zip(pages) {
            let Change { plugin, ready, .. } = change;
            let generation = ready.record.generation;
            inner.insert(&plugin);
            plugin.end_trial("replaced by the configuration");
            plugin.put(ready.generation, page);
            let name = plugin.name();
            if plugin.active().is_some_and(|active| active.why_broken().is_none()) {
                tracing::info!(plugin = name, generation, "plugin in force");
            }
        }
        inner.know_routes(self.routes);
        inner.warn_of_missing_routes();
        Ok(())
    }
}

impl Change {
    /// What is to be remembered once it is in force.
    fn page(&self, inner: &Inner) -> Page {
        let mut page = match &self.stored {
            Some(stored) => {
                let mut page = stored.clone();
                page.replace(self.ready.record.clone(), None);
                page
            }
            None => inner.page_after(&self.plugin, &self.ready.record),
        };
        page.configured = self.configured.clone();
        page
    }
}

/// Looks at what a configuration says of plugins as far as that takes no compiler, no thread and no
/// store: so early in a start that nothing has to be taken back.
///
/// # Errors
/// The first module that cannot be read or is no plugin's; a `use` of a plugin that cannot exist.
pub fn inspect(config: &Config) -> Result<(), PluginError> {
    for block in &config.plugins {
        let wrong = |source| PluginError::Module { name: block.name.clone(), source };
        crate::module::inspect(&read(block)?).map_err(wrong)?;
    }
    match config.plugin_settings.store {
        // It may have what has no block.
        Some(_) => Ok(()),
        None => {
            let names: Vec<String> = config.plugins.iter().map(|b| b.name.clone()).collect();
            KnownRoutes::of(config).check_uses(&names)
        }
    }
}

/// Whether only this plugin is wrong, rather than what all run on.
fn is_of_the_plugin(cause: &PluginError) -> bool {
    matches!(
        cause,
        PluginError::Module { .. } | PluginError::Start { .. } | PluginError::Store { .. }
    )
}

fn read(block: &weir_config::Plugin) -> Result<Bytes, PluginError> {
    let mut module = Vec::new();
    // One byte more than the limit, so that the check of the module sees that it is passed.
    fs::File::open(&block.source)
        .and_then(|file| file.take(MODULE_BYTES_MAX as u64 + 1).read_to_end(&mut module))
        .map_err(|source| PluginError::Read {
            name: block.name.clone(),
            path: block.source.clone(),
            source,
        })?;
    Ok(module.into())
}

/// Whatever a block decides, the module's content included.
fn fingerprint(block: &weir_config::Plugin, module: &[u8]) -> String {
    let all = (
        Digest::of(module).to_string(),
        &block.config,
        &block.vm_config,
        &block.root_id,
        // Debug shows every value of the policy.
        format!("{:?}", block.policy),
    );
    Digest::of(format!("{all:?}").as_bytes()).to_string()
}

fn check_settings(
    old: &weir_config::Plugins,
    new: &weir_config::Plugins,
) -> Result<(), PluginError> {
    let checks = [
        ("plugins store", old.store == new.store),
        ("plugins long-threads", old.long_threads == new.long_threads),
    ];
    match checks.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(PluginError::NeedsRestart { what }),
        None => Ok(()),
    }
}
