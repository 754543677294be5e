//! Why a plugin could not be deployed, rolled back, removed or configured.

use std::io;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::module::ModuleError;

/// What is wrong with a change of the plugins. Everything stays as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Not a name.
    #[error(
        "{name:?} is no name of a plugin: expected 1 to 64 letters, digits, \"-\", \"_\" and \
         \".\", the first of them a letter or a digit"
    )]
    Name {
        /// As it was given.
        name: String,
    },
    /// No plugin is called so.
    #[error("no plugin is called {name:?}; there {}", list("are", known))]
    Unknown {
        /// As it was given.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The module is no plugin.
    #[error("plugin {name:?}: {source}")]
    Module {
        /// The plugin.
        name: String,
        /// What is wrong with it.
        source: ModuleError,
    },
    /// The plugin did not start, or refused its configuration.
    #[error("plugin {name:?} does not start: {source}")]
    Start {
        /// The plugin.
        name: String,
        /// What it failed of.
        source: Failure,
    },
    /// A file of the configuration cannot be read.
    #[error("plugin {name:?}: cannot read its module {}: {source}", path.display())]
    Read {
        /// The plugin.
        name: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A route that was named does not exist.
    #[error("no route is {wanted:?}; the routes {}", list("are", known))]
    NoRoute {
        /// As it was named.
        wanted: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// An upstream that a plugin is to be allowed to call does not exist.
    #[error("no upstream is called {wanted:?}; the upstreams {}", list("are", known))]
    NoUpstream {
        /// As it was named.
        wanted: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A route of the configuration uses a plugin that does not exist.
    #[error(
        "route {route:?} uses the plugin {name:?}, which is neither in the configuration nor \
         deployed; the plugins {}",
        list("are", known)
    )]
    UnknownUse {
        /// The route, with its site.
        route: String,
        /// The plugin.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// There is no earlier deployment.
    #[error("plugin {name:?} has no earlier deployment to go back to")]
    NothingBefore {
        /// The plugin.
        name: String,
    },
    /// It cannot be removed while the configuration names it.
    #[error(
        "plugin {name:?} is part of the configuration ({place}): take it out there, and reload"
    )]
    Configured {
        /// The plugin.
        name: String,
        /// Where.
        place: String,
    },
    /// A value of a deployment is out of its range.
    #[error("{what} must be {expected}, not {given}")]
    Value {
        /// Which.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// As it was given.
        given: String,
    },
    /// More plugins than there may be.
    #[error("there are {limit} plugins already, which is the most; remove one first")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// More deployments wait than may.
    #[error("{limit} deployments are waiting already, which is the most; try again later")]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// Whoever asked for a deployment is gone, so nothing comes of it.
    #[error("dropped: whoever asked for it is gone")]
    Abandoned,
    /// It was taken back while another deployment of it was being made.
    #[error(
        "plugin {name:?} was rolled back, removed or configured anew while this was being made; \
         deploy it again if it is still wanted"
    )]
    Overtaken {
        /// The plugin.
        name: String,
    },
    /// What was decided at start cannot be decided again.
    #[error("{what} cannot change while the server runs: restart it")]
    NeedsRestart {
        /// Which setting.
        what: &'static str,
    },
    /// The store cannot be used.
    #[error("the store of plugins {}: {cause}", path.display())]
    Store {
        /// Its directory, or the file in it.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// wasmtime or the system does not give what plugins run on.
    #[error("plugins cannot run: {cause}")]
    Machine {
        /// Why.
        cause: String,
    },
}

fn list(verb: &str, names: &[String]) -> String {
    /// Names in one message.
    const NAMES_MAX: usize = 20;
    match names {
        [] => format!("{verb} none"),
        _ if names.len() > NAMES_MAX => {
            format!("{verb} {} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX)
        }
        _ => format!("{verb} {}", names.join(", ")),
    }
}
