//! The routes of the configuration, as far as plugins are concerned: which there are, and which
//! plugins they use.

use weir_config::{At, Config, Names, Site, Use};

use crate::deploy::Deployment;
use crate::problem::PluginError;
use crate::record::{Attachment, From, Record, at_name, pattern_text};

/// The routes of the configuration in force, and the upstreams that plugins may call.
#[derive(Clone, Default)]
pub(crate) struct KnownRoutes {
    routes: Vec<KnownRoute>,
    upstreams: Vec<String>,
}

#[derive(Clone)]
struct KnownRoute {
    site_names: Vec<String>,
    /// Empty for the site itself, whose connections plugins may see.
    pattern: String,
    uses: Vec<Use>,
}

impl KnownRoute {
    /// The site itself, if plugins see its connections.
    fn of_connections(site: &Site) -> Option<KnownRoute> {
        let used = |plugin: &String| Use { plugin: plugin.clone(), at: At::Delivery };
        let uses: Vec<Use> = site.plugins.iter().map(used).collect();
        let (site_names, pattern) = (site.names.clone(), String::new());
        (!uses.is_empty()).then_some(KnownRoute { site_names, pattern, uses })
    }

    /// For people.
    fn name(&self) -> String {
        format!("{}{}", self.site_names.first().map_or("", String::as_str), self.pattern)
    }
}

impl KnownRoutes {
    pub(crate) fn of(config: &Config) -> KnownRoutes {
        let routes = config.sites.iter().flat_map(|site| {
            let routes = site.routes.iter().map(|route| KnownRoute {
                site_names: site.names.clone(),
                pattern: pattern_text(&route.pattern),
                uses: route.plugins.clone(),
            });
            routes.chain(KnownRoute::of_connections(site))
        });
        let upstreams = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        KnownRoutes { routes: routes.collect(), upstreams }
    }

    /// Checks that the upstreams exist that a deployment names to be called. Those that it has from
    /// before may be gone by now: they do not exist for the plugin either.
    ///
    /// # Errors
    /// [`PluginError::NoUpstream`] with those that do.
    pub(crate) fn check_upstreams(&self, wanted: &Deployment) -> Result<(), PluginError> {
        let whole = wanted.policy.as_ref().map(|policy| &policy.allow.upstreams);
        let whole = whole.and_then(|names| match names {
            Names::All => None,
            Names::These(names) => Some(names),
        });
        let named = wanted.edits.allow_upstreams.iter().chain(whole).flatten();
        let is_there = |name: &str| name == "*" || self.upstreams.iter().any(|it| it == name);
        match named.into_iter().find(|name| !is_there(name)) {
            None => Ok(()),
            Some(name) => {
                let (wanted, known) = (name.clone(), self.upstreams.clone());
                Err(PluginError::NoUpstream { wanted, known })
            }
        }
    }

    /// The routes that a deployment brings with it and that there are none of, for people: the
    /// configuration had them once.
    pub(crate) fn missing(&self, plugin: &str, record: &Record) -> Vec<String> {
        let brought = self.brought_by(plugin, record);
        let gone = brought.iter().filter(|wanted| !self.has(wanted));
        gone.map(ToString::to_string).collect()
    }

    fn has(&self, wanted: &Attachment) -> bool {
        self.routes.iter().any(|route| wanted.covers_text(&route.site_names, &route.pattern))
    }

    /// Checks that a route that was named exists.
    ///
    /// # Errors
    /// [`PluginError::NoRoute`] with those that do.
    pub(crate) fn check(&self, wanted: &Attachment) -> Result<(), PluginError> {
        match self.has(wanted) {
            true => Ok(()),
            false => Err(PluginError::NoRoute {
                wanted: wanted.to_string(),
                known: self
                    .routes
                    .iter()
                    .filter(|route| !route.pattern.is_empty())
                    .map(KnownRoute::name)
                    .collect(),
            }),
        }
    }

    /// Checks that every plugin that a route uses exists.
    ///
    /// # Errors
    /// [`PluginError::UnknownUse`].
    pub(crate) fn check_uses(&self, plugins: &[String]) -> Result<(), PluginError> {
        for route in &self.routes {
            let unknown = route.uses.iter().find(|wanted| !plugins.contains(&wanted.plugin));
            if let Some(unknown) = unknown {
                return Err(PluginError::UnknownUse {
                    route: route.name(),
                    name: unknown.plugin.clone(),
                    known: plugins.to_vec(),
                });
            }
        }
        Ok(())
    }

    /// A route of the configuration that uses the plugin.
    pub(crate) fn user_of(&self, plugin: &str) -> Option<String> {
        let uses = |route: &&KnownRoute| route.uses.iter().any(|wanted| wanted.plugin == plugin);
        self.routes.iter().find(uses).map(KnownRoute::name)
    }

    /// The routes that a deployment brings with it, beside those that use it.
    pub(crate) fn brought_by(&self, plugin: &str, record: &Record) -> Vec<Attachment> {
        match (&record.routes, record.from) {
            (Some(named), _) => named.clone(),
            (None, From::Deployment) if self.user_of(plugin).is_none() => {
                vec![Attachment::default()]
            }
            (None, _) => Vec::new(),
        }
    }

    /// Where a deployment runs, for people.
    pub(crate) fn places(&self, plugin: &str, record: &Record) -> Vec<String> {
        let used = self.routes.iter().flat_map(|route| {
            let uses = route.uses.iter().filter(|wanted| wanted.plugin == plugin);
            uses.map(|wanted| place(&route.name(), wanted.at))
        });
        let brought = self.brought_by(plugin, record);
        let brought = brought.iter().map(|route| {
            let gone = if self.has(route) { "" } else { " (no such route)" };
            place(&route.to_string(), route.at) + gone
        });
        let mut places: Vec<String> = used.chain(brought).collect();
        places.dedup();
        places
    }
}

fn place(route: &str, at: weir_config::At) -> String {
    match at {
        weir_config::At::Delivery => route.to_owned(),
        weir_config::At::Fill => format!("{route} (at {})", at_name(at)),
    }
}
