//! Installs what is missing, when asked to.

use std::process::Command;

use crate::error::{Doing, Error, Result};

/// Installs a Debian package without starting the service it brings, as far as Debian can be asked:
/// the lab runs peers itself.
///
/// # Errors
/// When `apt-get` is missing or fails.
pub fn package(name: &'static str) -> Result<()> {
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends", name])
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Understood by invoke-rc.d: install, but start nothing.
        .env("RUNLEVEL", "1")
        .status()
        .doing(|| "starting apt-get".to_owned())?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Usage(format!("`apt-get install {name}` ended with {status}; is this run as root?")))
}
