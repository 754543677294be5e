//! Why a server cannot start, or a new configuration cannot be taken.

use std::io;
use std::path::PathBuf;

use weir_config::Address;

/// An error at start or reload. Requests meet none of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A listening address cannot be bound.
    #[error("cannot listen on {address}: {}", explain_bind(.address, .source))]
    Bind {
        /// The address.
        address: Address,
        /// The system's answer.
        source: io::Error,
    },
    /// A files root cannot be opened.
    #[error(transparent)]
    Files(#[from] weir_origin::files::FilesError),
    /// An upstream group cannot be set up.
    #[error("upstream {name:?}: {source}")]
    Upstream {
        /// The group.
        name: String,
        /// What is wrong with it.
        source: weir_origin::error::OriginError,
    },
    /// A route names a group that does not exist. The configuration's validation says it better.
    #[error("no upstream is called {name:?}")]
    UnknownUpstream {
        /// The name.
        name: String,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] weir_net::NetError),
    /// An access log cannot be opened.
    #[error("cannot open access log {}: {source}", path.display())]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A header or status that passed the configuration's validation but not HTTP's.
    #[error("{text:?} cannot stand in a response head")]
    Header {
        /// The text.
        text: String,
    },
    /// The file of a forward proxy's users cannot be used.
    #[error("users {}: {what}", path.display())]
    Users {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        what: String,
    },
    /// A list of ads and trackers cannot be read.
    #[error("list of ads {0}")]
    Ads(#[from] weir_adapt::ads::ListError),
    /// The control group of helpers cannot be used.
    #[error("adapt: {0}")]
    Cgroup(#[from] weir_adapt::cgroup::CgroupError),
    /// The key of a route's pictures cannot be read.
    #[error("key of pictures {path}: {cause}", path = path.display())]
    ImageKey {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The cache's memory cannot be set up.
    #[error(transparent)]
    Arena(#[from] weir_arena::ArenaError),
    /// A plugin cannot be started.
    #[error(transparent)]
    Plugin(#[from] weir_plugin::PluginError),
    /// A thread or its event loop cannot be started.
    #[error("cannot start {what}: {source}")]
    Thread {
        /// What was to run there.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The user to run as does not exist, or the change is not permitted.
    #[error("cannot run as {user}: {cause}")]
    Privileges {
        /// The user or group.
        user: String,
        /// What stands in the way.
        cause: String,
    },
    /// A change that needs a restart.
    #[error("{what} cannot change while the server runs: restart it")]
    NeedsRestart {
        /// The setting.
        what: &'static str,
    },
}

fn explain_bind(address: &Address, error: &io::Error) -> String {
    let is_unix = matches!(address, Address::Unix(_));
    match error.kind() {
        io::ErrorKind::AddrInUse if is_unix => {
            "a server listens there (ss -lxp shows which)".to_owned()
        }
        io::ErrorKind::AlreadyExists => "the path exists and is not a socket".to_owned(),
        io::ErrorKind::NotFound => "the directory does not exist".to_owned(),
        io::ErrorKind::PermissionDenied if is_unix => {
            "permission denied; the server must be able to write to the directory".to_owned()
        }
        io::ErrorKind::AddrInUse => {
            "the address is in use; is another server running? (ss -ltnp shows which)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; ports below 1024 need root or CAP_NET_BIND_SERVICE".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "the address does not belong to this machine".to_owned(),
        _ => error.to_string(),
    }
}
