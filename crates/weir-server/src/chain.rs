//! A route's plugins, in order, as requests find them. Rebuilt and swapped whole when a plugin is
//! deployed; a request keeps the generations that it began with.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_config::{At, Pattern, Use};
use weir_plugin::{Attachment, Plugin, Plugins};

/// Parts of the cache that plugins may make of a route's. Beyond it, what they would keep apart is
/// not stored at all.
const VARIANTS_MAX: usize = 4096;

/// A route's plugins.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) links: Box<[Link]>,
}

/// A plugin in its place.
pub(crate) struct Link {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) at: At,
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
            .filter_map(|(name, at)| Some(Link { plugin: plugins.plugin(name)?, at }));
        Chain { links: links.collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

/// A pattern as configuration writes it.
pub(crate) fn text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Exact(path) => path.clone(),
        Pattern::Prefix(prefix) => format!("{prefix}*"),
    }
}

/// The parts of the cache that plugins have made of a route's: under keys of their own, or of what
/// they have changed. Remembered, so that a purge finds them.
#[derive(Default)]
pub(crate) struct Variants(Mutex<HashSet<u64>>);

impl Variants {
    /// Whether there is such a part, or room for it.
    pub(crate) fn admit(&self, variant: u64) -> bool {
        let mut known = self.0.lock();
        known.contains(&variant) || (known.len() < VARIANTS_MAX && known.insert(variant))
    }

    /// All of them, and the part that no plugin has made.
    pub(crate) fn all(&self) -> Vec<u64> {
        std::iter::once(0).chain(self.0.lock().iter().copied()).collect()
    }
}
