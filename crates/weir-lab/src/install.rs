//! Installs what is missing, when asked to.

use std::path::{Path, PathBuf};
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

/// Installs a Python package into an environment of its own within the user's cache folder.
///
/// # Errors
/// When there is no Python 3 with its venv module, or pip fails.
pub fn python_package(name: &'static str) -> Result<()> {
    let environment = python_environment(name);
    let run = |command: &mut Command, what: &str| {
        let status = command.status().doing(|| format!("starting {what}"))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Usage(format!("{what} ended with {status}"))),
        }
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment), "python3 -m venv")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    run(pip.args(["install", "--quiet", name]), &format!("pip install {name}"))
}

/// The program that an installed package ships: `_bin/PROGRAM` in one of its modules. The script of
/// that name in the environment would only start it by way of Python.
#[must_use]
pub fn python_program(package: &str, program: &str) -> Option<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let list = std::fs::read_dir(folder).into_iter().flatten().flatten();
        list.map(|entry| entry.path()).collect()
    };
    let versions = entries(&python_environment(package).join("lib"));
    let modules = versions.iter().flat_map(|version| entries(&version.join("site-packages")));
    modules.map(|module| module.join("_bin").join(program)).find(|program| program.is_file())
}

fn python_environment(package: &str) -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    cache.unwrap_or_else(std::env::temp_dir).join("weir-lab").join(package)
}
