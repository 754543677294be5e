//! The control group of helpers, as operators see it: opened at the start, while the server may
//! still be root, and told of in the log and the status. Without it helpers work as well.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use weir_adapt::cgroup::{Bounds, Cgroup};
use weir_config as config;

/// The group that the configuration names.
pub(super) struct Group {
    path: PathBuf,
    /// Or why it cannot be used.
    opened: Result<Arc<Cgroup>, String>,
}

/// What has become of it.
#[derive(Debug, Serialize)]
pub(crate) struct GroupStatus {
    path: PathBuf,
    holds: Vec<String>,
    pub(crate) outside: u64,
    error: Option<String>,
}

impl Group {
    /// Opens the group of so many helpers, if there is one. `stored_bytes` is what may be stored at
    /// a time: all of it may have been made there.
    pub(super) fn open(
        settings: &config::Adapt,
        helpers: usize,
        stored_bytes: u64,
    ) -> Option<Group> {
        let path = settings.cgroup.clone().filter(|_| helpers > 0)?;
        let each = settings.memory.saturating_add(settings.output);
        let bounds = Bounds {
            memory_bytes: each.saturating_mul(helpers as u64).saturating_add(stored_bytes),
            processes: helpers,
            is_idle: settings.priority == config::AdaptPriority::Idle,
        };
        let opened = Cgroup::open(&path, &bounds);
        match &opened {
            Ok(cgroup) => {
                let holds = match cgroup.holds() {
                    [] => "no controllers".to_owned(),
                    holds => holds.join(" "),
                };
                tracing::info!(path = %path.display(), holds, "helpers have a cgroup of their own");
            }
            Err(cause) => tracing::warn!("helpers stay in the server's cgroup: {cause}"),
        }
        let opened = opened.map(Arc::new).map_err(|cause| cause.why);
        Some(Group { path, opened })
    }

    /// What helpers are put in.
    pub(super) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.opened.as_ref().ok().cloned()
    }

    pub(super) fn status(&self) -> GroupStatus {
        let cgroup = self.opened.as_deref();
        GroupStatus {
            path: self.path.clone(),
            holds: cgroup.map(|cgroup| cgroup.holds().to_vec()).unwrap_or_default(),
            outside: cgroup.map_or(0, Cgroup::outside),
            error: cgroup.err().cloned(),
        }
    }
}
