//! The routes of the configuration, as far as plugins are concerned: which there are, and which
//! plugins they use.

use weir_config::{At, Config, Site, Use};

use crate::problem::PluginError;
use crate::record::{Attachment, From, Record, at_name, pattern_text};

/// The routes of the configuration in force.
#[derive(Clone, Default)]
pub(crate) struct KnownRoutes(Vec<KnownRoute>);

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
        KnownRoutes(routes.collect())
    }

    /// Checks that a route that was named exists.
    ///
    /// # Errors
    /// [`PluginError::NoRoute`] with those that do.
    pub(crate) fn check(&self, wanted: &Attachment) -> Result<(), PluginError> {
        match self.0.iter().any(|route| wanted.covers_text(&route.site_names, &route.pattern)) {
            true => Ok(()),
            false => Err(PluginError::NoRoute {
                wanted: wanted.to_string(),
                known: self
                    .0
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
        for route in &self.0 {
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
        self.0.iter().find(uses).map(KnownRoute::name)
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
        let used = self.0.iter().flat_map(|route| {
            let uses = route.uses.iter().filter(|wanted| wanted.plugin == plugin);
            uses.map(|wanted| place(&route.name(), wanted.at))
        });
        let brought = self.brought_by(plugin, record);
        let mut places: Vec<String> =
            used.chain(brought.iter().map(|route| place(&route.to_string(), route.at))).collect();
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
