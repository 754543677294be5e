//! A route's plugins, in order, as requests find them. Rebuilt and swapped whole when a plugin is
//! deployed; a request keeps the generations that it began with.

use std::sync::Arc;

use weir_config::{At, Pattern, Use};
use weir_plugin::{Attachment, Generation, Plugin, Plugins};

use crate::adapt::declared::{Cost, Declaration, Declares, Stage};

/// A route's plugins.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) links: Box<[Link]>,
}

/// A plugin in its place.
pub(crate) struct Link {
    plugin: Arc<Plugin>,
    pub(crate) at: At,
    /// The generation for all requests, unless a canary is on trial.
    only: Option<Arc<Generation>>,
}

impl Link {
    fn new(plugin: Arc<Plugin>, at: At) -> Link {
        let only = plugin.active().filter(|_| plugin.canary().is_none());
        Link { plugin, at, only }
    }

    /// The generation for a request.
    #[inline]
    pub(crate) fn pick(&self) -> Option<Arc<Generation>> {
        self.only.clone().or_else(|| self.plugin.pick())
    }

    /// The same, without a share in it, if it is the same for all requests.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Arc<Generation>> {
        self.only.as_ref()
    }
}

impl Declares for Link {
    fn declaration(&self) -> Option<Declaration> {
        let generation = self.only.clone().or_else(|| self.plugin.active())?;
        let hooks = generation.hooks();
        let stage = match self.at {
            At::Fill => Stage::Fill,
            At::Delivery => Stage::Delivery,
        };
        // A part of the cache may be named before it is asked.
        let key = hooks.looks_up().then(|| "what it names".to_owned());
        hooks.sees_responses().then(|| Declaration {
            name: self.plugin.name().to_owned().into(),
            stage,
            takes: Vec::new(),
            key: key.into_iter().collect(),
            cost: Cost::Worker { mean_ns: generation.stats().request_mean_ns() },
            streams: true,
        })
    }
}

impl Chain {
    /// The plugins that a route uses by its configuration, then those attached to it since.
    pub(crate) fn new(
        plugins: &Plugins,
        uses: &[Use],
        names: &[String],
        pattern: &Pattern,
        attachments: &[(String, Attachment)],
    ) -> Chain {
        let configured = uses.iter().map(|used| (used.plugin.as_str(), used.at));
        let attached = attachments
            .iter()
            .filter(|(name, attachment)| {
                let is_used = uses.iter().any(|used| used.plugin == *name);
                !is_used && attachment.covers(names, pattern)
            })
            .map(|(name, attachment)| (name.as_str(), attachment.at));
        let links = configured
            .chain(attached)
            .filter_map(|(name, at)| Some(Link::new(plugins.plugin(name)?, at)));
        Chain { links: links.collect() }
    }

    /// The plugins that see the connections to a listener.
    pub(crate) fn of_connections(plugins: &Plugins, names: &[String]) -> Chain {
        let known = names.iter().filter_map(|name| plugins.plugin(name));
        Chain { links: known.map(|plugin| Link::new(plugin, At::Delivery)).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}
