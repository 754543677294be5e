//! Other people's tools, where they are installed. A test whose tool is missing says so and passes;
//! `.ci/run` installs them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Finds a program in the path or among what Go installed; says that the test is skipped if it is
/// nowhere.
pub fn find_or_skip(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(go_folder())
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file());
    if found.is_none() {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

fn go_folder() -> Option<PathBuf> {
    let mut go = Command::new("go");
    let output = go.args(["env", "GOPATH"]).stderr(Stdio::null()).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let first = std::env::split_paths(folder.trim()).next()?;
    Some(first.join("bin"))
}
